"""What a real garbage collector and namespace controller did, case by case, against what is forecast.

Each case: the cluster before, what was done, and what was there afterwards. Of every object that was there before, the
forecast says that it goes, that it stays (Terminating or not), or that nobody can tell. None that went may have been
said to stay, and none that stayed to go; what cannot be told must be of the kinds that are known to be so.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import pytest

from etcdfix.commands.namespace import concerns_namespace, namespace_report
from etcdfix.graph.collector import collect
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action, Decision, Propagation, Stays
from etcdfix.graph.namespaces import NamespaceState, namespace_state, terminating_namespaces
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.render.machine import Encoder
from etcdfix.text.commands import RunOptions
from tests.support.controllers import Case, cases, look_at, values_before
from tests.support.golden import VARIABLE, needs_golden
from tests.support.thorough import THOROUGH, some

pytestmark = [pytest.mark.golden, needs_golden]

ALL: Final = cases() if VARIABLE in os.environ else ()
NAMESPACES: Final = "/registry/namespaces/"


class Said(StrEnum):
    GOES = "goes"
    STAYS = "stays"
    NOT_TOLD = "cannot be told"


class Manager(StrEnum):
    RAN_BEFORE = "ran before the damage"
    STARTED_AFTER = "started after it"
    NONE = "none: it exits while no API server is ready"


# Why something cannot be told, by words of what is said, with the number of objects.
NOT_TOLD: Final = {
    "a race": 6,
    "is served": 7,
    "knows what was made before": 14,
    "depends on it": 10,
    "cannot be forecast": 6,
    "already being deleted": 1,
    "cannot be read: API servers that run": 2,
    "put back": 2,
}


class Forecast:
    """What is said of the objects of one case; of what nothing is said, it stays."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.said: dict[str, tuple[Said, str]] = {}
        self.done: set[str] = set()
        self.halts = False
        action = case["action"]
        self.values = values_before(case)
        self.released = case["id"].endswith("-released")
        fresh = case["controller_manager"].startswith("started after the damage")
        self.manager = Manager.STARTED_AFTER if fresh else Manager.RAN_BEFORE
        if fresh and case.get("api_server", "").startswith("started after") and not self.released:
            self.manager = Manager.NONE
        getattr(self, "_" + action["type"].replace("-", "_"))()
        if self.manager is Manager.NONE:
            assert self.halts, "that a controller manager exits where the API server is not ready is not said"
            self.said = {}

    def of(self, key: str) -> tuple[Said, str]:
        return self.said.get(key, (Said.STAYS, ""))

    # -- one for each kind of action

    def _etcd_delete(self) -> None:
        case, action = self.case, self.case["action"]
        keys = list(action.get("keys") or filter(None, [action.get("key")]))
        if self.released:  # then all that is unreadable in the cluster is deleted, other cases' objects too
            keys += [b["key"] for b in case["before"] if b.get("unreadable") and b["key"] not in keys]
        self._remove(keys)

    def _remove(self, keys: list[str]) -> None:
        index = look_at(self.values).index
        nodes = [node_of(index, key) for key in keys]
        played = collect(index, *nodes)
        self.halts = bool(played.unlistable)
        self.done.update(keys)
        self._collected((*played.tree, *played.caught_up))
        self._namespaces(index, nodes)

    def _remove_finalizer(self) -> None:
        key = self.case["action"]["key"]
        index = look_at(self.values).index
        node = node_of(index, key)
        if not index.terminating_since(node):
            return
        if key.startswith(NAMESPACES):
            state = namespace_state(index, key.removeprefix(NAMESPACES))
            assert state is not None
            own = bool(state.finalizers) + any(token != "kubernetes" for token in state.spec_finalizers)
            assert own == 1
            self._say(key, Said.STAYS if inside_held(state) else Said.GOES)
            return
        self.said[key] = (Said.GOES, "")
        self._remove([key])
        self.done.clear()

    def _api_delete(self) -> None:
        action, key = self.case["action"], self.case["action"]["key"]
        index = look_at(self.values).index
        node = node_of(index, key)
        if index.unreadable(node):
            self._say(key, Said.STAYS)  # the API answers with an error
            return
        if (
            key.startswith("/registry/apiregistration.k8s.io/")
            or "grace period 0" in self.case["description"]
        ):
            self._remove([key])
            return
        policy = action.get("propagationPolicy")
        how = Propagation(policy) if policy else default_policy(index, node)
        played = collect(index, node, by_api=how)
        self.halts = bool(played.unlistable)
        own = Said.STAYS if played.stays else Said.NOT_TOLD if played.uncertain else Said.GOES
        self._say(key, own, played.uncertain)
        self._collected((*played.tree, *played.caught_up))
        if self.manager is Manager.NONE:
            # The API server itself deletes what no controller has to work on.
            self.manager = Manager.RAN_BEFORE
            self.said = {key: self.said[key]} if how is Propagation.BACKGROUND else {}

    def _namespace_delete(self) -> None:
        index = look_at(self.values).index
        self._namespace(index, self.case["action"]["key"].removeprefix(NAMESPACES), [])
        self.halts = bool(index.unlistable)

    def _namespace_create_and_delete(self) -> None:
        key = self.case["action"]["key"]
        index = look_at(self.values).index
        state = namespace_state(index, key.removeprefix(NAMESPACES))
        assert state is not None
        assert not state.exists
        self._contents(index, state)

    def _start_controller_manager(self) -> None:
        self._collected(collect(look_at(self.values).index).caught_up)

    _create = _corrupt = _start_controller_manager

    def _etcd_put(self) -> None:
        action = self.case["action"]
        before = {entry["key"]: entry for entry in self.case["before"]}
        value = action.get("value_base64") or before[action["key"]]["healthy_value_base64"]
        self.values[action["key"]] = base64.b64decode(value)
        self._start_controller_manager()

    def _etcd_delete_then_put(self) -> None:
        case, action = self.case, self.case["action"]
        key = action["key"]
        keys = action.get("keys", [key])
        back = action.get("put_keys", [key])
        self.done.add(key)
        if "Controller manager stopped" in case["description"]:
            self.values = {k: value for k, value in self.values.items() if k not in keys or k in back}
            self._start_controller_manager()
            return
        self._remove(keys)
        self.done.intersection_update(keys)
        if action["put_after_seconds"] <= 2 and "nreadable" in case["description"]:
            self.said = dict.fromkeys(self.said, (Said.NOT_TOLD, "put back"))

    # -- what the answers say

    def _collected(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._say(decision.object.key, *self._of_decision(decision))

    def _of_decision(self, decision: Decision) -> tuple[Said, str]:
        waits = decision.ran_before if self.manager is Manager.RAN_BEFORE else decision.started_after
        if decision.action is not Action.CASCADE_DELETED or decision.stays or waits:
            return Said.STAYS, ""
        if (
            self.manager is Manager.STARTED_AFTER
            and decision.ran_before
            and decision.uncertain.count(";") == 1
        ):
            return Said.GOES, ""  # all that is uncertain is what the other one does
        return (Said.NOT_TOLD if decision.uncertain else Said.GOES), decision.uncertain

    def _namespaces(self, index: ImpactIndex, without: list[int]) -> None:
        for ref in terminating_namespaces(index):
            self._namespace(index, ref.name, without)

    def _namespace(self, index: ImpactIndex, name: str, without: list[int]) -> None:
        state = namespace_state(index, name, without=without)
        assert state is not None
        if not state.readable:
            return
        absent = {b.object.key for b in state.blockers if b.node_state == "absent" and not b.finalizers}
        if absent and "pod-garbage-collector-controller" in self.case["controllers"]:
            # Said to be forced away by the pod garbage collector, which does not run in the other cases.
            for key in absent:
                self._say(key, Said.GOES)
            self._namespace(index, name, [*without, *(node_of(index, key) for key in absent)])
            return
        held, why = inside_held(state), ""
        own = bool(state.finalizers) or any(token != "kubernetes" for token in state.spec_finalizers)
        elsewhere, *inside = state.stages
        others = {b.object.resource for b in elsewhere.blockers}
        if (
            not own
            and others == {"namespaces"}
            and state.terminating
            and not any(stage.blockers for stage in inside)
        ):
            why = "already being deleted"
        said = Said.STAYS if own or held else Said.GOES
        self._say(NAMESPACES + name, Said.NOT_TOLD if why else said, why)
        processed = state.terminating or "namespaces" not in others
        if processed:
            self._contents(index, state)
        gone = [
            node
            for key, (told, _) in self.said.items()
            if told is Said.GOES and (node := index.find(key.encode())) is not None
        ]
        if gone and self.manager is not Manager.NONE:
            self._collected(d for d in collect(index, *gone).tree if d.object.key not in self.said)

    def _contents(self, index: ImpactIndex, state: NamespaceState) -> None:
        blockers = {blocker.object.key for blocker in state.blockers}
        prefix = index.layout.prefix
        places = [index.place(node)[0] for node in index.nodes()]
        paths = {(directory.group, directory.resource): directory.path for directory in places}
        for content in state.contents:
            for node in index.below(paths[content.group, content.resource]):
                ref = index.ref(node)
                if ref.namespace != state.name or ref.key in self.done:
                    continue
                stays = bool(content.stays) or ref.key in blockers
                unsure = content.stays == Stays.CRD_UNREADABLE
                assert ref.key.startswith(prefix)
                why = "cannot be read: API servers that run" if unsure else ""
                self._say(ref.key, Said.NOT_TOLD if unsure else Said.STAYS if stays else Said.GOES, why)

    def _say(self, key: str, said: Said, why: str = "") -> None:
        # What one controller leaves, the other may take.
        if self.of(key)[0] is Said.STAYS:
            self.said[key] = said, why


def inside_held(state: NamespaceState) -> bool:
    return bool(state.blockers or state.unavailable_apis)


def default_policy(index: ImpactIndex, node: int) -> Propagation:
    finalizers = index.finalizers(node)
    if "orphan" in finalizers or index.ref(node).kind in {"Job", "ReplicationController"}:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if "foregroundDeletion" in finalizers else Propagation.BACKGROUND


def node_of(index: ImpactIndex, key: str) -> int:
    node = index.find(key.encode())
    assert node is not None
    return node


def test_forecast() -> None:
    unsure: Counter[str] = Counter()
    faults = []
    for case in some(ALL, of=6):
        forecast = Forecast(case)
        for entry in case["after"]:
            key = entry["key"]
            if entry.get("elsewhere") or key in forecast.done:
                continue
            said, why = forecast.of(key)
            went = entry["state"] == "gone" or bool(entry.get("was_deleted_meanwhile"))
            if said is Said.NOT_TOLD:
                unsure[next(words for words in NOT_TOLD if words in why)] += 1
            elif went == (said is Said.STAYS):
                faults.append(f"{case['id']}: {key} is said to be one that {said}, and is {entry['state']}")
    assert faults == []
    assert unsure == NOT_TOLD if THOROUGH else unsure <= Counter(NOT_TOLD)
    assert len(ALL) == 431


def held_namespaces() -> Iterator[tuple[Case, str, list[str]]]:
    for case in ALL:
        for entry in case["after"]:
            key = entry["key"]
            tried = case["action"]["type"] == "namespace-delete" and case["action"]["key"] == key
            if tried and entry["state"] == "terminating":
                yield case, key.removeprefix(NAMESPACES), obstacles(case, key)


def obstacles(case: Case, key: str) -> list[str]:
    name = key.removeprefix(NAMESPACES)
    found = [b["key"] for b in case["before"] if b.get("unreadable")]
    for entry in case["after"]:
        inside = f"/{name}/" in entry["key"]
        if inside and entry["state"] == "terminating":
            found.append(entry["key"])
        if entry["key"] == key:
            found += entry.get("metadata.finalizers", [])
            found += [token for token in entry.get("spec.finalizers", []) if token != "kubernetes"]
    if not found:  # pods go first: one that is left holds the rest
        found = [
            entry["key"]
            for entry in case["after"]
            if f"/pods/{name}/" in entry["key"] and entry["state"] != "gone"
        ]
    if "apiservice" in case["id"]:
        found += [b["key"].rpartition("/")[2] for b in case["before"] if "/apiservices/" in b["key"]]
    return found


def test_every_obstacle_of_a_held_namespace_is_named() -> None:
    held = list(held_namespaces())
    unnamed = []
    for case, name, words in held:
        surroundings = look_at(values_before(case), concerns_namespace(StorageLayout("/registry"), name))
        report = namespace_report(surroundings, name)
        assert report is not None
        said = [
            report.namespace.stages,
            report.namespace.unavailable_apis,
            report.namespace.unknown_apis,
            report.plan,
        ]
        text = Encoder(RunOptions()).encode(said).decode()
        text += " ".join([*report.namespace.finalizers, *report.namespace.spec_finalizers])
        unnamed += [f"{case['id']}: {word}" for word in words if word not in text]
        if not words:
            unnamed.append(f"{case['id']}: nothing is known to hold it")
    assert unnamed == []
    assert held
