"""A lost key, from beginning to end: saved from an API server's memory, which is restarted; put back; served again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.copies.rescued import read_index
from tests.support.apiserver.https import TOKEN
from tests.support.apiserver.requests import Request
from tests.support.change_runs import Ran
from tests.support.healing import LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd

LOST = ("--declare-key-lost", "aescbc/v1/key1")


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        cluster.rescue()
        yield cluster


def files(cluster: LostKeyCluster) -> dict[bytes, Path]:
    return {saved.key: cluster.saved / saved.file for saved in read_index(cluster.saved).objects}


def from_file(cluster: LostKeyCluster, key: bytes, file: Path, *arguments: str) -> Ran:
    asked = ("--kubeconfig", str(cluster.kubeconfig), "--accept", "unknown-uid")
    ran = cluster.put_back(key, f"object:{file}", *asked, *arguments)
    cluster.shows_nothing(ran)
    return ran


def test_what_was_rescued_is_served_again(cluster: LostKeyCluster) -> None:
    by_key = files(cluster)
    assert set(by_key) == set(cluster.keys)
    cluster.p1.restart()
    one, two = by_key
    with cluster.untouched():
        ran = from_file(cluster, one, by_key[two], *LOST)
        cluster.refused(ran, 'its name is "two"', hint="this very object")
        ran = from_file(cluster, one, by_key[one])
        cluster.refused(
            ran, "the configuration alone can cure this", hint="--declare-key-lost aescbc/v1/key1"
        )
        ran = from_file(cluster, one, by_key[one], *LOST)
        cluster.refused(
            ran, "nothing shows that the API servers hold the key of aescbc/v1/key2", hint="create a new one"
        )
    cluster.p1.create("v1", "Secret", "etcdfix-write-key", "shop")
    for key, file in by_key.items():
        ran = from_file(cluster, key, file, *LOST)
        assert ran.code == 0, ran.err
    assert cluster.p1.methods <= {"GET", "POST"}  # reviews of what oneself may do are posted
    cluster.p1.restart()
    for key, file in by_key.items():
        saved = json.loads(file.read_bytes())
        path = f"/api/v1/namespaces/shop/secrets/{saved['metadata']['name']}"
        now = json.loads(cluster.p1.answer(Request("GET", path, authorization=f"Bearer {TOKEN}")).body)
        assert now["metadata"].pop("resourceVersion") == str(cluster.mod_revision(key))
        del saved["metadata"]["resourceVersion"]
        assert now == saved


def test_what_was_rescued_never_stands_in_for_what_is_named(cluster: LostKeyCluster) -> None:
    (one, whole), (_, other) = files(cluster).items()
    assert whole.exists()
    cluster.p1.restart()
    cluster.p1.create("v1", "Secret", "etcdfix-write-key", "shop")
    asked = (
        "--kubeconfig", str(cluster.kubeconfig), "--rescued", str(cluster.saved), "--accept", "unknown-uid",
    )  # fmt: skip
    with cluster.untouched():
        for named in (f"object:{other}", "bit"):
            assert cluster.put_back(one, named, *asked, *LOST).code != 0
