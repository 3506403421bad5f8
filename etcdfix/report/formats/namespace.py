"""``etcdfix namespace -o table``: what state it is in first, the plan last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from etcdfix.graph.model import Blocker, CyclicWait, DeletionStage, ResourceContent, Stays, WebhookHold
from etcdfix.report.base import Output
from etcdfix.report.formats.text import aligned, incomplete, introduction, shown, steps
from etcdfix.report.head import head_lines
from etcdfix.report.impact_model import NamespaceReport
from etcdfix.text.words import counted

_STAGES = {
    "unreadable": "first what cannot be read: what fails the LIST of its type keeps everything of its type from going",
    "pods": "pods; everything else waits until they are gone",
    "rest": "everything else, in no order",
    "namespace": "the Namespace itself",
}
SERVICE_PROBLEMS = {
    "missing": "which does not exist",
    "not-ready": "which has no ready endpoint",
    "terminating": "whose namespace is being deleted",
}
"""Why nobody answers a webhook, by :attr:`~etcdfix.graph.model.WebhookHold.problem`."""
_LONGEST_CONDITION = 300
_MOST_RESOURCES = 3


def write_table(report: NamespaceReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the report as text; each list stops at ``max_rows`` and says how much there is more."""
    output = Output(stream)
    output.lines(_lines(report, max_rows))


def _lines(report: NamespaceReport, max_rows: int) -> Iterator[str]:
    yield _headline(report)
    yield from head_lines(report.at_stake, report.do_not_restart, report.next)
    yield from (f"  {text}" for text in _consequences(report))
    yield ""
    yield introduction(report)
    yield from _condition_lines(report)
    if report.elsewhere:
        yield ""
        yield (
            "Outside of it, and holding every namespace from about 30 s after the damage on: these first"
            if any(blocker.reason == "unreadable" for blocker in report.elsewhere)
            else "Outside of it; what no API server can read holds every namespace of the cluster: these first"
        )
        yield from aligned([(shown(b.object), _why_held(b)) for b in report.elsewhere[:max_rows]])
        yield from _more(report.elsewhere_count, min(max_rows, len(report.elsewhere)))
    if report.webhooks:
        yield ""
        yield "Webhooks that nobody answers"
        yield from aligned(
            [(shown(webhook_name(h)), shown(_why_webhook(h))) for h in report.webhooks[:max_rows]]
        )
        yield from _more(len(report.webhooks), max_rows)
    yield ""
    yield "Order of deletion (KEP-5080)"
    for stage in report.stages:
        yield from _stage(stage, max_rows)
    if report.spec_finalizers:
        yield f"     spec.finalizers: {shown(', '.join(report.spec_finalizers))}"
    if report.finalizers:
        yield f"     metadata.finalizers: {shown(', '.join(report.finalizers))}"
    yield from _cycle_lines(report, max_rows)
    if report.missing_apis:
        yield ""
        yield "APIs that do not answer, or that nobody serves"
        yield from aligned([(shown(m.api), shown(m.reason)) for m in report.missing_apis[:max_rows]])
        yield from _more(len(report.missing_apis), max_rows)
    yield ""
    yield from incomplete(report)
    if report.plan:
        stays = report.state in {"active", "active-with-blockers"}
        yield (
            "Nobody deletes it now. Before somebody does, in this order"
            if stays
            else "What to do, in this order"
        )
        yield from steps((step.action, step.command, step.note) for step in report.plan)
    elif report.state == "active-with-blockers":
        yield "Nobody deletes it now, so nothing has to be done; what would hold it stands above."
    elif report.complete:
        yield "Nothing has to be done now."
    else:
        yield "Nothing that was seen has to be done now."


def _consequences(report: NamespaceReport) -> Iterator[str]:
    """Yield what its state does to other namespaces and to its pods."""
    if report.frozen and not report.judged:
        yield "if no API server can read its object, NO namespace of the cluster is processed until one can"
    elif report.frozen:
        yield "its object fails every LIST of namespaces: from about 30 s on, NO namespace of the cluster is processed"
    if report.order_lost and not _pod_is_lost(report):
        yield "a pod could not be judged: if no API server can read it, the order is lost"
    elif report.order_lost:
        yield "a pod cannot be read: the order is lost, and the rest is deleted while pods may still run"


def _headline(report: NamespaceReport) -> str:
    """Return its state in one sentence, with why."""
    name = shown(report.name)
    since = f" since {shown(report.terminating_since)}" if report.terminating_since else ""
    blockers = [blocker for stage in report.stages for blocker in stage.blockers]
    blocked = sum(content.unreadable for content in report.contents)
    pods = sum(blocker.reason == "node" for blocker in blockers)
    held = sum(stage.blocker_count for stage in report.stages) - blocked - pods
    parts = []
    if report.elsewhere_count:
        parts.append(f"{counted(report.elsewhere_count, 'object')} elsewhere cannot be read or judged")
    if report.unavailable_apis:
        parts.append(f"{counted(report.unavailable_apis, 'API')} missing")
    if report.webhooks:
        gone = all(hold.problem == "missing" for hold in report.webhooks)
        why_not = "whose Service does not exist" if gone else "that nobody answers"
        parts.append(f"{counted(len(report.webhooks), 'webhook')} {why_not}")
    if blocked:
        parts.append(f"{counted(blocked, 'object')} in it cannot be read or judged")
    if pods:
        overdue = sum(blocker.past_grace for blocker in blockers)
        late = f" ({overdue} past the grace period)" if overdue else ""
        parts.append(f"{counted(pods, 'pod')} that no kubelet ends{late}")
    if held and report.terminating:
        parts.append(f"{counted(held, 'object')} held by finalizers")
    foreign = [token for token in report.spec_finalizers if token != "kubernetes"]  # noqa: S105 - no password
    if report.finalizers and report.terminating:
        parts.append(f"its own metadata.finalizers {shown(', '.join(report.finalizers[:5]))}")
    if foreign and report.terminating:
        parts.append(
            f"its own spec.finalizers {shown(', '.join(foreign[:5]))}, which only /finalize takes off"
        )
    why = f": {', '.join(parts)}" if parts else ""
    match report.state:
        case "stuck" if not report.certain:
            unknown = "whether anything holds it up is NOT KNOWN"
            return f"Namespace {name} is Terminating{since}; {unknown}{why}{_left(report)}"
        case "stuck" if not why:
            last = "by its conditions, which are those of the last try; nothing that can be read holds it up"
            return f"NAMESPACE {name} IS STUCK: Terminating{since}, {last}{_left(report)}"
        case "stuck":
            return f"NAMESPACE {name} IS STUCK: Terminating{since}{why}{_left(report)}"
        case "terminating":
            return (
                f"Namespace {name} is Terminating{since}; nothing that can be read holds it up{_left(report)}"
            )
        case "active-with-blockers" if not report.certain:
            return f"Namespace {name} is Active; whether it could be deleted is NOT KNOWN{why}"
        case "active-with-blockers":
            return f"Namespace {name} is Active, but could not be deleted{why}"
        case "unreadable" if not report.judged:
            return f"NAMESPACE {name} COULD NOT BE JUDGED{why}"
        case "unreadable":
            return f"NAMESPACE {name} CANNOT BE READ{why}"
        case "missing":
            total = sum(content.count for content in report.contents)
            verb = "does" if total == 1 else "do"
            return f"NAMESPACE {name} DOES NOT EXIST, but {counted(total, 'object')} in it {verb}"
        case "unknown":
            total = sum(content.count for content in report.contents)
            return (
                f"Namespace {name} WAS NOT SEEN; not everything could be read, so it may be there: "
                f"{counted(total, 'object')} in it were seen"
            )
        case _:
            every = "every object" if report.complete else "every object that was seen"
            return f"Namespace {name} is {shown(report.phase) or 'Active'}; {every} in it can be read"


def _pod_is_lost(report: NamespaceReport) -> bool:
    """Tell whether a pod is proven broken; such ones are named first."""
    blockers = [*report.elsewhere, *(blocker for stage in report.stages for blocker in stage.blockers)]
    return any((b.reason, b.object.group, b.object.resource) == ("unreadable", "", "pods") for b in blockers)


def _left(report: NamespaceReport) -> str:
    words = ""
    if report.left_behind:
        count = counted(report.left_behind, "object")
        words += f"; {count} in it WILL BE LEFT BEHIND: no CustomResourceDefinition serves them"
    perhaps = sum(content.count for content in report.contents if content.stays == Stays.CRD_UNREADABLE)
    if perhaps:
        whose = "its" if perhaps == 1 else "their"
        count = counted(perhaps, "object")
        words += f"; {count} in it MAY BE LEFT BEHIND: {whose} CustomResourceDefinition cannot be read"
    if report.unknown_apis:
        answer = "answers" if report.unknown_apis == 1 else "answer"
        count = counted(report.unknown_apis, "API")
        words += f"; whether {count} {answer} is not known, and one that does not would hold it"
    return words


def _condition_lines(report: NamespaceReport) -> Iterator[str]:
    """Yield lines on what the namespace itself reports."""
    problems = [c for c in report.conditions if c.problem]
    if report.conditions and not problems:
        yield f"  its {counted(len(report.conditions), 'condition')} report no problem"
    for condition in problems:
        yield f"  {shown(condition.type)}: {shown(condition.reason)} since {shown(condition.last_transition) or '?'}"
        text = condition.message
        cut = f"{text[:_LONGEST_CONDITION]}…" if len(text) > _LONGEST_CONDITION else text
        yield f"    {shown(cut)}"


def _stage(stage: DeletionStage, max_rows: int) -> Iterator[str]:
    yield f"  {stage.number}. {_STAGES[stage.name]}"
    if stage.name != "unreadable" and stage.resources:
        yield f"     holds {', '.join(map(_resource_words, stage.resources[:max_rows]))}"
    rows = [(shown(b.object), _why_held(b)) for b in stage.blockers[:max_rows]]
    yield from aligned(rows, "       ")
    yield from _more(stage.blocker_count, min(max_rows, len(stage.blockers)))


def _resource_words(content: ResourceContent) -> str:
    """Return how much there is of a resource, and who serves it."""
    name = f"{content.resource}.{content.group}" if content.group else content.resource
    if content.aggregated:
        note = " (served by an aggregated API, which keeps them elsewhere or here)"
    elif content.stays == Stays.CRD_UNREADABLE:
        note = " (its CustomResourceDefinition cannot be read)"
    else:
        note = {True: "", False: " (not served)", None: " (its CustomResourceDefinition was not seen)"}[
            content.served
        ]
    return f"{content.count} {shown(name)}{note}"


def _why_held(blocker: Blocker) -> str:
    """Return what an object keeps its namespace from ending by."""
    if blocker.reason == "node":
        return _on_node(blocker)
    if blocker.reason == "finalizers":
        since = shown(blocker.terminating_since) if blocker.terminating_since else ""
        since = f"deletionTimestamp {since}" if since else "no deletionTimestamp"
        return f"finalizers {shown(', '.join(blocker.finalizers))} ({since})"
    cause = f" ({blocker.cause})" if blocker.cause else ""
    message = f": {shown(blocker.message)}" if blocker.message else ""
    return f"{blocker.reason}{cause}{message}"


def _on_node(blocker: Blocker) -> str:
    node, since = shown(blocker.node), shown(blocker.terminating_since)
    when = f"past its grace period since {since}, " if blocker.past_grace else ""
    state = {
        "absent": "which has no Node object: the pod garbage collector forces it away within a minute",
        "not-ready": "whose Node object is there and not ready: nobody ends it",
        "ready": "whose Node object says that it is ready",
    }.get(blocker.node_state or "", "whose Node object could not be read")
    also = f"; finalizers go first: {shown(', '.join(blocker.finalizers))}" if blocker.finalizers else ""
    return f"{when}on node {node}, {state}{also}"


def webhook_name(hold: WebhookHold) -> str:
    """Return which webhook it is, and of what."""
    webhook = f"webhook {hold.webhook}" if hold.webhook else "the conversion webhook"
    return f"{webhook} of {hold.configuration.kind} {hold.configuration.name}"


def _why_webhook(hold: WebhookHold) -> str:
    """Return whom a webhook asks in vain, and what it holds so."""
    service = f"{hold.service.namespace}/{hold.service.name}"
    verb = "holds" if hold.certain else "may hold"
    if hold.resources:
        more = ", …" if len(hold.resources) > _MOST_RESOURCES else ""
        what = f"{', '.join(hold.resources[:_MOST_RESOURCES])}{more} ({counted(hold.count, 'object')} here)"
    else:
        what = f"every namespace: {counted(hold.elsewhere, 'object')} elsewhere"
    return f"asks Service {service}, {SERVICE_PROBLEMS[hold.problem]}; {verb} {what}"


def _cycle_lines(report: NamespaceReport, max_rows: int) -> Iterator[str]:
    """Yield lines on objects that wait for one another."""
    if not report.cycles:
        return
    yield ""
    yield "Objects that wait for one another"
    rings: dict[tuple[str, str, str], list[CyclicWait]] = {}
    for cycle in report.cycles:
        first = cycle.steps[0]
        rings.setdefault((first.waiter.key, first.reason, cycle.confidence), []).append(cycle)
    for (_, _, confidence), members in list(rings.items())[:max_rows]:
        there, back = members[0].steps[0], members[0].steps[-1]
        others = f" and {len(members) - 1} more" if len(members) > 1 else ""
        waiter, target = shown(there.waiter), shown(there.waits_for)
        waits = "may wait" if confidence == "possible" else "waits"
        yield f"  {waiter} {waits} for {target}{others}: {shown(there.reason)}"
        yield f"    {'these wait' if others else 'which waits'} for it: {shown(back.reason)}"
        yield f"    {confidence}; way out: {shown(members[0].way_out)}"
    yield from _more(len(rings), max_rows)


def _more(count: int, most: int) -> Iterator[str]:
    if count > most:
        yield f"       … {count - most} of {count} not shown; --max-rows or -o json shows more"
