"""What etcd holds after a heal, beside the saved copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.apiserver.client import Reply
from etcdfix.operations.change import heal_sender
from etcdfix.operations.change.heal_sender import HealSender
from etcdfix.remediation.patcher import HEALED_AT

SAVED: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {
        "name": "web", "uid": "u", "resourceVersion": "7", "generation": 3, "selfLink": "/old",
        "managedFields": [{"manager": "kubectl"}], "labels": {"app": "web"},
    },
    "spec": {"maxReplicas": 3},
}  # fmt: skip

Compare = Callable[..., tuple[HealSender, list[str], list[str]]]


def stored(**fields: Any) -> dict[str, Any]:
    """Return what etcd holds after a heal: without what a server only adds to an answer."""
    metadata = {
        "name": "web", "uid": "u", "generation": 3, "labels": {"app": "web"},
        "annotations": {HEALED_AT: "now"}, "managedFields": [{"manager": "etcdfix"}],
    }  # fmt: skip
    return {**SAVED, "metadata": metadata, **fields}


def answered(version: str = "9", **fields: Any) -> dict[str, Any]:
    """Return the object as a server reads it from etcd."""
    return stored(metadata={**stored()["metadata"], "resourceVersion": version}, **fields)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Compare:
    monkeypatch.setattr(heal_sender, "read_saved", lambda _folder, _saved: json.dumps(SAVED).encode())

    def run(now: dict[str, Any], answer: bytes | None = None) -> tuple[HealSender, list[str], list[str]]:
        shown = SimpleNamespace(show=lambda _found: SimpleNamespace(document=now))
        monkeypatch.setattr(heal_sender, "Viewer", lambda _examiner: shown)
        all_servers = SimpleNamespace(within=lambda _ask: None if answer is None else Reply(200, answer))
        ground: Any = SimpleNamespace(
            all_servers=all_servers,
            saved="",
            cluster=SimpleNamespace(now=None, examiner=None),
        )
        healable: Any = SimpleNamespace(saved="one")
        sender = HealSender(ground, healable, "now")
        holder: Any = SimpleNamespace(server=SimpleNamespace(send=print, address="https://p1"), path="/x")
        # What the PATCH was answered with proves nothing.
        sender.answer = json.dumps(answered()).encode()
        found: Any = SimpleNamespace(stored=SimpleNamespace(mod_revision=9))
        doubts: list[str] = []
        return sender, sender._compare(holder, found, now, doubts), doubts

    return run


def test_what_every_heal_changes_is_no_difference(compare: Compare) -> None:
    sender, told, doubts = compare(stored())
    assert (sender.differs, sender.changed, told, doubts) == (False, (), [], [])


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"spec": {"maxReplicas": 4}}, "spec.maxReplicas (changed)"),
        ({"spec": {"maxReplicas": 3, "minReplicas": 1}}, "spec.minReplicas (added)"),
        ({"spec": {}}, "spec"),
        ({"spec": {"maxReplicas": 3, "template": {"generation": 4}}}, "spec.template (added)"),
        ({"metadata": {**stored()["metadata"], "labels": {"app": "other"}}}, "metadata.labels.app (changed)"),
        ({"metadata": {**stored()["metadata"], "labels": {}}}, "metadata.labels"),
        (
            {"metadata": {**stored()["metadata"], "finalizers": ["a/b"]}},
            "metadata.finalizers (added)",
        ),
        ({"spec": {"maxReplicas": 3, "many": dict.fromkeys(map(str, range(30)))}}, "spec.many (added)"),
    ],
)
def test_anything_else_is(compare: Compare, change: dict[str, Any], path: str) -> None:
    sender, _, doubts = compare(stored(**change))
    assert (sender.differs, doubts) == (True, [])
    assert sender.changed[0].startswith(path)


def test_labels_that_admission_adds_are_told(compare: Compare) -> None:
    metadata = stored()["metadata"]
    metadata |= {"labels": {"app": "web", "team": "x"}, "annotations": {HEALED_AT: "now", "a/b": "c"}}
    sender, told, doubts = compare(stored(metadata=metadata))
    assert (sender.differs, len(told), doubts) == (False, 1, [])
    assert set(sender.changed) == {"metadata.labels.team (added)", "metadata.annotations (added)"}
    # Twenty of them hide nothing.
    metadata["labels"] |= {f"more-{number}": "" for number in range(30)}
    assert compare(stored(metadata=metadata))[0].differs


def test_what_a_server_counts_is_no_difference(compare: Compare) -> None:
    """With workloads, a change of an annotation makes another generation."""
    sender, told, doubts = compare(stored(metadata={**stored()["metadata"], "generation": 4}))
    assert (sender.differs, sender.changed, told, doubts) == (False, (), [], [])


@pytest.mark.parametrize("older", ["saved", "stored"])
def test_a_null_is_no_difference(compare: Compare, monkeypatch: pytest.MonkeyPatch, older: str) -> None:
    nulls = {"maxReplicas": 3, "list": [{"creationTimestamp": None, "a": 1}, None], "x": None}
    without = {"maxReplicas": 3, "list": [{"a": 1}, None]}
    saved, now = (nulls, without) if older == "saved" else (without, nulls)
    monkeypatch.setitem(SAVED, "spec", saved)
    document = stored(spec=now)
    sender, _, _ = compare(document)
    assert (sender.differs, sender.changed) == (False, ())
    assert document["spec"] == now  # what is shown elsewhere stays whole
    # A null among others is one of them.
    sender, _, _ = compare(stored(spec={"maxReplicas": 3, "list": [{"a": 1}]}))
    assert sender.differs


def test_another_version_is_read_back(compare: Compare) -> None:
    """Its metadata are those in etcd all the same, and the answer to the PATCH proves nothing."""
    in_etcd = stored(apiVersion="autoscaling/v1", spec={"maxReplicas": 3, "targetCPU": 80})
    sender, told, doubts = compare(in_etcd, json.dumps(answered()).encode())
    assert (sender.differs, len(told), doubts) == (False, 1, [])
    assert "autoscaling/v1" in told[0]
    sender, _, _ = compare(in_etcd, json.dumps(answered(spec={"maxReplicas": 4})).encode())
    assert sender.differs
    other = {**in_etcd["metadata"], "uid": "other"}
    sender, _, _ = compare({**in_etcd, "metadata": other}, json.dumps(answered()).encode())
    assert sender.differs
    # Without this very write there is nothing to compare.
    for answer in (None, b"<html>", json.dumps(answered("8")).encode(), json.dumps(stored()).encode()):
        sender, _, doubts = compare(in_etcd, answer)
        assert (sender.differs, len(doubts)) == (False, 1)
