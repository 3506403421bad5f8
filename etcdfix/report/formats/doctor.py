"""Formats of doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import BinaryIO, Final

from etcdfix.report.base import Aligned, Output
from etcdfix.report.doctor_model import Check, DoctorReport, State
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.text.safetext import safe_text

_HEADS: Final = ("STATE", "CHECK", "WHAT")
_FIRST: Final = (State.FAIL, State.UNKNOWN, State.WARN)


def write_table(report: DoctorReport, stream: BinaryIO) -> None:
    """Write the worst state, what not to do and one next step; then a line for each check, and what to do about it."""
    output = Output(stream)
    line = output.line
    counts = report.counts
    told = f"{counts.ok} ok, {counts.warn} warn, {counts.fail} fail, {counts.unknown} unknown"
    if report.ended is not None:
        told += f" ({safe_text(report.ended)} before the end)"
    worst = next(
        (state for state in _FIRST if any(check.state is state for check in report.checks)), State.OK
    )
    line(f"{worst.upper()}: {told}")
    if report.do_not_restart:
        line(safe_text(report.do_not_restart))
    step, command = _most_urgent(report)
    output.prose(step)
    if command:
        line(f"  {command}")
    line()
    rows = [*_rows(report.checks)]
    state, name = (max(len(row[at]) for row in [_HEADS, *rows]) for at in (0, 1))
    line(f"{_HEADS[0]:<{state}}  {_HEADS[1]:<{name}}  {_HEADS[2]}")
    indent = " " * (state + name + 4)
    for number, (label, check, what, *advice) in enumerate(rows, start=1):
        place = f"{label:<{state}}  {check:<{name}}"
        line(Aligned(f"{place}  {what}".rstrip(), [place, what], ""))
        # The same advice for several lines in a row stands below the last of them.
        if number < len(rows) and [rows[number][1], *rows[number][3:]] == [check, *advice]:
            continue
        next_step, command = advice
        if next_step:
            output.prose(f"next: {next_step}", indent)
        if command:
            line(f"{indent}      {command}")


def _rows(checks: Sequence[Check]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield what stands on each line, safe; checks that could not be made for the same reason share one."""

    def same(check: Check) -> tuple[str, ...]:
        told = (check.state, check.what, check.next_step, check.command)
        return told if check.state is State.UNKNOWN else (*told, check.name)

    for _, group in groupby(checks, same):
        first, *others = group
        names = [name for name in dict.fromkeys(check.name for check in others) if name != first.name]
        what = f"{first.what} ({', '.join(names)} too)" if names else first.what
        state, name, told, next_step, command = map(
            safe_text, (first.state.upper(), first.name, what, first.next_step, first.command)
        )
        yield state, name, told, next_step, command


def _most_urgent(report: DoctorReport) -> tuple[str, str]:
    """Return the one thing to do next, and the command for it or "", both safe."""
    for state in _FIRST:
        for check in report.checks:
            if check.state is state:
                step = check.next_step.removeprefix(report.do_not_restart).lstrip()
                return f"Next, for {safe_text(check.name)}: {safe_text(step)}", safe_text(check.command)
    return "Nothing to do.", ""


DOCTOR_FORMATS: Mapping[str, Callable[[DoctorReport, BinaryIO], None]] = {
    "table": write_table,
    "json": write_document,
    "yaml": write_yaml,
}
