"""``-o text`` and ``-o wide``: one screen for a person at a terminal, at an hour when nobody reads twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, BinaryIO, Final

from etcdfix.report.document import (
    CAP,
    Cell,
    Column,
    Document,
    Facts,
    Kind,
    Node,
    Prose,
    Section,
    State,
    Step,
    Steps,
    Table,
    Tree,
    in_full,
)
from etcdfix.report.render.rows import ShownRows
from etcdfix.text.commands import Command, RunOptions
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted, fit

_WIDEST: Final = 100
"""Lines of prose are no longer, however wide the terminal is."""
_NARROWEST: Final = 40
_MOST_DIGITS: Final = 5
"""``COLUMNS`` with more digits is cut: Python refuses a number of 5,000 digits."""
_GAP: Final = 2
_LEAST: Final = 12
"""So narrow a column may get that folds."""
_LONGEST_CELL: Final = 2_000
"""No name of Kubernetes fills it; etcd takes keys of a megabyte."""


def width_of(stream: BinaryIO) -> int:
    """Return how many characters fit a line: those of ``COLUMNS``, of the terminal, or else 100."""
    given = os.environ.get("COLUMNS", "")
    digits = given.lstrip("0")[:_MOST_DIGITS] if given.isascii() and given.isdigit() else ""
    if digits:
        return max(int(digits), _NARROWEST)
    try:
        width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # no file behind it, or a terminal that has no size
        width = 0
    return max(width, _NARROWEST) if width else _WIDEST


class TextWriter(ShownRows):
    """Writes the document of a report as text."""

    most = 5
    wide = False

    def end(self, report: Any) -> None:
        """Write the document."""
        document = self.document_of(report)
        for line in text_lines(document, self._run, width_of(self._stream), wide=self.wide):
            self._stream.write(line.encode("utf-8", "backslashreplace") + b"\n")


class WideWriter(TextWriter):
    """Writes the whole document, with every section."""

    most = CAP
    wide = True


def headline_of(document: Document) -> str:
    """Return the headline; it begins with a word in capitals where not everything was seen or could be decided."""
    state, headline = document.status.state, document.status.headline
    said = headline.partition(":")[0].isupper() or headline.startswith("NOTHING WAS EXAMINED")
    return headline if said or state is not State.INCOMPLETE else f"INCOMPLETE: {headline}"


def text_lines(document: Document, run: RunOptions, width: int, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a document, safe to print."""
    lines = _Lines(run, width, wide=wide)
    document = in_full(document) if wide else document
    yield from lines.folded(headline_of(document))
    for stake in document.stakes:
        yield from lines.folded(stake)
    if document.next is not None:
        yield from lines.next_step(document.next)
    for section in document.sections:
        if wide or not section.wide:
            block = [*lines.section(section)]
            if block:
                yield ""
                yield from block
    about = [value for _, value in document.about.facts if value]
    if about:
        yield ""
        yield from lines.joined(about)


def cell_text(cell: Cell, run: RunOptions, most: int) -> str:
    """Return a cell of a table, safe to show, of at most so many characters."""
    text = cell.line(run) if isinstance(cell, Command) else "-" if cell is None else str(cell)
    return fit(safe_text(text), most)


class _Lines:
    def __init__(self, run: RunOptions, width: int, *, wide: bool) -> None:
        self._run, self._width, self._wide = run, width, wide

    def folded(self, text: str, indent: str = "") -> list[str]:
        """Return sentences in lines; no word is broken."""
        width = max(min(self._width, _WIDEST), _NARROWEST)
        return wrap(
            safe_text(text), width, initial_indent=indent, subsequent_indent=indent + "  ",
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip

    def joined(self, facts: Sequence[str]) -> Iterator[str]:
        """Yield facts with dots between them; a line ends behind a fact."""
        line = facts[0]
        for fact in facts[1:]:
            if len(line) + len(fact) + 5 > min(self._width, _WIDEST):  # with the dot at its end
                yield from self.folded(f"{line} ·")
                line = f"  {fact}"
            else:
                line += f" · {fact}"
        yield from self.folded(line)

    def command(self, command: Command) -> str:
        return safe_text(command.line(self._run))

    def next_step(self, step: Step) -> Iterator[str]:
        line = self.command(step.command)
        yield from self.folded(f"Next: {step.action}")
        if line:
            yield f"  {line}"
        if step.note:
            yield from self.folded(step.note, "  ")

    def section(self, section: Section) -> Iterator[str]:
        match section:
            case Facts():
                yield from self._titled(section.title, self._facts(section))
            case Table():
                yield from self._titled(section.title, self._table(section))
            case Steps():
                yield from self._titled(section.title, self._steps(section))
            case Prose():
                fold = (lambda text: [safe_text(text)]) if section.verbatim else self.folded
                lines = (line for text in section.paragraphs for line in fold(text))
                yield from self._titled(section.title, lines)
            case Tree():
                yield from self._titled(section.title, self._tree(section.nodes, ""))

    @staticmethod
    def _titled(title: str, lines: Iterator[str]) -> Iterator[str]:
        block = [*lines]
        if block and title:
            yield safe_text(title)
        yield from block

    def _facts(self, section: Facts) -> Iterator[str]:
        facts = [(safe_text(name), value) for name, value in section.facts if value]
        widest = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            first, *more = self.folded(value, " " * (widest + _GAP))
            yield f"{name:<{widest}}  {first.strip()}"
            yield from more

    def _steps(self, section: Steps) -> Iterator[str]:
        steps = section.steps if self._wide or not section.brief else section.steps[: section.brief]
        for number, step in enumerate(steps, start=1):
            yield from self.folded(f"{number}. {step.action}")
            line = self.command(step.command)
            if line:
                yield f"     {line}"
            if step.note and self._wide:
                yield from self.folded(step.note, "   ")
        if len(steps) < len(section.steps):
            yield f"and {counted(len(section.steps) - len(steps), 'more step')}: -o wide lists them"

    def _tree(self, nodes: Sequence[Node], indent: str) -> Iterator[str]:
        for node in nodes:
            yield from self.folded(node.text, indent)
            yield from self._tree(node.children, indent + "  ")

    def _table(self, table: Table) -> Iterator[str]:
        from tabulate import tabulate  # noqa: PLC0415 - only where there is a table

        most = CAP if self._wide or not table.brief else min(table.brief, CAP)
        rows = table.rows[:most]
        shown = [number for number, column in enumerate(table.columns) if self._wide or not column.wide]
        columns = [table.columns[number] for number in shown]
        cells = [[cell_text(row[number], self._run, _LONGEST_CELL) for number in shown] for row in rows]
        if cells:
            text = tabulate(
                cells,
                [column.name for column in columns],
                tablefmt="plain",
                disable_numparse=True,
                colalign=["right" if column.kind is Kind.NUMBER else "left" for column in columns],
                maxcolwidths=self._widths(columns, cells),
            )
            yield from (line.rstrip() for line in text.split("\n"))
        yield from self._left_out(table, len(rows))

    def _widths(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int | None]:
        """Share out the width: the widest column that folds gives way first; no other one is ever cut."""
        widths = [
            max(len(column.name), *(_columns_of(row[number]) for row in cells))
            for number, column in enumerate(columns)
        ]
        able = {number for number, column in enumerate(columns) if column.folds}
        given: list[int | None] = [None] * len(columns)
        while sum(widths) + _GAP * (len(widths) - 1) > self._width:
            able = {number for number in able if widths[number] > max(_LEAST, len(columns[number].name))}
            if (
                not able
            ):  # it does not fit: longer lines are easier to read than folded ones that are too long
                return [None] * len(columns)
            widest = max(able, key=widths.__getitem__)
            widths[widest] -= 1
            given[widest] = widths[widest]
        return given

    def _left_out(self, table: Table, shown: int) -> Iterator[str]:
        total = table.total or len(table.rows)
        if total <= shown:
            return
        if self._wide and table.truncated:
            yield table.truncated
            return
        text = f"and {counted(total - shown, f'more {table.noun}')}"
        if table.counted is not None:
            numbers = (row[table.counted] for row in table.rows[:shown])
            seen = sum(number for number in numbers if isinstance(number, int))
            text += f" with {counted(table.sum - seen, table.counts)}"
        yield f"{text}: {'-o json has all' if self._wide else '-o wide lists them'}"


def _columns_of(text: str) -> int:
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # noqa: PLC0415 - as tabulate counts

    width: int = wcswidth(text)
    return width if width >= 0 else len(text)
