"""``-o junit`` of ``report diff``: what is new fails, what changed is skipped, what is gone passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.reports.diff_model import DiffedFinding, DiffedReport, FindingDifference, ReportDiff
from etcdfix.reports.formats.junit import Case, CaseState, JUnitDocument, whole_case
from etcdfix.reports.formats.junit_scan import FAILURES, resource_name
from etcdfix.text.words import counted

NAME: Final = "etcdfix report diff"
WHOLE: Final = "both reports are complete, and of one cluster"
NOTHING_NEW: Final = "the later report has no finding that the earlier one has not"


def write_junit(report: ReportDiff, stream: BinaryIO) -> None:
    """Write the document."""
    document = JUnitDocument()
    for row in report.new:
        if row.later is not None:  # a saved report may hold anything
            state = CaseState.FAILURE if row.later.outcome in FAILURES else CaseState.ERROR
            _add(document, row, state, row.later, "new: ")
    for row in report.changed:
        if row.later is not None:
            _add(document, row, CaseState.SKIPPED, row.later, f"not new; other {', '.join(row.changed)}: ")
    for row in report.gone:
        _add(document, row, CaseState.PASSED, row.earlier, "")
    document.write(
        stream,
        name=NAME,
        at=report.generated_at,
        properties={
            "version": report.tool.version,
            **dict(_of_side("earlier", report.earlier)),
            **dict(_of_side("later", report.later)),
            "complete": str(report.complete).lower(),
        },
        cases=_cases(report),
        lines=[
            f"not the same: {one.what} was {one.earlier or 'not known'}, and is {one.later or 'not known'}"
            for one in report.unlike
        ],
    )


def _add(
    document: JUnitDocument,
    row: FindingDifference,
    state: CaseState,
    said: DiffedFinding | None,
    why: str,
) -> None:
    cause = (said.cause or said.outcome) if said is not None else ""
    document.add(
        resource_name(row.group, row.resource),
        Case(
            name=row.key,
            state=state,
            type=cause,
            message=f"{why}{cause}: {said.message}" if said is not None else "",
            lines=[*_lines(row)],
        ),
    )


def _lines(row: FindingDifference) -> Iterator[str]:
    yield f"key: {row.key}"
    if row.key_base64:
        yield f"key in base64: {row.key_base64}"
    for name, said in (("earlier", row.earlier), ("later", row.later)):
        if said is None:
            yield f"{name}: no finding"
            continue
        cause = f" {said.cause}" if said.cause else ""
        yield f"{name}: {said.outcome}{cause} at mod_revision {said.mod_revision}: {said.message}"


def _cases(report: ReportDiff) -> Iterator[Case]:
    counts = report.counts
    yield whole_case(WHOLE, report.incomplete_reasons, complete=report.complete)
    rest = f"{counts.gone} gone, {counts.changed} changed, {counts.same} the same"
    if counts.new:
        yield Case(
            name=NOTHING_NEW,
            state=CaseState.FAILURE,
            type="new",
            message=f"{counted(counts.new, 'finding')} that the earlier report does not have; {rest}",
        )
    else:
        yield Case(name=NOTHING_NEW, lines=[rest])


def _of_side(name: str, side: DiffedReport) -> Iterator[tuple[str, str]]:
    yield f"{name}_generated_at", side.generated_at
    yield f"{name}_revision", str(side.revision)
    yield f"{name}_sha256", side.sha256
