"""``impact -o html`` and ``namespace -o html``: one file to attach to a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from etcdfix.graph.model import Blocker, Decision, ObjectRef, User
from etcdfix.reports.formats import namespace as words
from etcdfix.reports.formats.deletion_forecast import heading, state, verb, wait_cells
from etcdfix.reports.formats.impact_table import ABSENT, BASIS, STOPS, UNSEEN, grade, protection
from etcdfix.reports.formats.page import Column, Facts, Grid, Page, Section, Table, Text, ways, write_page
from etcdfix.reports.formats.text import introduction, shown
from etcdfix.reports.impact_model import ImpactReport, NamespaceReport, NamespaceStep
from etcdfix.reports.model import Remedy
from etcdfix.text.words import counted

_TONES: Final = {"none": "good", "low": "warn", "high": "bad", "cluster-breaking": "bad"}
_STATES: Final = {
    "active": "good", "active-with-blockers": "warn", "terminating": "warn", "stuck": "bad", "unreadable": "bad",
    "missing": "warn", "unknown": "unknown",
}  # fmt: skip
_OBJECT_FACTS: Final = ("Etcd key", "Key, base64", "Namespace")
_REMARKS: Final = 3


# -------------------------------------------------------------------------------------------------------- impact


def write_impact(report: ImpactReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own."""
    title = f"{verb(report).capitalize()} {shown(report.object.key)}"
    doubts = []
    if report.unreadable_elsewhere or report.undetermined_elsewhere:
        doubts.append(
            f"Not counted: whatever refers to it from {counted(report.unreadable_elsewhere, 'other object')} that "
            f"cannot be read and {report.undetermined_elsewhere} that could not be judged."
        )
    page = Page(
        title=f"etcdfix impact: {title}",
        badge=f"risk {grade(report)}",
        tone=_TONES[report.risk],
        headline=title,
        lines=[*([report.at_stake] if report.at_stake else []), *(doubts if report.complete else [])],
        warning=report.do_not_restart,
        next=report.next or next(iter(report.remedies), None),
        incomplete=None if report.complete else [*report.incomplete_reasons, *doubts],
        sections=list(_impact(report)),
        foot=[introduction(report), report.generated_at],
    )
    write_page(page, stream)


def _impact(report: ImpactReport) -> Iterator[Section]:
    if report.reasons:
        rows = [(reason.risk, shown(reason.text)) for reason in report.reasons]
        yield Section("Why", [Table("Reasons for the grade, the worst first", ("Risk", "Because"), rows)])
    else:
        yield Section("Why", [Text(["No reference that etcdfix follows leads to it."])])
    yield Section("What it is", [Facts(list(_facts(report)))])
    deletion = report.deletion
    if deletion is not None:
        waits = [
            (held, ended, text, "the object too" if wait.holds_object else "", shown(names))
            for wait in deletion.waits
            for held, ended, text, names in [wait_cells(wait, report.object)]
        ]
        columns = ("Held up by", "Ended by", "Waits for", "Holds", "Objects")
        table = [Table("What it waits for", columns, waits)] if waits else []
        yield Section(heading(deletion), [Text([state(deletion)]), *table, Text(deletion.notes)])
    yield _dependents(report)
    yield _users(report)
    if report.finalizers and not (deletion is not None and deletion.possible):
        finalizers = [
            (shown(f.name), shown(f.consequence + (f" ({f.owner})" if f.owner else "")), "yes" if f.leaks else "no",
             f.confidence)
            for f in report.finalizers
        ]  # fmt: skip
        yield Section(
            "Finalizers that an unsafe deletion skips",
            [Table("Finalizers", ("Finalizer", "Left undone", "Leaks", "Known"), finalizers)],
        )
    if report.consequences:
        yield Section("What is special about it", [Text(report.consequences)])
    if report.remedies:
        yield Section("What to do, in this order", [ways(report.remedies)])


def _facts(report: ImpactReport) -> Iterator[tuple[str, str]]:
    finding, known = report.finding, report.last_known
    yield "Object", shown(report.object)
    if report.object.key_base64 is not None:
        yield "Key, base64", report.object.key_base64
    if finding is None:
        yield "Stored", UNSEEN if report.exists is None else ABSENT
    else:
        cause = f" ({finding.cause}): {finding.message}" if finding.cause is not None else ""
        yield "Stored", f"{finding.outcome}{cause}"
    basis = BASIS[known.basis].format(known.mod_revision)
    yield "Uid", f"{shown(known.uid)} ({known.confidence}, {basis})" if known.uid else f"unknown: {basis}"
    if known.conflicting_uids:
        others = [f"{shown(uid)} ×{count}" for uid, count in list(known.conflicting_uids.items())[:5]]
        yield "Other uids", ", ".join(others)
    if report.namespace_terminating is not None:
        yield "Namespace", f"Terminating since {report.namespace_terminating or 'some time'}"
    if report.node:
        yield "Node", shown(report.node)
    if report.secret is not None:
        yield "Type", shown(report.secret.type or "unknown")
        yield "KEP-2639", protection(report)


def _dependents(report: ImpactReport) -> Section:
    found = report.dependents
    counts = [f"{count} {action}" for action, count in found.counts.items() if count]
    title = "What the garbage collector does"
    first = f"{', '.join(counts)}." if counts else "Nothing that can be read is owned by it."
    resources = [f"{number} {shown(resource)}" for resource, number in found.deleted_by_resource.items()]
    deletes = [f"It deletes {', '.join(resources)}."] if resources else []
    columns = (
        Column("What happens", "mark", choose=True),
        Column("Resource", choose=True, minor=True),
        Column("Dependent", "key"),
        Column("Because", choose=True),
        Column("Depth", "number", minor=True),
    )
    grid = Grid("dependents", title, columns, facts=_OBJECT_FACTS)
    for reason, tree in (("owned by it", found.tree), ("caught up with", found.caught_up)):
        for entry in tree:
            action = entry.action + (f" ({entry.propagation})" if entry.propagation else "")
            grid.add(
                (
                    action,
                    entry.object.full_resource,
                    (shown(entry.object), _remarks(entry)),
                    reason,
                    entry.depth,
                ),
                _of_object(entry.object),
            )
    return Section(title, [Text([first, *deletes, *found.warnings]), *([grid] if grid.count else [])])


def _remarks(entry: Decision) -> str:
    remarks = [f"{o.kind} {o.name}: {o.reason}" for o in entry.owners if o.reason][:_REMARKS]
    if entry.stays:
        remarks.append(f"only Terminating: waits for {entry.stays}")
    elif entry.after_finalizers:
        remarks.append(f"after {', '.join(entry.after_finalizers)}")
    if entry.already_terminating:
        remarks.append("was being deleted already")
    if entry.uncertain:
        remarks.append(entry.uncertain)
    return "; ".join(remarks)


def _of_object(found: ObjectRef) -> tuple[str, ...]:
    return found.key, found.key_base64 or "", found.namespace


def _users(report: ImpactReport) -> Section:
    title = "Who uses it"
    if not report.user_count:
        return Section(title, [Text(["Nothing that can be read refers to it."])])
    columns = (
        Column("Without it", "mark", choose=True, order=tuple(STOPS.values())),
        Column("How", choose=True),
        Column("Resource", choose=True, minor=True),
        Column("User", "key"),
    )
    grid = Grid("users", title, columns, facts=(*_OBJECT_FACTS, "Field"))
    for group in report.users:
        for user in group.users:
            stops = STOPS[user.stops] if user.stops is not None else ""
            grid.add(
                (stops, user.role, user.object.full_resource, (shown(user.object), _effect(user))),
                (*_of_object(user.object), user.path),
            )
    lines = [f"{counted(report.user_count, 'reference')}."]
    return Section(title, [Text(lines), grid])


def _effect(user: User) -> str:
    marks = {
        "optional": user.optional and user.stops is None,
        "by template": user.template,
        "likely, not certain": user.heuristic,
        "pods made from it later": user.in_pod_template,
    }
    notes = [mark for mark, present in marks.items() if present]
    if user.behind_count:
        notes.append(f"{counted(user.behind_count, 'pod')} behind it")
    return "; ".join([*([user.consequence] if user.stops is not None else []), *notes])


# ----------------------------------------------------------------------------------------------------- namespace


def write_namespace(report: NamespaceReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own."""
    at_stake = [report.at_stake] if report.at_stake else []
    page = Page(
        title=f"etcdfix namespace {shown(report.name)}: {report.state}",
        badge=report.state,
        tone=_STATES[report.state],
        headline=words.headline(report),
        lines=[*at_stake, *(text[0].upper() + text[1:] + "." for text in words.consequences(report))],
        warning=report.do_not_restart,
        next=report.next or next(map(_remedy, report.plan), None),
        incomplete=None if report.complete else report.incomplete_reasons,
        sections=list(_namespace(report)),
        foot=[introduction(report), report.generated_at],
    )
    write_page(page, stream)


def _remedy(step: NamespaceStep) -> Remedy:
    return Remedy(step.action, step.command, step.note)


def _namespace(report: NamespaceReport) -> Iterator[Section]:
    if report.plan:
        stays = report.state in {"active", "active-with-blockers"}
        title = "Before somebody deletes it, in this order" if stays else "What to do, in this order"
        yield Section(title, [ways(map(_remedy, report.plan))])
    grid = _blockers(report)
    if grid.count:
        yield Section("What holds it", [grid])
    if report.webhooks:
        rows = [(shown(words.webhook_name(h)), shown(words.why_webhook(h))) for h in report.webhooks]
        yield Section("Webhooks that nobody answers", [Table("Webhooks", ("Webhook", "Why"), rows)])
    stages = [
        (
            str(stage.number),
            words.STAGES[stage.name],
            ", ".join(map(words.resource_words, stage.resources[:100])),
            str(stage.blocker_count),
        )
        for stage in report.stages
    ]
    columns = ("Stage", "What goes", "Holds", "Held up by")
    tokens = [
        f"{name}: {shown(', '.join(found))}"
        for name, found in (
            ("spec.finalizers", report.spec_finalizers),
            ("metadata.finalizers", report.finalizers),
        )
        if found
    ]
    yield Section("Order of deletion (KEP-5080)", [Table("Stages", columns, stages, (0, 3)), Text(tokens)])
    if report.cycles:
        yield Section("Objects that wait for one another", [Text(_lines(words.cycle_lines(report, 100)))])
    if report.missing_apis:
        rows = [(shown(api.api), shown(api.reason)) for api in report.missing_apis]
        yield Section("APIs that do not answer, or that nobody serves", [Table("APIs", ("API", "Why"), rows)])
    if report.conditions:
        yield Section("What it reports itself", [Text(_lines(words.condition_lines(report)))])


def _lines(indented: Iterator[str]) -> list[str]:
    """Return the lines of a text for a terminal, of which those that are set off from the left belong together."""
    return [text for text in map(str.strip, indented) if text]


def _blockers(report: NamespaceReport) -> Grid:
    columns = (
        Column("Reason", "mark", choose=True, order=("unreadable", "serves-empty", "undetermined", "node")),
        Column("Stage", choose=True),
        Column("Resource", choose=True, minor=True),
        Column("Object, and why", "key"),
    )
    grid = Grid(
        "blockers", "What holds it", columns, facts=(*_OBJECT_FACTS, "Terminating since", "Finalizers")
    )
    _add(grid, "outside of it", report.elsewhere)
    for stage in report.stages:
        _add(grid, f"{stage.number} {stage.name}", stage.blockers)
    total = report.elsewhere_count + sum(stage.blocker_count for stage in report.stages)
    if total > grid.count:
        grid.notes.append(f"{counted(total, 'object')} in all: of each stage the first hundred are told.")
    return grid


def _add(grid: Grid, stage: str, blockers: Iterable[Blocker]) -> None:
    for blocker in blockers:
        found = blocker.object
        grid.add(
            (blocker.reason, stage, found.full_resource, (shown(found), words.why_held(blocker))),
            (*_of_object(found), blocker.terminating_since or "", ", ".join(blocker.finalizers)),
        )
