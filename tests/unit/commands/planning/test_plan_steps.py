"""In which order objects have their turn, what comes before all of them, and what each is called."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.commands.planning.steps import in_order, steps_for
from etcdfix.report import rows as sorted_rows
from etcdfix.report.plan import PlanEntry, PlanGroup, PlanStep, declaration
from etcdfix.text.commands import RunOptions
from tests.support.fixtures import Patch
from tests.support.plan_entries import entry, fixable


def names(*entries: Any) -> list[str]:
    ordered = in_order(entries)
    assert [each.order for each in ordered] == list(range(1, len(entries) + 1))
    return [each.name for each in ordered]


def made(name: str, by: str = "cert-manager", comes_back: str = "by-itself", **change: Any) -> Any:
    settings = {"recreated_by": by, "comes_back": comes_back, "recreate_confidence": "certain", **change}
    return entry(name=name, key=f"/registry/secrets/shop/{name}", **settings)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"risk": "low", "users": 2}, {"risk": "high", "users": 1}),
        ({"risk": "none"}, {"risk": "low"}),
        ({"users": 1}, {"users": 2}),
        ({}, {"users": 1}),
        ({"comes_back": "not-needed"}, {"comes_back": "after-a-step"}),
        ({"comes_back": "by-itself"}, {"comes_back": "after-a-step"}),
        ({"comes_back": "after-a-step"}, {"comes_back": "no"}),
        # What is in use waits for a person, and so comes after what nobody makes again but nobody uses.
        ({"comes_back": "no"}, {"comes_back": "after-a-step", "users": 1}),
        ({"comes_back": "by-itself", "users": 9}, {"comes_back": "no"}),
        ({"users": 9, "risk": "high"}, {"outcome": "undetermined"}),
        ({"outcome": "undetermined"}, {"protected": "kube-system"}),
        ({"outcome": "undetermined"}, {"risk": "cluster-breaking"}),
    ],
)
def test_what_goes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    # Names sort the other way.
    base: dict[str, Any] = {"recreated_by": "by hand", "comes_back": "no", "risk": "low"}
    one = entry(name="z", key="/z", **(base | first))
    two = entry(name="a", key="/a", **(base | second))
    assert names(two, one) == ["z", "a"]


def test_many_are_sorted_on_disk_and_the_same_each_time_they_are_read(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sorted_rows, "_MEMORY_BYTES", 2000)
    entries = [
        made(f"n-{number % 7}-{number}", f"maker-{number % 3}", users=number % 5) for number in range(200)
    ]
    ordered = in_order(entries)
    assert [each.order for each in ordered] == list(range(1, 201))
    assert {each.name for each in ordered} == {each.name for each in entries}
    assert ordered == list(ordered)
    assert (ordered[3], ordered[-1], ordered[2:5]) == (
        list(ordered)[3],
        list(ordered)[-1],
        list(ordered)[2:5],
    )
    assert [each.users for each in ordered] == sorted(each.users for each in ordered)


def steps(entries: list[PlanEntry], groups: list[PlanGroup] | None = None) -> dict[str, PlanStep]:
    return {step.title: step for step in steps_for(in_order(entries), groups or [], "r.json", RunOptions())}


def test_the_snapshot_is_saved_of_the_etcd_that_was_read() -> None:
    again = RunOptions(source=("--endpoints", "one:1,two:2", "--cacert", "ca", "--revision", "5"))
    found = {step.title: step.command for step in steps_for(in_order([entry()]), [], "r.json", again)}
    assert found["Take a snapshot of etcd, and keep it"] == (
        "etcdctl --endpoints one:1 --cacert ca snapshot save before-deletions.db"
    )


def test_what_is_proven_wrong_goes_before_what_waits() -> None:
    """As the first lines of a scan do."""
    groups = [
        PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait"),
        PlanGroup(
            "decrypt-failure", "wrong-key", "aescbc/v1/k", "", "", 9, 0, pattern=True, advice="find it",
            declaration=declaration("aescbc/v1/k", ""),
        ),
    ]  # fmt: skip
    titles = list(steps([entry()], groups))
    assert titles[1] == "Look for the encryption key"
    assert titles[2].startswith("Let the KMS plugin decrypt again")


SAVE = "etcdfix get --revision {} /registry/{}"


def test_earlier_revisions_are_saved_before_anything_that_takes_time() -> None:
    """They are gone in five minutes: also those of what comes back, and the worst loss is shown."""
    pod = {"resource": "pods", "cause": "value-truncated", "comes_back": "by-itself"}
    kept = [
        fixable(1, "revision:4", key="/registry/pods/shop/a", save=SAVE.format(4, "pods/shop/a"), **pod),
        entry(2, key="/registry/pods/shop/b", save=SAVE.format(5, "pods/shop/b"), **pod),
        entry(
            3, key="/registry/crd/c", group="apiextensions.k8s.io", resource="customresourcedefinitions",
            namespace="", cause="value-truncated", save=SAVE.format(6, "crd/c"),
        ),
        entry(4, save="no", outcome="undetermined", cause="kms-denied"),
        entry(5),
    ]  # fmt: skip
    damaged = PlanGroup("decode-failure", "value-truncated", "", "", "", 3, 0, pattern=False, advice="many")
    waits = PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait")
    found = steps(kept, [damaged, waits])
    step = found["Save earlier revisions"]
    assert step.text.startswith("A readable revision of 4 objects is kept")
    assert step.command == SAVE.format(6, "crd/c")
    titles = list(found)
    at = titles.index(step.title)
    assert titles[at - 1].startswith("Let the KMS plugin decrypt again")
    assert titles[at + 1] == "Look for every other copy"
