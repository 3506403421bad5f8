"""An encryption key lost on k3s with SQLite while its API server runs: what the commands that look find there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.text.commands import ACKNOWLEDGEMENT
from tests.support.fixtures import Captured
from tests.support.healing import LostKeyKineCluster, lost_key_kine_cluster

pytestmark = pytest.mark.usefixtures("no_variables")


@pytest.fixture
def cluster(tmp_path: Path, capfd: Captured, authority: CertificateAuthority) -> Iterator[LostKeyKineCluster]:
    with lost_key_kine_cluster(tmp_path, capfd, authority) as cluster:
        yield cluster


def rescued(cluster: LostKeyKineCluster) -> list[dict[str, Any]]:
    words = ["secrets", "--kubeconfig", str(cluster.kubeconfig), *cluster.where]
    words += ["--encryption-config", str(cluster.config)]
    places = ["--rescued", str(cluster.saved), "--audit-log", str(cluster.log)]
    ran = cluster.run("rescue", *words, *places, "-o", "json")
    assert ran.code == 0, ran.err
    cluster.shows_nothing(ran)
    return list(json.loads(ran.out)["objects"])


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
