"""``copies -o html``: what still exists of each object, and the command that puts it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.reports.copies_model import CopiesReport, Grade, ObjectCopies, SurvivingCopy
from etcdfix.reports.formats.copies import STATES, copy_facts, counts_line, place_line
from etcdfix.reports.formats.page import Block, Column, Grid, Page, Section, Text, write_page
from etcdfix.reports.formats.text import introduction
from etcdfix.text.words import counted

_NO_COPY: Final = "no copy"
_GRADES: Final = (_NO_COPY, Grade.UNUSABLE.value, Grade.DOUBTFUL.value, Grade.GOOD.value)
_COLUMNS: Final = (
    Column("State", "mark", choose=True, order=tuple(STATES.values())),
    Column("Best copy", "mark", choose=True, order=_GRADES),
    Column("Cause", choose=True),
    Column("Resource", choose=True, minor=True),
    Column("Etcd key, and its best copy", "key"),
    Column("Copies", "number", minor=True),
)
_FACTS: Final = (
    "Key, base64",
    "Namespace",
    "Name",
    "What is wrong",
    "Mod revision",
    "Version",
    "Value",
    "Uid",
)


def write_copies(report: CopiesReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own."""
    badge, tone = _badge(report)
    page = Page(
        title=f"etcdfix copies: {badge}",
        badge=badge,
        tone=tone,
        headline=counts_line(report),
        lines=[report.at_stake] if report.at_stake else [],
        warning=report.do_not_restart,
        next=report.next,
        incomplete=None if report.complete else report.incomplete_reasons,
        sections=list(_sections(report)),
        foot=[introduction(report), report.generated_at],
    )
    write_page(page, stream)


def _badge(report: CopiesReport) -> tuple[str, str]:
    if report.without_copy:
        return f"{report.without_copy} without any copy", "bad"
    if report.with_doubtful_copy:
        return f"{report.with_doubtful_copy} with a doubtful copy alone", "warn"
    if not report.complete:
        return "not decided", "unknown"
    return ("a good copy of each" if report.count else "nothing to look for"), "good"


def _sections(report: CopiesReport) -> Iterator[Section]:
    grid = Grid("objects", "Objects", _COLUMNS, facts=_FACTS, sort="Best copy")
    for one in report.objects:
        _add(grid, one)
    if grid.count:
        yield Section("Objects and their copies", [grid])
    yield Section("Where was looked", [Text([*map(place_line, report.places)])])
    if report.expired:
        words = f"{counted(report.expired, 'deleted key')} with a lease (events, as a rule) left out"
        yield Section("Not among them", [Text([f"{words}: name one to see it."])])


def _add(grid: Grid, one: ObjectCopies) -> None:
    best = one.copies[0] if one.copies else None
    words = ", ".join(copy_facts(best)) if best is not None else "no copy was found"
    resource = f"{one.resource}.{one.group}" if one.group else one.resource
    copies = [_way(number, copy) for number, copy in enumerate(one.copies, start=1)]
    older = [(f"And {counted(one.left_out, 'older one')}.",)] if one.left_out else []
    grid.add(
        (
            STATES[one.state], best.grade.value if best is not None else _NO_COPY, one.cause or "", resource,
            (one.key, words), len(one.copies) + one.left_out,
        ),
        (
            one.key_base64 or "", one.namespace, one.name, one.message, str(one.mod_revision or ""),
            str(one.version or ""), one.value_sha256 or "", one.uid,
        ),
        [
            Block("ways", "What to do first", [(one.next.action, one.next.command, one.next.note)] if one.next else []),
            Block("ways", "Its copies, the best first", copies),
            Block("text", "", older),
        ],
    )  # fmt: skip


def _way(number: int, copy: SurvivingCopy) -> tuple[str, str, str]:
    what = f"{number}. {copy.grade.value.upper()}: {', '.join(copy_facts(copy))}"
    why = f"Why: {copy.why}." if copy.why else ""
    return what, copy.put_back or copy.save, " ".join(filter(None, (why, copy.note)))
