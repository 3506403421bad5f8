"""Why a namespace cannot finish deleting, and what to do about it in which order.

First of all what would be left behind, since it is too late for it once the namespace is gone: a
CustomResourceDefinition comes back before anything else is done. Then what holds every namespace of the cluster: what
cannot be read elsewhere, and APIs that do not answer. Then the order of the namespace controller (KEP-5080): what
cannot be read in the namespace, pods before everything else; pods that no kubelet ends; whatever finalizers hold, pods
first again.

A Namespace object that is lost does not say that anybody wanted the namespace gone: keeping what is in it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from etcdfix.graph.collector import collect
from etcdfix.graph.grades import reasons_for
from etcdfix.graph.model import Action, Blocker, CyclicWait, DeletionStage, ObjectRef, Risk, Stays
from etcdfix.graph.namespaces import (
    NamespaceState,
    contents_of,
    namespace_key,
    namespace_state,
    terminating_namespaces,
)
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence, Outcome
from etcdfix.operations.look.index_cluster import ClusterIndex, Keep, same_fields
from etcdfix.operations.look.webhook_steps import webhook_steps
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.report.head import stakes_of
from etcdfix.report.impact_model import MissingAPI, NamespaceReport, NamespaceStep
from etcdfix.report.model import Remedy
from etcdfix.report.next_steps import first_way_out
from etcdfix.report.remedies import (
    recovered_configuration,
    unsafe_deletion_request,
    ways_out,
)
from etcdfix.report.ways import Way, WayKind, risks_to_accept
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import StorageLayout, display
from etcdfix.text.commands import GRANTED, Command, RepeatedOptions
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import Deletability, deletability_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.severity import Rank, stake_of

_WELL: Final = frozenset({"active", "terminating"})
_UNJUDGED: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.UNDETERMINED})
_MOST_STEPS: Final = 20
_COPY: Final = "Copy state.db and state.db-wal first. "
_SNAPSHOT: Final = "Take a snapshot of etcd first. "
# The API server deletes these never, whoever asks (admission plugin NamespaceLifecycle).
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_FORCE: Final = ("--grace-period=0", "--force", "--dry-run=server")
_OPTIONS: Final = frozenset({"-n", "-o", "-f", "-p", "--raw", "--type=json", "--type=merge", *_FORCE})
_NAMESPACES: Final = "namespaces"
_LEAST: Final[Rank] = (9, 9, 9)
_CONTENTS_STAY: Final = (
    "What is in it stays: re-create it right after that deletion, or nothing new is admitted there; etcdfix namespace "
    "with its name says how. "
)
# What keeps the object, beside the first way out.
_KEEPING: Final = frozenset({WayKind.PUT_BACK, WayKind.SAVE, WayKind.RESCUE, WayKind.HEAL, WayKind.REPAIR})
_ONLY_THEN: Final = "Only where the step before this one did not help: "
_EVERYWHERE: Final = ", and so holds every namespace of the cluster"
_OVERDUE: Final = {
    True: "its grace period is over, and nothing has ended it",
    False: "nothing will end it",
}
_PATIENCE: Final = {
    "absent": "There is no Node object {0}, so the pod garbage collector forces the pod away within a minute; where it "
    "does not, see that kube-controller-manager runs.",
    "not-ready": "The Node object {0} is there and not ready: bring its kubelet back, or nobody ends the pod.",
    "ready": "The Node object {0} says that it is ready: see why its kubelet does not end the pod.",
    "unknown": "The state of the Node object {0} is not known.",
}
_FORCED: Final = (
    " The command is a dry run; without --dry-run=server it forces the pod away and does not wait for its containers "
    "to end: be sure that they do not run, or two may write the same volume; and that the pod still has a "
    "deletionTimestamp: since the state that was read here, a new one of that name may have come."
)
_HARM: Final = {
    "unreadable": "it fails every LIST of its type",
    "serves-empty": "LISTs show an empty object without a name, so nothing that deletes by name finds it",
}
_CRDS: Final = b"apiextensions.k8s.io/customresourcedefinitions/"


def concerns_namespace(layout: StorageLayout, name: str) -> Keep:
    """Return what says how much an examination matters to the report on a namespace.

    The Namespace itself most of all, then pods, then what is proven broken; what lies elsewhere least.
    """
    namespaces = namespace_key(layout, "")
    own = namespace_key(layout, name)

    def keep(found: Examination) -> int:
        outcome = found.verdict.outcome
        if outcome not in _UNJUDGED:
            return 0
        if found.stored.key == own:
            return 6
        if found.namespace == name:
            if (found.directory.group, found.directory.resource) == ("", "pods"):
                return 5
            return 3 if outcome is Outcome.UNDETERMINED else 4
        # What cannot be read elsewhere holds this namespace, too.
        everywhere = bool(found.namespace) or found.stored.key.startswith(namespaces)
        return (1 if outcome is Outcome.UNDETERMINED else 2) if everywhere else 0

    return keep


def namespace_report(cluster: ClusterIndex, name: str) -> NamespaceReport | None:
    """Return what keeps a namespace, and a plan; None where neither its object nor anything in it was seen.

    Args:
        cluster: Made by keeping what :func:`concerns_namespace` says.
        name: Of the namespace.
    """
    index = cluster.index
    origin = cluster.origin()
    state = namespace_state(index, name, aggregated=cluster.aggregated, now=origin["generated_at"])
    if state is None:
        return None
    nodes = {*contents_of(index, name), *chain.from_iterable(index.unlistable().values())}
    own = index.find(state.object.raw_key)
    nodes |= {own} if own is not None else set()
    undetermined = sum(index.unreadable(node) and not index.lost(node) for node in nodes)
    reasons = cluster.incomplete_reasons(undetermined)
    plan = _NamespacePlan(cluster, state)
    steps = list(plan.steps())
    stakes = stakes_of(plan.examined(), past=cluster.request.same_again.of_the_past)
    return NamespaceReport(
        **origin
        | same_fields(state, NamespaceReport)
        | {
            "state": _state(state),
            "exists": state.exists or (False if state.complete else None),
            "terminating": state.terminating,
            "terminating_since": state.terminating_since or None,
            "stages": [plan.stage(stage) for stage in state.stages],
            "missing_apis": [MissingAPI(api=api, reason=why) for api, why in state.missing_apis.items()],
            "plan": [msgspec.structs.replace(step, number=n) for n, step in enumerate(steps, start=1)],
            "at_stake": stakes.at_stake,
            "do_not_restart": stakes.do_not_restart,
            "next": plan.first_way_out(steps),
            "complete": not reasons,
            "incomplete_reasons": reasons,
            "elsewhere": [plan.blocker(blocker) for blocker in state.elsewhere],
        }
    )


def has_findings(report: NamespaceReport) -> bool:
    """Say whether anything blocks the namespace, or is left behind, or may be."""
    perhaps = report.unknown_apis or any(c.stays == Stays.CRD_UNREADABLE for c in report.contents)
    return report.state not in _WELL or (report.terminating and bool(report.left_behind or perhaps))


def terminating_names(cluster: ClusterIndex) -> list[str]:
    """Return the names of the namespaces that are being deleted."""
    return [ref.name for ref in terminating_namespaces(cluster.index)]


def _state(state: NamespaceState) -> str:
    if not state.exists:
        return "missing" if state.complete else "unknown"
    if not state.readable:
        return "unreadable"
    if state.terminating:
        return "stuck" if state.held or state.problems else "terminating"
    # Finalizers of what nobody deletes are in order.
    inside = any(blocker.reason != "finalizers" for blocker in state.blockers)
    held = inside or state.elsewhere or state.unavailable_apis
    return "active-with-blockers" if held else "active"


def _step(action: str, command: str = "", note: str = "", key: str | None = None) -> NamespaceStep:
    return NamespaceStep(number=0, action=action, command=command, note=note, key=key)


class _NamespacePlan:
    """What is to be done about one namespace: its blockers with their causes, and the steps."""

    def __init__(self, cluster: ClusterIndex, state: NamespaceState) -> None:
        self._cluster = cluster
        self._index = cluster.index
        self._again: RepeatedOptions = cluster.request.same_again
        self._state = state
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

    def examined(self) -> Iterator[Examination]:
        """Yield what holds the namespace and was kept: the worst first."""
        inside = (blocker for stage in self._state.stages for blocker in stage.blockers)
        objects = dict.fromkeys([self._state.object, *(b.object for b in (*self._state.elsewhere, *inside))])
        found = [one for ref in objects if (one := self._examined(ref)) is not None]
        yield from sorted(
            found, key=lambda one: stake.rank if (stake := stake_of(one)) is not None else _LEAST
        )

    def first_way_out(self, steps: Sequence[NamespaceStep]) -> Remedy | None:
        """Return the one thing to do next: for the worst that cannot be read, else the first step with a command."""
        worst = next(self.examined(), None)
        if worst is not None and (way := first_way_out(self._ways(worst))) is not None:
            return way
        first = next((step for step in steps if step.command), None)
        return Remedy(first.action, Command(text=first.command), first.note) if first is not None else None

    # -- the plan

    def steps(self) -> Iterator[NamespaceStep]:
        """Yield what to do, in order; nothing where nothing has to be done."""
        state = self._state
        broken = next((stage for stage in state.stages if stage.name == "unreadable"), None)
        steps = [
            *self._definitions(),
            *self._own_object(),
            *self._unreadable(state.elsewhere, state.elsewhere_count, _EVERYWHERE),
            *self._apis(),
            *webhook_steps(state.webhooks, self._kubectl),
            *(self._unreadable(broken.blockers, broken.blocker_count, "") if broken is not None else ()),
            *self._pods(),
            *self._finalizers(),
            *self._own_finalizers(),
        ]
        yield from steps
        if not steps and _state(state) != "stuck":
            return
        if state.terminating and not state.frozen:
            yield _step(
                "Let the namespace controller try again, and see that the namespace goes",
                self._kubectl("get", "namespace", state.name, "-o", "yaml"),
                "It tries again by itself, less often the longer it fails; a restart of kube-controller-manager makes "
                "it try at once.",
            )
        yield _step("Look again", self._again_namespace())

    def _own_object(self) -> Iterator[NamespaceStep]:
        state = self._state
        if not state.exists and not state.complete:
            yield _step(
                "See whether the Namespace is there: it was not seen, and not everything could be read",
                self._kubectl("get", "namespace", state.name),
                "Until that is known, neither make it nor take what is in it for left over.",
            )
        elif not state.exists:
            yield from self._keep_or_end("re-create it")
        elif not state.readable:
            found = self._examined(state.object)
            if found is not None and self._removable(found):
                what = (
                    "until it goes, the controller processes no namespace of the cluster"
                    if state.frozen
                    else "the API server shows an empty object in its place"
                )
                yield from self._removal(
                    found,
                    f"the Namespace object itself: {what}",
                    self._warning(found)
                    + self._first()
                    + "What is in it stays, and its labels and annotations are lost with it. ",
                )
                yield from self._keep_or_end("re-create it right after that deletion")
            elif found is not None:
                yield from self._cures([(Blocker(state.object, "unreadable"), found)])

    def _keep_or_end(self, again: str) -> Iterator[NamespaceStep]:
        """Yield both ways on from a Namespace that is gone: nothing tells that anybody wants its contents gone."""
        yield _step(
            f"To keep what is in it: {again}, and stop",
            self._kubectl("create", "namespace", self._state.name),
            "This deletes nothing. Give it the labels and annotations that it had, as far as anybody knows them.",
        )
        if self._state.name not in _IMMORTAL:
            yield _step(
                "Only if it was meant to go: then delete it the ordinary way, and its controller cleans up",
                self._kubectl("delete", "namespace", self._state.name, "--dry-run=server"),
                "Without the dry run, everything in it goes, and the data of volumes whose reclaim policy is Delete. "
                "What cannot be read in it holds the controller up: see the steps that follow, if any.",
            )

    def _unreadable(
        self, blockers: Sequence[Blocker], total: int, everywhere: str
    ) -> Iterator[NamespaceStep]:
        """Yield a step for each object that fails its type: pods first, since they hold up, or lose, the order.

        Args:
            blockers: Those that are named.
            total: How many there are.
            everywhere: What their removal means for other namespaces; "" for what lies in this one.
        """
        known = [(b, found) for b in blockers if (found := self._examined(b.object)) is not None]
        lost = [(b, found) for b, found in known if b.reason != "undetermined"]
        cures = [(b, found) for b, found in lost if not self._removable(found)]
        yield from self._cures(cures)
        unjudged = [found for b, found in known if b.reason == "undetermined"]
        if unjudged:
            way = _way_out(unjudged[0], self._again)
            where = " of other namespaces" if everywhere else ""
            yield _step(
                f"Find out about {counted(len(unjudged), 'object')}{where} that could not be judged; delete none of "
                "them",
                way.command.text if way is not None else "",
                way.action if way is not None else "",
            )
            kept = (
                recovered_configuration([cause], found.transformer, self._again)
                for found in unjudged
                if (cause := found.verdict.cause) is not None
            )
            recovered = next(filter(None, kept), None)
            if recovered is not None:
                yield _step(recovered.action, recovered.command.text, recovered.note)
        removable = [(b, found) for b, found in lost if self._removable(found)]
        for number, (blocker, found) in enumerate(removable[:_MOST_STEPS]):
            warning = self._warning(found) + ("" if number else self._first())
            if blocker.object.resource == _NAMESPACES:
                warning += _CONTENTS_STAY
            yield from self._removal(found, f"{blocker.object}: {_HARM[blocker.reason]}{everywhere}", warning)
        rest = total - len(cures) - len(unjudged) - min(len(removable), _MOST_STEPS)
        if rest > 0:
            yield _step(
                f"Then {counted(rest, 'more object')} that cannot be read",
                self._again_namespace("-o", "json"),
                "Where everything under one key fails, the key is lost, not the objects: find it first.",
            )

    def _pods(self) -> Iterator[NamespaceStep]:
        """Yield a step for each pod that no kubelet ends; where it stays, only those marked for deletion."""
        ends = self._state.terminating
        held = [b for stage in self._state.stages for b in stage.blockers if b.reason == "node"]
        pods = [b for b in held if ends or b.past_grace]
        for number, pod in enumerate(pods[:_MOST_STEPS]):
            ref = pod.object
            wait = _PATIENCE[pod.node_state or "unknown"].format(pod.node)
            first = (
                f" It also has finalizers, which go first: {', '.join(pod.finalizers[:10])}."
                if pod.finalizers
                else ""
            )
            yield _step(
                f"End {ref} on node {pod.node}: {_OVERDUE[pod.past_grace]}",
                self._kubectl("delete", "pod", ref.name, "-n", ref.namespace, *_FORCE),
                f"{wait}{first}" + ("" if number else _FORCED),
                ref.key,
            )
        if len(pods) > _MOST_STEPS:
            yield _step(
                f"Then {counted(len(pods) - _MOST_STEPS, 'more pod')}", self._again_namespace("-o", "json")
            )

    def _first(self) -> str:
        """Say what comes before a deletion."""
        if self._again.of_kine:
            return _COPY
        return _SNAPSHOT if self._again.told_of_encryption else _SNAPSHOT + GRANTED

    def _removable(self, found: Examination) -> bool:
        """Say whether a deletion would not be refused out of hand."""
        return deletability_of(found) is Deletability.DELETABLE and not self._cluster.key_looks_lost(found)

    def _cures(self, blockers: list[tuple[Blocker, Examination]]) -> Iterator[NamespaceStep]:
        """Yield what is no reason to delete: a configuration that lacks something, once for all that it would cure."""
        groups: dict[tuple[str, str], list[tuple[Blocker, Remedy]]] = {}
        for blocker, found in blockers:
            way = _way_out(found, self._again)
            if way is not None:
                groups.setdefault((found.transformer, way.action), []).append((blocker, way))
        for (transformer, action), members in groups.items():
            names = ", ".join(str(b.object) for b, _ in members[:3]) + (", …" if len(members) > 3 else "")
            under = f" under {transformer}" if transformer != "identity" else ""
            way = members[0][1]
            yield _step(
                f"{action}: {counted(len(members), 'object')}{under} ({names})",
                way.command.text,
                f"{way.note} Delete none of them, and do not restart the API servers: their caches may hold them.",
            )

    def _removal(self, found: Examination, what: str, warning: str) -> Iterator[NamespaceStep]:
        key = found.stored.key
        ways = self._ways(found)
        first = first_way_out(ways)
        kept = [way.remedy for way in ways if way.kind in _KEEPING and way.remedy is not first]
        options = [way for way in ([first] if first is not None else []) + kept if way.command]
        for way in options:
            yield _step(f"{way.action}: {what}", way.command.text, way.note, display(key))
        option, deletes, asks = "", f"{_ONLY_THEN}delete", f"{_ONLY_THEN}let"
        if not options:
            option = f"Less destructive, if it can be done: {first.action}." if first is not None else ""
            deletes, asks = "Delete", "Let"
        if self._again.of_kine:
            yield _step(
                f"{asks} an API server delete it the unsafe way, {what}",
                unsafe_deletion_request(found),
                f"Nothing of etcdfix writes to kine. {warning}{option}".rstrip(),
                display(key),
            )
            return
        yield _step(
            f"{deletes}, dry run first, {what}",
            self._again.delete(key, risks_to_accept(found, breaking=self._breaking(found) != "")),
            f"{warning}{option}".rstrip(),
            display(key),
        )

    def _ways(self, found: Examination) -> list[Way]:
        """Return the ways out of an object that cannot be read, as its own explanation has them."""
        readable = self._readable.of(found).revision if self._cluster.ended is None else None
        return ways_out(found, self._again, readable=readable, breaking=self._breaking(found) != "")

    def _breaking(self, found: Examination) -> str:
        """Return why the deletion of an object may break the cluster, "" where nothing says so."""
        node = self._index.find(found.stored.key)
        assert node is not None  # what is kept was examined, so the index has it
        # As a deletion grades it, but for what the history tells.
        reasons = reasons_for(self._index, node, collect(self._index, node), None, (), ())
        return next((reason.text for reason in reasons if reason.risk is Risk.CLUSTER_BREAKING), "")

    def _warning(self, found: Examination) -> str:
        """Say what the deletion of an object wants, and what else goes with it."""
        node = self._index.find(found.stored.key)
        assert node is not None  # what is kept was examined, so the index has it
        collection = collect(self._index, node)
        reason = self._breaking(found)
        words = f"The deletion also needs {acceptance(Rule.CLUSTER_BREAKING)}: {reason}. " if reason else ""
        if _is_claim(collection.removed):
            volumes = {e.source for e in self._index.users(node) if e.use.role is Role.BOUND_CLAIM}
            names = ", ".join(sorted(str(self._index.ref(volume)) for volume in volumes))
            words += (
                f"With reclaim policy Delete, its volume{f' ({names})' if names else ''} and the data on it go too: "
                "set the PersistentVolume to Retain first. "
            )
        deleted = collection.counts[Action.CASCADE_DELETED]
        if deleted:
            words += f"The garbage collector then deletes {counted(deleted, 'dependent')}: etcdfix impact shows them. "
        return words

    def _finalizers(self) -> Iterator[NamespaceStep]:
        if not self._state.terminating:
            return  # nobody was marked for deletion: finalizers that wait are in order
        rings: dict[str, CyclicWait] = {}
        for cycle in self._state.cycles:
            if cycle.confidence is not Confidence.POSSIBLE:
                rings.setdefault(cycle.steps[0].waiter.key, cycle)
        for stage in self._state.stages:
            held = [b for b in stage.blockers if b.reason == "finalizers"]
            names = sorted({finalizer for blocker in held for finalizer in blocker.finalizers})
            if held:
                first = held[0].object
                yield _step(
                    f"See that the controllers of these finalizers run, and finish: {', '.join(names[:10])} "
                    f"({counted(stage.blocker_count, 'object')})",
                    self._kubectl(
                        "get", first.full_resource, first.name, "-n", first.namespace, "-o", "yaml"
                    ),
                    "Taking a finalizer off by hand skips what it guards; only when its controller is gone for good.",
                )
        for ring in list(rings.values())[:_MOST_STEPS]:
            pod = ring.steps[0].waiter
            yield _step(
                f"End the cyclic wait of {pod} and {ring.steps[0].waits_for}: {ring.way_out}",
                self._kubectl("edit", "pod", pod.name, "-n", pod.namespace),
                f"{ring.confidence.value}: pods go first, and this one waits for what comes after it. Only where its "
                "controller runs and does not finish.",
                pod.key,
            )

    def _own_finalizers(self) -> Iterator[NamespaceStep]:
        """Yield what to do about the finalizers of the Namespace itself, which go in two different ways."""
        state = self._state
        if not state.terminating:
            return
        if state.finalizers:
            yield _step(
                f"The Namespace itself has metadata.finalizers: {', '.join(state.finalizers[:10])}; see that their "
                "controllers run",
                self._kubectl("get", "namespace", state.name, "-o", "yaml"),
                "Only when a controller is gone for good, take its entry off with kubectl edit.",
            )
        foreign = [token for token in state.spec_finalizers if token != "kubernetes"]  # noqa: S105 - no password
        if foreign:
            yield _step(
                f"The Namespace itself has spec.finalizers of others: {', '.join(foreign[:10])}; see that their "
                "controllers run",
                self._kubectl("replace", "--raw", f"/api/v1/namespaces/{state.name}/finalize", "-f", "FILE"),
                "Only when a controller is gone for good: these go through the subresource /finalize alone. FILE is "
                "the Namespace as JSON without that entry; leave kubernetes in.",
            )

    def _definitions(self) -> Iterator[NamespaceStep]:
        """Yield how CustomResourceDefinitions come back without which objects are left behind."""
        prefix = self._cluster.request.layout.prefix_bytes
        for content in self._state.contents:
            api = f"{content.resource}.{content.group}"
            key = prefix + _CRDS + api.encode("utf-8", "surrogateescape")
            if content.stays == Stays.CRD_UNREADABLE:
                yield _step(
                    f"Fix the CustomResourceDefinition {api}, which cannot be read, before any API server is "
                    "restarted",
                    self._again.impact(key),
                    f"API servers that run may still serve {counted(content.count, 'object')} of it here; after a "
                    "restart none does, and they are left behind. The API cannot show the definition either; the "
                    "command says what depends on it and what can be done.",
                    display(key),
                )
            elif content.stays == Stays.NOT_SERVED:
                yield _step(
                    f"First bring back the CustomResourceDefinition {api}, before the namespace is gone: without it "
                    f"what is stored of it stays, and nobody sees it ({counted(content.count, 'object')})",
                    self._kubectl("apply", "-f", "FILE"),
                    "FILE is its manifest, of the operator that it came with; an older backup of etcd has it under "
                    f"{display(key)}. Give it the same group, plural, scope and versions. Its controller does not come "
                    "with it, and finalizers of its objects need that, too.",
                    display(key),
                )

    def _apis(self) -> Iterator[NamespaceStep]:
        state, missing = self._state, list(self._state.missing_apis)
        for api in missing[: min(state.unavailable_apis, _MOST_STEPS)]:
            yield _step(
                f"Bring back the API {api}, or delete its APIService: {state.missing_apis[api]}",
                self._kubectl("get", "apiservices", api, "-o", "yaml"),
                "While discovery fails, no namespace of the cluster finishes.",
            )
        unknown = missing[state.unavailable_apis :][: state.unknown_apis]
        if unknown:
            more = ", …" if len(unknown) > 5 else ""
            answer = "answers whose APIService" if len(unknown) == 1 else "answer whose APIServices"
            yield _step(
                f"See whether {counted(len(unknown), 'API')} {answer} cannot be read: {', '.join(unknown[:5])}{more}",
                self._kubectl("api-resources"),
                "It names those that do not answer. While there is one, no namespace of the cluster finishes.",
            )

    def _again_namespace(self, *options: str) -> str:
        name = self._state.name
        words = [*self._again.source, *self._again.layout, *self._again.reading, *options]
        return quote_command(["etcdfix", "namespace", name, *words]) if name.isprintable() else ""

    def _kubectl(self, *words: str) -> str:
        """Return a command for the API, "" where a name would not survive the way through a shell."""
        odd = any(not word.isprintable() or (word.startswith("-") and word not in _OPTIONS) for word in words)
        return "" if odd else quote_command(["kubectl", *words])


def _way_out(found: Examination, again: RepeatedOptions) -> Remedy | None:
    """Return the first way out that changes how a value is read, or else the first."""
    ways = [way.remedy for way in ways_out(found, again)]
    return next((way for way in ways if way.command.text.startswith("etcdfix ")), ways[0] if ways else None)


def _is_claim(ref: ObjectRef) -> bool:
    return (ref.group, ref.resource) == ("", "persistentvolumeclaims")
