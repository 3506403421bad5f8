"""One table of exit codes; an unknown code means failure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TypeVar

from etcdfix.commands.scan import ScanResult
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.errors import EndedEarly
from etcdfix.model import Outcome
from etcdfix.report.document import State
from etcdfix.report.render import Report

_Code = TypeVar("_Code", bound=int)


class ExitCode(IntEnum):
    """What a reader's exit code says."""

    NOTHING_WRONG = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3
    SOURCE = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


ENDED_EARLY: dict[ExitCode, str] = {
    ExitCode.HUNG_UP: "ended by SIGHUP",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
"""Of every reader: with the partial report, where there is one. ``--timeout`` ends with 3, and with 5 without any."""

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing wrong",
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent; see --fail-on",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


def epilog(meanings: Mapping[_Code, str]) -> str:
    """Return the table of a command's exit codes, as the end of its help text."""
    return "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {text}" for code, text in meanings.items())


def reader_codes(
    good: str,
    findings: str = "",
    *,
    usage: str = MEANINGS[ExitCode.USAGE],
    incomplete: str = "something is undetermined, or was lost midway (wins over 1)",
    refused: str = "",
    source: str = MEANINGS[ExitCode.SOURCE],
) -> str:
    """Return the table of a command that looks; a code without a meaning is left out."""
    meanings = {0: good, 1: findings, 2: usage, 3: incomplete, 4: refused, 5: source}
    return epilog({**{code: text for code, text in meanings.items() if text}, **ENDED_EARLY})


def report_exit_code(report: Report, ended: EndedEarly | None) -> int:
    """Return the exit code that the state of a report comes to."""
    if ended is not None:
        return ended.exit_code
    codes = {State.INCOMPLETE: ExitCode.INCOMPLETE, State.FINDINGS: ExitCode.FINDINGS}
    return codes.get(report.document().status.state, ExitCode.NOTHING_WRONG)


def scan_exit_code(result: ScanResult, fail_on: Collection[Outcome] = FAILING) -> int:
    """Map the result of a scan to its exit code. One that was lost midway is never 0 or 1.

    Args:
        result: What it came to.
        fail_on: Outcomes that count; without ``undetermined``, what nobody could decide does not.
    """
    counted = {outcome for outcome, keys in result.new.items() if keys and outcome in fail_on}
    if result.ended is not None:
        return result.ended.exit_code if result.report.summary.keys else result.ended.bare_exit_code
    if result.problems and not result.report.summary.keys:
        return ExitCode.SOURCE
    if not result.below_prefix or result.nothing_named_exists:
        return ExitCode.INCOMPLETE if result.problems else ExitCode.SOURCE
    if result.problems or Outcome.UNDETERMINED in counted:
        return ExitCode.INCOMPLETE
    if counted:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG
