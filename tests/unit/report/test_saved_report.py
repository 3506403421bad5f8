from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.report import saved_report
from etcdfix.report.model import Summary
from etcdfix.report.saved_report import ReportedFinding, load_report
from tests.support.fixtures import Patch
from tests.support.lost_key import CONFIGURATION, base, lose, scan_to
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import KEY_2, aescbc
from tests.support.reports import conclusion, header

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


@pytest.mark.parametrize("lines", [False, True], ids=["json", "jsonl"])
def test_a_report_that_changes_after_it_was_read_changes_nothing(tmp_path: Path, lines: bool) -> None:
    path = many(tmp_path / "r", map(finding, range(300)), lines=lines)
    before = path.read_bytes()
    found = load_report(path)
    expected = {one["key"].encode(): ReportedFinding(**one) for one in map(finding, range(300))}
    assert found.findings == expected
    with path.open("r+b") as same_file:
        same_file.write(before.replace(b"web-1", b"web-2"))
    assert found.findings == expected
    path.write_bytes(b"")
    assert found.findings == expected
    path.unlink()
    assert found.findings == expected
    assert found.sha256 == f"sha256:{hashlib.sha256(before).hexdigest()}"


def test_each_finding_is_found_by_its_key(tmp_path: Path) -> None:
    found = load_report(many(tmp_path / "r", map(finding, range(200)))).findings
    for number, key in enumerate(finding(number)["key"].encode() for number in range(200)):
        assert found[key].mod_revision == number
        assert found.find(key + b"-") is None
    assert list(found) == sorted(found)
    assert found.get(b"/registry/a") is None


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
