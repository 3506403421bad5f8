"""What a person sees of a report, in any form: one headline, what is at stake, what to do now, and a few sections.

A document is made of plain values. Text in it may come from strangers: the renderer makes it safe, not the maker.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Self

import msgspec

from etcdfix.text.commands import Command

CAP: Final = 100
"""KEP-3926: so many unreadable objects are shown, and the next entry says that there are more; so for every table."""
_MOST_STAKES: Final = 3


class State(StrEnum):
    """What a report comes to."""

    OK = "ok"
    FINDINGS = "findings"
    INCOMPLETE = "incomplete"
    DONE = "done"
    WOULD_DO = "would-do"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"


class Status(msgspec.Struct, frozen=True):
    """The state, and one headline of about 100 characters with the numbers and names that matter."""

    state: State
    headline: str


class ToWide(str):
    """Text that points at ``-o wide``; there, and in a page, ``instead`` stands in its place, "" for nothing."""

    __slots__ = ("instead",)
    instead: str

    def __new__(cls, text: str, instead: str = "") -> Self:
        """Return the text of the first screen."""
        made = super().__new__(cls, text)
        made.instead = instead
        return made


class Step(msgspec.Struct, frozen=True):
    """One thing to do: what, the command to paste ("" where there is none), and what to know first."""

    action: str
    command: Command = msgspec.field(default_factory=Command)
    note: str = ""


class Kind(StrEnum):
    """How a column is shown."""

    TEXT = "text"
    NUMBER = "number"
    KEY = "key"
    """An etcd key: never cut, never folded. Put it last."""
    COMMAND = "command"
    """A command or an action; a page has a button to copy it."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Attributes:
        name: Its head, in capitals.
        kind: How it is shown.
        folds: It may take several lines where the terminal is narrow. Where no column may, the lines get longer.
        wide: Only with ``-o wide`` and in a page.
    """

    name: str
    kind: Kind = Kind.TEXT
    folds: bool = False
    wide: bool = False


Cell = str | int | Command | None
"""None is shown as "-"."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Names and values: ``revision: 589``. Those whose value is "" are left out."""

    title: str = ""
    facts: Sequence[tuple[str, str]]
    wide: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, at most as many as the cap of the form; what is not shown is counted.

    Attributes:
        title: What it lists; "" where the headline says it.
        columns: Its columns.
        rows: The first rows.
        total: How many rows there are in all; 0 for those of ``rows``.
        noun: What a row is, in the singular.
        brief: So many rows stand in the text form; 0 for all of ``rows``.
        counted: Column whose numbers add up to ``sum``: the line about what is not shown says how many that are.
        sum: That sum over all rows, shown or not.
        counts: What is counted there, in the singular.
        truncated: What is said where the text form is ``wide`` and not all rows are shown; "" for the usual words.
        wide: Only with ``-o wide`` and in a page.
    """

    title: str = ""
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    total: int = 0
    noun: str = "row"
    brief: int = 0
    counted: int | None = None
    sum: int = 0
    counts: str = "object"
    truncated: str = ""
    wide: bool = False


def wide_table(title: str, names: Sequence[str], rows: Sequence[Sequence[Cell]], noun: str = "row") -> Table:
    """Return a table for ``-o wide`` and a page; its columns fold, but for keys and names of resources."""
    whole = {"KEY", "EXAMPLE", "RESOURCE"}
    columns = [Column(name, Kind.KEY) if name in whole else Column(name, folds=True) for name in names]
    return Table(title=title, columns=columns, rows=rows, noun=noun, wide=True)


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Things to do, in this order; ``brief``: so many stand in the text form, 0 for all."""

    title: str = "What to do"
    steps: Sequence[Step]
    brief: int = 0
    wide: bool = False


class Prose(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences, a paragraph each; ``verbatim`` lines are shown as they are (YAML, a hex dump)."""

    title: str = ""
    paragraphs: Sequence[str]
    verbatim: bool = False
    wide: bool = False


class Node(msgspec.Struct, frozen=True):
    """A line of a tree, and what stands below it."""

    text: str
    children: Sequence[Node] = ()


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to what; at most the cap of nodes."""

    title: str = ""
    nodes: Sequence[Node]
    wide: bool = False


Section = Facts | Table | Steps | Prose | Tree


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees.

    Attributes:
        status: State and headline.
        about: Source, cluster, revision, time, version: the last line in text, the head of a page. Text shows the
            values alone, so each says what it is: ``("revision", "revision 589")``.
        stakes: At most three lines: what is at stake, what not to do.
        next: The one thing to do now.
        sections: At most three that are not ``wide``.
    """

    status: Status
    about: Facts = Facts(facts=())
    stakes: Sequence[str] = ()
    next: Step | None = None
    sections: Sequence[Section] = ()


def in_full(document: Document) -> Document:
    """Return a document for a form that shows every section: it points at no wider one."""

    def here(text: str) -> str:
        return text.instead if isinstance(text, ToWide) else text

    def facts(section: Facts) -> Facts:
        return msgspec.structs.replace(section, facts=[(name, here(text)) for name, text in section.facts])

    def whole(section: Section) -> Section:
        if isinstance(section, Prose):
            return msgspec.structs.replace(section, paragraphs=[*map(here, section.paragraphs)])
        return facts(section) if isinstance(section, Facts) else section

    return msgspec.structs.replace(
        document,
        about=facts(document.about),
        stakes=[*filter(None, map(here, document.stakes))],
        sections=[*map(whole, document.sections)],
    )


def why_incomplete(reasons: Sequence[str]) -> Prose:
    """Return the section with all reasons, for a report whose first screen says only that it is incomplete."""
    return Prose(title="Why this is incomplete", paragraphs=reasons, wide=True)


def stakes(
    reasons: Sequence[str], notes: Sequence[str], *, first: Sequence[str] = ()
) -> tuple[list[str], list[Section]]:
    """Return the first lines, and a section with the rest: what not to do, why it is incomplete, what else to know."""
    lines = [*first, *(f"INCOMPLETE: {reason}" for reason in reasons), *notes]
    if len(lines) <= _MOST_STAKES:
        return lines, []
    shown, rest = lines[: _MOST_STAKES - 1], lines[_MOST_STAKES - 1 :]
    return [*shown, ToWide(f"{len(rest)} more: -o wide lists them")], [
        Prose(title="More", paragraphs=rest, wide=True)
    ]


class CaseState(StrEnum):
    """What became of a case; all but ``passed`` is the name of the element that says so."""

    PASSED = "passed"
    FAILED = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test case.

    Attributes:
        name: What was looked at; the same in every run.
        group: What it belongs to, such as a resource; "" for the report itself.
        state: What became of it.
        type: The reason in one word; "" where it passed.
        message: The reason in one sentence; "" where it passed.
        detail: Lines with all there is to say.
    """

    name: str
    group: str = ""
    state: CaseState = CaseState.PASSED
    type: str = ""
    message: str = ""
    detail: Sequence[str] = ()


def whole_case(name: str, reasons: Sequence[str], *, complete: bool) -> Case:
    """Return the case that is an error where the report may look better than things are."""
    if complete and not reasons:
        return Case(name=name)
    message = "; ".join(reasons) or "the report does not say why it is incomplete"
    return Case(name=name, state=CaseState.ERROR, type="incomplete", message=message, detail=reasons)
