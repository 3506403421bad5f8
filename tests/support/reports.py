"""A header and a conclusion for reporters under test, and one call that runs a reporter."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from etcdfix.report.base import Reporter
from etcdfix.report.document import Document, State, Step
from etcdfix.report.document import Status as DocumentStatus
from etcdfix.report.finding import finding_from, is_finding, status_cause
from etcdfix.report.formats import SCAN_FORMATS
from etcdfix.report.model import (
    API_VERSION,
    Conclusion,
    Header,
    ReportConfiguration,
    ReportSource,
    ScanReport,
    Scope,
    Status,
    Summary,
    Tool,
    about,
)
from etcdfix.report.render import SCAN_FORMS, Writer
from etcdfix.report.tally import CAP, Tally
from etcdfix.sources.base import Segment
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.examination import Examination
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
) -> Conclusion:
    """Return the end of a complete scan."""
    fields: dict[str, object] = {
        "source": source(),
        "statuses": list(statuses),
        "summary": summary or Summary(),
        "complete": True,
        "incomplete_reasons": [],
        "finished_at": "2026-01-02T03:04:06Z",
    }
    return Conclusion(**(fields | changes))  # type: ignore[arg-type]


def new_tally(*, max_causes: int = CAP) -> Tally:
    """Return an empty tally for the default storage prefix."""
    return Tally(max_causes=max_causes, list_prefix=lambda d: display(LAYOUT.directory_prefix(d)))


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """Put into the findings of a report what stands once for many of them, and drop it there; return the report."""
    words = {
        words["id"]: words for lost in document["summary"]["key_loss"] for words in lost.pop("shared", ())
    }
    for finding in document["findings"]:
        shared = words.get(finding.pop("shared", None))
        if shared is not None:
            finding["message"] = shared["message"]
            finding["evidence"] = shared["evidence"] + finding["evidence"]
    return document


def count(tally: Tally, found: Examination) -> None:
    """Count one examination as a scan does whose findings come in order."""
    tally.add(found)
    shown = status_cause(finding_from(found))
    if shown is not None:
        tally.list_cause(found.directory, shown)


class ShownScan(ScanReport, frozen=True):
    """A scan's report with a document of its headline alone."""

    def document(self) -> Document:
        """Return the headline."""
        return Document(
            status=DocumentStatus(State.FINDINGS, "1 of 2 objects cannot be read"),
            about=about(self.source, self.tool, self.generated_at),
        )


def scan_report(head: Header | None = None, end: Conclusion | None = None) -> ShownScan:
    """Return the report of a scan without its findings."""
    head, end = head or header(), end or conclusion()
    return ShownScan(
        api_version=API_VERSION,
        kind="ScanReport",
        tool=head.tool,
        generated_at=head.generated_at,
        source=end.source,
        encryption_config=head.encryption_config,
        scope=head.scope,
        findings=[],
        statuses=end.statuses,
        summary=end.summary,
        complete=end.complete,
        incomplete_reasons=end.incomplete_reasons,
        finished_at=end.finished_at,
    )


def write_form(
    form: str | Writer, found: Iterable[Examination], *, head: Header | None = None, **end: object
) -> bytes:
    """Run examinations through a tally and a writer, as a scan does; return what was written.

    Args:
        form: Its name, or a writer on a ``BytesIO``.
        found: The examinations.
        head: Of the report.
        end: Of the report.
    """
    stream: Any = io.BytesIO()
    writer = SCAN_FORMS[form](stream, RunOptions(), CAP) if isinstance(form, str) else form
    stream = stream if isinstance(form, str) else getattr(form, "_stream")  # noqa: B009
    tally = new_tally()
    writer.begin(head or header())
    for one in found:
        count(tally, one)
        if is_finding(one):
            writer.row(finding_from(one))
    summary = end.pop("summary", None) or tally.summary()
    writer.end(scan_report(head, conclusion(summary, tally.statuses(), **end)))  # type: ignore[arg-type]
    written: bytes = stream.getvalue()
    return written


def write(
    output: str | Callable[[BinaryIO], Reporter],
    found: Iterable[Examination],
    *,
    max_causes: int = CAP,
    head: Header | None = None,
    **end: object,
) -> bytes:
    """Run examinations through a tally and a reporter, as a scan does; return what was written."""
    stream = io.BytesIO()
    reporter = SCAN_FORMATS[output](stream, max_causes) if isinstance(output, str) else output(stream)
    tally = new_tally(max_causes=max_causes)
    reporter.begin(head or header())
    for one in found:
        count(tally, one)
        if is_finding(one):
            reporter.finding(finding_from(one))
    reporter.end(conclusion(tally.summary(), tally.statuses(), **end))
    return stream.getvalue()


def line(step: Step | None) -> str:
    """Return the command of a step, without options of a run; "" for none."""
    return step.command.line(RunOptions()) if step is not None and step.command is not None else ""
