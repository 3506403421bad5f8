"""One table of exit codes; an unknown code means failure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from etcdfix.scan import ScanResult

_Code = TypeVar("_Code", bound=int)


class ExitCode(IntEnum):
    """What a reader's exit code says."""

    NOTHING_WRONG = 0
    FINDINGS = 1
    USAGE = 2
    INCOMPLETE = 3
    SOURCE = 5
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing wrong",
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "incomplete: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    ExitCode.INTERRUPTED: "interrupted",
}


def epilog(meanings: Mapping[_Code, str]) -> str:
    """Return the table of a command's exit codes, as the end of its help text."""
    return "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {text}" for code, text in meanings.items())


def scan_exit_code(result: ScanResult) -> ExitCode:
    """Map the result of a scan to its exit code. An incomplete scan is never 0 or 1."""
    if result.interrupted:
        return ExitCode.INTERRUPTED
    if not result.below_prefix or result.nothing_named_exists:
        return ExitCode.INCOMPLETE if result.problems else ExitCode.SOURCE
    if result.problems or result.new_undetermined:
        return ExitCode.INCOMPLETE
    if result.new_findings:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG
