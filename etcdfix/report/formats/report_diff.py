"""Formats of report diff."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, Final

from etcdfix.report.base import Output, fit
from etcdfix.report.diff_model import DiffedFinding, DiffedReport, FindingDifference, ReportDiff
from etcdfix.report.formats.machine import write_rows_json
from etcdfix.report.formats.text import aligned, shown
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_DIGEST_SHOWN: Final = len("sha256:") + 12


def write_table(report: ReportDiff, stream: BinaryIO, max_rows: int) -> None:
    """Write the verdict, what is not alike, counts by cause, and up to ``max_rows`` keys of each list."""
    output = Output(stream)
    output.prose(_verdict(report))
    for one in report.unlike:
        output.prose(
            f"Not the same: {safe_text(one.what)} was {shown(one.earlier or 'not known')}, and is "
            f"{shown(one.later or 'not known')}."
        )
    output.line()
    output.lines(aligned([("REPORT", "MADE AT", "REVISION", "FINDINGS", "FILE"), *map(_row, _sides(report))]))
    if report.by_cause:
        output.line()
        output.lines(
            aligned(
                [
                    ("CAUSE", "OUTCOME", "NEW", "GONE", "CAME", "WENT"),
                    *(
                        (
                            shown(one.cause or "-"), shown(one.outcome or "-"),
                            *(str(number or "-") for number in (one.new, one.gone, one.came, one.went)),
                        )
                        for one in report.by_cause
                    ),
                ]
            )
        )  # fmt: skip
    for title, rows in (("NEW", report.new), ("CHANGED", report.changed), ("GONE", report.gone)):
        _section(output, title, rows, max_rows)
    if not report.complete:
        output.line()
        output.line(
            "INCOMPLETE: what is not new here may be new all the same, and what is gone may be there."
        )
        for reason in report.incomplete_reasons:
            output.prose(f"- {shown(reason)}", "  ")


def _verdict(report: ReportDiff) -> str:
    counts = report.counts
    rest = f"{counts.gone} gone, {counts.changed} changed, {counts.same} the same"
    if counts.new:
        return f"NEW: {counted(counts.new, 'finding')} that the earlier report does not have; {rest}."
    if not report.complete:
        return f"COULD NOT BE TOLD: nothing new is seen; {rest}."
    return f"NOTHING NEW: {rest}."


def _sides(report: ReportDiff) -> Iterator[tuple[str, DiffedReport]]:
    yield "earlier", report.earlier
    yield "later", report.later


def _row(named: tuple[str, DiffedReport]) -> tuple[str, ...]:
    name, side = named
    state = "" if side.complete else " (incomplete)"
    return (name, shown(side.generated_at), str(side.revision), f"{side.findings}{state}", shown(side.path))


def _section(output: Output, title: str, rows: Sequence[FindingDifference], max_rows: int) -> None:
    if not rows:
        return
    output.line()
    output.line(title)
    for row in islice(rows, max_rows):
        key = f"base64:{row.key_base64}" if row.key_base64 else row.key
        output.line(f"  {shown(key)}")
        if row.changed:
            output.line(f"    changed: {', '.join(map(safe_text, row.changed))}")
        for name, finding in (("earlier", row.earlier), ("later", row.later)):
            if finding is not None:
                output.line(f"    {f'{name}: ' if row.changed else ''}{_said(finding)}")
    if len(rows) > max_rows:
        output.line(
            f"  … {len(rows) - max_rows} of {counted(len(rows), 'key')} not shown; --max-rows {len(rows)} or -o json "
            "shows them"
        )


def _said(finding: DiffedFinding) -> str:
    cause = f" {finding.cause}" if finding.cause else ""
    digest = finding.value_sha256[:_DIGEST_SHOWN]
    text = f"{finding.outcome}{cause} at mod_revision {finding.mod_revision} ({digest}): {finding.message}"
    return safe_text(fit(text))


DIFF_FORMATS: Final[Mapping[str, Callable[[ReportDiff, BinaryIO, int], None]]] = {
    "table": write_table,
    "json": write_rows_json,
}
