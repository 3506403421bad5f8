"""``etcdfix orphans``: groups with counts and sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cluster_index_runs import HOSTILE, Runner, assert_harmless
from tests.support.impact_objects import Cluster, owner
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import json_object


@pytest.fixture
def orphans(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Runner:
    return Runner("orphans", monkeypatch, capfd)


def left_over() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop")
    for number in range(7):
        cluster.pod(f"p-{number}", owners=(owner("ReplicaSet", "gone"),))
    cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.secret("left", "gone")
    cluster.values["/registry/strange/thing"] = b"x" * 2048
    cluster.values["/other/thing"] = b"x"
    return cluster


def test_groups_with_counts_sizes_and_examples(orphans: Runner) -> None:
    ran = orphans(left_over())
    assert ran.code == 1
    assert ran.out.splitlines()[0].startswith("11 keys of ")
    headings = [
        line.partition(":")[0] for line in ran.out.splitlines() if line[:1].isupper() and ": " in line
    ]
    assert headings == ["Next", "OWNER-GONE", "CRD-GONE", "NAMESPACE-GONE", "UNCLAIMED", "OUTSIDE-PREFIX"]
    assert "/registry/pods/shop/p-4\n      … 2 more" in ran.out
    assert "/registry/strange  1 key  2.0 KiB" in ran.out
    steps = ran.out[ran.out.index("What to do next") :].splitlines()
    assert len(steps) == 6


def test_the_document(orphans: Runner) -> None:
    report = orphans(left_over(), "-o", "json").document
    assert (report["apiVersion"], report["kind"], report["count"]) == (
        "etcdfix/v1",
        "OrphansReport",
        11,
    )
    groups = {group["reason"]: group for group in report["groups"]}
    assert {reason: group["count"] for reason, group in groups.items()} == {
        "owner-gone": 7,
        "crd-gone": 1,
        "namespace-gone": 1,
        "unclaimed": 1,
        "outside-prefix": 1,
    }
    assert groups["unclaimed"]["size"] == 2048
    assert groups["crd-gone"]["confidence"] == "likely"
    assert report["complete"] is True


def test_nothing_left_over(orphans: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    ran = orphans(cluster)
    assert ran.code == 0
    assert ran.out.startswith("no orphaned keys were found\n")
    assert "What to do next" not in ran.out


def test_nothing_is_deleted_that_somebody_may_want_to_keep(orphans: Runner) -> None:
    out = orphans(left_over()).out
    for reason in ("crd-gone", "namespace-gone"):
        (advice,) = re.findall(rf"  \d\. {reason}: (.*)", out)
        assert re.match(
            "to keep them, re-create the .*, and stop; only if .* meant to go: then delete", advice
        )


def test_what_was_not_seen_is_counted_and_not_called_gone(orphans: Runner) -> None:
    values = left_over().values
    ran = orphans(MemorySource(values, problems=["page 7 is damaged"]))
    assert ran.code == 3
    assert "-GONE" not in ran.out
    assert "Not counted: 2 keys whose Namespace or CustomResourceDefinition was not seen" in ran.out
    report = orphans(MemorySource(values, problems=["page 7 is damaged"]), "-o", "json").document
    assert report["undecided"] == 2
    assert {group["reason"] for group in report["groups"]} == {"unclaimed", "outside-prefix"}


def test_what_an_aggregated_api_serves(orphans: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    for number in range(3):
        group = f"wardle-{number}.example.com"
        spec = {"group": group, "version": "v1", "service": {"name": "wardle", "namespace": "wardle"}}
        key = cluster.key("apiregistration.k8s.io/apiservices", "", f"v1.{group}")
        cluster.values[key] = json_object("apiregistration.k8s.io/v1", "APIService", key, "", spec=spec)
        cluster.add(f"{group}/v1", "Flunder", "f", "shop")
    ran = orphans(cluster)
    assert ran.code == 0
    assert "Not counted: served by an aggregated API, which keeps them elsewhere or here" in ran.out
    assert "  wardle-2.example.com  1 key\n" in ran.out
    assert "  … 2 more\n" in orphans(cluster, "--max-rows", "1").out
    assert orphans(cluster, "-o", "json").document["aggregated"] == {
        f"wardle-{number}.example.com": 1 for number in range(3)
    }


def test_rows_are_capped(orphans: Runner) -> None:
    ran = orphans(left_over(), "--max-rows", "2")
    assert "… 3 of 5 groups not shown; --max-rows 5" in ran.out
    assert "UNCLAIMED" not in ran.out


def test_incomplete_and_nothing(orphans: Runner, tmp_path: Path) -> None:
    cluster = left_over()
    records = [stored(k, v) for k, v in cluster.values.items()]
    assert orphans(MemorySource(records, fails_after=3)).code == 3
    cluster.values[cluster.key("secrets", "shop", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    ran = orphans(cluster)
    assert ran.code == 3
    assert ran.out.startswith("INCOMPLETE: 11 keys ")
    file = tmp_path / "report.json"
    ran = orphans(cluster, "-o", "json", "--output-file", str(file))
    assert (ran.code, ran.out) == (3, "")
    assert file.stat().st_size
    assert orphans(MemorySource({"/other/pods/a/b": b""})).code == 5


@pytest.mark.parametrize("form", ["table", "json"])
def test_hostile_names_act_upon_nothing(orphans: Runner, form: str) -> None:
    cluster = Cluster()
    cluster.secret(HOSTILE, HOSTILE.replace("/", ""))
    cluster.values[f"/registry/{HOSTILE}"] = b"x"
    cluster.values[f"/\x1b]0;{HOSTILE}"] = b"x"
    ran = orphans(cluster, "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)
