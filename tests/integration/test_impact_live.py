"""Impact analysis of a live etcd: the cases of KEP-2639, a namespace that hangs, a lost owner with a history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from etcdfix.graph.assess import assess
from etcdfix.graph.index import ImpactIndex
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer
from tests.support.impact_objects import BROKEN, Cluster

pytestmark = pytest.mark.etcd


@contextmanager
def live(etcd: EtcdServer, cluster: Cluster) -> Iterator[tuple[LiveSource, ImpactIndex]]:
    etcd.put_all(cluster.pairs())
    with LiveSource(EtcdConnection(endpoints=(etcd.endpoint,))) as source:
        yield source, cluster.index(source)


def test_a_compaction_after_the_pass_moves_nothing(etcd: EtcdServer, prefix: bytes) -> None:
    """The report rests on what was read in the pass; that one object is looked up afterwards changes nothing of it."""
    cluster = Cluster(prefix.decode())
    key = cluster.secret("lost")
    with live(etcd, cluster) as (source, index):
        before, examiner = source.describe(), cluster.examiner(source)
        etcd.put(prefix + b"/elsewhere", b"1")
        etcd.compact()
        found = assess(index, source, examiner, key.encode())
        assert source.describe() == before
    assert found is not None
    assert found.last_known.basis == "current"


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_written_after_the_pass_is_not_what_the_object_was(
    etcd: EtcdServer, prefix: bytes, compacted: bool
) -> None:
    """Another state than the one that the report is of, under the same key."""
    cluster = Cluster(prefix.decode())
    key = cluster.secret("lost")
    whole, cluster.values[key] = cluster.values[key], BROKEN
    with live(etcd, cluster) as (source, index):
        examiner = cluster.examiner(source)
        etcd.put(key.encode(), whole)
        if compacted:
            etcd.compact()
        found = assess(index, source, examiner, key.encode())
    assert found is not None
    assert (found.readable, found.last_known.basis, found.last_known.uid) == (False, "none", "")
    changed = f"{key} was changed after everything was read, and etcd compacted what it was"
    assert tuple(index.problems) == ((changed,) if compacted else ())
