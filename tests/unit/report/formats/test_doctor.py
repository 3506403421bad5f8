"""``etcdfix doctor -o table``, as a tired person reads it."""

from __future__ import annotations

from io import BytesIO

from etcdfix.report.doctor_model import Check, CheckCounts, DoctorReport, State
from etcdfix.report.formats.doctor import write_table
from etcdfix.report.model import ReportSource, Tool
from tests.support.cluster_index_runs import HOSTILE, assert_harmless


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


def test_hostile_text_does_nothing() -> None:
    hostile = "\ud800\n" + HOSTILE
    text = "\n".join(table(Check(HOSTILE, State.FAIL, hostile, hostile, hostile), ended=hostile))
    assert_harmless(text)
