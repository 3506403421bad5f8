"""``etcdfix copies --kubeconfig`` and ``--rescued``: what API servers remember, against stand-ins over a real etcd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.change_runs import Ran
from tests.support.healing import LoseKey, LostKeyCluster

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        cluster.p1.requests.clear()
        yield cluster


def looked(cluster: LostKeyCluster, *words: str, kubeconfig: bool = True) -> Ran:
    asked = ["--kubeconfig", str(cluster.kubeconfig)] if kubeconfig else []
    ran = cluster.run("copies", *words, *asked, *cluster.common(reason=None))
    cluster.shows_nothing(ran)
    assert {request.method for request in cluster.p1.requests} <= {"GET", "POST"}
    assert cluster.p1.methods <= {"GET"}
    return ran


def copies(cluster: LostKeyCluster, *words: str, **options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(looked(cluster, *words, "-o", "json", **options).out)
    return document


def test_what_a_server_remembers_is_the_best_copy(cluster: LostKeyCluster) -> None:
    key = cluster.key("shop/one").decode()
    cluster.rescue("one")
    with cluster.unwritten():
        (one,) = copies(cluster, key, "--rescued", str(cluster.saved))["objects"]
    best, saved = one["copies"]
    assert (best["place"], best["grade"], best["later_writes"]) == ("memory", "good", 0)
    assert best["mod_revision"] == saved["mod_revision"] == one["mod_revision"]
    assert best["fix"].startswith(f"etcdfix fix {key} --from memory ")
    assert best["save"].startswith("etcdfix rescue secrets ")
    assert f" --rescued {cluster.saved} " in best["fix"]
    assert one["next"]["verb"] == "rescue"  # the whole kind is saved before one is written
    assert "audit log does not have its digest" in saved["doubt"]


def test_no_server_answers(cluster: LostKeyCluster) -> None:
    cluster.p1.stop()
    ran = looked(cluster, cluster.key("shop/one").decode())
    assert ran.code == 3
    assert "Traceback" not in ran.err
    assert "API server" in ran.err
