"""``plan -o html``: the list of many broken objects, to decide about together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.reports.formats.page import (
    Block,
    Column,
    Grid,
    Page,
    Section,
    Step,
    Table,
    Ways,
    badge_of,
    write_page,
)
from etcdfix.reports.formats.plan_table import UNPROVEN, plan_introduction, recreated_by
from etcdfix.reports.formats.text import shown_transformer
from etcdfix.reports.head import plan_counts, plan_stakes
from etcdfix.reports.plan_model import Decision, DeletionPlan, PlanEntry, decision_on, meaning
from etcdfix.text.words import counted

_RISKS: Final = ("cluster-breaking", "high", "low", "none")
_COLUMNS: Final = (
    Column("Order", "number"),
    Column("Risk", "mark", choose=True, order=_RISKS),
    Column("Cause", choose=True),
    Column("Resource", choose=True, minor=True),
    Column("Recreated by", choose=True),
    Column("Etcd key, and what it is", "key"),
    Column("Proposed", choose=True, order=tuple(Decision)),
)
_FACTS: Final = (
    "Key, base64", "Namespace", "Name", "Outcome", "Written under", "KMS key id", "Mod revision", "Value", "Used by",
    "Cascade", "Protected", "How it is made again", "Comes back", "Readable revision", "Repair", "Deletion",
)  # fmt: skip


def write_plan(stream: BinaryIO, plan: DeletionPlan) -> None:
    """Write the plan as a page of its own."""
    found = plan_stakes(plan)
    badge, tone = badge_of(found.severity, undecided=not plan.complete or bool(plan.entries))
    page = Page(
        title=f"etcdfix plan: {counted(len(plan.entries), 'broken object')}",
        badge=badge,
        tone=tone,
        headline=plan_counts(plan),
        lines=[found.at_stake] if found.at_stake else [],
        warning=found.do_not_restart,
        next=found.next,
        incomplete=None if plan.complete else plan.incomplete_reasons,
        sections=list(_sections(plan)),
        foot=plan_introduction(plan),
    )
    write_page(page, stream)


def _sections(plan: DeletionPlan) -> Iterator[Section]:
    if plan.steps:
        steps = [Step(step.title, step.commands, before=step.text) for step in plan.steps]
        yield Section("What to do, in this order", [Ways(steps)])
    if plan.groups:
        groups = [
            (str(g.count), g.cause or g.outcome, shown_transformer(g.transformer or "unknown"), g.rule, str(g.opened),
             g.advice)
            for g in plan.groups
        ]  # fmt: skip
        makers = [(str(m.count), m.recreated_by, m.comes_back, m.how) for m in plan.recreated_by]
        columns = ("Objects", "Cause", "Written under", "Rule", "Others that open", "Advice")
        yield Section(
            "What they have in common",
            [
                Table("By cause and encryption key", columns, groups, (0, 4)),
                Table(
                    "By who makes them again", ("Objects", "Recreated by", "Comes back", "How"), makers, (0,)
                ),
            ],
        )
    grid = Grid("objects", "The objects", _COLUMNS, facts=_FACTS, sort="Order")
    for entry in plan.entries:
        _add(grid, entry)
    if grid.count:
        yield Section("The objects, in the order of their turns", [grid])
    left_out = Grid(
        "left-out",
        "Left out",
        (Column("Why", choose=True), Column("Etcd key", "key")),
        facts=("Key, base64",),
    )
    for left in plan.left_out:
        left_out.add((left.why, (left.key, left.detail)), (left.key_base64 or "",))
    if left_out.count:
        yield Section(f"Left out: {counted(left_out.count, 'finding')} of the report", [left_out])


def _add(grid: Grid, entry: PlanEntry) -> None:
    unproven = entry.outcome == "undetermined"
    deletion = "refused" if entry.refused else "needs more" if entry.needs else "dry run works"
    resource = f"{entry.resource}.{entry.group}" if entry.group else entry.resource
    needs = [f"Refused without {flag}: {meaning(flag)}." for flag in entry.needs]
    refused = [f"Refused: {entry.refused}; until then no flag helps."] if entry.refused else []
    grid.add(
        (
            entry.order, entry.risk, entry.cause + (UNPROVEN if unproven else ""), resource, entry.recreated_by,
            (entry.key, entry.what), decision_on(entry).decision,
        ),
        (
            entry.key_base64 or "", entry.namespace, entry.name, entry.outcome,
            shown_transformer(entry.transformer or "unknown"), entry.kms_key_id_sha256, str(entry.mod_revision),
            entry.value_sha256, f"{counted(entry.users, 'object')}, {entry.users_stopped} cannot go on without it",
            f"{counted(entry.cascade, 'dependent')} deleted after it" if entry.cascade else "",
            entry.protected, f"{recreated_by(entry)}; {entry.recreate_how}", entry.comes_back,
            str(entry.readable_revision or ""), entry.repair, deletion,
        ),
        [
            Block("evidence", "Why that risk", [(reason.risk, reason.text, "") for reason in entry.reasons]),
            Block("ways", "Its deletion", [("A dry run", entry.command, " ".join([*refused, *needs]))]),
        ],
    )  # fmt: skip
