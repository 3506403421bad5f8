"""``etcdfix copies --kubeconfig`` and ``--rescued``: what API servers remember, against stand-ins over a real etcd."""

from __future__ import annotations

import json
import shlex
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
    with cluster.unwritten():
        told = copies(cluster, cluster.key("shop/one").decode())
    (one,) = told["objects"]
    best = one["copies"][0]
    assert (best["place"], best["grade"], best["later_writes"]) == ("memory", "good", 0)
    assert best["mod_revision"] == one["mod_revision"]
    assert best["fix"].startswith("etcdfix fix ")
    assert best["save"].startswith("etcdfix rescue ")
    assert one["next"]["command"] == best["fix"]
    accepted = [request.accept for request in cluster.p1.requests if "/secrets/" in request.path]
    assert accepted
    assert all("PartialObjectMetadata" in accept for accept in accepted)


def test_the_commands_run_as_they_are_pasted(cluster: LostKeyCluster) -> None:
    (one,) = copies(cluster, cluster.key("shop/one").decode())["objects"]
    best = one["copies"][0]
    cluster.rescue("two")  # heal wants everything of the kind
    save = shlex.split(best["save"].replace("--save-dir DIR", f"--save-dir {cluster.saved}"))
    assert cluster.run(*save[1:], "--audit-log", str(cluster.log)).code == 0
    heal = shlex.split(best["fix"].replace("--saved DIR", f"--saved {cluster.saved}"))
    places = ["--backup-dir", str(cluster.backups), "--audit-log", str(cluster.log)]
    ran = cluster.run(*heal[1:], *places)
    assert ran.code == 0, ran.err
    (one,) = copies(cluster, cluster.key("shop/one").decode(), "--rescued", str(cluster.saved))["objects"]
    rescued = next(copy for copy in one["copies"] if copy["place"] == "object")
    assert (rescued["grade"], rescued["later_writes"], rescued["uid_fits"]) == ("good", 0, "same")
    assert "--from-object" in rescued["fix"]


def test_a_rescued_file_that_was_changed(cluster: LostKeyCluster) -> None:
    cluster.rescue("one")
    key = cluster.key("shop/one").decode()
    (one,) = copies(cluster, key, "--rescued", str(cluster.saved), kubeconfig=False)["objects"]
    (copy,) = one["copies"]
    assert copy["grade"] == "doubtful"  # no record of a rescue has its digest
    assert "audit log does not have its digest" in copy["doubt"]
    (file,) = [path for path in cluster.saved.iterdir() if path.suffix == ".json"]
    file.write_bytes(file.read_bytes().replace(b"shop", b"shap"))
    ran = looked(cluster, key, "--rescued", str(cluster.saved), kubeconfig=False)
    assert ran.code == 3
    assert "its digest is" in ran.err


def test_a_lost_cache_is_told(cluster: LostKeyCluster) -> None:
    cluster.p1.lose_cache("secrets")
    told = copies(cluster, cluster.key("shop/one").decode())
    (one,) = told["objects"]
    assert one["copies"] == []
    (place,) = [place for place in told["places"] if place["place"] == "memory"]
    assert "memory of the kind" in place["detail"]


def test_no_server_answers(cluster: LostKeyCluster) -> None:
    cluster.p1.stop()
    ran = looked(cluster, cluster.key("shop/one").decode())
    assert ran.code == 3
    assert "Traceback" not in ran.err
    assert "NOT LOOKED INTO" in ran.out
