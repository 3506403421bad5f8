"""Why a namespace cannot finish deleting: its state, and what to do about it, step by step.

First what would be left behind, since it is too late for it once the namespace is gone. Then what holds every namespace
of the cluster: what cannot be read elsewhere, and APIs that do not answer. Then the order of the namespace controller
(KEP-5080): what cannot be read in the namespace, pods before everything else; pods that no kubelet ends; whatever
finalizers hold. A Namespace object that is lost does not say that anybody wanted the namespace gone: keeping what is in
it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from etcdfix.examine.readable_revision import ReadableRevisions
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.severity import Rank, stake_of
from etcdfix.graph.cluster import ClusterIndex, Keep
from etcdfix.graph.collector import collect
from etcdfix.graph.deletion import IMMORTAL
from etcdfix.graph.grades import reasons_for
from etcdfix.graph.model import Blocker, DeletionStage, Risk, Stays
from etcdfix.graph.namespaces import (
    NamespaceState,
    namespace_key,
    namespace_state,
    terminating_namespaces,
)
from etcdfix.model.model import Outcome
from etcdfix.model.providers import IDENTITY
from etcdfix.model.rules import Rule, acceptance
from etcdfix.model.storagekey import StorageLayout, display
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.finding import unsafe_deletion, ways_out
from etcdfix.report.advice.ways import WayKind, first_way, risks_to_accept
from etcdfix.report.model import Remedy
from etcdfix.report.namespace import (
    MOST_STEPS,
    NamespaceReport,
    NamespaceStep,
    api_steps,
    definition_steps,
    finalizer_steps,
    look_again,
    pod_steps,
    webhook_steps,
)
from etcdfix.report.origin import report_origin
from etcdfix.report.tally import Stakes
from etcdfix.text.commands import GRANTED, NO_COMMAND, delete, kubectl
from etcdfix.text.words import counted

_WELL: Final = frozenset({"active", "terminating"})
_UNJUDGED: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.UNDETERMINED})
_LEAST: Final[Rank] = (9, 9, 9)
_HARM: Final = {
    "unreadable": "It fails every LIST of its type",
    "serves-empty": "LISTs show an empty object without a name, so nothing that deletes by name finds it",
}


def concerns_namespace(layout: StorageLayout, name: str) -> Keep:
    """Return what says how much an examination matters to the report on a namespace.

    The Namespace itself most of all, then pods, then what is proven broken; what lies elsewhere least.
    """
    namespaces, own = namespace_key(layout, ""), namespace_key(layout, name)

    def keep(found: Examination) -> int:
        outcome = found.verdict.outcome
        if outcome not in _UNJUDGED:
            return 0
        proven = outcome is not Outcome.UNDETERMINED
        if found.stored.key == own:
            return 6
        if found.namespace == name:
            is_pod = (found.directory.group, found.directory.resource) == ("", "pods")
            return 5 if is_pod else 3 + proven
        # What cannot be read elsewhere holds this namespace, too.
        everywhere = bool(found.namespace) or found.stored.key.startswith(namespaces)
        return 1 + proven if everywhere else 0

    return keep


def namespace_report(cluster: ClusterIndex, name: str) -> NamespaceReport | None:
    """Return what keeps a namespace, and a plan; None where neither its object nor anything in it was seen."""
    index = cluster.index
    origin = report_origin(cluster.source.describe(), cluster.request.configuration, cluster.kube_system_uid)
    state = namespace_state(index, name, aggregated=cluster.aggregated, now=origin["generated_at"])
    if state is None:
        return None
    own = index.find(state.object.raw_key)
    nodes = {*index.inside(name), *chain.from_iterable(index.unlistable.values())}
    nodes |= {own} if own is not None else set()
    undetermined = sum(index.unreadable(node) and not index.lost(node) for node in nodes)
    reasons = cluster.incomplete_reasons(undetermined)
    plan = NamespacePlan(cluster, state)
    stakes = Stakes(plan.examined(), past=cluster.request.run.of_the_past)
    stages = tuple(msgspec.structs.replace(one, blockers=plan.told(one.blockers)) for one in state.stages)
    return NamespaceReport(
        **origin,
        state=_state(state),
        namespace=msgspec.structs.replace(state, stages=stages),
        plan=plan.steps(),
        at_stake=stakes.at_stake,
        do_not_restart=stakes.do_not_restart,
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def has_findings(report: NamespaceReport) -> bool:
    """Say whether anything blocks the namespace, or is left behind, or may be."""
    state = report.namespace
    left = state.unknown_apis or state.count(Stays.CRD_UNREADABLE) or state.count(Stays.NOT_SERVED)
    return report.state not in _WELL or (state.terminating and bool(left))


def terminating_names(cluster: ClusterIndex) -> list[str]:
    """Return the names of the namespaces that are being deleted."""
    return [ref.name for ref in terminating_namespaces(cluster.index)]


def _state(state: NamespaceState) -> str:
    if not state.exists:
        return "unknown" if state.exists is None else "missing"
    if not state.readable:
        return "unreadable"
    if state.terminating:
        return "stuck" if state.held or state.problems else "terminating"
    # Finalizers of what nobody deletes are in order.
    inside = any(blocker.reason != "finalizers" for blocker in state.blockers)
    held = inside or state.unavailable_apis
    return "active-with-blockers" if held else "active"


class NamespacePlan:
    """What to do about one namespace; the cluster keeps what :func:`concerns_namespace` says."""

    def __init__(self, cluster: ClusterIndex, state: NamespaceState) -> None:
        self._cluster, self._index, self._state = cluster, cluster.index, state
        self._run = cluster.request.run
        self._readable = ReadableRevisions(cluster.source, cluster.examiner)

    def told(self, blockers: Sequence[Blocker]) -> tuple[Blocker, ...]:
        """Return blockers with their causes."""
        return tuple(
            msgspec.structs.replace(one, cause=found.verdict.cause, message=found.verdict.message)
            if (found := self._cluster.kept.get(one.object.raw_key)) is not None
            else one
            for one in blockers
        )

    def examined(self) -> list[Examination]:
        """Return what holds the namespace and was kept: the worst first."""
        state = self._state
        keys = dict.fromkeys([state.object.raw_key, *(blocker.object.raw_key for blocker in state.blockers)])
        found = [one for key in keys if (one := self._cluster.kept.get(key)) is not None]
        return sorted(found, key=lambda one: stake.rank if (stake := stake_of(one)) is not None else _LEAST)

    def steps(self) -> list[NamespaceStep]:
        """Return what to do, in order; nothing where nothing has to be done."""
        state = self._state
        steps = [
            *definition_steps(state, self._cluster.request.layout),
            *self._own_object(),
            *self._unreadable(state.stage("elsewhere"), elsewhere=True),
            *api_steps(state),
            *webhook_steps(state),
            *self._unreadable(state.stage("unreadable"), elsewhere=False),
            *pod_steps(state),
            *finalizer_steps(state),
        ]
        if not steps and _state(state) != "stuck":
            return []
        if state.terminating and not state.frozen:
            note = "It tries less and less often. A restart of kube-controller-manager makes it try at once."
            again = kubectl("get", "namespace", state.name, "-o", "yaml")
            steps.append(NamespaceStep("Wait until the namespace controller tries again", again, note))
        return [*steps, NamespaceStep("Look again", look_again(state.name))]

    def _own_object(self) -> Iterator[NamespaceStep]:
        state = self._state
        found = self._cluster.kept.get(state.object.raw_key)
        if state.exists is None:
            yield NamespaceStep(
                "Check whether the Namespace is there: it was not seen, and not everything could be read",
                kubectl("get", "namespace", state.name),
                "Until you know, do not create it, and do not take what is in it for left over.",
            )
        elif not state.exists:
            yield from self._keep_or_end("re-create it")
        elif not state.readable and found is not None and not self._removable(found):
            yield from self._cures([(Blocker(state.object, "unreadable"), found)])
        elif not state.readable and found is not None:
            harm = "The API server shows an empty object in its place. "
            if state.frozen:
                harm = "Until it goes, the controller processes no namespace of the cluster. "
            lost = "What is in it stays. Its labels and annotations are lost. "
            yield from self._removal(found, "the Namespace object itself", harm + lost + self._first())
            yield from self._keep_or_end("re-create it right after that deletion")

    def _keep_or_end(self, again: str) -> Iterator[NamespaceStep]:
        """Yield both ways on from a Namespace that is gone: nothing tells that anybody wants its contents gone."""
        name = self._state.name
        note = "This deletes nothing. Give it the labels and annotations that it had, as far as anybody knows them."
        create = kubectl("create", "namespace", name)
        yield NamespaceStep(f"To keep what is in it: {again}, and stop", create, note)
        if name not in IMMORTAL:
            yield NamespaceStep(
                "Only if it was meant to go: delete it the ordinary way, and its controller cleans up",
                kubectl("delete", "namespace", name, "--dry-run=server"),
                "Without the dry run, everything in it goes, with the data of volumes whose reclaim policy is Delete.",
            )

    def _unreadable(self, stage: DeletionStage, *, elsewhere: bool) -> Iterator[NamespaceStep]:
        """Yield a step for each object that fails its type: pods first, since they hold up, or lose, the order."""
        kept = self._cluster.kept
        known = [(b, found) for b in stage.blockers if (found := kept.get(b.object.raw_key)) is not None]
        lost = [(b, found) for b, found in known if b.reason != "undetermined"]
        cures = [(b, found) for b, found in lost if not self._removable(found)]
        yield from self._cures(cures)
        unjudged = [found for b, found in known if b.reason == "undetermined"]
        if unjudged:
            way = first_way(ways_out(unjudged[0], self._run)) or Remedy("", NO_COMMAND)
            many = counted(len(unjudged), "object") + (" of other namespaces" if elsewhere else "")
            action = f"Find out about {many} that could not be judged; delete none"
            yield NamespaceStep(action, way.command, way.action)
        removable = [(b, found) for b, found in lost if self._removable(found)]
        for number, (blocker, found) in enumerate(removable[:MOST_STEPS]):
            harm = f"{_HARM[blocker.reason]}{', and so holds every namespace of the cluster' if elsewhere else ''}. "
            if blocker.object.resource == "namespaces":
                harm += "What is in it stays: re-create it right after that deletion. "
            yield from self._removal(found, str(blocker.object), harm + ("" if number else self._first()))
        rest = stage.blocker_count - len(cures) - len(unjudged) - min(len(removable), MOST_STEPS)
        if rest > 0:
            note = "If everything under one key fails, the key is lost, not the objects: find it first."
            action = f"Then {counted(rest, 'more object')} that cannot be read"
            yield NamespaceStep(action, look_again(self._state.name, "-o", "json"), note)

    def _first(self) -> str:
        if self._run.of_kine:
            return "Copy state.db and state.db-wal first. "
        return "Take a snapshot of etcd first. " + ("" if self._run.told_of_encryption else GRANTED)

    def _removable(self, found: Examination) -> bool:
        return deletability_of(found) is Deletability.DELETABLE and not self._cluster.key_looks_lost(found)

    def _cures(self, blockers: Sequence[tuple[Blocker, Examination]]) -> Iterator[NamespaceStep]:
        """Yield what is no reason to delete: a configuration that lacks something, once for all that it would cure."""
        groups: dict[tuple[str, str], list[tuple[Blocker, Remedy]]] = {}
        for blocker, found in blockers:
            ways = ways_out(found, self._run)
            way = next((way for way in ways if way.verb == WayKind.CURE), first_way(ways))
            if way is not None:
                groups.setdefault((found.transformer, way.action), []).append((blocker, way))
        for (transformer, action), members in groups.items():
            names = ", ".join(str(b.object) for b, _ in members[:3]) + (", …" if len(members) > 3 else "")
            under = f" under {transformer}" if transformer != IDENTITY else ""
            keep = "" if "delete no objects" in action else "Delete none of these objects. "
            note = f"{members[0][1].note} {keep}Do not restart the API servers: caches may hold them."
            many = counted(len(members), "object")
            yield NamespaceStep(f"{action}: {many}{under} ({names})", members[0][1].command, note)

    def _removal(self, found: Examination, what: str, note: str) -> Iterator[NamespaceStep]:
        """Yield the first way out of an object, and its deletion: a dry run that shows all that it sets off."""
        key, index = found.stored.key, self._index
        node = index.find(key)
        assert node is not None  # what is kept was examined, so the index has it
        # As a deletion grades it, but for what the history tells.
        reasons = reasons_for(index, node, collect(index, node), (), ())
        breaking = any(reason.risk is Risk.CLUSTER_BREAKING for reason in reasons)
        note += " ".join(f"{reason.text[:1].upper()}{reason.text[1:]}." for reason in reasons[:2])
        if breaking:
            note += f" The deletion also needs {acceptance(Rule.CLUSTER_BREAKING)}."
        readable = self._readable.of(found).revision if self._cluster.ended is None else None
        first = first_way(ways_at_hand(found, self._run, readable, breaking=breaking))
        if first is not None:
            action = f"{what}: {first.action[:1].lower()}{first.action[1:]}"
            yield NamespaceStep(action, first.command, first.note, display(key))
        only = ", only if the step before this one did not help" if first is not None else ""
        if self._run.of_kine:
            action, command = "let an API server delete it the unsafe way", unsafe_deletion(found)
            note = f"Nothing of etcdfix writes to kine. {note}"
        else:
            action, command = (
                "delete it, dry run first",
                delete(key, risks_to_accept(found, breaking=breaking)),
            )
        yield NamespaceStep(f"{what}: {action}{only}", command, note.rstrip(), display(key))
