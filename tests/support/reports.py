"""Reports of scans for tests, and one call that runs a writer."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.report.document import Step
from etcdfix.report.finding import Statuses, finding_from, is_finding
from etcdfix.report.groups import Groups
from etcdfix.report.model import ReportConfiguration, ReportSource, ScanHeader, Scope, Status, Summary, Tool
from etcdfix.report.render import SCAN_FORMS, Writer
from etcdfix.report.scan import ScanReport
from etcdfix.report.tally import Tally
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


def header(**changes: object) -> ScanHeader:
    """Return a header of a scan of everything."""
    fields: dict[str, object] = {
        "tool": Tool("etcdfix", "1.2.3"),
        "generated_at": "2026-01-02T03:04:05Z",
        "source": source(),
        "encryption_config": ReportConfiguration("config.yaml", "sha256:" + "1" * 64),
        "scope": Scope("/registry", [], [], [], None),
    }
    return ScanHeader(**(fields | changes))  # type: ignore[arg-type]


def conclusion(
    summary: Summary | None = None, statuses: Iterable[Status] = (), **changes: object
) -> ScanReport:
    """Return the report of a complete scan, without its findings."""
    fields: dict[str, object] = {
        **msgspec.structs.asdict(header()),
        "findings": [],
        "statuses": list(statuses),
        "summary": summary or Summary(),
        "complete": True,
        "incomplete_reasons": [],
        "finished_at": "2026-01-02T03:04:06Z",
    }
    fields |= changes
    reasons: Any = fields["incomplete_reasons"]
    fields.setdefault("reached_end", all(one.startswith(("undetermined: ", "KMS plugin")) for one in reasons))
    return ScanReport(**fields)  # type: ignore[arg-type]


def scan_report(head: ScanHeader | None = None, end: ScanReport | None = None) -> ScanReport:
    """Return a report that begins with a header."""
    head, end = head or header(), end or conclusion()
    names = ("tool", "generated_at", "encryption_config", "scope", "baseline")
    return msgspec.structs.replace(end, **{name: getattr(head, name) for name in names})


def write_form(
    form: str | Writer,
    found: Iterable[Examination],
    *,
    head: ScanHeader | None = None,
    **end: object,
) -> bytes:
    """Run examinations through a tally and a writer, as a scan does; return what was written.

    Args:
        form: Its name, or a writer on a ``BytesIO``.
    """
    stream: Any = io.BytesIO()
    writer = SCAN_FORMS[form](stream, RunOptions()) if isinstance(form, str) else form
    stream = stream if isinstance(form, str) else getattr(form, "_stream")  # noqa: B009
    tally, groups, statuses = Tally(), Groups(), Statuses(LAYOUT)
    head = head or header()
    head = msgspec.structs.replace(head, source=end.setdefault("source", head.source))
    writer.begin(head)
    for one in found:
        tally.add(one)
        if is_finding(one):
            finding, stake = finding_from(one), stake_of(one)
            groups.add(finding, stake.rank if stake is not None else None)
            statuses.add(one.directory, finding)
            writer.row(finding)
    summary = tally.summary()
    summary.groups, summary.warnings = groups.published(), groups.warnings
    ending = conclusion(**{"summary": summary, "statuses": statuses.published()} | end)  # type: ignore[arg-type]
    writer.end(scan_report(head, ending))
    written: bytes = stream.getvalue()
    return written


def line(step: Step | None) -> str:
    """Return the command of a step, without options of a run; "" for none."""
    return step.command.line(RunOptions()) if step is not None else ""
