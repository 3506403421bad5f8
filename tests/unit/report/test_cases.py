"""The test cases of reports: what fails, what is an error."""

from __future__ import annotations

import io

from etcdfix.report.doctor import Check, CheckState, DoctorReport
from etcdfix.report.document import CaseState
from etcdfix.report.model import Tool
from etcdfix.report.render import write
from etcdfix.text.commands import Command, RunOptions
from tests.support.junit import read_junit
from tests.support.reports import source


def doctor(*states: CheckState, ended: str | None = None) -> DoctorReport:
    return DoctorReport(
        tool=Tool("etcdfix", "1"),
        generated_at="2026-01-02T03:04:05Z",
        source=source(),
        encryption_config=None,
        checks=[Check(state, state, "found", "do this", Command(text="etcdfix doctor")) for state in states],
        ended=ended,
    )


def test_a_check_that_failed_fails_and_an_unknown_one_is_an_error() -> None:
    stream = io.BytesIO()
    write(doctor(*CheckState), "junit", stream, RunOptions())
    found = read_junit(stream.getvalue())
    assert {case.name: case.state for case in found.cases[1:]} == {
        "ok": "passed", "warn": "passed", "fail": "failure", "unknown": "error",
    }  # fmt: skip
    assert "1 failed" in found.said


def test_a_look_that_was_ended_is_an_error() -> None:
    states = [case.state for case in doctor(CheckState.OK, ended="interrupted").cases()]
    assert states == [CaseState.ERROR, CaseState.PASSED]
