"""The published shape of the surviving copies of objects (``etcdfix/v1``), and its document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Freshness, Place, Sameness, Way
from etcdfix.model.model import Confidence, Outcome
from etcdfix.report.document import (
    CAP,
    Cell,
    Column,
    Document,
    Facts,
    Kind,
    Section,
    State,
    Status,
    Table,
    why_incomplete,
)
from etcdfix.report.model import Remedy, Scope, SourcedReport
from etcdfix.text.commands import Command
from etcdfix.text.words import counted


class Grade(StrEnum):
    """What a copy is good for, the best first."""

    GOOD = "good"
    """It reads, and nothing is doubtful about it; a rule may refuse to put it back."""
    DOUBTFUL = "doubtful"
    """It reads, and something is not certain."""
    UNUSABLE = "unusable"
    """It does not read, or is of another object."""


class ShownCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of an object, and what stands between it and its etcd key.

    Attributes:
        source: What ``fix --from`` takes; "" where no command can name it.
        confidence: How certain it is that the etcd key held it.
        outcome: Under today's configuration; null where only an API server can tell.
        later_writes: How many later writes of the object are lost with it; null for unknown.
        proof: What shows that it is of the object and right.
        value_sha256: Digest of its stored bytes; "" where only the object is there.
        refused: The rule that refuses it.
        fix: The dry run that puts it back; "" where a rule refuses.
        save: Command that saves it whole; "" where it is a file already.
    """

    grade: Grade
    place: Place
    where: str
    source: str
    way: Way
    mod_revision: int | None
    confidence: Confidence
    doubt: str
    outcome: Outcome | None
    cause: str | None
    reads: bool
    uid: str
    same_object: Sameness
    freshness: Freshness
    later_writes: int | None
    proof: str
    value_sha256: str
    refused: str = ""
    why: str = ""
    needs: list[str] = msgspec.field(default_factory=list)
    fix: Command = msgspec.field(default_factory=Command)
    save: Command = msgspec.field(default_factory=Command)

    @property
    def told(self) -> str:
        """What it is good for, and why that."""
        match self.grade:
            case Grade.UNUSABLE:
                why = self.cause or self.outcome if not self.reads else "of another object"
                return f"{self.grade}: {why}"
            case Grade.DOUBTFUL:
                unsure = "" if self.confidence is Confidence.CERTAIN else f"only {self.confidence}"
                perhaps = "by its revisions of this object" if self.proof else "perhaps of another object"
                whose = perhaps if self.same_object is Sameness.UNKNOWN else ""
                return f"{self.grade}: {'; '.join(filter(None, (self.doubt or unsure, whose)))}"
            case _:
                return (
                    f"{self.grade}, but it cannot be put back ({self.refused})"
                    if self.refused
                    else self.grade
                )

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        lost = "unknown" if self.later_writes is None else self.later_writes
        return (
            self.where,
            self.told,
            lost,
            self.why or self.proof or None,
            self.mod_revision,
            self.fix or self.save,
        )


def copies_table(copies: Iterable[ShownCopy], *, brief: int = 4, wide: bool = False) -> Table:
    """Return copies as a table, in their order."""
    rows = [copy.row() for copy in copies]
    title = "Copies, the best first"
    return Table(title=title, columns=_COLUMNS, rows=rows, noun="copy", brief=brief, wide=wide)


_COLUMNS: Final = (
    Column("WHERE", folds=True),
    Column("WHAT", folds=True),
    Column("LOST WRITES"),
    Column("WHY", folds=True, wide=True),
    Column("REVISION", wide=True),
    Column("COMMAND", kind=Kind.COMMAND, wide=True),
)


class ObjectState(StrEnum):
    """What stands at the etcd key now."""

    UNREADABLE = "unreadable"
    UNDETERMINED = "undetermined"
    DELETED = "deleted"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"


class ObjectCopies(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its copies.

    Attributes:
        key_base64: The etcd key itself, where it is not plain text; else null.
        cause: Why it is not in order; null where it is, or where nothing is there.
        mod_revision: Revision of the present value; null where the key is absent.
        uid: Uid of the object that stands there, or stood there last; "" where nothing tells it.
        left_out: How many further copies are not among ``copies``.
    """

    key: str
    key_base64: str | None
    state: ObjectState
    cause: str | None
    mod_revision: int | None
    uid: str
    next: Remedy | None
    left_out: int
    copies: Sequence[ShownCopy]

    @property
    def best(self) -> Grade:
        """The grade of its best copy."""
        grades = {copy.grade for copy in self.copies}
        return next((grade for grade in Grade if grade in grades), Grade.UNUSABLE)

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table of objects."""
        first = next((copy for copy in self.copies if copy.grade is self.best), None)
        if first is None or first.grade is Grade.UNUSABLE:
            return (self.state, self.cause, "none", None, None, None, self.key)
        command = first.fix or first.save
        return (self.state, self.cause, first.grade, first.where, first.later_writes, command, self.key)


class CopiesReport(SourcedReport, frozen=True, kw_only=True):
    """Every copy that still exists of what cannot be read, or was deleted lately.

    Attributes:
        count: How many objects there are below.
        undetermined: How many could not be judged.
        with_good_copy: How many have a good copy.
        with_doubtful_copy: How many have doubtful ones alone.
        without_copy: How many have no usable copy.
        expired: How many deleted ones had a lease, so that etcd itself may have let go of them; they are not told.
        at_stake: What the unreadable values mean, in one line; "" for nothing.
        complete: Everything that was named could be looked into and judged.
        objects: In the order of their etcd keys.
    """

    ROWS: ClassVar[str] = "objects"

    kind: str = "CopiesReport"
    scope: Scope
    places: list[LookedInto]
    count: int
    unreadable: int
    undetermined: int
    deleted: int
    with_good_copy: int
    with_doubtful_copy: int
    without_copy: int
    expired: int
    at_stake: str
    do_not_restart: str
    next: Remedy | None
    complete: bool
    incomplete_reasons: list[str]
    objects: Sequence[ObjectCopies]

    def document(self) -> Document:
        """Return how many objects have a copy, what to do first, and the copies of one object or the best of each."""
        first = list(islice(self.objects, CAP))
        return Document(
            status=Status(self._state(), self._headline(first)),
            about=self.about(),
            stakes=[text for text in (self.at_stake, self.do_not_restart) if text],
            next=self.next,
            sections=[*self._sections(first)],
        )

    def _state(self) -> State:
        if not self.complete:
            return State.INCOMPLETE
        return State.FINDINGS if self.with_good_copy < self.count else State.OK

    def _headline(self, first: Sequence[ObjectCopies]) -> str:
        if not self.count:
            return "Nothing is unreadable, and nothing is known to be deleted"
        if self.count == 1:
            (one,) = first
            best = "has no copy" if one.best is Grade.UNUSABLE else f"has a {one.best} copy"
            return f"{one.key} is {one.state} and {best}"
        without = f", {self.without_copy} none" if self.without_copy else ""
        doubtful = f", {self.with_doubtful_copy} a doubtful one" if self.with_doubtful_copy else ""
        return f"{self.with_good_copy} of {self.count} objects have a good copy{doubtful}{without}"

    def _sections(self, first: Sequence[ObjectCopies]) -> Iterator[Section]:
        if self.count == 1:
            yield copies_table(first[0].copies, brief=5)
        else:
            rows = [one.row() for one in sorted(first, key=lambda one: list(Grade).index(one.best))]
            yield Table(columns=_OBJECTS, rows=rows, total=self.count, noun="object", brief=8)
        missed = [f"{place.place} {place.path}".rstrip() for place in self.places if not place.searched]
        more = f" and {len(missed) - 2} more" if len(missed) > 2 else ""
        facts = [
            ("looked into", ", ".join(dict.fromkeys(map(_looked, self.places)))),
            ("NOT LOOKED INTO", ", ".join(missed[:2]) + more),
            ("look there too", self._not_named()),
            ("left out", f"{counted(self.expired, 'deleted key')} with a lease" if self.expired else ""),
        ]
        yield Facts(facts=[(name, words.strip(", ")) for name, words in facts])
        yield why_incomplete(self.incomplete_reasons)

    def _not_named(self) -> str:
        if self.with_good_copy == self.count:
            return ""
        named = {place.place for place in self.places}
        of_kine = self.source.type == "kine"
        able = {place: word for place, word in _OPTIONS.items() if not of_kine or place is Place.MEMORY}
        return ", ".join(word for place, word in able.items() if place not in named)


def _looked(place: LookedInto) -> str:
    """Return where it was looked, and of which history that is where it is not that of what is stored."""
    if not place.searched:
        return ""
    if place.history is Sameness.SAME or not place.path:
        return f"{place.place}s" if place.place in {Place.REVISION, Place.BACKUP} else place.place
    return f"{place.place} (of {'another' if place.history is Sameness.OTHER else 'unknown'} history)"


_OPTIONS: Final = {
    Place.MEMORY: "--kubeconfig FILE (API servers)",
    Place.LOG: "--in log:DIR (etcd's log)",
    Place.SNAPSHOT: "--in snapshot:FILE",
}
_OBJECTS: Final = (
    Column("STATE"),
    Column("CAUSE"),
    Column("BEST COPY"),
    Column("WHERE", folds=True),
    Column("WRITES LOST", Kind.NUMBER),
    Column("COMMAND", Kind.COMMAND, wide=True),
    Column("KEY", Kind.KEY),
)
