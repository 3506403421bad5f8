"""``etcdfix impact -o table``: the grade first, what to do last, and in between what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import BinaryIO

from etcdfix.graph.model import Assessment, Collection, Decision, User
from etcdfix.report.base import Output
from etcdfix.report.formats.deletion_forecast import deletion_lines, verb
from etcdfix.report.formats.text import aligned, incomplete, introduction, shown, steps
from etcdfix.report.head import head_lines
from etcdfix.report.impact_model import Dependents, ImpactReport
from etcdfix.text.words import counted

_BASIS = {
    "current": "it can be read",
    "history": "from its history, at mod_revision {0}",
    "earlier-generation": "from an earlier object of this name, at mod_revision {0}",
    "references": "as others refer to it",
    "none": "no revision that is kept can be read, and nobody refers to it by uid",
}
_OPT_OUT = "secret.kubernetes.io/skip-secret-protection"
_ABSENT = "NOT IN ETCD: only others mention it"
_UNSEEN = "NOT SEEN: others mention it, and not everything could be read"
_STOPS = {"yes": "STOPS", "no": "goes on", "perhaps": "may stop"}


def write_table(report: ImpactReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the report as text; each list stops at ``max_rows`` and says how much there is more."""
    output = Output(stream)
    output.lines(_lines(report, max_rows))


def _lines(report: ImpactReport, max_rows: int) -> Iterator[str]:
    yield from head_lines(report.at_stake, report.do_not_restart, report.next)
    yield from _graded(report, max_rows)
    yield ""
    yield introduction(report)
    yield from _object(report)
    users = [user for group in report.users for user in group.users]
    yield from deletion_lines(report, max_rows)
    yield from _what_hangs_on_it(report, report.dependents, users, max_rows)
    yield ""
    yield from incomplete(report)
    if report.unreadable_elsewhere or report.undetermined_elsewhere:
        yield (
            f"Not counted: whatever refers to it from {counted(report.unreadable_elsewhere, 'other object')} that "
            f"cannot be read and {report.undetermined_elsewhere} that could not be judged."
        )
    if report.remedies:
        yield "What to do next"
        yield from steps((remedy.action, remedy.command.text, remedy.note) for remedy in report.remedies)


def assessment_lines(found: Assessment, max_rows: int) -> Iterator[str]:
    """Yield what the loss of an object means as the table has it; each list stops at ``max_rows``."""
    yield from _graded(found, max_rows)
    yield from _what_hangs_on_it(found, found.collection, found.users, max_rows)


def _grade(found: ImpactReport | Assessment) -> str:
    """Return the grade in words: what was not seen can only make it worse."""
    worst = found.risk == "cluster-breaking"
    return f"{found.risk} or worse" if found.may_be_worse and not worst else found.risk


def _graded(found: ImpactReport | Assessment, max_rows: int) -> Iterator[str]:
    losing = verb(found) if isinstance(found, ImpactReport) else "losing"
    yield f"RISK {_grade(found).upper()}: {losing} {shown(found.object.key)}"
    yield from aligned([(reason.risk, shown(reason.text)) for reason in found.reasons[:max_rows]])
    yield from _more(len(found.reasons), max_rows)
    if not found.reasons:
        yield "  no reference that etcdfix follows leads to it"


def _what_hangs_on_it(
    found: ImpactReport | Assessment, goes: Dependents | Collection, users: Sequence[User], max_rows: int
) -> Iterator[str]:
    yield from _dependents(goes, max_rows)
    if goes.caught_up:
        yield "  catches up with"
        yield from _decisions(goes.caught_up, max_rows)
    if isinstance(goes, Dependents):
        yield from (f"  {shown(warning)}" for warning in goes.warnings)
    yield from _users(found, users, max_rows)
    yield from _finalizers(found, max_rows)
    if found.consequences or found.node:
        yield ""
        yield "What is special about it"
        if found.node and not any(found.node in sentence for sentence in found.consequences):
            yield f"  runs on node {shown(found.node)}"
        yield from (f"  {shown(sentence)}" for sentence in found.consequences[:max_rows])
        yield from _more(len(found.consequences), max_rows)


def _object(report: ImpactReport) -> Iterator[str]:
    finding = report.finding
    if finding is None:
        state = _UNSEEN if report.exists is None else _ABSENT
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
    basis = _BASIS[known.basis].format(known.mod_revision)
    yield f"  uid        {shown(known.uid) or 'unknown'} ({known.confidence + ', ' if known.uid else ''}{basis})"
    for uid, count in list(known.conflicting_uids.items())[:5]:
        yield f"             but {counted(count, 'reference')} say {shown(uid)}: an object of this name before it"
    if report.secret is not None:
        yield f"  type       {shown(report.secret.type) or 'unknown'}"
        yield f"  KEP-2639   {_protection(report)}"


def _protection(report: ImpactReport) -> str:
    """Return what KEP-2639 would do for a Secret."""
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


def _dependents(goes: Dependents | Collection, max_rows: int) -> Iterator[str]:
    yield ""
    counts = [f"{count} {action}" for action, count in goes.counts.items() if count]
    if not counts:
        yield "Garbage collector: nothing that can be read is owned by it"
        return
    yield f"Garbage collector: {', '.join(counts)}"
    if goes.deleted_by_resource:
        resources = [f"{n} {shown(resource)}" for resource, n in goes.deleted_by_resource.items()]
        yield f"  deletes {', '.join(resources)}"
    yield from _decisions(goes.tree, max_rows)


def _decisions(tree: Sequence[Decision], max_rows: int) -> Iterator[str]:
    rows = [(f"{'  ' * min(e.depth - 1, 20)}{shown(e.object)}", _action(e)) for e in tree[:max_rows]]
    yield from aligned(rows, "    ")
    yield from _more(len(tree), max_rows)


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


def _users(found: ImpactReport | Assessment, users: Sequence[User], max_rows: int) -> Iterator[str]:
    yield ""
    if not users and found.object.resource == "customresourcedefinitions":
        yield "Users: its custom resources, if there are any; nothing else that can be read refers to it"
        return
    if not users:
        yield "Users: nothing that can be read refers to it"
        return
    stop = ""
    if found.secret is not None:
        stopped = {user.object.key for user in users if user.stops == "yes"}
        stop = f"; {counted(len(stopped), 'object')} cannot go on without it"
    objects = counted(len({user.object.key for user in users}), "object")
    yield f"Users: {objects}, {counted(len(users), 'reference')}{stop}"
    counts = Counter(user.role for user in users)
    for role, members in groupby(users[:max_rows], key=lambda user: user.role):
        yield f"  as {role} ({counts[role]})"
        yield from aligned([_user(user) for user in members], "    ")
    yield from _more(len(users), max_rows)


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
    effect = f"{_STOPS[user.stops]}: {shown(user.consequence)}" if user.stops is not None else ""
    return shown(user.object), "; ".join([effect, *marks] if effect else marks), shown(user.path)


def _finalizers(found: ImpactReport | Assessment, max_rows: int) -> Iterator[str]:
    skipped = not isinstance(found, ImpactReport) or found.deletion is None or not found.deletion.possible
    if not found.finalizers or not skipped:
        return
    yield ""
    yield "Finalizers that an unsafe deletion skips"
    rows = []
    for finalizer in found.finalizers[:max_rows]:
        known = finalizer.name in (found.last_known.finalizers or ())
        why = "it had it when it could be read" if known else "usual for its kind"
        sure = "" if finalizer.confidence == "certain" else f" ({finalizer.confidence}: {why})"
        owner = f" ({shown(finalizer.owner)})" if finalizer.owner else ""
        leak = "LEAKS" if finalizer.leaks else "no leak"
        rows.append((shown(finalizer.name), leak, f"{shown(finalizer.consequence)}{owner}{sure}"))
    yield from aligned(rows)
    yield from _more(len(found.finalizers), max_rows)


def _more(count: int, max_rows: int) -> Iterator[str]:
    if count > max_rows:
        rest = f"{count - max_rows} of {count} not shown"
        yield f"    … {rest}; etcdfix impact with --max-rows {count} or -o json shows them"
