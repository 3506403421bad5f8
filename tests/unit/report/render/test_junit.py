"""``-o junit``: valid for a schema and another parser, whatever names there are; red where the exit code says so."""

from __future__ import annotations

import errno
import io
import tracemalloc
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.model import Outcome
from etcdfix.report.doctor import Check, CheckState, DoctorReport
from etcdfix.report.document import CaseState
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Summary, Tool
from etcdfix.report.render import write
from etcdfix.report.render.junit import JUnitWriter
from etcdfix.report.scan import WHOLE
from etcdfix.text.commands import Command, RunOptions
from tests.support.examinations import examination
from tests.support.fixtures import Patch
from tests.support.junit import ReadJUnit, read_junit
from tests.support.reports import conclusion, header, scan_report, source, write_form

UNDETERMINED: dict[str, Any] = {"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_UNREACHABLE}
ONE_UNDETERMINED: dict[str, Any] = {"complete": False, "incomplete_reasons": ["undetermined: 1 key"]}


def document(*found: Examination, **end: Any) -> ReadJUnit:
    return read_junit(write_form("junit", found, **end))


def heeding(found: Collection[Examination], failing: Collection[str], **end: Any) -> ReadJUnit:
    return read_junit(write_form(JUnitWriter(io.BytesIO(), RunOptions(), failing), found, **end))


def test_a_finding_fails_and_a_scan_of_everything_passes() -> None:
    found = document(examination(), examination("/registry/pods/a/b", outcome=Outcome.READABLE, cause=None))
    assert found.states() == {"failure": 1, "passed": 1}
    assert found.of("secrets")["/registry/secrets/shop/web"].state == "failure"
    assert "1 of 2 objects cannot be read" in found.said
    assert {"version", "generated_at", "kube_system_uid"} <= {*found.properties}
    assert found.properties["encryption_config_sha256"] == "sha256:" + "1" * 64
    said = found.of("secrets")["/registry/secrets/shop/web"].text
    assert "what to do: " in said
    assert "command: etcdfix " in said


def test_what_is_not_counted_is_skipped() -> None:
    undetermined = examination(**UNDETERMINED)
    failing = [Outcome.DECRYPT_FAILURE]
    found = heeding([undetermined, examination("/registry/pods/a/b")], failing, **ONE_UNDETERMINED)
    assert found.states() == {"skipped": 2, "failure": 1}
    (case,) = found.of("secrets").values()
    assert case.message.startswith("not counted (--fail-on): kms-unreachable: ")
    assert not heeding([undetermined], [], **ONE_UNDETERMINED).is_red
    # Whatever is left out: that a page was lost is none of it.
    reasons = ["undetermined: 1 key", "page 7 is damaged"]
    lost = heeding([undetermined], [], complete=False, incomplete_reasons=reasons)
    assert lost.of("ScanReport")[WHOLE].state == "error"


def test_what_the_baseline_knows_is_skipped_and_an_unknown_outcome_is_an_error() -> None:
    stream = io.BytesIO()
    writer = JUnitWriter(stream, RunOptions())
    writer.begin(header())
    writer.row(msgspec.structs.replace(finding_from(examination()), outcome="gone-for-ever"))
    writer.row(finding_from(examination(), baseline=True))
    writer.end(scan_report(end=conclusion(Summary(keys=1))))
    assert read_junit(stream.getvalue()).states() == {"error": 1, "skipped": 1, "passed": 1}


def test_nothing_passes_of_a_scan_that_saw_nothing_or_not_all() -> None:
    assert document(summary=Summary()).states() == {"skipped": 1}
    found = document(summary=Summary(keys=2), complete=False, incomplete_reasons=["page 7 is damaged"])
    assert found.states() == {"error": 1}


HOSTILE = {
    "nul": b"/registry/secrets/shop/a\x00b",
    "end-of-cdata": b"/registry/secrets/shop/]]>",
    "markup": b'/registry/secrets/<failure message="x">/&amp;&#0;&quot;\'',
    "surrogate": b"/registry/secrets/shop/\xed\xa0\x80",
    "not-utf8": b"/registry/secrets/shop/\xff\xfe",
    "no-character": b"/registry/secrets/shop/\xef\xbf\xbe\xef\xbf\xbf",
    "lines": b"/registry/secrets/shop/a\r\n\tb\xe2\x80\xa8c",
    "plane-16": "/registry/secrets/shop/\U0010ffff\U000e0001\u202e".encode(),
    "escape": b"/registry/secrets/shop/\x1b[2J\x07\xc2\x9b",
    "resource-with-nul": b"/registry/a\x00]]>/x/y",
    "long": b"/registry/secrets/shop/" + b"x" * 1_000_000,
    "all": "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0x1FFFE])).encode(),
}


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_key_is_called_the_document_is_valid(key: bytes) -> None:
    text = key.decode("utf-8", "replace")
    one = examination(key, message=f"it says {text}", upstream_message=text, transformer=text)
    raw = write_form("junit", [one])
    found = read_junit(raw)
    assert [case.state for case in found.cases if case.name != WHOLE] == ["failure"]
    assert found.of("ScanReport")[WHOLE].state == "passed"
    assert all(line.isprintable() for line in raw.decode().splitlines())
    assert max(len(case.name) for case in found.cases) <= 1_001


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_cases(tmp_path: Path) -> None:
    def most(cases: int) -> int:
        finding = finding_from(examination())
        with (tmp_path / "out.xml").open("wb") as stream:
            writer = JUnitWriter(stream, RunOptions())
            tracemalloc.start()
            writer.begin(header())
            for _ in range(cases):
                writer.row(finding)
            writer.end(scan_report())
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return peak

    few = most(150)
    many = most(1_500)
    size = (tmp_path / "out.xml").stat().st_size
    assert size > 350_000
    assert many < few + size // 8  # other threads of this process are counted, too


def test_a_full_temporary_directory_is_named(monkeypatch: Patch) -> None:
    """The report itself may lie on another disk."""

    class Full(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("etcdfix.report.render.junit.temporary_file", Full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        document(examination())
    assert raised.value.filename == temporary_directory()


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
