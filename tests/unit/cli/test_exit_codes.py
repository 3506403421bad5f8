"""The table of exit codes, row by row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.commands.scan import ScanResult
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.model import errors
from etcdfix.model.model import Outcome
from etcdfix.report.model import Summary

BAD = {Outcome.DECRYPT_FAILURE: 1, Outcome.INCONSISTENT: 0}
DOUBTFUL = {Outcome.UNDETERMINED: 1}
NOTHING = errors.SourceError("no key starts with /registry/")
TERMINATED = errors.EndedEarly("ended by SIGTERM", 143)
TIMED_OUT = errors.EndedEarly("ended by --timeout 1s", 3, 5)


def result(**changes: Any) -> ScanResult:
    fields: dict[str, Any] = {
        "new": {}, "problems": [],
    }  # fmt: skip
    summary = changes.pop("summary", Summary(keys=10, readable=10))
    report: Any = SimpleNamespace(summary=summary)
    return ScanResult(report=report, **(fields | changes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ExitCode.NOTHING_WRONG),
        ({"new": BAD}, ExitCode.FINDINGS),
        ({"new": DOUBTFUL}, ExitCode.INCOMPLETE),
        ({"problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"new": BAD | DOUBTFUL}, ExitCode.INCOMPLETE),
        ({"new": BAD, "problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"nothing": NOTHING}, ExitCode.SOURCE),
        ({"nothing": NOTHING, "problems": ["page 7"]}, ExitCode.SOURCE),
        ({"problems": ["denied"], "summary": Summary()}, ExitCode.SOURCE),
        ({"ended": errors.EndedEarly.of(KeyboardInterrupt())}, ExitCode.INTERRUPTED),
        ({"ended": TERMINATED}, ExitCode.TERMINATED),
        ({"ended": TERMINATED, "new": BAD, "problems": ["page 7"]}, ExitCode.TERMINATED),
        ({"ended": TIMED_OUT, "new": BAD}, ExitCode.INCOMPLETE),
        ({"ended": TIMED_OUT, "summary": Summary()}, ExitCode.SOURCE),
    ],
)
def test_exit_code_of_a_scan(changes: dict[str, Any], code: ExitCode) -> None:
    assert scan_exit_code(result(**changes)) == code


@pytest.mark.parametrize(
    ("fail_on", "new", "code"),
    [
        (FAILING, BAD | DOUBTFUL, ExitCode.INCOMPLETE),
        ((Outcome.DECRYPT_FAILURE,), BAD | DOUBTFUL, ExitCode.FINDINGS),
        ((Outcome.INCONSISTENT,), BAD | DOUBTFUL, ExitCode.NOTHING_WRONG),
        ((Outcome.UNDETERMINED,), BAD | DOUBTFUL, ExitCode.INCOMPLETE),
        ((Outcome.UNDETERMINED,), BAD, ExitCode.NOTHING_WRONG),
        ((), BAD | DOUBTFUL, ExitCode.NOTHING_WRONG),
    ],
)
def test_outcomes_can_be_chosen(
    fail_on: tuple[Outcome, ...], new: dict[Outcome, int], code: ExitCode
) -> None:
    assert scan_exit_code(result(new=new), fail_on) == code


def test_what_was_lost_counts_whatever_was_chosen() -> None:
    assert scan_exit_code(result(problems=["page 7"]), ()) == ExitCode.INCOMPLETE
    assert scan_exit_code(result(ended=TERMINATED), ()) == ExitCode.TERMINATED
    assert scan_exit_code(result(nothing=NOTHING), ()) == ExitCode.SOURCE


def test_numbers_are_those_of_the_contract() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "NOTHING_WRONG": 0, "FINDINGS": 1, "USAGE": 2, "INCOMPLETE": 3, "SOURCE": 5, "HUNG_UP": 129,
        "INTERRUPTED": 130, "TERMINATED": 143,
    }  # fmt: skip
