"""The published shape of the surviving copies of objects (``etcdfix/v1``), and its document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.copies.model import Sameness
from etcdfix.model import Confidence, Outcome
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


class PlaceKind(StrEnum):
    """Where a copy may be: of equally new ones, the first here comes first."""

    REVISION = "revision"
    """An earlier revision that the datastore itself still keeps."""
    API_SERVER = "api-server"
    """The memory of a running API server."""
    RESCUED = "rescued-object"
    """A file that was saved from the memory of an API server."""
    LOG = "write-ahead-log"
    """etcd's log of writes."""
    SNAPSHOT = "snapshot"
    """An older snapshot."""
    BACKUP = "backup"
    """What etcdfix saved before it changed the etcd key."""
    OLD_VALUE = "kine-old-value"
    """What kine's row of a later change says that stood there before."""


class Grade(StrEnum):
    """What a copy is good for, the best first."""

    GOOD = "good"
    """It reads, it is of this object, and it stood at this etcd key."""
    DOUBTFUL = "doubtful"
    """It reads, but something is not certain: ``why`` says what."""
    UNUSABLE = "unusable"
    """It does not read, or is not of this object: ``why`` says what. No command puts it back."""


class ObjectState(StrEnum):
    """What stands at the etcd key now."""

    UNREADABLE = "unreadable"
    UNDETERMINED = "undetermined"
    DELETED = "deleted"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"


class CopyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that was looked into.

    Attributes:
        path: File, directory or address; "" for the datastore itself.
        revision: Newest one that it holds; null where it has none, or it is not known.
        history: Whether its revisions are those of the datastore that is read: ``same``, ``other`` or ``unknown``.
        detail: Why that, or why it could not be looked into.
    """

    kind: PlaceKind
    path: str
    searched: bool
    revision: int | None = None
    history: Sameness = Sameness.UNKNOWN
    detail: str = ""

    def words(self) -> str:
        """Return what it is, with its history where that is not the same."""
        return (
            self.kind
            if self.history is Sameness.SAME or not self.path
            else f"{self.kind} (history: {self.history})"
        )


class SurvivingCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of an object.

    Attributes:
        path: Where: a file, a directory, an address; "" for the datastore itself.
        why: What is not certain about it, or why it is unusable; "" for a good one.
        mod_revision: At which it was written; null for unknown.
        confidence: How certain it is that the etcd key held it.
        outcome: Under today's configuration; null where it could not be examined.
        cause: Why it does not read; null where it does.
        identity: Whether name, namespace and kind are those of the etcd key.
        uid: Of the object in it, "" for unknown.
        uid_fits: Whether that is the object that stands at the etcd key, or stood there last.
        value_sha256: Of the stored bytes; null where only the object is there.
        later_writes: How many later writes to the etcd key are lost with it, unreadable ones counted; null for unknown.
        log_index: Index of its entry in the write-ahead log; null for none.
        save: Command that saves it whole; "" for none.
        put_back: Command that puts it back, as a dry run; "" where nothing could.
        note: What to know before, or why nothing puts it back.
    """

    place: PlaceKind
    path: str
    grade: Grade
    why: str
    mod_revision: int | None
    confidence: Confidence = Confidence.CERTAIN
    outcome: Outcome | None = None
    cause: str | None = None
    identity: Sameness = Sameness.UNKNOWN
    uid: str = ""
    uid_fits: Sameness = Sameness.UNKNOWN
    value_sha256: str | None = None
    later_writes: int | None = None
    log_index: int | None = None
    save: Command = msgspec.field(default_factory=Command)
    put_back: Command = msgspec.field(default_factory=Command)
    note: str = ""

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table of copies."""
        entry = f" entry {self.log_index}" if self.log_index else ""
        command = self.put_back or self.save
        return (
            self.grade.upper(), f"{self.place}{entry}", self.mod_revision, self.later_writes, self.why or None,
            self.path or None, self.note or None, command,
        )  # fmt: skip


class ObjectCopies(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its copies.

    Attributes:
        key_base64: The etcd key itself, where it is not plain text; else null.
        state: What stands there now.
        cause: Why it is not in order; null where it is, or where nothing is there.
        mod_revision: Of the present value; null where there is none.
        uid: Of the object that stands there, or stood there last, where anything tells; else "".
        good: How many good copies there are.
        doubtful: How many doubtful ones.
        left_out: How many further ones are not among ``copies``: of each place the newest are told.
        copies: The best first.
    """

    key: str
    key_base64: str | None
    state: ObjectState
    cause: str | None
    mod_revision: int | None
    uid: str
    good: int
    doubtful: int
    left_out: int
    next: Remedy | None
    copies: list[SurvivingCopy]

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table of objects."""
        best = self.copies[0] if self.copies else None
        grade = f"{best.grade}: {best.place}" if best is not None else "none"
        lost = best.later_writes if best is not None else None
        return (self.state, self.cause, grade, lost, self.key)


class CopiesReport(SourcedReport, frozen=True, kw_only=True):
    """Every copy that still exists of what cannot be read, or was deleted lately.

    Attributes:
        count: How many objects there are below.
        undetermined: Of how many that could not be told.
        with_good_copy: How many have a good copy.
        with_doubtful_copy: How many have doubtful ones alone.
        without_copy: How many have neither.
        expired: How many deleted ones had a lease, so that etcd itself may have let go of them; they are not told.
        at_stake: What the unreadable values mean, in one line; "" for nothing.
        complete: Everything that was named could be looked into and judged.
        objects: In the order of their etcd keys.
    """

    ROWS: ClassVar[str] = "objects"

    kind: str = "CopiesReport"
    scope: Scope
    places: list[CopyPlace]
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
            next=self.next.step() if self.next is not None else None,
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
            best = f"has a {one.copies[0].grade} copy" if one.good or one.doubtful else "has no copy"
            return f"{one.key} is {one.state} and {best}"
        without = f", {self.without_copy} have no copy" if self.without_copy else ""
        doubtful = f", {self.with_doubtful_copy} a doubtful one" if self.with_doubtful_copy else ""
        return f"{self.with_good_copy} of {self.count} objects have a good copy{doubtful}{without}"

    def _sections(self, first: Sequence[ObjectCopies]) -> Iterator[Section]:
        alone = self.count == 1
        if not alone:
            best_first = sorted(first, key=lambda one: (not one.good, not one.doubtful))
            rows = [one.row() for one in best_first]
            yield Table(columns=_OBJECTS, rows=rows, total=self.count, noun="object", brief=8)
        yield Table(
            title="Copies, the best first",
            columns=_COPIES,
            rows=[(*copy.row(), one.key) for one in first for copy in one.copies][:CAP],
            total=sum(len(one.copies) + one.left_out for one in first),
            noun="older one",
            brief=4,
            wide=not alone,
        )
        kinds = dict.fromkeys(place.words() for place in self.places if place.searched)
        missed = [f"{place.kind} {place.path}".rstrip() for place in self.places if not place.searched]
        more = f" and {len(missed) - 2} more" if len(missed) > 2 else ""
        facts = [
            ("looked into", ", ".join(kinds)),
            ("NOT LOOKED INTO", ", ".join(missed[:2]) + more),
            ("not named", self._not_named()),
            ("left out", f"{counted(self.expired, 'deleted key')} with a lease" if self.expired else ""),
        ]
        yield Facts(facts=facts)
        yield why_incomplete(self.incomplete_reasons)

    def _not_named(self) -> str:
        if self.with_good_copy == self.count:
            return ""
        named = {place.kind for place in self.places}
        able = (
            _OPTIONS if self.source.type != "kine" else {PlaceKind.API_SERVER: _OPTIONS[PlaceKind.API_SERVER]}
        )
        return ", ".join(option for kind, option in able.items() if kind not in named)


_OPTIONS: Final = {
    PlaceKind.API_SERVER: "API servers (--kubeconfig FILE)",
    PlaceKind.LOG: "etcd's log (--wal DIR)",
    PlaceKind.SNAPSHOT: "older snapshots (--older-snapshot FILE)",
}
_OBJECTS: Final = (
    Column("STATE"),
    Column("CAUSE"),
    Column("BEST COPY"),
    Column("WRITES LOST", Kind.NUMBER),
    Column("KEY", Kind.KEY),
)
_COPIES: Final = (
    Column("GRADE"),
    Column("WHERE"),
    Column("REVISION", Kind.NUMBER),
    Column("WRITES LOST", Kind.NUMBER),
    Column("WHY", folds=True),
    Column("PATH", wide=True),
    Column("NOTE", folds=True, wide=True),
    Column("COMMAND", Kind.COMMAND, wide=True),
    Column("KEY", Kind.KEY, wide=True),
)
