"""An encryption key lost on k3s with SQLite while its API server runs: what the commands that look find there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.sources.kine import KineSource
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.apiserver import TOKEN, Request
from tests.support.fixtures import Captured
from tests.support.healing import LostKeyKineCluster, lost_key_kine_cluster

pytestmark = pytest.mark.usefixtures("no_variables")
ANNOTATED = {"metadata": {"annotations": {"etcdfix.io/fixed-at": "now"}}}


@pytest.fixture
def cluster(tmp_path: Path, capfd: Captured, authority: CertificateAuthority) -> Iterator[LostKeyKineCluster]:
    with lost_key_kine_cluster(tmp_path, capfd, authority) as cluster:
        yield cluster


def asked(cluster: LostKeyKineCluster, method: str, path: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    kind = "application/merge-patch+json"
    answer = cluster.p1.answer(Request(method, path, data, f"Bearer {TOKEN}", content_type=kind))
    assert answer.status == 200
    return json.loads(answer.body)


def test_scan_finds_what_is_lost(cluster: LostKeyKineCluster) -> None:
    with cluster.unwritten(), cluster.untouched():
        report = json.loads(cluster.report().read_text())
    assert report["source"]["type"] == "kine"
    assert report["source"]["kube_system_uid"] == cluster.p1.uid
    assert [finding["key"] for finding in report["findings"]] == [key.decode() for key in cluster.keys]
    assert {(f["outcome"], f["cause"]) for f in report["findings"]} == {
        ("decrypt-failure", "key-name-missing")
    }
    assert {f["mod_revision"] for f in report["findings"]} == {
        cluster.stored_value(key).mod_revision for key in cluster.keys
    }


def rescued(cluster: LostKeyKineCluster) -> list[dict[str, Any]]:
    words = ["secrets", "--kubeconfig", str(cluster.kubeconfig), *cluster.where]
    words += ["--encryption-config", str(cluster.config)]
    places = ["--rescued", str(cluster.saved), "--audit-log", str(cluster.log)]
    ran = cluster.run("rescue", *words, *places, "-o", "json")
    assert ran.code == 0, ran.err
    cluster.shows_nothing(ran)
    return list(json.loads(ran.out)["objects"])


def test_rescue_saves_what_does_not_open(cluster: LostKeyKineCluster) -> None:
    with cluster.unwritten(), cluster.untouched():
        said = {one["key"]: (one["state"], one["mod_revision"]) for one in rescued(cluster)}
    assert said == {key.decode(): ("saved", cluster.stored_value(key).mod_revision) for key in cluster.keys}
    assert cluster.p1.methods == {"GET"}


def test_copies_finds_them_in_memory_and_where_they_were_saved(cluster: LostKeyKineCluster) -> None:
    rescued(cluster)
    words = ["--kubeconfig", str(cluster.kubeconfig), "--rescued", str(cluster.saved), "-o", "json"]
    with cluster.unwritten(), cluster.untouched():
        ran = cluster.run("copies", *words, *cluster.common(reason=None))
    cluster.shows_nothing(ran)
    assert cluster.p1.methods == {"GET"}
    objects = json.loads(ran.out)["objects"]
    assert [one["key"] for one in objects] == [key.decode() for key in cluster.keys]
    for one in objects:
        assert {(copy["place"], copy["doubt"], copy["mod_revision"]) for copy in one["copies"]} == {
            ("memory", "", one["mod_revision"]), ("object", "", one["mod_revision"]),
        }  # fmt: skip


def test_the_file_is_read_again_around_a_patch(cluster: LostKeyKineCluster) -> None:
    key, path = cluster.key("shop/one"), "/api/v1/namespaces/shop/secrets/one"
    with KineSource(cluster.store.path) as before:
        asked(cluster, "PATCH", path, ANNOTATED)
        with before.again() as after:
            old, new = before.get(key), after.get(key)
            assert old is not None
            assert new is not None
            assert new.mod_revision == after.revision == cluster.store.revision() > old.mod_revision
            assert new.create_revision == old.create_revision
            assert old.value.startswith(b"k8s:enc:aescbc:v1:key1:")
            assert new.value.startswith(b"k8s:enc:aescbc:v1:key2:")
            assert after.before(key, new.mod_revision) == old
    assert asked(cluster, "GET", path)["metadata"]["resourceVersion"] == str(new.mod_revision)


def test_a_run_over_a_plan_has_the_api_server_write_all_of_them(cluster: LostKeyKineCluster) -> None:
    """What is decided otherwise is refused before anything is asked of anybody."""
    rescued(cluster)
    plan = cluster.folder / "plan.json"
    words = [*cluster.where, "--encryption-config", str(cluster.config)]
    report = ["--from-report", str(cluster.report()), "--rescued", str(cluster.saved)]
    assert cluster.run("plan", *report, *words, "-o", "json", "--output-file", str(plan)).code == 1
    document = json.loads(plan.read_text())
    assert [one["decision"] for one in document["decisions"]] == ["fix"] * 2
    run = ["plan", "--run", str(plan), ACKNOWLEDGEMENT, "--kubeconfig", str(cluster.kubeconfig)]
    run += ["--rescued", str(cluster.saved), *cluster.common()]

    def decided(word: str, *more: str) -> Any:
        for one in document["decisions"]:
            one["decision"] = word
        plan.write_text(json.dumps(document))
        dry = cluster.run(*run, *more, "--dry-run", "-o", "json")
        if dry.code:
            return dry
        return cluster.run(*run, "--yes", "--expect-plan", json.loads(dry.out)["plan_sha256"], "-o", "json")

    with cluster.untouched():
        needs = {need for one in document["entries"] for need in one["needs"]}
        refused = decided("delete", *(word for need in needs for word in need.split()))
    assert (refused.code, "what API servers hold" in refused.err) == (4, True), refused
    ran = decided("fix")
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    assert [one["result"] for one in json.loads(ran.out)["objects"]] == ["fixed"] * 2
    for key in cluster.keys:
        assert cluster.stored_value(key).value.startswith(b"k8s:enc:aescbc:v1:key2:")
