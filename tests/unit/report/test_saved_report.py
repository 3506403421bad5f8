from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import Outcome
from etcdfix.report import saved_report
from etcdfix.report.finding import finding_from
from etcdfix.report.model import ScanEnding, ScanHeader, Summary
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import (
    Baseline,
    NoReport,
    load_baseline,
    load_report,
    open_report,
)
from etcdfix.text.commands import RunOptions
from tests.support.examinations import SECRET_BYTES, examination, readable
from tests.support.fixtures import Patch
from tests.support.lost_key import CONFIGURATION, base, lose, scan_to
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import KEY_2, aescbc
from tests.support.reports import conclusion, header, write_form
from tests.support.saved_scans import findings, write_report

HEAD: dict[str, Any] = {
    **msgspec.to_builtins(header(encryption_config=None)),
}


def _ending(summary: Summary | None = None) -> dict[str, Any]:
    """Return what a report has behind its findings, and its source."""
    fields: dict[str, Any] = msgspec.to_builtins(conclusion(summary))
    left_out = {"apiVersion", "kind", "tool", "generated_at", "encryption_config", "scope", "findings"}
    return {name: value for name, value in fields.items() if name not in left_out}


SMALLEST: dict[str, Any] = {**HEAD, "findings": [], **_ending()}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The same scan as json and as jsonl: two lost Secrets, one with a key that is no text."""
    cluster = base()
    lose(cluster, cluster.secret("one"), cluster.secret("two"))
    odd = stored(b"/registry/secrets/shop/\xff", aescbc(b"x", KEY_2, name="lost"))
    source = MemorySource([*cluster.source().current(b""), odd])
    paths = tmp_path / "report.json", tmp_path / "report.jsonl"
    for path, lines in zip(paths, (False, True), strict=True):
        scan_to(path, cluster, source=source, lines=lines)
    return paths


def test_json_and_jsonl_say_the_same(files: tuple[Path, Path]) -> None:
    one, two = map(load_report, files)
    assert one.findings == two.findings
    assert one.findings.keys() == {
        b"/registry/secrets/shop/one", b"/registry/secrets/shop/two", b"/registry/secrets/shop/\xff",
    }  # fmt: skip
    assert one.header.source.kube_system_uid == two.header.source.kube_system_uid == "uid-kube-system"
    for report, path in ((one, files[0]), (two, files[1])):
        assert report.header.encryption_config is not None
        assert report.header.encryption_config.sha256 == CONFIGURATION.sha256
        assert report.sha256 == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        assert report.problems == ()


def test_a_report_in_lines_that_was_cut_is_read_and_said(files: tuple[Path, Path]) -> None:
    path = files[1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    report = load_report(path)
    assert len(report.findings) == 1
    assert report.problems == ("the report is cut: its last line is missing",)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:100])
    assert load_report(path).problems == report.problems


def test_more_than_can_be_taken_is_refused(files: tuple[Path, Path], monkeypatch: Patch) -> None:
    assert len(load_report(files[0], most_findings=3).findings) == 3
    with pytest.raises(ConfigurationError, match="has more than 2 findings"):
        load_report(files[0], most_findings=2)
    monkeypatch.setattr(saved_report, "MAX_REPORT_BYTES", 100)
    with pytest.raises(ConfigurationError, match="larger than 100 bytes"):
        load_report(files[0])


def test_the_smallest_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(SMALLEST))
    report = load_report(path)
    assert report.findings == {}
    assert report.header.encryption_config is None
    path.write_text(json.dumps(SMALLEST | {"complete": False}))
    assert load_report(path).problems == ("the report is incomplete: it does not say why",)


def finding(number: int, **other: Any) -> dict[str, Any]:
    """The least that a finding says."""
    said = {
        "key": f"/registry/secrets/shop/web-{number:06}", "outcome": "decrypt-failure",
        "mod_revision": number, "value_sha256": f"sha256:{number:064x}",
    }  # fmt: skip
    return said | other


def many(path: Path, findings: Iterable[dict[str, Any]], *, lines: bool = False, counted: int = -1) -> Path:
    """Write a report with these findings, as one document or in lines."""
    with path.open("w") as stream:
        start = json.dumps(SMALLEST | {"kind": "ScanHeader"} if lines else HEAD)
        stream.write(start + "\n" if lines else start.removesuffix("}") + ', "findings": [')
        before, number = "\n    ", 0
        for one in findings:
            number += 1
            said = json.dumps({"kind": "Finding"} | one)
            stream.write(said + "\n" if lines else before + said)
            before = ",\n    "
        summary = Summary(decrypt_failures=counted if counted >= 0 else number)
        end = _ending(summary)
        if lines:
            stream.write(json.dumps({"kind": "ScanSummary"} | end) + "\n")
        else:
            del end["source"]
            stream.write("\n  ]," + json.dumps(end)[1:])
    return path


@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
@pytest.mark.parametrize("other", [{}, {"mod_revision": 7}, {"outcome": "inconsistent"}], ids=str)
def test_a_key_with_two_findings_and_another_order_are_refused(
    tmp_path: Path, lines: bool, other: dict[str, Any]
) -> None:
    doubled = [*map(finding, range(300)), finding(5, **other)]
    with pytest.raises(ConfigurationError, match="not in the order of their etcd keys"):
        load_report(many(tmp_path / "r", doubled, lines=lines))


def test_a_key_is_the_same_in_any_writing(tmp_path: Path) -> None:
    key = base64.b64encode(b"/registry/secrets/shop/web-000005").decode()
    path = many(tmp_path / "r", [finding(5), finding(6, key_base64=key)])
    with pytest.raises(ConfigurationError, match="not in the order of their etcd keys"):
        load_report(path)


@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
@pytest.mark.parametrize(("left", "told"), [(20, 21), (20, 19), (0, 1)])
def test_findings_that_are_not_those_that_were_counted(
    tmp_path: Path, lines: bool, left: int, told: int
) -> None:
    """Lines were taken out, or put in."""
    path = many(tmp_path / "r", map(finding, range(left)), lines=lines, counted=told)
    said = f"the report contradicts itself: it has {left} findings of decrypt-failure, and counts {told}"
    assert load_report(path).problems == (said,)
    assert load_report(many(path, map(finding, range(left)), lines=lines, counted=left)).problems == ()


@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mod_revision": "7"}, "Expected `int`"), ({"key_base64": "%"}, "Invalid base64"),
        ({"value_sha256": None}, "Expected `str`"), ({"key": 7}, "Expected `str`"),
    ],
    ids=str,
)  # fmt: skip
def test_one_wrong_among_very_many(tmp_path: Path, lines: bool, wrong: dict[str, Any], said: str) -> None:
    path = many(
        tmp_path / "r",
        (finding(number, **(wrong if number == 3_000 else {})) for number in range(4_000)),
        lines=lines,
    )
    with pytest.raises(ConfigurationError, match=said):
        load_report(path)


def test_each_finding_is_found_by_its_key(tmp_path: Path) -> None:
    found = load_report(many(tmp_path / "r", map(finding, range(200)))).findings
    for number, key in enumerate(finding(number)["key"].encode() for number in range(200)):
        assert found[key].mod_revision == number
        assert found.find(key + b"-") is None
    assert list(found) == sorted(found)
    assert found.get(b"/registry/a") is None


@pytest.mark.thorough
@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
def test_ten_times_the_findings_take_little_memory(tmp_path: Path, lines: bool) -> None:
    """A finding costs its place, where what it says takes 400 bytes."""
    path = many(tmp_path / "r", map(finding, range(15_000)), lines=lines)
    load_report(path)
    tracemalloc.start()
    try:
        report = load_report(path)
        assert sum(1 for _ in report.findings) == 15_000
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 15_000 * 150 + (1 << 20)


Parts = tuple[ScanHeader, list[Any], ScanEnding | None, str]


def taken_apart(path: Path) -> Parts:
    with open_report(path) as report:
        found = [msgspec.json.decode(finding) for finding in report.findings]
        return report.header, found, report.ending, report.sha256


def taken_from(tmp_path: Path, text: bytes | str) -> Parts:
    path = tmp_path / "report"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return taken_apart(path)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_all_parts_of_our_own_reports(tmp_path: Path, form: str, number: int) -> None:
    path = write_report(tmp_path / f"r.{form}", findings(number), reasons=["lost"])
    head, found, end, sha256 = taken_apart(path)
    assert head.generated_at == "2026-01-02T03:04:05Z"
    assert head.encryption_config is not None
    assert [one["key"] for one in found] == [one.key for one in findings(number)]
    assert end is not None
    assert not end.complete
    assert end.summary.decrypt_failures == number
    assert sha256 == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize(
    "layout",
    [{}, {"separators": (",", ":")}, {"indent": 1}, {"indent": 2}, {"indent": 4}, {"indent": 2, "sort_keys": True}],
    ids=str,
)  # fmt: skip
def test_the_same_document_in_any_layout(tmp_path: Path, layout: dict[str, Any], number: int) -> None:
    hostile = msgspec.structs.replace(
        findings(1)[0], message='"}],\\\n  ]\n{["\\\\', key='/registry/\\"\u2028]'
    )
    path = write_report(tmp_path / "r.json", [*findings(number), hostile])
    head, found, end, _ = taken_apart(path)
    document = json.loads(path.read_bytes())
    for ascii_only in (True, False):
        again = taken_from(tmp_path, json.dumps(document, ensure_ascii=ascii_only, **layout))
        assert again[:3] == (head, found, end)


@pytest.mark.parametrize("form", ["json", "jsonl", "one line"])
def test_a_report_that_ends_anywhere_before_its_end_is_cut(tmp_path: Path, form: str) -> None:
    path = write_report(tmp_path / f"r.{'jsonl' if form == 'jsonl' else 'json'}", findings(2))
    raw = path.read_bytes().rstrip()
    if form == "one line":
        raw = json.dumps(json.loads(raw)).encode()
    head = raw.find(b"\n") if form == "jsonl" else len(raw)
    for end in (*range(1, len(raw), 53), len(raw) - 1):
        if end >= head:
            assert taken_from(tmp_path, raw[:end])[2] is None, end
        else:
            with pytest.raises(NoReport):
                taken_from(tmp_path, raw[:end])
    assert taken_from(tmp_path, raw)[2] is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is cut"),
        ("words", "JSON is malformed"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "its kind is missing"),
        ("{} {}", "JSON is malformed"),
        ('{"kind": "DeletionPlan"}', "its kind is DeletionPlan"),
        ('{"kind": 3}', "Expected `str`"),
        ('{"kind": "ScanReport"}', "its apiVersion is missing"),
        ('{"kind": "ScanReport", "apiVersion": "etcdfix/v1alpha1"}', "its apiVersion is etcdfix/v1alpha1, and"),
        ('{"kind": "ScanHeader", "apiVersion": "etcdfix/v2"}', "its apiVersion is etcdfix/v2, and"),
        ('{"kind": }', "JSON is malformed"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": "' + "\\n" * 100_000, "it is cut"),
    ],
    ids=range(13),
)  # fmt: skip
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NoReport) as refused:
        taken_from(tmp_path, text)
    assert said in str(refused.value)
    assert len(refused.value.reason) < 200


def _utf_16(raw: bytes) -> bytes:
    return raw.decode().encode("utf-16")


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize(
    ("pack", "hint"),
    [(gzip.compress, "gunzip"), (_utf_16, "iconv"), (lambda raw: b"\xef\xbb\xbf" + raw, "tail -c +4")],
)
def test_a_report_in_another_form_is_refused_with_what_to_do(
    tmp_path: Path, form: str, pack: Callable[[bytes], bytes], hint: str
) -> None:
    path = write_report(tmp_path / f"r.{form}", findings(2))
    path.write_bytes(pack(path.read_bytes()))
    with pytest.raises(
        ConfigurationError, match=r"cannot be used as a report: it begins with \w\w \w\w: "
    ) as refused:
        load_report(path)
    assert hint in refused.value.hint


START = '{"apiVersion": "etcdfix/v1", "kind": "ScanReport", "generated_at": "", "encryption_config": null'


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "it has no findings"),
        (', "findings": {}', "Expected `array`"),
        (', "findings": [{} {}]', "JSON is malformed"),
        (', "findings": [', "JSON is malformed"),
        (', "findings":[\n    {"a": 1},\n    words\n  ]', "JSON is malformed"),
    ],
)  # fmt: skip
def test_findings_that_are_none_are_refused(tmp_path: Path, rest: str, said: str) -> None:
    with pytest.raises(NoReport, match=said):
        taken_from(tmp_path, START + rest + "}")


@pytest.mark.parametrize(
    ("more", "said"), [("Finding", "after its ScanSummary"), ("ScanHeader", "another report begins in it")]
)
def test_lines_of_two_reports_are_none(tmp_path: Path, more: str, said: str) -> None:
    lines = write_report(tmp_path / "r.jsonl", findings(1)).read_bytes().splitlines(keepends=True)
    line = next(line for line in lines if f'"kind":"{more}"'.encode() in line)
    raw = [*lines, line] if more == "Finding" else [lines[0], line, *lines[1:]]
    with pytest.raises(NoReport, match=said):
        taken_from(tmp_path, b"".join(raw))


@pytest.mark.parametrize(
    "origin", [{"revision": 1001}, {"sha256": "sha256:" + "1" * 64}, {"kube_system_uid": "another"}], ids=str
)
def test_the_end_of_another_report_is_refused(tmp_path: Path, origin: dict[str, Any]) -> None:
    head, other = (
        write_report(tmp_path / "r.jsonl", findings(1), uid="u", origin=changes)
        .read_bytes()
        .splitlines(keepends=True)
        for changes in ({}, origin)
    )
    with pytest.raises(NoReport, match="its end is of another scan than its head"):
        taken_from(tmp_path, b"".join([head[0], *other[1:]]))


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
