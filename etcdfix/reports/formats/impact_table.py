"""``etcdfix impact -o table``: the grade first, what to do last, and in between what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from etcdfix.graph.model import Decision, User
from etcdfix.reports.base import Output, counted
from etcdfix.reports.formats.text import aligned, count_of, incomplete, introduction, shown, steps
from etcdfix.reports.impact_model import ImpactReport

BASIS = {
    "current": "it can be read",
    "history": "from its history, at mod_revision {0}",
    "earlier-generation": "from an earlier object of this name, at mod_revision {0}",
    "references": "as others refer to it",
    "none": "no revision that is kept can be read, and nobody refers to it by uid",
}
_OPT_OUT = "secret.kubernetes.io/skip-secret-protection"
ABSENT = "NOT IN ETCD: only others mention it"
UNSEEN = "NOT SEEN: others mention it, and not everything could be read"
STOPS = {"yes": "STOPS", "no": "goes on", "perhaps": "may stop"}


def write_table(report: ImpactReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the report as text; each list stops at ``max_rows`` and says how much there is more."""
    output = Output(stream)
    for line in _lines(report, max_rows):
        output.line(line)


def _lines(report: ImpactReport, max_rows: int) -> Iterator[str]:
    yield f"RISK {grade(report).upper()}: losing {shown(report.object.key)}"
    yield from aligned([(reason.risk, shown(reason.text)) for reason in report.reasons])
    if not report.reasons:
        yield "  no reference that etcdfix follows leads to it"
    yield ""
    yield introduction(report)
    yield from _object(report)
    yield from _dependents(report, max_rows)
    yield from _users(report, max_rows)
    yield from _finalizers(report)
    if report.consequences or report.node:
        yield ""
        yield "What is special about it"
        if report.node and not any(report.node in sentence for sentence in report.consequences):
            yield f"  runs on node {shown(report.node)}"
        yield from (f"  {shown(sentence)}" for sentence in report.consequences)
    yield ""
    yield from incomplete(report)
    if report.unreadable_elsewhere or report.undetermined_elsewhere:
        yield (
            f"Not counted: whatever refers to it from {counted(report.unreadable_elsewhere, 'other object')} that "
            f"cannot be read and {report.undetermined_elsewhere} that could not be judged."
        )
    if report.remedies:
        yield "What to do next"
        yield from steps((remedy.action, remedy.command, remedy.note) for remedy in report.remedies)


def grade(report: ImpactReport) -> str:
    """Return the grade in words: what was not seen can only make it worse."""
    worst = report.risk == "cluster-breaking"
    return f"{report.risk} or worse" if report.may_be_worse and not worst else report.risk


def _object(report: ImpactReport) -> Iterator[str]:
    finding = report.finding
    if finding is None:
        state = UNSEEN if report.exists is None else ABSENT
    elif finding.cause is not None:
        state = f"{finding.outcome} ({finding.cause}): {shown(finding.message)}"
    else:
        state = finding.outcome
    known = report.last_known
    if report.namespace_terminating is not None:
        since = f" since {shown(report.namespace_terminating)}" if report.namespace_terminating else ""
        yield f"  namespace  Terminating{since}: etcdfix namespace tells what blocks it"
    yield f"  object     {shown(report.object)}"
    yield f"  stored     {state}"
    if report.object.key_base64 is not None:
        yield f"  key        base64:{report.object.key_base64}"
    basis = BASIS[known.basis].format(known.mod_revision)
    yield f"  uid        {shown(known.uid) or 'unknown'} ({known.confidence + ', ' if known.uid else ''}{basis})"
    for uid, count in list(known.conflicting_uids.items())[:5]:
        yield f"             but {counted(count, 'reference')} say {shown(uid)}: an object of this name before it"
    if report.secret is not None:
        yield f"  type       {shown(report.secret.type) or 'unknown'}"
        yield f"  KEP-2639   {_protection(report)}"


def _protection(report: ImpactReport) -> str:
    assert report.secret is not None
    secret = report.secret
    if secret.opted_out:
        text = "opted out of protection by its annotation " + _OPT_OUT
    elif secret.protected:
        text = "in use by pods, volumes or snapshots: the KEP would hold a deletion back (no release does)"
    else:
        text = "not in use by pods, volumes or snapshots, as far as can be read"
    if secret.protection_finalizers:
        text += f"; has {shown(', '.join(secret.protection_finalizers))}, which nobody honours"
    if not report.readable and _OPT_OUT in report.last_known.annotations:
        text += f"; when it could be read, it had the annotation {_OPT_OUT}"
    return text


def _dependents(report: ImpactReport, max_rows: int) -> Iterator[str]:
    yield ""
    counts = {action: count for action, count in report.dependents.counts.items() if count}
    if not counts:
        yield "Garbage collector: nothing that can be read is owned by it"
        yield from _beside(report, max_rows)
        return
    yield "Garbage collector: " + ", ".join(f"{count} {action}" for action, count in counts.items())
    if report.dependents.deleted_by_resource:
        resources = [count_of(n, resource) for resource, n in report.dependents.deleted_by_resource.items()]
        yield f"  deletes {', '.join(resources)}"
    tree = report.dependents.tree
    rows = [(f"{'  ' * min(e.depth - 1, 20)}{shown(e.object)}", _action(e)) for e in tree[:max_rows]]
    yield from aligned(rows, "    ")
    yield from _more(len(tree), max_rows)
    yield from _beside(report, max_rows)


def _beside(report: ImpactReport, max_rows: int) -> Iterator[str]:
    """Yield what else happens, and on what all of it depends."""
    caught_up = report.dependents.caught_up
    if caught_up:
        yield "  catches up with"
        rows = [(f"{'  ' * min(e.depth - 1, 20)}{shown(e.object)}", _action(e)) for e in caught_up[:max_rows]]
        yield from aligned(rows, "    ")
        yield from _more(len(caught_up), max_rows)
    yield from (f"  {shown(warning)}" for warning in report.dependents.warnings)


def _action(entry: Decision) -> str:
    text = entry.action + (f" ({entry.propagation})" if entry.propagation else "")
    if entry.already_terminating:
        text += ", was being deleted already"
    if entry.stays:
        text += f", only Terminating: waits for {shown(entry.stays)}"
    elif entry.after_finalizers:
        text += f", after {shown(', '.join(entry.after_finalizers))}"
    reasons = [f"{shown(o.kind)} {shown(o.name)}: {shown(o.reason)}" for o in entry.owners if o.reason]
    if entry.action not in {"cascade-deleted", "kept"} and reasons:
        text += f" [{'; '.join(reasons[:3])}]"
    solid = [f"{shown(o.kind)} {shown(o.name)}" for o in entry.owners if o.state == "solid"]
    if entry.action == "kept" and solid:
        text += f" [by {', '.join(solid[:3])}]"
    if entry.uncertain:
        text += f"; {shown(entry.uncertain)}"
    return text


def _users(report: ImpactReport, max_rows: int) -> Iterator[str]:
    yield ""
    if not report.user_count and report.object.resource == "customresourcedefinitions":
        yield "Users: its custom resources, if there are any; nothing else that can be read refers to it"
        return
    if not report.user_count:
        yield "Users: nothing that can be read refers to it"
        return
    if report.secret is not None:
        stopped = {u.object.key for group in report.users for u in group.users if u.stops == "yes"}
        stop = f"{counted(len(stopped), 'object')} cannot go on without it"
        yield f"Users: {counted(report.user_count, 'reference')}; {stop}"
    else:
        yield f"Users: {counted(report.user_count, 'reference')}"
    left = max_rows
    for group in report.users:
        if left <= 0:
            break
        yield f"  as {group.role} ({group.count})"
        yield from aligned([_user(user) for user in group.users[:left]], "    ")
        left -= len(group.users)
    yield from _more(report.user_count, max_rows)


def _user(user: User) -> tuple[str, str, str]:
    marks = [
        mark
        for mark, present in (
            ("optional", user.optional and user.stops is None),
            ("by template", user.template),
            ("likely, not certain", user.heuristic),
            ("pods made from it later", user.in_pod_template),
        )
        if present
    ]
    if user.behind_count:
        pods = ", ".join(f"{shown(pod.namespace)}/{shown(pod.name)}" for pod in user.behind[:3])
        marks.append(f"pods behind it: {user.behind_count} ({pods}{', …' if user.behind_count > 3 else ''})")
    effect = f"{STOPS[user.stops]}: {shown(user.consequence)}" if user.stops is not None else ""
    return shown(user.object), "; ".join([effect, *marks] if effect else marks), shown(user.path)


def _finalizers(report: ImpactReport) -> Iterator[str]:
    if not report.finalizers:
        return
    yield ""
    yield "Finalizers that an unsafe deletion skips"
    rows = []
    for finalizer in report.finalizers:
        known = finalizer.name in (report.last_known.finalizers or ())
        why = "it had it when it could be read" if known else "usual for its kind"
        sure = "" if finalizer.confidence == "certain" else f" ({finalizer.confidence}: {why})"
        owner = f" ({shown(finalizer.owner)})" if finalizer.owner else ""
        leak = "LEAKS" if finalizer.leaks else "no leak"
        rows.append((shown(finalizer.name), leak, f"{shown(finalizer.consequence)}{owner}{sure}"))
    yield from aligned(rows)


def _more(count: int, max_rows: int) -> Iterator[str]:
    if count > max_rows:
        yield f"    … {count - max_rows} of {count} not shown; --max-rows {count} or -o json shows them"
