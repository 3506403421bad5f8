"""``compare -o html``: which keys differ, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.reports.compare_model import Change, ComparisonReport, CopyOfKey, KeyDifference
from etcdfix.reports.formats.compare import MEANINGS, verdict
from etcdfix.reports.formats.page import Block, Column, Grid, Page, Section, Table, Text, ways, write_page
from etcdfix.text.words import counted

_COLUMNS: Final = (
    Column("Difference", "mark", choose=True, order=tuple(change.value for change in Change)),
    Column("Resource", choose=True, minor=True),
    Column("Etcd key, and what that means", "key"),
)
_HEADS: Final = ("Copy", "State", "Mod revision", "Create revision", "Version", "Lease", "Bytes", "Digest")


def write_comparison(report: ComparisonReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own."""
    badge, tone = _badge(report)
    first = next((remedy for remedy in report.advice if remedy.command), None)
    page = Page(
        title=f"etcdfix compare: {badge}",
        badge=badge,
        tone=tone,
        headline=verdict(report),
        lines=[f"Warning: {warning}." for warning in report.warnings],
        next=first or next(iter(report.advice), None),
        incomplete=None if report.complete else report.incomplete_reasons,
        sections=list(_sections(report)),
        foot=[f"etcdfix {report.tool.version}", report.generated_at],
    )
    write_page(page, stream)


def _badge(report: ComparisonReport) -> tuple[str, str]:
    worst = next((change for change in Change if report.changes.get(change)), None)
    if worst is not None:
        harmless = worst in {Change.REMOVED, Change.CHANGED, Change.ADDED}
        return worst.value, "warn" if harmless else "bad"
    if report.hashes_differ:
        return "hashes differ", "warn"
    return ("no difference", "good") if report.complete else ("not decided", "unknown")


def _sections(report: ComparisonReport) -> Iterator[Section]:
    grid = Grid(
        "differences",
        "Keys that differ",
        _COLUMNS,
        facts=("Key, base64", "Namespace", "Name"),
        sort="Difference",
    )
    for row in report.differences:
        _add(grid, row)
    if report.differing:
        counts = [(str(report.changes[change]), change.value, MEANINGS[change]) for change in Change
                  if report.changes.get(change)]  # fmt: skip
        table = Table("How many in which way", ("Keys", "Difference", "Meaning"), counts, (0,))
        yield Section("Keys that differ", [table, grid])
    rows = []
    for copy in report.copies:
        told = "–"
        if copy.hash is not None:
            compacted = copy.hash.compact_revision
            told = f"{copy.hash.hash} ({f'compacted {compacted}' if compacted > 0 else 'never compacted'})"
        state = "compared" if copy.compared else f"NOT COMPARED: {copy.reason}"
        rows.append((copy.label, copy.path or copy.endpoint or "–", str(copy.revision or "–"), told, state,
                     str(copy.unreadable_here), str(copy.only_readable_here)))  # fmt: skip
    columns = ("Copy", "Where", "Revision", "Hash", "State", "Unreadable here alone", "Readable here alone")
    how = []
    if report.method == "hash":
        how.append("By hash (HashKV): a CRC-32 of all that a member stores.")
    elif report.why_keys:
        how.append(f"The keys were read, because {report.why_keys}.")
    yield Section("What was compared", [Table("Copies", columns, rows, (2, 5, 6)), Text(how)])
    if report.advice:
        yield Section("What to do, in this order", [ways(report.advice)])


def _add(grid: Grid, row: KeyDifference) -> None:
    resource = f"{row.resource}.{row.group}" if row.group else row.resource
    grid.add(
        (row.change.value, resource, (row.key, MEANINGS[row.change])),
        (row.key_base64 or "", row.namespace, row.name),
        [Block("table", "Copy by copy", [_HEADS, *map(_told, row.copies)])],
    )


def _told(copy: CopyOfKey) -> tuple[str, ...]:
    if copy.state != "present":
        return (copy.label, copy.state, "", "", "", "", "", "")
    cause = f" ({copy.cause})" if copy.cause else ""
    return (
        copy.label, f"{copy.outcome}{cause}", str(copy.mod_revision), str(copy.create_revision), str(copy.version),
        copy.lease or "", counted(copy.value_size, "byte"), copy.value_sha256,
    )  # fmt: skip
