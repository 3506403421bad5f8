"""What API servers hold in memory, and what was saved of it, as copies: stand-ins over a real etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.copies.memory import Memory
from etcdfix.copies.model import Copy, Freshness, Place, Wanted, Way
from etcdfix.copies.object import Rescued
from etcdfix.copies.rank import alike, ranked
from etcdfix.copies.rescued import read_index
from etcdfix.copies.revisions import life_of
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.one import Examiner
from etcdfix.model.model import ClusterIdentity, digest_of
from etcdfix.model.storagekey import StorageLayout
from tests.support.decoders import shared_decoder
from tests.support.healing import NEW, LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd


@contextmanager
def looking(cluster: LostKeyCluster, name: str = "one") -> Iterator[tuple[Wanted, Examiner]]:
    with cluster.source() as source:
        transformers = Transformers.from_configuration(parse_configuration(NEW, path="new"), no_plugin)
        examiner = Examiner(StorageLayout(cluster.prefix), transformers, shared_decoder())
        stored = cluster.stored_value(cluster.key(f"shop/{name}"))
        found = examiner.examine(stored)
        yield Wanted.of(found, life_of(source, examiner, stored.key, stored)), examiner


def of_memory(cluster: LostKeyCluster, wanted: Wanted, uid: str | None = None) -> list[Copy]:
    identity = ClusterIdentity.by_uid(cluster.p1.uid if uid is None else uid)
    with Memory(APIAccess(cluster.kubeconfig), identity) as memory:
        copies = ranked(memory.find(wanted), wanted)
        assert memory.looked
        assert bool(memory.problems) is (uid == "other")
        return copies


def test_what_is_being_deleted(lose_key: LoseKey) -> None:
    with lose_key() as cluster:
        cluster.p1.create("v1", "ConfigMap", "kept", "shop", metadata={"finalizers": ["x/y"]})
        with looking(cluster) as (wanted, _examiner):
            memory = cluster.p1.process.caches[wanted.resource].memory
            memory[wanted.key].value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            (copy,) = of_memory(cluster, wanted)
            assert "deletionTimestamp" in copy.doubt


def test_what_was_saved_counts_where_the_log_has_its_digest(lose_key: LoseKey) -> None:
    with lose_key() as cluster:
        cluster.rescue("one")
        index = read_index(cluster.saved)
        file = cluster.saved / index.objects[0].file
        recorded = frozenset({digest_of(file.read_bytes())})
        identity = ClusterIdentity.by_uid(cluster.p1.uid)
        with looking(cluster) as (wanted, examiner):

            def found(digests: frozenset[str], of: ClusterIdentity = identity) -> list[Copy]:
                finder = Rescued(cluster.saved, examiner, of, digests)
                copies = ranked(finder.find(wanted), wanted)
                assert finder.looked[0].searched
                assert bool(copies) is not bool(finder.problems)
                return copies

            (copy,) = found(recorded)
            assert (copy.place, copy.way, copy.source) == (Place.OBJECT, Way.SEAL, f"object:{file}")
            assert (copy.reads, copy.freshness, copy.doubt) == (True, Freshness.CURRENT, "")
            (held,) = of_memory(cluster, wanted)
            assert not alike(copy, held)
            assert of_memory(cluster, wanted, "other") == []
            assert "digest" in found(frozenset())[0].doubt
            assert "of this cluster" in found(recorded, ClusterIdentity.by_uid("other"))[0].doubt
            file.write_bytes(file.read_bytes().replace(b"one", b"two"))
            assert found(recorded) == []
        assert not Rescued(file, examiner, identity, recorded).looked[0].searched
