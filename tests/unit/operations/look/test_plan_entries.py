from __future__ import annotations

from typing import Any

import pytest

from etcdfix.commands.planning.steps import in_order
from etcdfix.report import sorted_rows
from tests.support.plan_entries import entry


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


def test_many_are_sorted_on_disk_and_the_same_each_time_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sorted_rows, "_MEMORY_BYTES", 2000)
    entries = [
        made(f"n-{number % 7}-{number}", f"maker-{number % 3}", users=number % 5) for number in range(200)
    ]
    ordered = in_order(entries)
    few = in_order(entries[:2])
    assert len(ordered) == 200
    assert [each.order for each in ordered] == list(range(1, 201))
    assert {each.name for each in ordered} == {each.name for each in entries}
    assert ordered == list(ordered)
    assert ordered != few
    assert ordered[3] == list(ordered)[3]
    assert ordered[-1] == list(ordered)[-1]
    assert ordered[2:5] == list(ordered)[2:5]
    assert [each.users for each in ordered] == sorted(each.users for each in ordered)
    with pytest.raises(IndexError):
        ordered[200]
