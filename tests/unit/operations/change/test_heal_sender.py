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


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Compare:
    monkeypatch.setattr(heal_sender, "read_saved", lambda _folder, _saved: json.dumps(SAVED).encode())

    def run(now: dict[str, Any], answer: bytes | None = None) -> tuple[HealSender, list[str], list[str]]:
        shown = SimpleNamespace(show=lambda _found: SimpleNamespace(document=now))
        monkeypatch.setattr(heal_sender, "Viewer", lambda _examiner: shown)
        fleet = SimpleNamespace(within=lambda _ask: None if answer is None else Reply(200, answer))
        ground: Any = SimpleNamespace(
            fleet=fleet,
            saved="",
            cluster=SimpleNamespace(now=None, examiner=None),
        )
        healable: Any = SimpleNamespace(saved="one")
        sender = HealSender(ground, healable, "now")
        holder: Any = SimpleNamespace(server=SimpleNamespace(send=print), path="/x")
        found: Any = None
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
        ({"metadata": {**stored()["metadata"], "generation": 4}}, "metadata.generation (changed)"),
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


def test_another_version_is_compared_in_the_answer(compare: Compare) -> None:
    """Its metadata are those in etcd all the same."""
    in_etcd = stored(apiVersion="autoscaling/v1", spec={"maxReplicas": 3, "targetCPU": 80})
    sender, told, doubts = compare(in_etcd, json.dumps(stored()).encode())
    assert (sender.differs, len(told), doubts) == (False, 1, [])
    sender, _, _ = compare(in_etcd, json.dumps(stored(spec={"maxReplicas": 4})).encode())
    assert sender.differs
    other = {**in_etcd["metadata"], "uid": "other"}
    sender, _, _ = compare({**in_etcd, "metadata": other}, json.dumps(stored()).encode())
    assert sender.differs
    # Without an answer there is nothing to compare.
    for answer in (None, b"<html>"):
        sender, _, doubts = compare(in_etcd, answer)
        assert (sender.differs, len(doubts)) == (False, 1)
