"""Deletions through the API as a real control plane did them, against what ``explain --impact`` forecasts."""

from __future__ import annotations

import os
from typing import Final

import pytest

from etcdfix.commands.explaining.impact import impact_of
from etcdfix.graph.model import DeletionForecast
from tests.support.controllers import Case, cases, look_at, values_before
from tests.support.golden import VARIABLE, needs_golden
from tests.support.thorough import THOROUGH, some
from tests.vectors.test_controllers import default_policy, node_of

pytestmark = [pytest.mark.golden, needs_golden]

# Namespaces, whose contents another command forecasts, and pods that are forced away.
_ELSEWHERE: Final = ("/registry/namespaces/", "/registry/apiregistration.k8s.io/")
ALL: Final = (
    [
        case
        for case in cases()
        if case["action"]["type"] == "api-delete"
        and not case["action"]["key"].startswith(_ELSEWHERE)
        and "grace period 0" not in case["description"]
    ]
    if VARIABLE in os.environ
    else []
)


def forecast(case: Case) -> tuple[DeletionForecast, dict[str, str]]:
    """Return what is said of the object, and what each object is said to wait for."""
    key = case["action"]["key"].encode()
    found = look_at(values_before(case), lambda e: e.stored.key == key)
    policy = case["action"].get("propagationPolicy") or default_policy(
        found.index, node_of(found.index, key.decode())
    )
    report = impact_of(found, key, found.kept.get(key), policy=policy.lower())
    assert report is not None
    assert report.deletion is not None
    waits = {decision.object.key: decision.stays for decision in report.dependents.tree}
    return report.deletion, waits | {key.decode(): report.deletion.text}


def test_what_becomes_of_the_object_and_what_holds_it() -> None:
    unsure = 0
    for case in some(ALL, of=4):
        (found, _), key = forecast(case), case["action"]["key"]
        (after,) = [entry for entry in case["after"] if entry["key"] == key]
        where = f"{case['id']}: {found}"
        if case["action"]["answer"]["code"] != 200:
            assert found.possible is False, where
            continue
        assert found.possible, where
        no_manager = case["id"].startswith("one-secret-both-restarted") and after["state"] == "terminating"
        if found.result == "cannot-be-told":
            unsure += 1
        elif no_manager:
            assert any("while no kube-controller-manager runs" in note for note in found.notes), where
        else:
            assert found.result == ("gone" if after["state"] == "gone" else "terminating"), where
    assert len(ALL) == 103
    assert unsure == 10 if THOROUGH else unsure <= 10


def test_each_finalizer_that_was_left_is_named_with_its_object() -> None:
    left = 0
    for case in some(ALL, of=4):
        _, waits = forecast(case)
        for entry in case["after"]:
            foreign = set(entry.get("metadata.finalizers", [])) - {"orphan", "foregroundDeletion"}
            for name in foreign if entry["state"] == "terminating" and not entry.get("elsewhere") else ():
                broken = name.startswith("customresourcecleanup")
                said = "of its objects, which cannot be read" if broken else name
                assert said in waits[entry["key"]], case["id"]
                left += 1
            if entry["state"] == "terminating" and "/pods/" in entry["key"]:
                assert "the kubelet of node" in waits[entry["key"]], case["id"]
                left += 1
    assert left == 10 if THOROUGH else left
