"""Reports of scans for tests, and one call that runs a writer."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyCounter
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.model.storagekey import display
from etcdfix.report.document import Step
from etcdfix.report.finding import finding_from, is_finding, status_cause
from etcdfix.report.groups import Groups, Member
from etcdfix.report.model import Header, ReportConfiguration, ReportSource, Scope, Status, Summary, Tool
from etcdfix.report.render import SCAN_FORMS, Writer
from etcdfix.report.scan import ScanReport
from etcdfix.report.tally import CAP, Tally
from etcdfix.sources.base import Segment
from etcdfix.text.commands import RunOptions
from tests.support.examinations import LAYOUT

CLUSTER = "11111111-2222-3333-4444-555555555555"


def source(**changes: object) -> ReportSource:
    """Return the description of a snapshot."""
    fields: dict[str, object] = {
        "type": "snapshot",
        "path": "snapshot.db",
        "revision": 1000,
        "single_revision": True,
        "segments": [Segment("", 1000)],
        "cluster_id": None,
        "kube_system_uid": CLUSTER,
        "sha256": "sha256:" + "0" * 64,
        "etcd_version": "3.6.8",
        "integrity": "verified",
    }
    return ReportSource(**(fields | changes))  # type: ignore[arg-type]


def header(**changes: object) -> Header:
    """Return a header of a scan of everything."""
    fields: dict[str, object] = {
        "tool": Tool("etcdfix", "1.2.3"),
        "generated_at": "2026-01-02T03:04:05Z",
        "source": source(),
        "encryption_config": ReportConfiguration("config.yaml", "sha256:" + "1" * 64),
        "scope": Scope("/registry", [], [], [], None),
    }
    return Header(**(fields | changes))  # type: ignore[arg-type]


def conclusion(
    summary: Summary | None = None, statuses: Iterable[Status] = (), **changes: object
) -> ScanReport:
    """Return the report of a complete scan, without its findings."""
    fields: dict[str, object] = {
        **msgspec.structs.asdict(header()),
        "baseline": msgspec.UNSET,
        "findings": [],
        "statuses": list(statuses),
        "summary": summary or Summary(),
        "complete": True,
        "incomplete_reasons": [],
        "finished_at": "2026-01-02T03:04:06Z",
    }
    return ScanReport(**(fields | changes))  # type: ignore[arg-type]


def new_tally(*, max_causes: int = CAP) -> Tally:
    """Return an empty tally for the default storage prefix."""
    return Tally(max_causes=max_causes, list_prefix=lambda d: display(LAYOUT.directory_prefix(d)))


def count(tally: Tally, found: Examination) -> None:
    """Count one examination as a scan does whose findings come in order."""
    tally.add(found)
    shown = status_cause(finding_from(found))
    if shown is not None:
        tally.list_cause(found.directory, shown)


def scan_report(head: Header | None = None, end: ScanReport | None = None) -> ScanReport:
    """Return a report that begins with a header."""
    head, end = head or header(), end or conclusion()
    names = ("tool", "generated_at", "encryption_config", "scope")
    return msgspec.structs.replace(end, **{name: getattr(head, name) for name in names})


def write_form(
    form: str | Writer,
    found: Iterable[Examination],
    *,
    head: Header | None = None,
    max_causes: int = CAP,
    **end: object,
) -> bytes:
    """Run examinations through a tally and a writer, as a scan does; return what was written.

    Args:
        form: Its name, or a writer on a ``BytesIO``.
    """
    stream: Any = io.BytesIO()
    writer = SCAN_FORMS[form](stream, RunOptions(), max_causes) if isinstance(form, str) else form
    stream = stream if isinstance(form, str) else getattr(form, "_stream")  # noqa: B009
    tally, groups, keys = new_tally(max_causes=max_causes), Groups(), KeyCounter()
    writer.begin(head or header())
    for one in found:
        count(tally, one)
        keys.add(one)
        if is_finding(one):
            finding, stake = finding_from(one), stake_of(one)
            groups.add(finding, Member(stake.rank if stake is not None else None))
            writer.row(finding)
    summary = tally.summary()
    summary.groups, summary.warnings = groups.summed(keys)[0], groups.warnings
    ending = conclusion(**{"summary": summary, "statuses": tally.statuses()} | end)  # type: ignore[arg-type]
    writer.end(scan_report(head, ending))
    written: bytes = stream.getvalue()
    return written


def line(step: Step | None) -> str:
    """Return the command of a step, without options of a run; "" for none."""
    return step.command.line(RunOptions()) if step is not None else ""
