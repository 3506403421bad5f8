"""What etcd holds after a PATCH, beside the saved copy."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.apiserver.client import Reply
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


def compared(
    monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], answer: bytes | None
) -> tuple[bool, list[str], list[str]]:
    """Return whether etcd differs, doubts and notes, where a server reads the object so."""
    monkeypatch.setattr(patch, "read_saved", lambda _folder, _saved: json.dumps(SAVED).encode())
    ground: Any = SimpleNamespace(rescued="", cluster=SimpleNamespace(now=None, examiner=None))
    held: Any = SimpleNamespace(exact="one")
    server = SimpleNamespace(address="https://p1", send=lambda *_request, **_how: Reply(200, answer))
    holder: Any = SimpleNamespace(server=server, memory=SimpleNamespace(path="/x"))
    found: Any = SimpleNamespace(stored=SimpleNamespace(mod_revision=9))
    doubts: list[str] = []
    notes: list[str] = []
    return PatchSender(ground, held, "now")._compare(holder, found, now, doubts, notes), doubts, notes


def test_another_version_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata are those in etcd all the same."""
    in_etcd = stored(apiVersion="autoscaling/v1", spec={"maxReplicas": 3, "targetCPU": 80})
    read = stored({"resourceVersion": "9"})
    differs, doubts, notes = compared(monkeypatch, in_etcd, json.dumps(read).encode())
    assert (differs, doubts, len(notes)) == (False, [], 1)
    assert "autoscaling/v1" in notes[0]
    assert compared(monkeypatch, in_etcd, json.dumps({**read, "spec": {}}).encode())[0]
    other = {**in_etcd, "metadata": {**METADATA, "uid": "other"}}
    assert compared(monkeypatch, other, json.dumps(read).encode())[0]
    # Without this very write there is nothing to compare.
    older = json.dumps(stored({"resourceVersion": "8"})).encode()
    for answer in (None, b"<html>", older, json.dumps(stored()).encode()):
        differs, doubts, _ = compared(monkeypatch, in_etcd, answer)
        assert (differs, len(doubts)) == (False, 1)


def test_what_is_nested_too_deeply_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"x": deep}
    differs, doubts, _ = compared(monkeypatch, stored(spec=deep), None)
    assert (differs, len(doubts)) == (False, 1)
