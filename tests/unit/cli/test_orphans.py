"""``etcdfix scan --orphans``: groups with counts and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_index_runs import HOSTILE, Runner, assert_harmless
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import Cluster, owner
from tests.support.memory_source import MemorySource, stored


@pytest.fixture
def orphans(monkeypatch: Patch, capfd: Captured) -> Runner:
    return Runner("scan --orphans", monkeypatch, capfd)


def left_over() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop")
    for number in range(7):
        cluster.pod(f"p-{number}", owners=(owner("ReplicaSet", "gone"),))
    cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.secret("left", "gone")
    cluster.values["/registry/strange/thing"] = b"x" * 2048
    return cluster


def test_the_document(orphans: Runner) -> None:
    report = orphans(left_over(), "-o", "json").document
    assert (report["kind"], report["count"], report["complete"]) == ("OrphansReport", 10, True)
    groups = {group["reason"]: group for group in report["groups"]}
    assert {reason: group["count"] for reason, group in groups.items()} == {
        "owner-gone": 7, "crd-gone": 1, "namespace-gone": 1, "unclaimed": 1,
    }  # fmt: skip
    assert groups["unclaimed"]["size"] == 2048
    assert groups["crd-gone"]["confidence"] == "likely"


def test_nothing_left_over(orphans: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    ran = orphans(cluster)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "no orphaned keys were found")
    assert orphans(MemorySource({"/other/pods/a/b": b""})).code == 5


def test_what_was_not_seen_is_counted_and_not_called_gone(orphans: Runner) -> None:
    source = MemorySource(left_over().values, problems=["page 7 is damaged"])
    ran = orphans(source, "-o", "json")
    assert ran.code == 3
    report = ran.document
    assert report["undecided"] == 2
    assert {group["reason"] for group in report["groups"]} == {"unclaimed"}


def test_an_incomplete_look_says_so_first(orphans: Runner, tmp_path: Path) -> None:
    cluster = left_over()
    records = [stored(k, v) for k, v in cluster.values.items()]
    assert orphans(MemorySource(records, fails_after=3)).code == 3
    cluster.values[cluster.key("secrets", "shop", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    ran = orphans(cluster)
    assert (ran.code, ran.out.startswith("INCOMPLETE: 10 keys ")) == (3, True)
    file = tmp_path / "report.json"
    ran = orphans(cluster, "-o", "json", "--output-file", str(file))
    assert (ran.code, ran.out, file.stat().st_size > 0) == (3, "", True)


@pytest.mark.parametrize("form", ["text", "wide", "html", "json"])
def test_hostile_names_act_upon_nothing(orphans: Runner, form: str) -> None:
    cluster = Cluster()
    cluster.secret(HOSTILE, HOSTILE.replace("/", ""))
    cluster.values[f"/registry/{HOSTILE}"] = b"x"
    cluster.values[f"/\x1b]0;{HOSTILE}"] = b"x"
    ran = orphans(cluster, "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)
