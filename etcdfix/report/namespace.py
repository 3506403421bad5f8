"""The published shape of why a namespace cannot finish deleting (``etcdfix/v1``, kind ``NamespaceReport``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.graph.model import Blocker, ResourceContent, Stays, WebhookHold
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
    ToWide,
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
_BY_HAND: Final = (
    "Take a finalizer off by hand only if its controller is gone for good: that skips what it guards."
)
_FORCED: Final = (
    " Without --dry-run=server the command forces the pod away and does not wait for its containers. Check first that "
    "they do not run, or two may write the same volume, and that no new pod of that name has come."
)


def api_of(content: ResourceContent) -> str:
    """Return the name of the CustomResourceDefinition of a resource."""
    return f"{content.resource}.{content.group}"


def definition_steps(state: NamespaceState, layout: StorageLayout) -> Iterator[NamespaceStep]:
    """Yield how CustomResourceDefinitions come back without which objects are left behind."""
    for content in state.contents:
        api = api_of(content)
        key = layout.path(f"{CRD_PATH}/{api}")
        many = counted(content.count, "object")
        if content.stays == Stays.CRD_UNREADABLE:
            action = f"Fix the CustomResourceDefinition {api}, which cannot be read, before any API server restarts"
            note = f"After a restart no API server serves {many} of it here, and they are left behind."
            yield NamespaceStep(action, explain(key, "--impact"), note, display(key))
        elif content.stays == Stays.NOT_SERVED:
            action = f"First bring back the CustomResourceDefinition {api}: without it nobody deletes its {many} here"
            note = "FILE is its manifest, which came with the operator; an older backup of etcd has it, too."
            yield NamespaceStep(action, kubectl("apply", "-f", "FILE"), note, display(key))


def api_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield what to do about APIs that do not answer, and hold every namespace."""
    for api, why in [*state.unavailable_apis.items()][:MOST_STEPS]:
        action = f"Bring back the API {api}, or delete its APIService: {why}"
        note = "While discovery fails, no namespace of the cluster finishes."
        yield NamespaceStep(action, kubectl("get", "apiservices", api, "-o", "yaml"), note)
    if unknown := [*state.unknown_apis]:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        action = f"Check that APIs answer whose APIService cannot be read: {names}"
        yield NamespaceStep(action, kubectl("api-resources"), "It names those that do not answer.")


def webhook_steps(state: NamespaceState) -> Iterator[NamespaceStep]:
    """Yield a step for each Service that is missed, then the way on without it, once for each configuration."""
    services = {hold.service.key: hold for hold in reversed(state.webhooks)}
    for hold in [*services.values()][::-1][:MOST_STEPS]:
        which = f"Service {hold.service.namespace}/{hold.service.name}, {SERVICE_PROBLEMS[hold.problem]}"
        action, command = f"Bring back {which}", kubectl("apply", "-f", "FILE")
        if hold.problem != "missing":
            action = f"See that pods answer for {which}"
            command = kubectl("get", "pods,endpointslices", "-n", hold.service.namespace)
        note = "Its pods have to run, too. The next step is for a Service that does not come back."
        action = f"{action}: {webhook_name(hold)} asks it"
        if hold.problem == "no-certificate":
            action = f"Write its CA's certificate into the caBundle of {webhook_name(hold)}"
            command = kubectl("edit", "customresourcedefinitions", hold.configuration.name)
            note = "Until then API servers answer no request for objects of this type, in any namespace."
        yield NamespaceStep(action, command, note, hold.configuration.key)
    groups = [[*members] for _, members in groupby(state.webhooks, key=lambda hold: hold.configuration.key)]
    yield from map(_without, groups[:MOST_STEPS])


def _without(holds: Sequence[WebhookHold]) -> NamespaceStep:
    """Return the way on without an answer that changes least, for the webhooks of one configuration."""
    hold, ref = holds[0], holds[0].configuration
    if not hold.webhook:
        action = f"Or set the conversion of {ref.kind} {ref.name} to None"
        command = kubectl("patch", ref.resource, ref.name, "--type=merge", "-p", _UNCONVERTED)
        note = (
            "API servers then change nothing but apiVersion; the next write drops fields that the other version lacks. "
            "Save the objects of other namespaces first with etcdfix get."
        )
        return NamespaceStep(action, command, note, ref.key)
    patch = []
    for one in holds:
        path = f"/webhooks/{one.position}"
        # Positions may have changed since: then nothing is patched.
        patch.append({"op": "test", "path": f"{path}/name", "value": one.webhook})
        patch.append({"op": "add", "path": f"{path}/failurePolicy", "value": "Ignore"})
    webhooks = f"{counted(len(holds), 'webhook')} of {ref.kind} {ref.name}"
    action = f"Or let API servers go on without an answer: failurePolicy Ignore for {webhooks}"
    written = msgspec.json.encode(patch).decode()
    command = kubectl("patch", ref.resource, ref.name, "--type=json", "-p", written)
    note = "What these would refuse is then allowed, until you set it to Fail again."
    return NamespaceStep(action, command, note, ref.key)


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
    """Yield whose controllers are waited for: of pods, of the rest, and of the Namespace itself."""
    if not state.terminating:
        return  # nobody was marked for deletion: finalizers that wait are in order
    for stage in state.stages:
        held = [b for b in stage.blockers if b.reason == "finalizers"]
        if held:
            first = held[0].object
            names = ", ".join(sorted({name for blocker in held for name in blocker.finalizers})[:10])
            many = counted(stage.blocker_count, "object")
            action = f"Check that the controllers of these finalizers run: {names} ({many})"
            get = kubectl("get", first.full_resource, first.name, "-n", first.namespace, "-o", "yaml")
            yield NamespaceStep(action, get, _BY_HAND)
    if own := state.own_finalizers:
        action = f"Check the controllers of the Namespace's own finalizers: {', '.join(own[:10])}"
        command, note = kubectl("get", "namespace", state.name, "-o", "yaml"), _BY_HAND
        if not state.finalizers:
            command = kubectl("replace", "--raw", f"/api/v1/namespaces/{state.name}/finalize", "-f", "FILE")
            note += (
                " FILE is the Namespace as JSON without that entry of spec.finalizers; leave kubernetes in."
            )
        yield NamespaceStep(action, command, note)


def look_again(name: str, *options: str) -> Command:
    """Return the command that asks for the same namespace once more; none where its name could act upon something."""
    return look("namespace", name, *options) if name.isprintable() else NO_COMMAND


SERVICE_PROBLEMS: Final = {
    "missing": "which does not exist",
    "not-ready": "which has no endpoint that is known to be ready",
    "terminating": "whose namespace is being deleted",
    "no-certificate": "and its caBundle has no certificate",
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
        left, perhaps = state.count(Stays.NOT_SERVED), state.count(Stays.CRD_UNREADABLE)
        sure = "" if state.judged else "If no API server can read its object: "
        frozen = (
            f"{sure}NO namespace of the cluster is processed, for its object fails every LIST of namespaces."
        )
        gone = (
            f"{counted(left, 'object')} in it WILL BE LEFT BEHIND: no CustomResourceDefinition serves them."
        )
        order = "A pod is unreadable or not judged, so other objects may be deleted while pods still run."
        unread = f"{counted(perhaps, 'object')} in it MAY BE LEFT BEHIND: the CustomResourceDefinition cannot be read."
        unknown = f"It is not known whether {counted(len(state.unknown_apis), 'API')} answers."
        said = (
            (state.frozen, frozen),
            (self.do_not_restart, self.do_not_restart),
            (left, gone),
            (self.at_stake, self.at_stake),
            (state.order_lost, order),
            (perhaps, unread),
            (state.unknown_apis, unknown),
        )
        return [told for holds, told in said if holds]


_NUMBER: Final = Column("OBJECTS", kind=Kind.NUMBER)
_GROUPS: Final = (_NUMBER, Column("WHAT HOLDS IT", folds=True), Column("WHERE", folds=True))
_STAGES: Final = {
    "elsewhere": "0. elsewhere",
    "unreadable": "1. unreadable",
    "pods": "2. pods",
    "rest": "3. rest",
}
_LEFT: Final = {
    Stays.CRD_UNREADABLE: "its CustomResourceDefinition cannot be read: left behind once API servers restart",
    Stays.NOT_SERVED: "holds nothing, as no CustomResourceDefinition serves it: left behind when the namespace goes",
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
    blocked, elsewhere = state.stage("unreadable").blocker_count, state.stage("elsewhere").blocker_count
    pods = sum(blocker.reason == "node" for blocker in state.blockers)
    finalizers = sum(stage.blocker_count for stage in state.stages) - elsewhere - blocked - pods
    both = f" in it and {elsewhere} elsewhere" if elsewhere else " in it"
    parts = (
        (blocked, f"{counted(blocked, 'object')}{both} unreadable"),
        (not blocked and elsewhere, f"{counted(elsewhere, 'object')} elsewhere unreadable"),
        (state.unavailable_apis, f"{counted(len(state.unavailable_apis), 'API')} missing"),
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
        calm = "Nobody is deleting this namespace. " if report.state.startswith("active") else ""
        steps = f"{since}{calm}{counted(len(report.plan), 'step')} in all"
        return [ToWide(f"{steps}: -o wide lists them in order.", f"{steps}.")]
    seen = "" if report.complete else "that was seen "
    return [f"{since}Nothing {seen}has to be done now."]


def _grouped(report: NamespaceReport) -> tuple[list[Sequence[Cell]], int]:
    """Return what holds it, alike objects as one row, and how many objects there are."""
    state, rows, held = report.namespace, list[Sequence[Cell]](), 0
    apis = [*state.unavailable_apis.items(), *state.unknown_apis.items()]
    rows += [(None, why, f"API {api}") for api, why in apis]
    rows += [
        (content.count, _LEFT[content.stays], api_of(content))
        for content in state.contents
        if content.stays in _LEFT
    ]
    rows += [(None, _why_webhook(hold), webhook_name(hold)) for hold in state.webhooks]
    for stage in state.stages:
        # While nobody deletes the namespace, finalizers are in order.
        blockers = [b for b in stage.blockers if state.terminating or b.reason != "finalizers"]
        count = stage.blocker_count - len(stage.blockers) + len(blockers)
        rows += _alike(blockers, count, "elsewhere" if stage.name == "elsewhere" else "in it")
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
    more = ", …" if len(hold.resources) > 3 else ""
    what = f"{', '.join(hold.resources[:3])}{more} ({counted(hold.count, 'object')} here)"
    return f"asks Service {service}, {SERVICE_PROBLEMS[hold.problem]}; {verb} {what}"


def _details(report: NamespaceReport) -> Section:
    rows = [
        (_STAGES[stage.name], _why_held(b), b.terminating_since or None, b.message or None, str(b.object))
        for stage in report.namespace.stages
        for b in stage.blockers
    ]
    heading = "Every object that holds it, in the order of KEP-5080"
    return wide_table(heading, ("STAGE", "WHY", "SINCE", "MESSAGE", "OBJECT"), rows, "object")
