"""``-o table`` of a plan: what it is about, in which order to act on each object, and what to do first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import BinaryIO, Final

from etcdfix.graph.model import BY_HAND
from etcdfix.report.base import Output, fit
from etcdfix.report.formats.text import shown_transformer
from etcdfix.report.head import plan_head
from etcdfix.report.plan_model import DeletionPlan, LeftOut, PlanEntry, decision_on, meaning
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_MAX_CELL: Final = 300
_MAX_KEY: Final = 500
_MAX_WHY: Final = 100
_MOST_GROUPS: Final = 20
_UNDETERMINED: Final = "undetermined"
_UNPROVEN: Final = " (unproven)"
_COMMANDS_SHOWN: Final = 3
_EXAMPLES_LEFT_OUT: Final = 3
_REFUSED: Final = "refused"
_COLUMNS: Final = (
    "ORDER", "PROPOSED", "RISK", "WHY", "WHAT IT IS", "RECREATED BY", "CASCADE", "FLAGS NEEDED", "KEY",
)  # fmt: skip


def write_plan_table(stream: BinaryIO, plan: DeletionPlan, max_rows: int, *, json_file: str) -> None:
    """Write the plan for a person.

    Args:
        stream: Binary output.
        plan: What to write.
        max_rows: Most rows of the list of objects.
        json_file: The command that writes the whole plan, ready to paste.
    """
    output = Output(stream)
    line = output.line
    for text in plan_head(plan):
        line(text)
    for text in _plan_introduction(plan):
        line(safe_text(text))
    if plan.groups:
        line()
        _table(
            output,
            ("COUNT", "CAUSE", "WRITTEN UNDER", "RULE", "OPEN", "ADVICE"),
            [
                (
                    str(g.count),
                    g.cause or g.outcome,
                    shown_transformer(g.transformer or "unknown"),
                    g.rule,
                    str(g.opened),
                    g.advice,
                )
                for g in plan.groups[:_MOST_GROUPS]
            ],
            key="ADVICE",
            prose=True,
            spare=("OPEN", "RULE"),
        )
        if len(plan.groups) > _MOST_GROUPS:
            line(f"and {counted(len(plan.groups) - _MOST_GROUPS, 'more group')}; see all with -o json")
        line()
        _table(
            output,
            ("COUNT", "RECREATED BY", "RECREATED", "HOW"),
            [(str(r.count), r.recreated_by, r.comes_back, r.how) for r in plan.recreated_by[:_MOST_GROUPS]],
        )
        if len(plan.recreated_by) > _MOST_GROUPS:
            line(f"and {counted(len(plan.recreated_by) - _MOST_GROUPS, 'more maker')}; see all with -o json")
        line()
        _entries(output, plan, max_rows)
    _left_out(output, plan)
    if not plan.complete:
        line()
        line("INCOMPLETE: not everything was seen.")
        for problem in plan.incomplete_reasons:
            line(f"  - {safe_text(problem)}")
    if plan.steps:
        line()
        line("What to do, in this order")
        for number, step in enumerate(plan.steps, start=1):
            output.prose(f"{number}. {safe_text(step.title)}. {safe_text(step.text)}", "  ")
            for command in step.commands:
                line(f"       {safe_text(command)}")
        if plan.entries:
            _commands(output, plan, json_file)
    elif plan.complete or all(left.why != _UNDETERMINED for left in plan.left_out):
        line()
        line("Nothing of the report is left to delete.")


def _plan_introduction(plan: DeletionPlan) -> list[str]:
    """Return what the plan was made from."""
    source = plan.source
    where = source.path if source.path is not None else ", ".join(source.endpoints or [])
    lines = [
        f"etcdfix {plan.tool.version} · plan from {plan.report.path} (scan of {plan.report.generated_at})",
        f"  {source.type} {where} · revision {source.revision} · {plan.generated_at}",
        f"  kube-system uid {plan.kube_system_uid or 'unknown'}",
        f"  encryption configuration {plan.encryption_config.path} ({plan.encryption_config.sha256})"
        if plan.encryption_config is not None
        else "  nothing is encrypted at rest (--no-encryption)",
    ]
    if plan.not_in_report:
        lines.append(
            f"  not in the report: {counted(plan.not_in_report, 'broken value')}; scan again to see them"
        )
    return lines


def _entries(output: Output, plan: DeletionPlan, max_rows: int) -> None:
    line = output.line
    shown = plan.entries[:max_rows]
    marks = _marks(plan)

    def cells(entry: PlanEntry) -> tuple[str, ...]:
        flags = _REFUSED if entry.refused else " ".join(marks[flag] for flag in entry.needs)
        proposed = decision_on(entry).decision
        return (
            proposed,
            _risk(entry),
            _why_risky(entry),
            entry.what,
            _recreated_by(entry),
            str(entry.cascade),
            flags,
        )

    line("The objects, in the order of their turns")
    rows = [(str(entry.order), *cells(entry), entry.key) for entry in shown]
    _table(output, _COLUMNS, rows, key="KEY", spare=("CASCADE",))
    if any(entry.cascade for entry in shown):
        line("CASCADE: dependents that the garbage collector deletes after it")
    for flag, mark in marks.items():
        if any(flag in entry.needs for entry in shown):
            output.prose(safe_text(f"{mark}: its command works with {flag} only: {meaning(flag)}"))
    for why in dict.fromkeys(entry.refused for entry in shown if entry.refused):
        output.prose(safe_text(f"{_REFUSED}: {why}; until then no flag helps"))
    if any(_UNPROVEN in _risk(entry) for entry in shown):
        line("(unproven): most likely in order; its deletion is refused unless its KMS key is declared lost")
    if len(shown) < len(plan.entries):
        line(
            f"shown: {len(shown)} of {counted(len(plan.entries), 'object')}; see all with -o json, or "
            f"--max-rows {len(plan.entries)}"
        )


def _commands(output: Output, plan: DeletionPlan, json_file: str) -> None:
    line = output.line
    line()
    if plan.source.type == "kine":
        line("etcdfix writes nothing to kine, so there are no commands;")
        line("etcdfix explain KEY shows what an API server can do.")
        return
    first = "The first dry runs" if len(plan.entries) > _COMMANDS_SHOWN else "The dry runs"
    line(f"{first}, in this order")
    for entry in plan.entries[:_COMMANDS_SHOWN]:
        line(f"  {safe_text(entry.command)}")
        for flag in entry.needs:
            line(f"    refused without {safe_text(flag)}")
        if entry.refused:
            line(f"    refused: {safe_text(entry.refused)}")
    if len(plan.entries) > _COMMANDS_SHOWN:
        line("Write the plan; it has the command of every object, and what is proposed for it:")
        line(f"  {safe_text(json_file)}")
        line("The commands, to take one after the other:")
        line("  jq -r '.entries[].command' plan.json")
        line("All in one run, as the plan decides once you have reviewed it:")
        line("  etcdfix plan --run plan.json --help")


def _marks(plan: DeletionPlan) -> dict[str, str]:
    """Number the flags that commands lack, so that a row names them in a few characters."""
    flags = dict.fromkeys(flag for entry in plan.entries for flag in entry.needs)
    return {flag: f"[{number}]" for number, flag in enumerate(flags, start=1)}


def _risk(entry: PlanEntry) -> str:
    return f"{entry.risk}{_UNPROVEN if entry.outcome == 'undetermined' else ''}"


def _why_risky(entry: PlanEntry) -> str:
    """Return the worst reason; why it is protected where the grade has none."""
    return fit(entry.reasons[0].text if entry.reasons else entry.protected, _MAX_WHY)


def _recreated_by(entry: PlanEntry) -> str:
    """Return who makes it again, and why that is thought."""
    if entry.recreated_by == BY_HAND:
        return BY_HAND
    return f"{entry.recreated_by} ({entry.recreate_confidence}: {entry.recreate_basis})"


def _left_out(output: Output, plan: DeletionPlan) -> None:
    if not plan.left_out:
        return
    output.line()
    output.line(f"Left out: {counted(len(plan.left_out), 'finding')} of the report")
    reasons: dict[str, list[LeftOut]] = {}
    counts = Counter[str]()
    for left in plan.left_out:
        counts[left.why] += 1
        examples = reasons.setdefault(left.why, [])
        if len(examples) < _EXAMPLES_LEFT_OUT:
            examples.append(left)
    for why, count in counts.most_common():
        output.line(f"  {count} {why}")
        for left in reasons[why]:
            output.line(f"    {safe_text(fit(left.key, _MAX_KEY))}: {safe_text(left.detail)}")
        if count > len(reasons[why]):
            output.line(f"    and {count - len(reasons[why])} more; see all with -o json")


def _table(
    output: Output,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    key: str = "",
    prose: bool = False,
    spare: Sequence[str] = (),
) -> None:
    limits = [_MAX_KEY if column == key else _MAX_CELL for column in columns]
    safe = [[safe_text(fit(c, most)) for c, most in zip(row, limits, strict=True)] for row in rows]
    output.table(columns, safe, key=key, prose=prose, spare=spare)
