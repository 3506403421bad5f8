"""The published shape of why a namespace cannot finish deleting (``etcdfix/v1``, kind ``NamespaceReport``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.graph.model import Blocker, Stays, WebhookHold
from etcdfix.graph.namespaces import NamespaceState
from etcdfix.model.storagekey import CRD_PATH, StorageLayout, display
from etcdfix.report.document import (
    Cell,
    Column,
    Document,
    Kind,
    Prose,
    Section,
    State,
    Status,
    Step,
    Steps,
    Table,
    wide_table,
)
from etcdfix.report.model import SourcedReport
from etcdfix.text.commands import FORCE, NO_COMMAND, Command, explain, kubectl, look
from etcdfix.text.words import counted

MOST_STEPS: Final = 20
"""So many steps of one kind are told one by one."""

_UNCONVERTED: Final = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
_PATIENCE: Final = {
    "absent": "There is no Node object {0}, so the pod garbage collector forces the pod away within a minute.",
    "not-ready": "The Node object {0} is not ready. Bring its kubelet back, or nobody ends the pod.",
    "ready": "The Node object {0} says that it is ready. Find out why its kubelet does not end the pod.",
    "unknown": "The state of the Node object {0} is not known.",
}
_FORCED: Final = (
    " Without --dry-run=server the command forces the pod away and does not wait for its containers. Check first that "
    "they do not run, or two may write the same volume, and that no new pod of that name has come."
)


def definition_steps(state: NamespaceState, layout: StorageLayout) -> Iterator[NamespaceStep]:
    """Yield how CustomResourceDefinitions come back without which objects are left behind."""
    for content in state.contents:
        api = f"{content.resource}.{content.group}"
        key = layout.path(f"{CRD_PATH}/{api}")
        many = counted(content.count, "object")
        if content.stays == Stays.CRD_UNREADABLE:
            action = f"Fix the CustomResourceDefinition {api}, which cannot be read, before any API server restarts"
            note = f"After a restart no API server serves {many} of it here, and they are left behind."
            yield NamespaceStep(action, explain(key, "--impact"), note, display(key))
        elif content.stays == Stays.NOT_SERVED:
            action = f"First bring back the CustomResourceDefinition {api}: without it {many} stay unseen"
            note = "FILE is its manifest, which came with the operator; an older backup of etcd has it, too."
            yield NamespaceStep(action, kubectl("apply", "-f", "FILE"), note, display(key))


def api_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield what to do about APIs that do not answer, and hold every namespace."""
    missing = [*state.missing_apis]
    for api in missing[: min(state.unavailable_apis, MOST_STEPS)]:
        action = f"Bring back the API {api}, or delete its APIService: {state.missing_apis[api]}"
        note = "While discovery fails, no namespace of the cluster finishes."
        yield NamespaceStep(action, kubectl("get", "apiservices", api, "-o", "yaml"), note)
    unknown = missing[state.unavailable_apis :][: state.unknown_apis]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        action = f"Check that APIs answer whose APIService cannot be read: {names}"
        yield NamespaceStep(action, kubectl("api-resources"), "It names those that do not answer.")


def webhook_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield a step for each Service that is missed, then the way on without it, once for each configuration."""
    holds = state.webhooks
    services = {hold.service.key: hold for hold in reversed(holds)}
    for hold in [*services.values()][::-1][:MOST_STEPS]:
        which = f"Service {hold.service.namespace}/{hold.service.name}, {SERVICE_PROBLEMS[hold.problem]}"
        action, command = f"Bring back {which}", kubectl("apply", "-f", "FILE")
        if hold.problem != "missing":
            action = f"See that pods answer for {which}"
            command = kubectl("get", "pods,endpointslices", "-n", hold.service.namespace)
        note = "Its pods have to run, too. The next step is for a Service that does not come back."
        yield NamespaceStep(f"{action}: {webhook_name(hold)} asks it", command, note, hold.configuration.key)
    groups = [[*members] for _, members in groupby(holds, key=lambda hold: hold.configuration.key)]
    yield from map(_without, groups[:MOST_STEPS])


def _without(holds: Sequence[WebhookHold]) -> NamespaceStep:
    """Return the way on without an answer that changes least, for the webhooks of one configuration."""
    hold, ref, patch = holds[0], holds[0].configuration, []
    if not hold.webhook:
        note = "API servers then change nothing but apiVersion; the next write drops fields that the other one lacks."
        if hold.elsewhere:
            note += f" Save {counted(hold.elsewhere, 'object')} of other namespaces first with etcdfix get."
        command = kubectl("patch", ref.resource, ref.name, "--type=merge", "-p", _UNCONVERTED)
        return NamespaceStep(
            f"Or set the conversion of {ref.kind} {ref.name} to None", command, note, ref.key
        )
    for one in holds:
        path = f"/webhooks/{one.position}"
        # Positions may have changed since: then nothing is patched.
        patch.append({"op": "test", "path": f"{path}/name", "value": one.webhook})
        patch.append({"op": "add", "path": f"{path}/failurePolicy", "value": "Ignore"})
    return NamespaceStep(
        f"Or let API servers go on without an answer: failurePolicy Ignore for {counted(len(holds), 'webhook')} of "
        f"{ref.kind} {ref.name}",
        kubectl("patch", ref.resource, ref.name, "--type=json", "-p", msgspec.json.encode(patch).decode()),
        "What these would refuse is then allowed, until you set it to Fail again.",
        ref.key,
    )


def pod_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield a step for each pod that no kubelet ends; where it stays, only those marked for deletion."""
    held = [b for b in state.blockers if b.reason == "node"]
    pods = [b for b in held if state.terminating or b.past_grace]
    for number, pod in enumerate(pods[:MOST_STEPS]):
        ref, late = pod.object, "nothing will end it"
        note = _PATIENCE[pod.node_state or "unknown"].format(pod.node) + ("" if number else _FORCED)
        if pod.past_grace:
            late = "its grace period is over, and nothing ended it"
        if pod.finalizers:
            note += f" Its finalizers go first: {', '.join(pod.finalizers[:10])}."
        command = kubectl("delete", "pod", ref.name, "-n", ref.namespace, *FORCE)
        yield NamespaceStep(f"End {ref} on node {pod.node}: {late}", command, note, ref.key)
    if len(pods) > MOST_STEPS:
        rest = counted(len(pods) - MOST_STEPS, "more pod")
        yield NamespaceStep(f"Then {rest}", look_again(state.name, "-o", "json"))


def finalizer_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield whose controllers are waited for: of pods, of the rest, of the Namespace itself, and in a circle."""
    if not state.terminating:
        return  # nobody was marked for deletion: finalizers that wait are in order
    by_hand = (
        "Take a finalizer off by hand only if its controller is gone for good: that skips what it guards."
    )
    for stage in state.stages:
        held = [b for b in stage.blockers if b.reason == "finalizers"]
        if held:
            first, names = (
                held[0].object,
                sorted({name for blocker in held for name in blocker.finalizers}),
            )
            many = counted(stage.blocker_count, "object")
            action = f"Check that the controllers of these finalizers run: {', '.join(names[:10])} ({many})"
            get = kubectl("get", first.full_resource, first.name, "-n", first.namespace, "-o", "yaml")
            yield NamespaceStep(action, get, by_hand)
    rings = {cycle.pod.key: cycle for cycle in reversed(state.cycles)}
    for ring in [*rings.values()][::-1][:MOST_STEPS]:
        pod = ring.pod
        yield NamespaceStep(
            f"End the cyclic wait of {pod} and {ring.object}: remove finalizer {ring.finalizer} from the pod, once "
            "what it guards is safe",
            kubectl("edit", "pod", pod.name, "-n", pod.namespace),
            "Pods go first, and this one waits for what comes after it.",
            pod.key,
        )
    if state.finalizers:
        action = f"Check the controllers of the Namespace's metadata.finalizers: {', '.join(state.finalizers[:10])}"
        yield NamespaceStep(action, kubectl("get", "namespace", state.name, "-o", "yaml"), by_hand)
    if foreign := state.own_finalizers[len(state.finalizers) :]:
        yield NamespaceStep(
            f"Check the controllers of the Namespace's spec.finalizers: {', '.join(foreign[:10])}",
            kubectl("replace", "--raw", f"/api/v1/namespaces/{state.name}/finalize", "-f", "FILE"),
            f"{by_hand} FILE is the Namespace as JSON without that entry; leave kubernetes in.",
        )


def look_again(name: str, *options: str) -> Command:
    """Return the command that asks for the same namespace once more; none where its name could act upon something."""
    return look("namespace", name, *options) if name.isprintable() else NO_COMMAND


SERVICE_PROBLEMS: Final = {
    "missing": "which does not exist",
    "not-ready": "which has no ready endpoint",
    "terminating": "whose namespace is being deleted",
}
"""Why nobody answers a webhook, by :attr:`~etcdfix.graph.model.WebhookHold.problem`."""


class NamespaceStep(Step, frozen=True):
    """One step, and the etcd key that it is about."""

    key: str | None = None


class NamespaceReport(SourcedReport, frozen=True, kw_only=True):
    """Why a namespace cannot finish deleting, with what to do.

    ``state``: ``active``, ``active-with-blockers``, ``terminating``, ``stuck``, ``unreadable``, ``missing``, and
    ``unknown`` where its object was not seen and not everything was. ``at_stake`` and ``do_not_restart`` are as in a
    scan's summary.
    """

    kind: str = "NamespaceReport"
    at_stake: str = ""
    do_not_restart: str = ""
    state: str
    namespace: NamespaceState
    plan: list[NamespaceStep]
    complete: bool
    incomplete_reasons: list[str]

    def document(self) -> Document:
        """Return why it cannot finish deleting, the first thing to do, and what holds it in KEP-5080's order."""
        said = self._stakes()
        rows, held = _grouped(self)
        sections: list[Section] = [
            Table(columns=_GROUPS, rows=rows, noun="reason", brief=5, counted=0, sum=held),
            Prose(paragraphs=_after(self)),
            Steps(title="What to do, in this order", steps=self.plan, wide=True),
            _details(self),
            Prose(title="What else to know", paragraphs=[*said[3:], *self.incomplete_reasons], wide=True),
        ]
        well = self.state in {"active", "terminating"} and not rows
        state = State.OK if well else State.FINDINGS
        return Document(
            status=Status(state if self.complete else State.INCOMPLETE, _headline(self)),
            about=self.about(),
            stakes=said[:3],
            next=self.plan[0] if self.plan else None,
            sections=sections,
        )

    def _stakes(self) -> list[str]:
        """Return what its state does to the cluster, the worst first."""
        state = self.namespace
        left, perhaps = (
            counted(state.left_behind, "object"),
            sum(content.count for content in state.contents if content.stays == Stays.CRD_UNREADABLE),
        )
        sure = "" if state.judged else "If no API server can read its object: "
        order = (
            "A pod cannot be read or judged: the deletion may have no order, and the rest go before pods end."
        )
        said = (
            (
                state.frozen,
                f"{sure}NO namespace of the cluster is processed, for its object fails every LIST of namespaces.",
            ),
            (self.do_not_restart, self.do_not_restart),
            (
                state.left_behind,
                f"{left} in it WILL BE LEFT BEHIND: no CustomResourceDefinition serves them.",
            ),
            (self.at_stake, self.at_stake),
            (state.order_lost, order),
            (
                perhaps,
                f"{counted(perhaps, 'object')} in it MAY BE LEFT BEHIND: the CustomResourceDefinition cannot be read.",
            ),
            (
                state.unknown_apis,
                f"It is not known whether {counted(state.unknown_apis, 'API')} answers.",
            ),
        )
        return [told for holds, told in said if holds]


_NUMBER: Final = Column("OBJECTS", kind=Kind.NUMBER)
_GROUPS: Final = (_NUMBER, Column("WHAT HOLDS IT", folds=True), Column("WHERE", folds=True))
_STAGES: Final = {
    "unreadable": "1. unreadable",
    "pods": "2. pods",
    "rest": "3. rest",
    "namespace": "4. the Namespace",
}
_NODES: Final = {
    "absent": "which has no Node object",
    "not-ready": "which is not ready",
    "ready": "which says that it is ready",
}


def _headline(report: NamespaceReport) -> str:
    found = report.namespace
    state, why = report.state, _why(report)
    because = f": {why[0]}" if why else ""
    if len(why) > 1:
        because += f", {counted(len(why) - 1, 'more reason')}"
    elif not why and state == "stuck" and found.certain:
        because = ": its last try failed, as its conditions say"
    inside = counted(sum(content.count for content in found.contents), "object")
    every = "every object" if report.complete else "every object that was seen"
    told = {
        "stuck": f"CANNOT FINISH DELETING{because}",
        "terminating": "is Terminating, and nothing that can be read holds it",
        "active-with-blockers": f"is Active, but could not be deleted{because}",
        "unreadable": f"{'CANNOT BE READ' if found.judged else 'COULD NOT BE JUDGED'}{because}",
        "missing": f"DOES NOT EXIST, and {inside} in it are stored",
        "unknown": f"WAS NOT SEEN, and not everything could be read; {inside} in it were seen",
        "active": f"is {found.phase or 'Active'}; {every} in it can be read",
    }
    if not found.certain:
        told["stuck"] = f"is Terminating, and whether anything holds it is NOT KNOWN{because}"
        told["active-with-blockers"] = f"is Active, and whether it could be deleted is NOT KNOWN{because}"
    return f"Namespace {found.name} {told[state]}"


def _why(report: NamespaceReport) -> list[str]:
    state = report.namespace
    blocked, elsewhere = (
        sum(content.unreadable for content in state.contents),
        state.elsewhere_count,
    )
    pods = sum(blocker.reason == "node" for stage in state.stages for blocker in stage.blockers)
    finalizers = sum(stage.blocker_count for stage in state.stages) - blocked - pods
    both = f" in it and {elsewhere} elsewhere" if elsewhere else " in it"
    parts = (
        (blocked, f"{counted(blocked, 'object')}{both} unreadable"),
        (not blocked and elsewhere, f"{counted(elsewhere, 'object')} elsewhere unreadable"),
        (state.unavailable_apis, f"{counted(state.unavailable_apis, 'API')} missing"),
        (state.webhooks, f"{counted(len(state.webhooks), 'webhook')} unanswered"),
        (pods, f"{counted(pods, 'pod')} that no kubelet ends"),
        (state.terminating and finalizers, f"{counted(finalizers, 'object')} held by finalizers"),
        (_own_finalizers(report), "its own finalizers"),
    )
    return [told for counts, told in parts if counts]


def _own_finalizers(report: NamespaceReport) -> tuple[str, ...]:
    return report.namespace.own_finalizers if report.namespace.terminating else ()


def _after(report: NamespaceReport) -> list[str]:
    """Return since when it is being deleted, and what follows the first step."""
    since = (
        f"Terminating since {report.namespace.terminating_since}. "
        if report.namespace.terminating_since
        else ""
    )
    if report.plan:
        calm = "Nobody deletes it now. " if report.state.startswith("active") else ""
        return [f"{since}{calm}{counted(len(report.plan), 'step')} in all: -o wide lists them in order."]
    seen = "" if report.complete else "that was seen "
    return [f"{since}Nothing {seen}has to be done now."]


def _grouped(report: NamespaceReport) -> tuple[list[Sequence[Cell]], int]:
    """Return what holds it, alike objects as one row, and how many objects there are."""
    state = report.namespace
    rows: list[Sequence[Cell]] = [*_alike(state.elsewhere, state.elsewhere_count, "elsewhere")]
    held = state.elsewhere_count
    rows += [(None, why, f"API {api}") for api, why in state.missing_apis.items()]
    rows += [(None, _why_webhook(hold), webhook_name(hold)) for hold in state.webhooks]
    for stage in state.stages:
        # While nobody deletes the namespace, finalizers are in order.
        blockers = [b for b in stage.blockers if state.terminating or b.reason != "finalizers"]
        count = stage.blocker_count - len(stage.blockers) + len(blockers)
        rows += _alike(blockers, count, "in it")
        held += count
    if own := _own_finalizers(report):
        rows.append((None, f"finalizers {', '.join(own)}", "the Namespace itself"))
    return rows, held


def _alike(blockers: Sequence[Blocker], count: int, where: str) -> Iterator[Sequence[Cell]]:
    groups: dict[str, Counter[str]] = {}
    for blocker in blockers:
        groups.setdefault(_why_held(blocker), Counter())[blocker.object.full_resource] += 1
    # Pods go first, then what most objects have in common.
    for why, resources in sorted(groups.items(), key=lambda one: ("pods" not in one[1], -one[1].total())):
        named = [f"{resource} {number}" for resource, number in resources.most_common(3)]
        more = ", …" if len(resources) > 3 else ""
        yield resources.total(), why, f"{where}: {', '.join(named)}{more}"
    if count > len(blockers):
        yield count - len(blockers), "more objects, which are only counted", where


def _why_held(blocker: Blocker) -> str:
    if blocker.reason == "finalizers":
        return f"finalizers {', '.join(blocker.finalizers)}"
    if blocker.reason == "node":
        state = _NODES.get(blocker.node_state or "", "whose Node object could not be read")
        also = f"; finalizers {', '.join(blocker.finalizers)} go first" if blocker.finalizers else ""
        late = "past its grace period " if blocker.past_grace else ""
        return f"{late}on node {blocker.node}, {state}{also}"
    words = {"unreadable": "cannot be read", "undetermined": "could not be judged"}
    cause = f": {blocker.cause}" if blocker.cause else ""
    return words.get(blocker.reason, "shown as an empty object") + cause


def webhook_name(hold: WebhookHold) -> str:
    """Return which webhook it is, and of what."""
    webhook = f"webhook {hold.webhook}" if hold.webhook else "the conversion webhook"
    return f"{webhook} of {hold.configuration.kind} {hold.configuration.name}"


def _why_webhook(hold: WebhookHold) -> str:
    """Return which Service does not answer, and what waits for it."""
    service = f"{hold.service.namespace}/{hold.service.name}"
    verb = "holds" if hold.certain else "may hold"
    if hold.resources:
        more = ", …" if len(hold.resources) > 3 else ""
        what = f"{', '.join(hold.resources[:3])}{more} ({counted(hold.count, 'object')} here)"
    else:
        what = f"every namespace: {counted(hold.elsewhere, 'object')} elsewhere"
    return f"asks Service {service}, {SERVICE_PROBLEMS[hold.problem]}; {verb} {what}"


def _details(report: NamespaceReport) -> Section:
    named = [("0. elsewhere", b) for b in report.namespace.elsewhere]
    named += [(_STAGES[stage.name], b) for stage in report.namespace.stages for b in stage.blockers]
    return wide_table(
        "Every object that holds it, in the order of KEP-5080",
        ("STAGE", "WHY", "SINCE", "MESSAGE", "OBJECT"),
        [
            (stage, _why_held(b), b.terminating_since or None, b.message or None, str(b.object))
            for stage, b in named
        ],
        "object",
    )
