"""The table of exit codes, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix import errors
from etcdfix.cli.exit_codes import MEANINGS, ExitCode, scan_exit_code
from etcdfix.operations.look.scan import ScanResult
from etcdfix.reports.model import Summary

TERMINATED = errors.EndedEarly("ended by SIGTERM", 143)
TIMED_OUT = errors.EndedEarly("ended by --timeout 1s", 3, 5)


def result(**changes: Any) -> ScanResult:
    fields: dict[str, Any] = {
        "summary": Summary(keys=10, readable=10),
        "complete": True,
        "new_findings": 0,
        "new_undetermined": 0,
        "problems": [],
        "below_prefix": True,
        "nothing_named_exists": False,
        "suggested_prefixes": [],
    }
    return ScanResult(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ExitCode.NOTHING_WRONG),
        ({"new_findings": 1}, ExitCode.FINDINGS),
        ({"new_undetermined": 1}, ExitCode.INCOMPLETE),
        ({"problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"new_findings": 1, "new_undetermined": 1}, ExitCode.INCOMPLETE),
        ({"new_findings": 1, "problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"below_prefix": False}, ExitCode.SOURCE),
        ({"nothing_named_exists": True}, ExitCode.SOURCE),
        ({"nothing_named_exists": True, "problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"below_prefix": False, "problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"problems": ["denied"], "summary": Summary()}, ExitCode.SOURCE),
        ({"ended": errors.EndedEarly.of(KeyboardInterrupt())}, ExitCode.INTERRUPTED),
        ({"ended": TERMINATED}, ExitCode.TERMINATED),
        ({"ended": TERMINATED, "new_findings": 1, "problems": ["page 7"]}, ExitCode.TERMINATED),
        ({"ended": TIMED_OUT, "new_findings": 1}, ExitCode.INCOMPLETE),
        ({"ended": TIMED_OUT, "summary": Summary()}, ExitCode.SOURCE),
    ],
)
def test_exit_code_of_a_scan(changes: dict[str, Any], code: ExitCode) -> None:
    assert scan_exit_code(result(**changes)) == code


def test_numbers_are_those_of_the_contract() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "NOTHING_WRONG": 0, "FINDINGS": 1, "USAGE": 2, "INCOMPLETE": 3, "SOURCE": 5, "HUNG_UP": 129,
        "INTERRUPTED": 130, "TERMINATED": 143,
    }  # fmt: skip


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert len(set(MEANINGS.values())) == len(MEANINGS)


def test_errors_end_with_codes_of_the_table() -> None:
    assert errors.ConfigurationError.exit_code == ExitCode.USAGE
    assert errors.SourceError.exit_code == ExitCode.SOURCE
