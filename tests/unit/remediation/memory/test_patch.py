"""What etcd holds after a PATCH, beside the saved copy."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.remediation.memory import patch
from etcdfix.remediation.memory.patch import PatchSender, differences
from etcdfix.remediation.patcher import FIXED_AT

SAVED: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {
        "name": "web", "uid": "u", "resourceVersion": "7", "generation": 3, "selfLink": "/old",
        "managedFields": [{"manager": "kubectl"}], "labels": {"app": "web"},
    },
    "spec": {"maxReplicas": 3},
}  # fmt: skip
METADATA: dict[str, Any] = {
    "name": "web", "uid": "u", "generation": 3, "labels": {"app": "web"},
    "annotations": {FIXED_AT: "now"}, "managedFields": [{"manager": "etcdfix"}],
}  # fmt: skip
"""Afterwards, without what a server only adds to an answer."""


def stored(metadata: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {**SAVED, "metadata": {**METADATA, **(metadata or {})}, **fields}


@pytest.mark.parametrize("change", [{}, {"metadata": {"generation": 4}}])
def test_what_every_such_write_changes_is_no_difference(change: dict[str, Any]) -> None:
    assert differences(SAVED, stored(**change)) == ((), False)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"spec": {"maxReplicas": 4}}, "spec"),
        ({"spec": {"maxReplicas": 3.0}}, "spec"),
        ({"spec": {}}, "spec"),
        ({"spec": {"maxReplicas": 3, "template": {"generation": 4}}}, "spec"),
        ({"data": {}}, "data"),
        ({"metadata": {"labels": {"app": "other"}}}, "metadata.labels"),
        ({"metadata": {"labels": {}}}, "metadata.labels"),
        ({"metadata": {"labels": "app"}}, "metadata.labels"),
        ({"metadata": {"finalizers": ["a/b"]}}, "metadata.finalizers"),
        ({"metadata": {"uid": "other"}}, "metadata.uid"),
    ],
)
def test_anything_else_is(change: dict[str, Any], name: str) -> None:
    assert differences(SAVED, stored(**change)) == ((name,), True)


def test_labels_that_admission_adds_are_told() -> None:
    more = {"labels": {"app": "web", "team": "x"}, "annotations": {FIXED_AT: "now", "a/b": "c"}}
    assert differences(SAVED, stored(more)) == (("metadata.annotations", "metadata.labels"), False)


@pytest.mark.parametrize("older", ["saved", "stored"])
def test_a_null_is_no_difference(older: str) -> None:
    nulls = {"maxReplicas": 3, "list": [{"creationTimestamp": None, "a": 1}, None], "x": None}
    without = {"maxReplicas": 3, "list": [{"a": 1}, None]}
    saved, now = (nulls, without) if older == "saved" else (without, nulls)
    assert differences({**SAVED, "spec": saved}, stored(spec=now)) == ((), False)
    # A null among others is one of them.
    assert differences({**SAVED, "spec": saved}, stored(spec={**without, "list": [{"a": 1}]}))[1]


def compared(monkeypatch: pytest.MonkeyPatch, now: dict[str, Any]) -> tuple[bool, list[str], list[str]]:
    """Return whether etcd differs, doubts and notes."""
    monkeypatch.setattr(patch, "read_saved", lambda _folder, _saved: json.dumps(SAVED).encode())
    held: Any = SimpleNamespace(
        exact="one", rescued="", present=SimpleNamespace(cluster=SimpleNamespace(now=None))
    )
    doubts: list[str] = []
    notes: list[str] = []
    return PatchSender(held, "now")._compare(now, doubts, notes), doubts, notes


def test_what_cannot_be_compared_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"x": deep}
    for now in (stored(spec=deep), stored(apiVersion="autoscaling/v1")):
        differs, doubts, _ = compared(monkeypatch, now)
        assert (differs, len(doubts)) == (False, 1)
