from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.reports import saved_report
from etcdfix.reports.baseline import load_baseline
from etcdfix.reports.saved_report import load_report
from tests.support.collecting import REPOSITORY
from tests.support.lost_key import CONFIGURATION, base, lose, scan_to
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import KEY_2, aescbc
from tests.support.reports import whole

SMALLEST: dict[str, Any] = {
    "apiVersion": "etcdfix/v1alpha2",
    "kind": "ScanReport",
    "generated_at": "",
    "source": {},
    "encryption_config": None,
    "scope": {},
    "findings": [],
    "complete": True,
    "incomplete_reasons": [],
}


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
        b"/registry/secrets/shop/one",
        b"/registry/secrets/shop/two",
        b"/registry/secrets/shop/\xff",
    }
    assert one.source.kube_system_uid == two.source.kube_system_uid == "uid-kube-system"
    for report, path in ((one, files[0]), (two, files[1])):
        assert report.encryption_config is not None
        assert report.encryption_config.sha256 == CONFIGURATION.sha256
        assert report.sha256 == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        assert report.problems == ()


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_report_of_the_version_before_is_read(form: str) -> None:
    path = REPOSITORY / f"fixtures/documents/v1alpha1/report.{form}"
    found = load_report(path)
    assert len(found.findings) == 12
    assert found.source.revision == 589
    assert found.problems
    load_baseline(path)


def test_a_report_in_lines_that_was_cut_is_read_and_said(files: tuple[Path, Path]) -> None:
    path = files[1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    report = load_report(path)
    assert len(report.findings) == 1
    assert report.problems == ("the report is cut: its last line is missing",)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:100])
    assert load_report(path).problems == report.problems


def test_only_the_last_line_may_be_torn(files: tuple[Path, Path]) -> None:
    path = files[1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:100] + b"\n", *lines[2:]]))
    with pytest.raises(ConfigurationError, match="is not a report of etcdfix"):
        load_report(path)


def test_a_finding_without_what_is_needed_is_no_finding(files: tuple[Path, Path]) -> None:
    path = files[1]
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + b'{"kind":"Finding","key":"/a"}')
    with pytest.raises(ConfigurationError, match="missing required field"):
        load_report(path)


def test_one_document_that_was_cut_is_refused(files: tuple[Path, Path]) -> None:
    path = files[0]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ConfigurationError, match="is not a report of etcdfix"):
        load_report(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"not json",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps(SMALLEST | {"kind": "Status"}).encode(),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not a report of etcdfix") as caught:
        load_report(path)
    assert "etcdfix scan -o json" in caught.value.hint


@pytest.mark.parametrize(
    "nested", [b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 200_000 + b"1" + b"}" * 200_000]
)
@pytest.mark.parametrize("which", [0, 1], ids=["json", "jsonl"])
def test_a_field_of_no_use_that_is_nested_too_deeply(
    files: tuple[Path, Path], nested: bytes, which: int
) -> None:
    path = files[which]
    lines = path.read_bytes().strip().splitlines()
    lines[-1] = lines[-1].removesuffix(b"}") + b',"future":' + nested + b"}"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ConfigurationError, match="is not a report of etcdfix: it is nested too deeply"):
        load_report(path)


@pytest.mark.parametrize("which", [0, 1], ids=["json", "jsonl"])
@pytest.mark.parametrize(
    ("there", "said"),
    [(b'"apiVersion":"etcdfix/v9"', "etcdfix/v9"), (b'"was":"etcdfix/v1alpha2"', "missing")],
)
def test_another_version_is_refused_before_its_fields_are_looked_at(
    files: tuple[Path, Path], which: int, there: bytes, said: str
) -> None:
    path = files[which]
    raw = re.sub(rb'"apiVersion": ?"etcdfix/v1alpha2"', there, path.read_bytes())
    path.write_bytes(raw.replace(b'"generated_at"', b'"made_at"'))
    with pytest.raises(ConfigurationError, match=f"its apiVersion is {said}, expected etcdfix/v1alpha2"):
        load_report(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_report(tmp_path / "nowhere.json")


def test_more_than_a_plan_takes_is_refused(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_report, "MOST_FINDINGS", 2)
    with pytest.raises(ConfigurationError, match="has 3 findings, 2 can be taken"):
        load_report(files[0])
    monkeypatch.setattr(saved_report, "MAX_REPORT_BYTES", 100)
    with pytest.raises(ConfigurationError, match="larger than 100 bytes"):
        load_report(files[0])


def test_the_smallest_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(SMALLEST))
    report = load_report(path)
    assert report.findings == {}
    assert report.encryption_config is None
    path.write_text(json.dumps(SMALLEST | {"complete": False}))
    assert load_report(path).problems == ("the report is incomplete: it does not say why",)


def test_a_report_from_before_findings_shared_their_words_says_the_same(files: tuple[Path, Path]) -> None:
    document = json.loads(files[0].read_text())
    absent = ("kms_key_id_sha256", "group_version_kind", "readable_until", "lease")
    for finding in whole(document)["findings"]:
        assert finding["message"]
        finding |= {name: finding.get(name) for name in absent}
    old = files[0].with_name("old.json")
    old.write_text(json.dumps(document))
    assert load_report(old).findings == load_report(files[0]).findings
    before, after = load_baseline(old), load_baseline(files[0])
    assert before._known == after._known
