from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.report.model import ScanEnding, ScanHeader
from etcdfix.report.saved_report import NoReport, load_report, open_report
from tests.support.saved_scans import findings, write_report

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
