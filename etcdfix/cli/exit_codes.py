"""One table of exit codes; an unknown code means failure."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from etcdfix.commands.scan import ScanResult
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.errors import EndedEarly
from etcdfix.model import Outcome
from etcdfix.report.document import State
from etcdfix.report.render import Report


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


MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing wrong",
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent; see --fail-on",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    ExitCode.HUNG_UP: "ended by SIGHUP",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "ended by SIGTERM",
}
"""Of every command that looks. One that is ended early gives the partial report, where there is one; ``--timeout`` ends
with 3, and with 5 without any."""


def report_exit_code(report: Report, ended: EndedEarly | None) -> int:
    """Return the exit code that the state of a report comes to."""
    if ended is not None:
        return ended.exit_code
    by_state = {State.INCOMPLETE: ExitCode.INCOMPLETE, State.FINDINGS: ExitCode.FINDINGS}
    return by_state.get(report.document().status.state, ExitCode.NOTHING_WRONG)


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
    return ExitCode.FINDINGS if counted else ExitCode.NOTHING_WRONG
