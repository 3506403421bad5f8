from __future__ import annotations

import io
from typing import Any

import pytest

from etcdfix.model import Evidence, Outcome, ServerBehaviour
from etcdfix.reports.finding import finding_from
from etcdfix.reports.formats.table import TableReporter
from etcdfix.sources.base import Segment
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination, readable, with_verdict
from tests.support.reports import CLUSTER, conclusion, count, header, new_tally, source, write


def table(found: list[Examination], output: str = "table", **settings: Any) -> list[str]:
    return write(output, found, **settings).decode().splitlines()


def rows(lines: list[str]) -> list[str]:
    """Return the rows of findings: what stands between the first header line and the blank line after it."""
    start = next(i for i, line in enumerate(lines) if line.startswith("OUTCOME"))
    end = next(i for i in range(start, len(lines)) if not lines[i])
    return [line for line in lines[start + 1 : end] if line.startswith(tuple(o.value for o in Outcome))]


def broken(count: int) -> list[Examination]:
    return [examination(f"/registry/pods/shop/{n:03}") for n in range(count)]


def test_introduction_says_what_was_read() -> None:
    lines = table([])[2:]
    assert lines[0] == "etcdfix 1.2.3 · snapshot snapshot.db · revision 1000 · etcd 3.6.8"
    assert lines[1] == f"  sha256:{'0' * 64} (verified)"
    assert lines[2] == f"  kube-system uid {CLUSTER}"
    assert lines[3] == f"  encryption configuration config.yaml (sha256:{'1' * 64})"


def test_introduction_of_a_live_etcd() -> None:
    live = source(
        type="etcd", path=None, endpoints=["https://a:2379", "https://b:2379"], sha256=None, cluster_id="1f",
        kube_system_uid=None, etcd_version=None, single_revision=False,
        segments=[Segment("", 1000), Segment("/registry/pods/a", 1100)],
    )  # fmt: skip
    lines = table([], source=live, head=header(encryption_config=None))[2:]
    assert lines[0] == "etcdfix 1.2.3 · etcd https://a:2379, https://b:2379 · revision 1000"
    assert lines[1] == "  cluster 1f · kube-system uid unknown"
    assert lines[2] == "  without an encryption configuration"
    assert lines[3].startswith("  not one revision: etcd compacted during the scan ")
    assert lines[3].endswith("(from the start at 1000; from /registry/pods/a at 1100)")


def test_several_etcds_are_no_compaction() -> None:
    steps = [Segment("", 1000), Segment("/registry/events/", 70), Segment("/registry/events0", 1000)]
    lines = table([], source=source(single_revision=False, segments=steps))
    assert any(
        line.startswith("  not one revision: some resources have an etcd of their own ") for line in lines
    )


def test_a_row_has_outcome_cause_key_and_sentence() -> None:
    (row,) = rows(table([examination()]))
    assert row.split("  ")[0].strip() == "decrypt-failure"
    for part in ("key-name-missing", "/registry/secrets/shop/web", "no key of that name is configured"):
        assert part in row
    assert "no matching key" not in row


def test_wide_adds_the_servers_view() -> None:
    (row,) = rows(table([examination(mod_revision=4711)], "wide"))
    for part in ("aescbc/v1/key2", "4711", "corrupt", "no matching key was found"):
        assert part in row


@pytest.mark.parametrize(
    ("count", "cap", "shown", "more"),
    [
        (1, 100, 1, 0),
        (100, 100, 100, 0),
        (101, 100, 100, 1),
        (250, 100, 100, 150),
        (6, 5, 5, 1),
        (101, 101, 101, 0),
    ],
)
@pytest.mark.parametrize("output", ["table", "wide"])
def test_rows_stop_at_the_cap_and_counts_do_not(
    output: str, count: int, cap: int, shown: int, more: int
) -> None:
    lines = table(broken(count), output, max_causes=cap)
    assert len(rows(lines)) == shown
    hints = [line for line in lines if line.startswith("shown: ")]
    assert hints == (
        [f"shown: {shown} of {count} findings; see all with -o json, or --max-causes {count}"] if more else []
    )
    assert any(f"{count} unreadable or inconsistent" in line for line in lines)
    assert any(line.split() == ["key-name-missing", "decrypt-failure", str(count), "/registry/pods/shop/000"]
               for line in lines)  # fmt: skip


def test_the_cap_counts_rows_of_all_resources_together() -> None:
    found = [examination(f"/registry/{r}/shop/{n:02}") for r in ("pods", "secrets") for n in range(60)]
    lines = table(found)
    assert len(rows(lines)) == 100
    assert any(line.startswith("shown: 100 of 120 findings") for line in lines)


def test_remarks_are_counted_not_listed() -> None:
    lines = table(
        [readable(evidence=(Evidence("unknown fields", "ignored"),)), readable("/registry/pods/a/b")]
    )
    assert not any(line.startswith("OUTCOME ") for line in lines)
    assert any("with a warning: 1" in line for line in lines)


def test_a_name_that_may_be_damaged_is_told_although_its_object_reads() -> None:
    """Such a key is out of sight for the API server: a count that hides it among harmless remarks is not enough."""
    off = Evidence("key-name", "one bit off", "one bit away from it is /registry/secrets/shop/web\x1b")
    lost = Evidence(
        "predecessor", "missing", "version 3, and nothing stood under this name before mod_revision 5"
    )
    lines = table(
        [
            examination(evidence=(lost,)),
            with_verdict(
                readable("/registry/secrdts/shop/web"), cause=Cause.OWNER_UNKNOWN, evidence=(off, lost)
            ),
            with_verdict(readable("/registry/secrdts/shop/you"), cause=Cause.OWNER_UNKNOWN),
        ]
    )
    at = lines.index("Keys whose own name may be damaged: 2 (-o json or -o yaml shows each). The first:")
    assert lines[at + 1 : at + 3] == [
        "  /registry/secrets/shop/web",
        "    version 3, and nothing stood under this name before mod_revision 5",
    ]
    assert not any("own name may be" in line for line in table([examination()]))
    (line,) = table([with_verdict(readable(), cause=Cause.OWNER_UNKNOWN, evidence=(off,))])[-1:]
    assert line == "    one bit away from it is /registry/secrets/shop/web\\x1b"


def test_counts_by_resource_hide_what_is_healthy() -> None:
    found = [
        readable("/registry/pods/a/b"),
        readable("/registry/pods/a/c"),
        readable("/registry/configmaps/a/b"),
        readable("/registry/leases/a/b", stale=True, transformer="aescbc/v1/old"),
        examination("/registry/deployments/a/b"),
    ]
    lines = table(found)
    first_words = [line.split()[0] for line in lines if line]
    assert "deployments.apps" in first_words
    assert "leases.coordination.k8s.io" in first_words
    assert "pods" not in first_words
    assert "and 2 more resources with 3 keys, all readable (-o wide lists them)" in lines
    wide = [line.split()[0] for line in table(found, "wide") if line]
    assert {"pods", "configmaps", "deployments.apps"} <= set(wide)


def test_result_line_counts_everything() -> None:
    found = [
        readable("compact_rev_key", outcome=Outcome.NOT_AN_OBJECT),
        readable("/registry/pods/a/b", stale=True),
        examination("/registry/pods/a/c"),
        examination("/registry/pods/a/d", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE),
    ]
    assert (
        "4 keys examined, 1 readable, 1 of them stale, 1 unreadable or inconsistent, 1 undetermined, 1 not an object."
    ) in table(found)


def test_an_incomplete_scan_says_so_and_why() -> None:
    lines = table(
        broken(1), complete=False, incomplete_reasons=["page 7 cannot be read", "3 keys are undetermined"]
    )
    assert lines[0].startswith("INCOMPLETE: ")
    place = lines.index("INCOMPLETE: this scan did not see or could not decide everything.")
    assert lines[place + 1 : place + 3] == ["  - page 7 cannot be read", "  - 3 keys are undetermined"]
    assert not any(line.startswith("INTERRUPTED") for line in lines)


def test_an_interrupted_scan_says_so() -> None:
    lines = table([], complete=False, incomplete_reasons=["interrupted before the end"], interrupted=True)
    assert any(line.startswith("INTERRUPTED") for line in lines)


def test_a_complete_scan_does_not_call_itself_incomplete() -> None:
    assert not any("INCOMPLETE" in line or "INTERRUPTED" in line for line in table(broken(1)))


def test_next_steps_are_numbered_and_missing_when_nothing_is_wrong() -> None:
    lines = table(broken(1))
    place = lines.index("What to do next")
    assert [line[:5] for line in lines[place + 1 :]] == [f"  {n}. " for n in range(1, len(lines) - place)]
    assert "What to do next" not in table([readable()])


@pytest.mark.parametrize("output", ["table", "wide"])
def test_hostile_names_do_not_reach_the_terminal(output: str) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\n\r\x9b31m\u202e\u2066\u200b\x7f"
    key = f"/registry/secrets/{hostile}/{hostile}".encode() + b"\xff"
    found = [
        with_verdict(examination(key), message=hostile, upstream_message=hostile),
        examination(f"/registry/{hostile}.example/x{hostile}/a/b", transformer=f"aescbc/v1/{hostile}"),
    ]
    wild = source(
        path=hostile, kube_system_uid=hostile, etcd_version=hostile, integrity=hostile, single_revision=False,
        segments=[Segment(hostile, 1)],
    )  # fmt: skip
    text = write(output, found, source=wild, complete=False, incomplete_reasons=[hostile]).decode()
    assert text.replace("\n", "").isprintable()
    assert len([line for line in text.splitlines() if line.startswith("decrypt-failure")]) == 2


def test_known_findings_are_marked() -> None:
    stream = io.BytesIO()
    reporter = TableReporter(stream, wide=False, max_rows=100)
    tally = new_tally()
    reporter.begin(header())
    for n, one in enumerate(broken(2)):
        count(tally, one)
        reporter.finding(finding_from(one, baseline=n == 0))
    tally.known_findings = 1
    reporter.end(conclusion(tally.summary()))
    lines = stream.getvalue().decode().splitlines()
    assert [" (known)  " in line for line in rows(lines)] == [True, False]
    assert "Known from the baseline: 1 of 2 findings." in lines


def test_nothing_is_said_of_healthy_resources_where_there_are_none() -> None:
    for output in ("table", "wide"):
        assert not any("more resource" in line for line in table(broken(1), output))


def test_numbers_are_not_turned_into_other_numbers() -> None:
    lines = table([examination("/registry/1e5/x", outcome=Outcome.UNDETERMINED, cause=Cause.OWNER_UNKNOWN)])
    assert ["1e5", "1"] in [line.split()[:2] for line in lines]
    (row,) = rows(table([examination("/registry/pods/1e5/0x10", transformer="aescbc/v1/007")], "wide"))
    assert "/registry/pods/1e5/0x10" in row
    assert "aescbc/v1/007" in row


def test_rows_beyond_the_cap_are_not_kept() -> None:
    reporter = TableReporter(io.BytesIO(), wide=True, max_rows=10)
    reporter.begin(header())
    for one in broken(50):
        reporter.finding(finding_from(one))
    assert len(reporter._rows) == 10


def test_serves_empty_is_shown_in_wide() -> None:
    found = examination(
        outcome=Outcome.DECODE_FAILURE, cause=Cause.EMPTY_VALUE, apiserver=ServerBehaviour.SERVES_EMPTY
    )
    assert "serves-empty" in rows(table([found], "wide"))[0]


def test_one_endless_key_does_not_widen_every_row() -> None:
    longest = "/registry/secrets/" + "n" * 63 + "/" + "s" * 253
    endless = "/registry/secrets/shop/" + "x" * 1_000_000
    unknown = examination(
        "/registry/" + "y" * 1_000_000, outcome=Outcome.UNDETERMINED, cause=Cause.OWNER_UNKNOWN
    )
    raw = write("wide", [examination(longest), examination(endless), unknown])
    assert len(raw) < 50_000
    assert longest in raw.decode()
    assert "/registry/secrets/shop/xxx" in raw.decode()
    assert "…" in raw.decode()
