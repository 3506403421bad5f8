"""One table of exit codes; an unknown code means failure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from etcdfix.operations.look.scan import ScanResult

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
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


def epilog(meanings: Mapping[_Code, str]) -> str:
    """Return the table of a command's exit codes, as the end of its help text."""
    return "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {text}" for code, text in meanings.items())


def scan_exit_code(result: ScanResult) -> int:
    """Map the result of a scan to its exit code. An incomplete scan is never 0 or 1."""
    if result.ended is not None:
        return result.ended.exit_code if result.summary.keys else result.ended.bare_exit_code
    if result.problems and not result.summary.keys:
        return ExitCode.SOURCE
    if not result.below_prefix or result.nothing_named_exists:
        return ExitCode.INCOMPLETE if result.problems else ExitCode.SOURCE
    if result.problems or result.new_undetermined:
        return ExitCode.INCOMPLETE
    if result.new_findings:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG
