from __future__ import annotations

import io

import pytest

from etcdfix.report.finding import finding_from
from etcdfix.report.formats import SCAN_FORMATS
from tests.support.examinations import examination
from tests.support.reports import conclusion, header, write


def test_formats_of_the_contract() -> None:
    assert list(SCAN_FORMATS) == [
        "table",
        "wide",
        "json",
        "jsonl",
        "yaml",
        "status",
        "name",
        "csv",
        "html",
        "junit",
        "metrics",
    ]


@pytest.mark.parametrize("output", list(SCAN_FORMATS))
def test_a_reporter_never_closes_the_stream(output: str) -> None:
    stream = io.BytesIO()
    reporter = SCAN_FORMATS[output](stream, 100)
    reporter.begin(header())
    reporter.finding(finding_from(examination()))
    reporter.end(conclusion())
    assert not stream.closed


@pytest.mark.parametrize("output", list(SCAN_FORMATS))
def test_every_format_is_utf8_text_of_whole_lines(output: str) -> None:
    raw = write(output, [examination("/registry/secrets/shop/café")])
    assert "café" in raw.decode() or output in {"yaml", "metrics"}
    assert raw.endswith(b"\n")
