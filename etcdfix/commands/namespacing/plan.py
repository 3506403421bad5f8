"""What to do about a namespace that cannot finish deleting, step by step.

First what would be left behind, since it is too late for it once the namespace is gone. Then what holds every namespace
of the cluster: what cannot be read elsewhere, and APIs that do not answer. Then the order of the namespace controller
(KEP-5080): what cannot be read in the namespace, pods before everything else; pods that no kubelet ends; whatever
finalizers hold, pods first again.

A Namespace object that is lost does not say that anybody wanted the namespace gone: keeping what is in it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.commands.namespacing.apis import api_steps, definition_steps, webhook_steps
from etcdfix.graph.cluster import ClusterIndex
from etcdfix.graph.collector import collect
from etcdfix.graph.grades import reasons_for
from etcdfix.graph.model import Action, Blocker, Collection, CyclicWait, DeletionStage, ObjectRef, Risk
from etcdfix.graph.namespaces import NamespaceState
from etcdfix.graph.uses import Role
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.change import unsafe_deletion
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.advice.ways import (
    WayKind,
    first_way,
    is_warning,
    recovered_configuration,
    risks_to_accept,
)
from etcdfix.report.model import Remedy
from etcdfix.report.namespace import NamespaceStep
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import display
from etcdfix.text.commands import FORCE, GRANTED, NO_COMMAND, Command, delete, kubectl, look
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import Deletability, deletability_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.severity import Rank, stake_of

_MOST_STEPS: Final = 20
# The API server deletes these never, whoever asks (admission plugin NamespaceLifecycle).
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_LEAST: Final[Rank] = (9, 9, 9)
# What keeps the object, beside the first way out.
_KEEPING: Final = frozenset({WayKind.FIX, WayKind.SAVE, WayKind.RESCUE})
_EVERYWHERE: Final = ", and so holds every namespace of the cluster"
_PATIENCE: Final = {
    "absent": "There is no Node object {0}, so the pod garbage collector forces the pod away within a minute. If it "
    "does not, check that kube-controller-manager runs.",
    "not-ready": "The Node object {0} is not ready. Bring its kubelet back, or nobody ends the pod.",
    "ready": "The Node object {0} says that it is ready. Find out why its kubelet does not end the pod.",
    "unknown": "The state of the Node object {0} is not known.",
}
_FORCED: Final = (
    " Without --dry-run=server the command forces the pod away and does not wait for its containers. Check first that "
    "they do not run, or two may write the same volume. Check also that the pod still has a deletionTimestamp: a new "
    "pod of that name may have come."
)
_HARM: Final = {
    "unreadable": "It fails every LIST of its type",
    "serves-empty": "LISTs show an empty object without a name, so nothing that deletes by name finds it",
}


class NamespacePlan:
    """What to do about one namespace: its blockers with their causes, and the steps.

    Args:
        cluster: Made by keeping what :func:`~etcdfix.commands.namespace.concerns_namespace` says.
        stuck: Whether it needs a look even where no step is known.
    """

    def __init__(self, cluster: ClusterIndex, state: NamespaceState, *, stuck: bool) -> None:
        self._cluster = cluster
        self._index = cluster.index
        self._run = cluster.request.run
        self._state = state
        self._stuck = stuck
        self._readable = ReadableRevisions(cluster.source, cluster.examiner)

    def stage(self, stage: DeletionStage) -> DeletionStage:
        """Return a stage with the causes of its blockers."""
        return msgspec.structs.replace(stage, blockers=tuple(map(self.blocker, stage.blockers)))

    def blocker(self, blocker: Blocker) -> Blocker:
        """Return a blocker with its cause."""
        found = self._examined(blocker.object)
        if found is None:
            return blocker
        return msgspec.structs.replace(blocker, cause=found.verdict.cause, message=found.verdict.message)

    def _examined(self, ref: ObjectRef) -> Examination | None:
        return self._cluster.kept.get(ref.raw_key)

    def examined(self) -> list[Examination]:
        """Return what holds the namespace and was kept: the worst first."""
        inside = (blocker for stage in self._state.stages for blocker in stage.blockers)
        objects = dict.fromkeys([self._state.object, *(b.object for b in (*self._state.elsewhere, *inside))])
        found = [one for ref in objects if (one := self._examined(ref)) is not None]
        return sorted(found, key=lambda one: stake.rank if (stake := stake_of(one)) is not None else _LEAST)

    def steps(self) -> list[NamespaceStep]:
        """Return what to do, in order; nothing where nothing has to be done."""
        state = self._state
        broken = next((stage for stage in state.stages if stage.name == "unreadable"), None)
        steps = [
            *definition_steps(state, self._cluster.request.layout),
            *self._own_object(),
            *self._unreadable(state.elsewhere, state.elsewhere_count, _EVERYWHERE),
            *api_steps(state),
            *webhook_steps(state.webhooks),
            *(self._unreadable(broken.blockers, broken.blocker_count, "") if broken is not None else ()),
            *self._pods(),
            *self._finalizers(),
            *self._own_finalizers(),
        ]
        if not steps and not self._stuck:
            return []
        if state.terminating and not state.frozen:
            note = "It tries less and less often. A restart of kube-controller-manager makes it try at once."
            again = kubectl("get", "namespace", state.name, "-o", "yaml")
            steps.append(NamespaceStep("Wait until the namespace controller tries again", again, note))
        return [*steps, NamespaceStep("Look again", self._look_again())]

    def _own_object(self) -> Iterator[NamespaceStep]:
        state = self._state
        if not state.exists and not state.complete:
            yield NamespaceStep(
                "Check whether the Namespace is there: it was not seen, and not everything could be read",
                kubectl("get", "namespace", state.name),
                "Until you know, do not create it, and do not take what is in it for left over.",
            )
        elif not state.exists:
            yield from self._keep_or_end("re-create it")
        elif not state.readable:
            found = self._examined(state.object)
            if found is not None and self._removable(found):
                harm = "The API server shows an empty object in its place. "
                if state.frozen:
                    harm = "Until it goes, the controller processes no namespace of the cluster. "
                lost = "What is in it stays. Its labels and annotations are lost. "
                warning = harm + self._warning(found) + self._first() + lost
                yield from self._removal(found, "the Namespace object itself", warning)
                yield from self._keep_or_end("re-create it right after that deletion")
            elif found is not None:
                yield from self._cures([(Blocker(state.object, "unreadable"), found)])

    def _keep_or_end(self, again: str) -> Iterator[NamespaceStep]:
        """Yield both ways on from a Namespace that is gone: nothing tells that anybody wants its contents gone."""
        yield NamespaceStep(
            f"To keep what is in it: {again}, and stop",
            kubectl("create", "namespace", self._state.name),
            "This deletes nothing. Give it the labels and annotations that it had, as far as anybody knows them.",
        )
        if self._state.name not in _IMMORTAL:
            yield NamespaceStep(
                "Only if it was meant to go: delete it the ordinary way, and its controller cleans up",
                kubectl("delete", "namespace", self._state.name, "--dry-run=server"),
                "Without the dry run, everything in it goes, with the data of volumes whose reclaim policy is Delete. "
                "What cannot be read in it holds the controller: the steps below remove it.",
            )

    def _unreadable(
        self, blockers: Sequence[Blocker], total: int, everywhere: str
    ) -> Iterator[NamespaceStep]:
        """Yield a step for each object that fails its type: pods first, since they hold up, or lose, the order."""
        known = [(b, found) for b in blockers if (found := self._examined(b.object)) is not None]
        lost = [(b, found) for b, found in known if b.reason != "undetermined"]
        cures = [(b, found) for b, found in lost if not self._removable(found)]
        yield from self._cures(cures)
        unjudged = [found for b, found in known if b.reason == "undetermined"]
        if unjudged:
            way = first_way(ways_out(unjudged[0], self._run))
            where = " of other namespaces" if everywhere else ""
            yield NamespaceStep(
                f"Find out about {counted(len(unjudged), 'object')}{where} that could not be judged; delete none",
                way.command if way is not None else NO_COMMAND,
                way.action if way is not None else "",
            )
            causes = [(found.verdict.cause, found.transformer) for found in unjudged if found.verdict.cause]
            kept = (recovered_configuration([cause], transformer, self._run) for cause, transformer in causes)
            recovered = next(filter(None, kept), None)
            if recovered is not None:
                yield NamespaceStep(recovered.action, recovered.command, recovered.note)
        removable = [(b, found) for b, found in lost if self._removable(found)]
        for number, (blocker, found) in enumerate(removable[:_MOST_STEPS]):
            warning = self._warning(found) + ("" if number else self._first())
            if blocker.object.resource == "namespaces":
                warning += (
                    "What is in it stays. Re-create it right after that deletion, or nothing new is admitted there: "
                    "etcdfix namespace with its name says how. "
                )
            harm = f"{_HARM[blocker.reason]}{everywhere}. "
            yield from self._removal(found, str(blocker.object), harm + warning)
        rest = total - len(cures) - len(unjudged) - min(len(removable), _MOST_STEPS)
        if rest > 0:
            yield NamespaceStep(
                f"Then {counted(rest, 'more object')} that cannot be read",
                self._look_again("-o", "json"),
                "If everything under one key fails, the key is lost, not the objects: find it first.",
            )

    def _pods(self) -> Iterator[NamespaceStep]:
        """Yield a step for each pod that no kubelet ends; where it stays, only those marked for deletion."""
        held = [b for stage in self._state.stages for b in stage.blockers if b.reason == "node"]
        pods = [b for b in held if self._state.terminating or b.past_grace]
        for number, pod in enumerate(pods[:_MOST_STEPS]):
            ref = pod.object
            note = _PATIENCE[pod.node_state or "unknown"].format(pod.node)
            if pod.finalizers:
                note += f" Its finalizers go first: {', '.join(pod.finalizers[:10])}."
            late = (
                "its grace period is over, and nothing ended it" if pod.past_grace else "nothing will end it"
            )
            yield NamespaceStep(
                f"End {ref} on node {pod.node}: {late}",
                kubectl("delete", "pod", ref.name, "-n", ref.namespace, *FORCE),
                note + ("" if number else _FORCED),
                ref.key,
            )
        if len(pods) > _MOST_STEPS:
            yield NamespaceStep(
                f"Then {counted(len(pods) - _MOST_STEPS, 'more pod')}", self._look_again("-o", "json")
            )

    def _first(self) -> str:
        if self._run.of_kine:
            return "Copy state.db and state.db-wal first. "
        return "Take a snapshot of etcd first. " + ("" if self._run.told_of_encryption else GRANTED)

    def _removable(self, found: Examination) -> bool:
        return deletability_of(found) is Deletability.DELETABLE and not self._cluster.key_looks_lost(found)

    def _cures(self, blockers: list[tuple[Blocker, Examination]]) -> Iterator[NamespaceStep]:
        """Yield what is no reason to delete: a configuration that lacks something, once for all that it would cure."""
        groups: dict[tuple[str, str], list[tuple[Blocker, Remedy]]] = {}
        for blocker, found in blockers:
            ways = ways_out(found, self._run)
            way = next((way for way in ways if way.verb == WayKind.CURE), first_way(ways))
            if way is not None:
                groups.setdefault((found.transformer, way.action), []).append((blocker, way))
        for (transformer, action), members in groups.items():
            names = ", ".join(str(b.object) for b, _ in members[:3]) + (", …" if len(members) > 3 else "")
            under = f" under {transformer}" if transformer != "identity" else ""
            way = members[0][1]
            yield NamespaceStep(
                f"{action}: {counted(len(members), 'object')}{under} ({names})",
                way.command,
                f"{way.note} Delete none of them. Do not restart the API servers: their caches may hold them.",
            )

    def _removal(self, found: Examination, what: str, warning: str) -> Iterator[NamespaceStep]:
        key = found.stored.key
        ways = self._ways(found)
        first = first_way(ways)
        kept = [way for way in ways if way.verb in _KEEPING and way is not first]
        every = ([first] if first is not None else []) + kept
        options = [way for way in every if is_warning(way) or way.command.line(self._run)]
        for way in options:
            action = way.action[:1].lower() + way.action[1:]
            yield NamespaceStep(f"{what}: {action}", way.command, way.note, display(key))
        only = ", only if the step before this one did not help" if options else ""
        if not options and first is not None:
            warning += f"Less destructive, if you can: {first.action}."
        if self._run.of_kine:
            action, command = "let an API server delete it the unsafe way", unsafe_deletion(found)
            warning = f"Nothing of etcdfix writes to kine. {warning}"
        else:
            risks = risks_to_accept(found, breaking=bool(self._breaking(found)))
            action, command = "delete it, dry run first", delete(key, risks)
        yield NamespaceStep(f"{what}: {action}{only}", command, warning.rstrip(), display(key))

    def _ways(self, found: Examination) -> list[Remedy]:
        readable = self._readable.of(found).revision if self._cluster.ended is None else None
        return ways_at_hand(found, self._run, readable, breaking=bool(self._breaking(found)))

    def _collected(self, found: Examination) -> tuple[int, Collection]:
        node = self._index.find(found.stored.key)
        assert node is not None  # what is kept was examined, so the index has it
        return node, collect(self._index, node)

    def _breaking(self, found: Examination) -> str:
        # As a deletion grades it, but for what the history tells.
        reasons = reasons_for(self._index, *self._collected(found), None, (), ())
        return next((reason.text for reason in reasons if reason.risk is Risk.CLUSTER_BREAKING), "")

    def _warning(self, found: Examination) -> str:
        node, collection = self._collected(found)
        reason = self._breaking(found)
        words = f"The deletion also needs {acceptance(Rule.CLUSTER_BREAKING)}: {reason}. " if reason else ""
        if (collection.removed.group, collection.removed.resource) == ("", "persistentvolumeclaims"):
            volumes = {e.source for e in self._index.users(node) if e.use.role is Role.BOUND_CLAIM}
            names = ", ".join(sorted(str(self._index.ref(volume)) for volume in volumes))
            words += (
                f"With reclaim policy Delete, its volume{f' ({names})' if names else ''} and the data on it go too: "
                "set the PersistentVolume to Retain first. "
            )
        deleted = collection.counts[Action.CASCADE_DELETED]
        if deleted:
            words += f"The garbage collector then deletes {counted(deleted, 'dependent')}: see explain KEY --impact. "
        return words

    def _finalizers(self) -> Iterator[NamespaceStep]:
        if not self._state.terminating:
            return  # nobody was marked for deletion: finalizers that wait are in order
        rings: dict[str, CyclicWait] = {}
        for cycle in self._state.cycles:
            rings.setdefault(cycle.pod.key, cycle)
        for stage in self._state.stages:
            held = [b for b in stage.blockers if b.reason == "finalizers"]
            names = sorted({finalizer for blocker in held for finalizer in blocker.finalizers})
            if held:
                first = held[0].object
                yield NamespaceStep(
                    f"Check that the controllers of these finalizers run: {', '.join(names[:10])} "
                    f"({counted(stage.blocker_count, 'object')})",
                    kubectl("get", first.full_resource, first.name, "-n", first.namespace, "-o", "yaml"),
                    "Take a finalizer off by hand only if its controller is gone for good: that skips what it guards.",
                )
        for ring in list(rings.values())[:_MOST_STEPS]:
            pod = ring.pod
            yield NamespaceStep(
                f"End the cyclic wait of {pod} and {ring.object}: remove finalizer {ring.finalizer} from the pod, once "
                "what it guards is safe",
                kubectl("edit", "pod", pod.name, "-n", pod.namespace),
                f"{ring.confidence.value}: pods go first, and this one waits for what comes after it. Do this only if "
                "its controller runs and does not finish.",
                pod.key,
            )

    def _own_finalizers(self) -> Iterator[NamespaceStep]:
        """Yield what to do about the finalizers of the Namespace itself, which go in two different ways."""
        state = self._state
        foreign = [token for token in state.spec_finalizers if token != "kubernetes"]  # noqa: S105 - no password
        if state.terminating and state.finalizers:
            yield NamespaceStep(
                f"Check the controllers of the Namespace's metadata.finalizers: {', '.join(state.finalizers[:10])}",
                kubectl("get", "namespace", state.name, "-o", "yaml"),
                "Take an entry off with kubectl edit only if its controller is gone for good.",
            )
        if state.terminating and foreign:
            yield NamespaceStep(
                f"Check the controllers of the Namespace's spec.finalizers: {', '.join(foreign[:10])}",
                kubectl("replace", "--raw", f"/api/v1/namespaces/{state.name}/finalize", "-f", "FILE"),
                "Only if a controller is gone for good: FILE is the Namespace as JSON without that entry. Leave "
                "kubernetes in. The subresource /finalize alone takes these off.",
            )

    def _look_again(self, *options: str) -> Command:
        name = self._state.name
        return look("namespace", name, *options) if name.isprintable() else NO_COMMAND
