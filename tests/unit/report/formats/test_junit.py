"""``-o junit``: valid for a schema and another parser, whatever names there are; red where the exit code says so."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.formats import junit
from etcdfix.report.formats.junit import Case, CaseState, JUnitDocument
from etcdfix.report.formats.junit_scan import NAME, WHOLE, JUnitReporter
from etcdfix.report.model import (
    Summary,
)
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination
from tests.support.junit import ReadJUnit, read_junit
from tests.support.reports import conclusion, header, write

UNDETERMINED: dict[str, Any] = {"outcome": Outcome.UNDETERMINED, "cause": Cause.KMS_UNREACHABLE}
ONE_UNDETERMINED: dict[str, Any] = {"complete": False, "incomplete_reasons": ["undetermined: 1 key"]}


def document(*found: Examination, **end: Any) -> ReadJUnit:
    return read_junit(write("junit", list(found), **end))


def heeding(found: Iterable[Examination], outcomes: Iterable[Outcome], **end: Any) -> ReadJUnit:
    def make(stream: Any) -> JUnitReporter:
        reporter = JUnitReporter(stream)
        reporter.heed(list(outcomes))
        return reporter

    return read_junit(write(make, found, **end))


def test_what_is_not_counted_is_skipped() -> None:
    undetermined = examination(**UNDETERMINED)
    found = heeding(
        [undetermined, examination("/registry/pods/a/b")], [Outcome.DECRYPT_FAILURE], **ONE_UNDETERMINED
    )
    assert found.states() == {"skipped": 2, "failure": 1}
    (case,) = found.of("secrets").values()
    assert case.message.startswith("not counted (--fail-on): kms-unreachable: ")
    assert not heeding([undetermined], [], **ONE_UNDETERMINED).is_red
    # Whatever is left out: that a page was lost is none of it.
    lost: dict[str, Any] = {
        "complete": False,
        "incomplete_reasons": ["undetermined: 1 key", "page 7 is damaged"],
    }
    assert heeding([undetermined], [], **lost).of(NAME)[WHOLE].state == "error"


def test_an_outcome_that_nobody_knows_is_an_error() -> None:
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.begin(header())
    reporter.finding(msgspec.structs.replace(finding_from(examination()), outcome="gone-for-ever"))
    reporter.end(conclusion(Summary(keys=1)))
    assert read_junit(stream.getvalue()).states() == {"error": 1, "passed": 1}


HOSTILE = {
    "nul": b"/registry/secrets/shop/a\x00b",
    "end-of-cdata": b"/registry/secrets/shop/]]>",
    "markup": b'/registry/secrets/<failure message="x">/&amp;&#0;&quot;\'',
    "emoji": "/registry/secrets/shop/\N{PILE OF POO}\N{GRINNING FACE}".encode(),
    "surrogate": b"/registry/secrets/shop/\xed\xa0\x80",
    "not-utf8": b"/registry/secrets/shop/\xff\xfe",
    "no-character": b"/registry/secrets/shop/\xef\xbf\xbe\xef\xbf\xbf",
    "c1": b"/registry/secrets/shop/\xc2\x85\xc2\x9b",
    "lines": b"/registry/secrets/shop/a\r\n\tb\xe2\x80\xa8c",
    "bidi": "/registry/secrets/shop/\u202egnp\ufeff".encode(),
    "plane-16": "/registry/secrets/shop/\U0010ffff\U000e0001".encode(),
    "escape": b"/registry/secrets/shop/\x1b[2J\x07",
    "resource": b"/registry/etcdfix scan/x/y",
    "resource-with-nul": b"/registry/a\x00]]>/x/y",
    "long": b"/registry/secrets/shop/" + b"x" * 1_000_000,
}


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_key_is_called_the_document_is_valid(key: bytes) -> None:
    text = key.decode("utf-8", "replace")
    raw = write(
        "junit", [examination(key, message=f"it says {text}", upstream_message=text, transformer=text)]
    )
    found = read_junit(raw)
    assert [case.state for case in found.cases if case.suite != NAME or case.name != WHOLE] == ["failure"]
    assert found.of(NAME)[WHOLE].state == "passed"
    assert all(line.isprintable() for line in raw.decode().splitlines())
    assert max(len(case.name) for case in found.cases) <= 1_001


def test_every_character_that_xml_forbids_is_replaced() -> None:
    forbidden = [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF]
    text = "".join(map(chr, forbidden))
    document = JUnitDocument()
    document.add(text, Case(name=text, state=CaseState.ERROR, type=text, message=text, lines=[text]))
    stream = io.BytesIO()
    document.write(
        stream, name="n", at=text, seconds=0, properties={"p": text}, cases=[Case(name=text)], lines=[text]
    )
    found = read_junit(stream.getvalue())
    assert found.cases[1].text.startswith(r"\x00\x01")
    assert b"timestamp" not in stream.getvalue()


def test_two_runs_are_the_same_bytes() -> None:
    found = [examination(f"/registry/secrets/shop/{n}") for n in range(20)]
    assert write("junit", found) == write("junit", found)


def test_more_resources_than_anybody_has_stand_together() -> None:
    raw = write("junit", [examination(f"/registry/r{n:04}/a/b") for n in range(MAX_NAMES + 50)])
    found = read_junit(raw)
    assert found.states() == {"failure": MAX_NAMES + 50, "passed": 1}
    assert len(found.of(OTHERS)) == 50
    assert raw.count(b"<testsuite ") == MAX_NAMES + 2


def test_memory_does_not_grow_with_the_cases(tmp_path: Path) -> None:
    def most(cases: int) -> int:
        finding = finding_from(examination())
        with (tmp_path / "out.xml").open("wb") as stream:
            reporter = JUnitReporter(stream)
            tracemalloc.start()
            reporter.begin(header())
            for _ in range(cases):
                reporter.finding(finding)
            reporter.end(conclusion())
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return peak

    few = most(300)
    many = most(6_000)
    size = (tmp_path / "out.xml").stat().st_size
    assert size > 1_500_000
    assert many < few + size // 8  # other threads of this process are counted, too


def test_a_full_disk_names_the_folder_of_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, _data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(junit, "temporary_file", lambda buffering: Full())
    monkeypatch.setattr(junit, "temporary_directory", lambda: "/some/where")
    with pytest.raises(OSError, match="No space left") as caught:
        write("junit", [examination(f"/registry/secrets/shop/{n}") for n in range(100)])
    assert caught.value.filename == "/some/where"
