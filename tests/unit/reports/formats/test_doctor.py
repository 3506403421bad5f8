"""``etcdfix doctor -o table``, as a tired person reads it."""

from __future__ import annotations

from io import BytesIO

from etcdfix.reports.doctor_model import Check, CheckCounts, DoctorReport, State
from etcdfix.reports.formats.doctor import write_table
from etcdfix.reports.model import ReportSource, Tool
from tests.support.cluster_index_runs import HOSTILE, assert_harmless

GONE = "not looked at: etcd was not reached"


def table(*checks: Check, ended: str | None = None, do_not_restart: str = "") -> list[str]:
    states = [check.state for check in checks]
    source = ReportSource(
        type="etcd", endpoints=["e"], revision=0, single_revision=True, segments=[], cluster_id=None,
        kube_system_uid=None, sha256=None, etcd_version=None,
    )  # fmt: skip
    report = DoctorReport(
        tool=Tool("etcdfix", "0"),
        generated_at="",
        source=source,
        encryption_config=None,
        checks=list(checks),
        counts=CheckCounts(*(states.count(state) for state in State)),
        ended=ended,
        do_not_restart=do_not_restart,
    )
    stream = BytesIO()
    write_table(report, stream)
    return stream.getvalue().decode().splitlines()


def test_what_to_do_stands_below_each_line_that_is_not_ok() -> None:
    assert table(
        Check("reach", State.OK, "answers"),
        Check("alarms", State.WARN, "one is up", "ask etcd", "etcdctl alarm list"),
        Check("backup-dir", State.FAIL, "missing", "make it"),
    ) == [
        "FAIL: 1 ok, 1 warn, 1 fail, 0 unknown",
        "Next, for backup-dir: make it",
        "",
        "STATE  CHECK       WHAT",
        "OK     reach       answers",
        "WARN   alarms      one is up",
        "                   next: ask etcd",
        "                         etcdctl alarm list",
        "FAIL   backup-dir  missing",
        "                   next: make it",
    ]


def test_the_head_tells_the_worst_what_not_to_do_and_one_command() -> None:
    warning = "DO NOT RESTART AN API SERVER: its memory may hold keys and objects."
    found = table(
        Check("clock", State.WARN, "odd", "compare", "timedatectl"),
        Check("keys", State.FAIL, "none opens", f"{warning} Delete nothing", "etcdfix scan"),
        Check("keys", State.FAIL, "missing", "other", "other"),
        do_not_restart=warning,
    )
    assert found[:5] == [
        "FAIL: 0 ok, 1 warn, 2 fail, 0 unknown",
        warning,
        "Next, for keys: Delete nothing",
        "  etcdfix scan",
        "",
    ]
    assert sum("Next" in line for line in found) == 1


def test_the_same_advice_stands_below_the_last_line_that_it_is_for() -> None:
    found = table(*(Check("keys", State.WARN, f"key {n}", "see", "etcdfix scan") for n in range(3)))
    assert found[5:10] == [
        "WARN   keys   key 0",
        "WARN   keys   key 1",
        "WARN   keys   key 2",
        "              next: see",
        "                    etcdfix scan",
    ]
    assert found[:3] == [
        "WARN: 0 ok, 3 warn, 0 fail, 0 unknown",
        "Next, for keys: see",
        "  etcdfix scan",
    ]


def test_what_could_not_be_looked_at_for_one_reason_shares_a_line() -> None:
    found = table(*(Check(name, State.UNKNOWN, GONE, "see reach") for name in ("cluster", "version", "keys")))
    assert found[4] == f"UNKNOWN  cluster  {GONE} (version, keys too)"
    assert found[:2] == ["UNKNOWN: 0 ok, 0 warn, 0 fail, 3 unknown", "Next, for cluster: see reach"]


def test_nothing_to_do_and_an_early_end() -> None:
    assert table(Check("reach", State.OK, "answers"))[:2] == [
        "OK: 1 ok, 0 warn, 0 fail, 0 unknown",
        "Nothing to do.",
    ]
    ended = table(Check("reach", State.OK, "x"), ended="interrupted")
    assert ended[0] == "OK: 1 ok, 0 warn, 0 fail, 0 unknown (interrupted before the end)"
    assert table()[3] == "STATE  CHECK  WHAT"


def test_hostile_text_does_nothing() -> None:
    hostile = "\ud800\n" + HOSTILE
    text = "\n".join(table(Check(HOSTILE, State.FAIL, hostile, hostile, hostile), ended=hostile))
    assert_harmless(text)
