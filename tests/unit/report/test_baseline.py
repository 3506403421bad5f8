from __future__ import annotations

import io
from pathlib import Path

import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Outcome
from etcdfix.report.finding import finding_from
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import Baseline, load_baseline
from etcdfix.text.commands import RunOptions
from tests.support.examinations import SECRET_BYTES, examination, readable
from tests.support.reports import conclusion, header, write_form

KNOWN = [
    examination("/registry/secrets/shop/a"),
    examination("/registry/secrets/shop/b", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE),
    examination(b"/registry/secrets/shop/\xff\x00", cause=Cause.AUTHENTICATION_FAILED),
]


def report(tmp_path: Path, kind: str, found: list[Examination]) -> Path:
    buffer = io.BytesIO()
    reporter = SCAN_FORMS[kind](buffer, RunOptions())
    reporter.begin(header())
    for one in found:
        reporter.row(finding_from(one))
    reporter.end(conclusion())
    path = tmp_path / f"report.{kind}"
    path.write_bytes(buffer.getvalue())
    return path


@pytest.fixture(params=["json", "jsonl"])
def baseline(request: pytest.FixtureRequest, tmp_path: Path) -> Baseline:
    return load_baseline(report(tmp_path, request.param, KNOWN))


@pytest.mark.parametrize("found", KNOWN, ids=lambda f: f.verdict.cause)
def test_what_the_report_had_is_known(baseline: Baseline, found: Examination) -> None:
    assert baseline.knows(found)


@pytest.mark.parametrize(
    "found",
    [
        examination("/registry/secrets/shop/c"),
        examination("/registry/secrets/shop/a", value=SECRET_BYTES[:-1]),
        examination("/registry/secrets/shop/a", outcome=Outcome.DECODE_FAILURE),
        examination("/registry/secrets/shop/\\xff\\x00", cause=Cause.AUTHENTICATION_FAILED),
        readable("/registry/secrets/shop/a"),
    ],
    ids=["other-key", "other-value", "other-outcome", "key-that-only-looks-alike", "readable-now"],
)
def test_what_changed_is_not_known(baseline: Baseline, found: Examination) -> None:
    assert not baseline.knows(found)


def test_a_better_name_for_what_is_wrong_with_the_same_bytes_is_nothing_new(baseline: Baseline) -> None:
    for cause in (Cause.PROVIDER_MISSING, Cause.WRONG_KEY, None):
        assert baseline.knows(examination("/registry/secrets/shop/a", cause=cause))


@pytest.mark.parametrize("kind", ["json", "jsonl", "yaml"])
def test_a_report_says_what_its_baseline_was(tmp_path: Path, kind: str) -> None:
    known = load_baseline(report(tmp_path, "json", KNOWN))
    written = write_form(kind, KNOWN, head=header(baseline=known.report), baseline=known.report).decode()
    assert written.count(known.report.sha256) == 1
    assert "baseline" not in write_form(kind, KNOWN).decode()
