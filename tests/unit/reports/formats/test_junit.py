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
from etcdfix.reports.diff_model import (
    DiffCounts,
    DiffedFinding,
    DiffedReport,
    FindingDifference,
    ReportDiff,
    Unlike,
)
from etcdfix.reports.finding import finding_from
from etcdfix.reports.formats import junit
from etcdfix.reports.formats.junit import Case, CaseState, JUnitDocument
from etcdfix.reports.formats.junit_diff import NAME as DIFF
from etcdfix.reports.formats.junit_diff import NOTHING_NEW, write_junit
from etcdfix.reports.formats.junit_diff import WHOLE as BOTH_WHOLE
from etcdfix.reports.formats.junit_scan import NAME, NO_RESOURCE, READABLE, WHOLE, JUnitReporter
from etcdfix.reports.model import (
    KMSPluginSummary,
    KMSSummary,
    LostKey,
    Remedy,
    ReportBaseline,
    Scope,
    SharedWords,
    Summary,
)
from etcdfix.reports.origin import TOOL
from etcdfix.reports.tally import MAX_NAMES, OTHERS
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination, readable
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


def test_a_healthy_cluster_shows_passed_cases() -> None:
    found = document(
        readable(), readable("/registry/pods/shop/a"), readable("/registry/pods/shop/b", stale=True)
    )
    assert found.states() == {"passed": 3}
    assert found.of("pods")[READABLE].text == "2 keys, 1 not written with today's write key"
    assert found.of("secrets")[READABLE].text == "1 key"
    assert found.of(NAME)[WHOLE].text == "3 keys"


def test_nothing_in_scope_is_no_empty_document() -> None:
    found = document()
    assert found.states() == {"skipped": 1}
    assert found.of(NAME)[WHOLE].message == "no object is in this scope"


@pytest.mark.parametrize(
    "outcome", [Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT], ids=str
)
def test_a_broken_value_is_a_failure_and_its_resource_does_not_pass(outcome: Outcome) -> None:
    broken = examination(outcome=outcome, mod_revision=41)
    found = document(broken, readable("/registry/pods/shop/a"), readable())
    (case,) = found.of("secrets").values()
    assert (case.name, case.state) == ("/registry/secrets/shop/web", "failure")
    assert case.message.startswith("key-name-missing: written under aescbc/v1/key2")
    lines = case.text.splitlines()
    assert f"outcome: {outcome}, key-name-missing (certain)" in lines
    assert "API server: corrupt: no matching key was found for the provided AES transformer" in lines
    assert "mod_revision: 41" in lines
    assert "ways out, the least destructive first:" in lines
    assert found.of("pods")[READABLE].state == "passed"
    assert found.of(NAME)[WHOLE].state == "passed"


def test_what_could_not_be_examined_is_an_error_and_so_is_the_scan() -> None:
    found = document(examination(**UNDETERMINED), **ONE_UNDETERMINED)
    (case,) = found.of("secrets").values()
    assert case.state == "error"
    whole = found.of(NAME)[WHOLE]
    assert (whole.state, whole.message) == ("error", "undetermined: 1 key")


def test_an_incomplete_scan_is_an_error_though_all_that_was_seen_reads() -> None:
    found = document(readable(), complete=False, incomplete_reasons=["page 7 is damaged", "ended by SIGTERM"])
    assert found.of(NAME)[WHOLE].state == "error"
    assert found.of(NAME)[WHOLE].message == "page 7 is damaged; ended by SIGTERM"
    case = found.of("secrets")[READABLE]
    assert (case.state, case.text) == ("skipped", "1 key")
    assert "INCOMPLETE" in found.said


def test_one_that_does_not_say_why_it_is_incomplete_is_an_error() -> None:
    assert document(readable(), complete=False).of(NAME)[WHOLE].state == "error"
    assert document(readable(), incomplete_reasons=["page 7"]).of(NAME)[WHOLE].state == "error"


def test_readable_with_a_warning_passes_and_what_is_no_object_too() -> None:
    found = document(
        readable(cause=Cause.OWNER_UNKNOWN),
        examination("/elsewhere/x", outcome=Outcome.NOT_AN_OBJECT, cause=None, evidence=[]),
    )
    assert found.states() == {"passed": 3}
    assert (
        "outcome: readable, owner-unknown"
        in found.of("secrets")["/registry/secrets/shop/web"[:-3] + "good"].text
    )
    assert "NOTHING IS PROVEN WRONG" in found.said


def test_what_the_baseline_knows_is_skipped() -> None:
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.begin(header(baseline=ReportBaseline("old.json", "sha256:ab", "2026-01-01T00:00:00Z")))
    reporter.finding(finding_from(examination(), baseline=True))
    reporter.finding(finding_from(examination("/registry/secrets/shop/x", **UNDETERMINED), baseline=True))
    reporter.end(conclusion(Summary(keys=2, undetermined=1), **ONE_UNDETERMINED))
    found = read_junit(stream.getvalue())
    assert found.states() == {"skipped": 3}
    assert all(case.message.startswith("known (--baseline): ") for case in found.of("secrets").values())
    assert found.properties["baseline_sha256"] == "sha256:ab"


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


def test_the_plugin_that_left_them_undetermined_is_no_reason_of_its_own() -> None:
    plugin = KMSPluginSummary("kms/v2/vault", "unix:///x", "no-socket", "no such file", 0, 0, 0, 0, None)
    summary = Summary(keys=1, undetermined=1, kms=KMSSummary([plugin], []))
    told = [
        (
            "KMS plugin of kms/v2/vault at unix:///x: no such file; start it, or say where its socket is: "
            "--kms-endpoint NAME=unix:///PATH"
        ),
        "undetermined: 1 key",
    ]
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.heed([])
    reporter.begin(header())
    reporter.finding(finding_from(examination(**UNDETERMINED)))
    reporter.end(conclusion(summary, complete=False, incomplete_reasons=told))
    assert read_junit(stream.getvalue()).of(NAME)[WHOLE].state == "skipped"


def test_an_outcome_that_nobody_knows_is_an_error() -> None:
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.begin(header())
    reporter.finding(msgspec.structs.replace(finding_from(examination()), outcome="gone-for-ever"))
    reporter.end(conclusion(Summary(keys=1)))
    assert read_junit(stream.getvalue()).states() == {"error": 1, "passed": 1}


def test_what_was_looked_at_stands_in_the_properties() -> None:
    head = header(scope=Scope("/registry", [], [], [], None))
    found = document(readable(), head=head)
    assert found.properties == {
        "version": "1.2.3", "generated_at": "2026-01-02T03:04:05Z", "finished_at": "2026-01-02T03:04:06Z",
        "scope": "everything", "complete": "true", "source_type": "snapshot",
        "source": "snapshot.db", "revision": "1000", "kube_system_uid": "11111111-2222-3333-4444-555555555555",
        "encryption_config_sha256": "sha256:" + "1" * 64,
    }  # fmt: skip
    raw = write("junit", [readable()])
    assert b'<testsuites name="etcdfix scan" tests="2" failures="0" errors="0" time="1">' in raw
    assert b'timestamp="2026-01-02T03:04:05" id="1"' in raw
    without = header(encryption_config=None)
    assert "encryption_config_sha256" not in document(head=without).properties
    part = header(scope=Scope("/registry", ["/registry/x/"], ["secrets"], ["shop"], None))
    assert document(head=part).properties["scope"] == "secrets /registry/x/ -n shop"


def test_findings_of_a_lost_key_say_all_and_its_ways_out_stand_once() -> None:
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.begin(header())
    finding = msgspec.structs.replace(
        finding_from(examination()), message="", evidence=[], remedies=[], shared="a"
    )
    reporter.finding_of_lost_key(finding, SharedWords("a", "wrong-key", "no key of it opens", []))
    lost = LostKey(
        "aescbc/v1/key2", "secrets", ["secrets"], None, 1, 1, 7, 7, [Remedy("Find it", "etcdfix x", "")]
    )
    reporter.end(conclusion(Summary(keys=1, key_loss=[lost])))
    found = read_junit(stream.getvalue())
    (case,) = found.of("secrets").values()
    assert "what is wrong: no key of it opens" in case.text
    assert found.said.endswith("aescbc/v1/key2: 1 of 1 values do not open\n  1. Find it\n       etcdfix x")


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


def test_resources_stand_by_name_and_cases_as_they_come() -> None:
    keys = ["/registry/pods/b/1", "/registry/secrets/a/1", "/registry/configmaps/a/1", "/registry/pods/a/2"]
    found = document(*map(examination, keys), readable("/registry/nodes/n"))
    assert [case.suite for case in found.cases] == [NAME, "configmaps", "nodes", "pods", "pods", "secrets"]
    assert [*found.of("pods")] == ["/registry/pods/b/1", "/registry/pods/a/2"]


def test_more_resources_than_anybody_has_stand_together() -> None:
    raw = write("junit", [examination(f"/registry/r{n:04}/a/b") for n in range(MAX_NAMES + 50)])
    found = read_junit(raw)
    assert found.states() == {"failure": MAX_NAMES + 50, "passed": 1}
    assert len(found.of(OTHERS)) == 50
    assert raw.count(b"<testsuite ") == MAX_NAMES + 2


def test_a_value_without_a_resource_has_a_suite_too() -> None:
    found = examination("/elsewhere/x", outcome=Outcome.NOT_AN_OBJECT, cause=Cause.OWNER_UNKNOWN)
    stream = io.BytesIO()
    reporter = JUnitReporter(stream)
    reporter.begin(header())
    reporter.finding(msgspec.structs.replace(finding_from(found), resource="", group=""))
    reporter.end(conclusion())
    assert [*read_junit(stream.getvalue()).of(NO_RESOURCE)] == ["/elsewhere/x"]


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


SIDE = DiffedReport(
    path="a.json", sha256="sha256:1", generated_at="2026-01-01T00:00:00Z", source_type="etcd", revision=7,
    kube_system_uid=None, findings=1, complete=True, incomplete_reasons=[],
)  # fmt: skip
BROKEN = DiffedFinding("decrypt-failure", "wrong-key", None, 7, "sha256:2", "does not open")
UNKNOWN = DiffedFinding("undetermined", None, None, 7, "sha256:2", "not known")


def row(
    name: str, earlier: DiffedFinding | None, later: DiffedFinding | None, *changed: str
) -> FindingDifference:
    return FindingDifference(
        key=f"/registry/secrets/shop/{name}", key_base64="eA==" if name == "]]>" else None, group="",
        resource="secrets", namespace="shop", name=name, earlier=earlier, later=later, changed=[*changed],
    )  # fmt: skip


def diff(**changes: Any) -> ReadJUnit:
    fields: dict[str, Any] = {
        "tool": TOOL, "generated_at": "2026-01-02T00:00:00Z", "earlier": SIDE, "later": SIDE, "unlike": [],
        "counts": DiffCounts(), "by_cause": [], "complete": True, "incomplete_reasons": [], "new": [], "changed": [],
        "gone": [],
    }  # fmt: skip
    stream = io.BytesIO()
    write_junit(ReportDiff(**(fields | changes)), stream)
    return read_junit(stream.getvalue())


def test_nothing_new_passes() -> None:
    found = diff(counts=DiffCounts(same=3))
    assert found.states() == {"passed": 2}
    assert found.of(DIFF)[NOTHING_NEW].text == "0 gone, 0 changed, 3 the same"


def test_what_is_new_fails_what_changed_is_skipped_what_is_gone_passes() -> None:
    found = diff(
        new=[row("]]>", None, BROKEN), row("b", None, UNKNOWN)],
        changed=[row("c", UNKNOWN, BROKEN, "outcome", "cause")],
        gone=[row("d", BROKEN, None)],
        counts=DiffCounts(new=2, gone=1, changed=1),
        unlike=[Unlike("release", "", "1.36")],
    )
    states = {
        case.name.removeprefix("/registry/secrets/shop/"): case.state for case in found.of("secrets").values()
    }
    assert states == {"]]>": "failure", "b": "error", "c": "skipped", "d": "passed"}
    cases = found.of("secrets")
    assert cases["/registry/secrets/shop/]]>"].message == "new: wrong-key: does not open"
    assert "key in base64: eA==" in cases["/registry/secrets/shop/]]>"].text
    assert (
        cases["/registry/secrets/shop/c"].message == "not new; other outcome, cause: wrong-key: does not open"
    )
    assert cases["/registry/secrets/shop/d"].text.endswith("later: no finding")
    assert found.of(DIFF)[NOTHING_NEW].state == "failure"
    assert found.said == "not the same: release was not known, and is 1.36"


def test_two_reports_of_which_one_is_incomplete_are_an_error() -> None:
    found = diff(complete=False, incomplete_reasons=["later report: page 7"])
    assert (found.of(DIFF)[BOTH_WHOLE].state, found.of(DIFF)[BOTH_WHOLE].message) == (
        "error",
        "later report: page 7",
    )


def test_a_saved_diff_that_says_nothing_of_a_new_key_shows_none() -> None:
    found = diff(new=[row("a", None, None)], changed=[row("b", None, None)], counts=DiffCounts(new=1))
    assert found.of("secrets") == {}
    assert found.is_red
