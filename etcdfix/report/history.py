"""The published shape of what is kept of one etcd key (``etcdfix/v1``), and its document."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.model import Confidence, Outcome
from etcdfix.report.document import Cell, Column, Document, Facts, Prose, State, Status, Table
from etcdfix.report.model import Remedy, SourcedReport
from etcdfix.text.words import counted


class Event(StrEnum):
    """What happened to the key."""

    PUT = "put"
    DELETE = "delete"
    LEASE_REVOCATION = "lease-revocation"


class WrittenValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a write did, and its value under the configuration of today; without a value, null, 0 or ""."""

    event: Event
    lease: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    confidence: Confidence | None = None
    transformer: str = ""
    key_fingerprint: str | None = None
    kms_key_id_sha256: str | None = None
    uid: str = ""
    value_sha256: str | None = None

    def state(self) -> str:
        """Return what it is, in a word or two."""
        if self.event is Event.PUT:
            return f"{self.outcome or 'put'}{f' ({self.cause})' if self.cause else ''}"
        return "deleted with its lease" if self.event is Event.LEASE_REVOCATION else "deleted"

    def wide_cells(self) -> tuple[Cell, ...]:
        """Return the last cells of its row."""
        under = " ".join(filter(None, (self.transformer, self.key_fingerprint or self.kms_key_id_sha256)))
        return (under or None, self.value_sha256)


class HistoryRevision(WrittenValue, frozen=True, kw_only=True):
    """One revision of the key.

    Attributes:
        mod_revision: At which it was written, or deleted.
        stands_until: Newest revision at which it could be read; null where nothing came after it.
        version: 0 where kine does not tell.
        from_old_value: Kept by kine beside the next revision alone: its lease, and mostly its version, are not known.
    """

    mod_revision: int
    stands_until: int | None = None
    version: int = 0
    from_old_value: bool = False

    @property
    def present(self) -> bool:
        """Whether it is what the key holds now, or at the revision that was read."""
        return self.event is Event.PUT and self.stands_until is None

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        until = "now" if self.present else self.stands_until
        return (str(self.mod_revision), self.state(), until, "etcd", *self.wide_cells())


class LoggedRevision(WrittenValue, frozen=True, kw_only=True):
    """One write of the key that stands in etcd's write-ahead log, and that etcd may not keep any more.

    Attributes:
        entry_index: Raft index of its entry.
        mod_revision: At which it took effect; null where nothing tells.
        after_revision: It was later than this one; null for unknown.
        before_revision: It was earlier than this one; null for unknown.
        confidence: How sure it is that it took effect, so.
        doubt: Why it is not certain; "" where it is.
        kept: etcd keeps it, too: it is among ``revisions``.
    """

    entry_index: int
    mod_revision: int | None
    after_revision: int | None
    before_revision: int | None
    confidence: Confidence
    doubt: str
    kept: bool

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        told = f"log entry {self.entry_index}, {self.confidence}{f': {self.doubt}' if self.doubt else ''}"
        return (self._revision(), self.state(), None, told, *self.wide_cells())

    def _revision(self) -> str:
        if self.mod_revision is not None:
            return str(self.mod_revision)
        bounds = (("after", self.after_revision), ("before", self.before_revision))
        return " ".join(f"{word} {bound}" for word, bound in bounds if bound is not None) or "unknown"


class HistoryLog(msgspec.Struct, frozen=True, kw_only=True):
    """etcd's write-ahead log, as far as it tells of the key.

    Attributes:
        agreement: What shows that it is of the same history.
        replayed: From which state it was replayed; "" for none, so that nothing is certain.
        left_out: How many of the oldest writes are not among them.
        writes: The newest first.
    """

    directories: list[str]
    agreement: str
    replayed: str
    left_out: int
    writes: list[LoggedRevision]
    notes: list[str]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield what it is, name and value."""
        yield "write-ahead log", f"{', '.join(self.directories)}: {self.agreement}"
        yield "replayed from", self.replayed or "nothing, so no write is certain"
        yield "not shown", f"{counted(self.left_out, 'older write')}: use --limit" if self.left_out else ""


class HistoryReport(SourcedReport, frozen=True, kw_only=True):
    """Every revision of one key that etcd, or a snapshot, still keeps.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        exists: The key holds a value now, or at the revision that was read.
        compacted_revision: The oldest revision that can be read; 0 where nothing was compacted, null for unknown.
        count: How many revisions are kept, deletions counted.
        older_versions: How many earlier revisions of the oldest kept generation are gone.
        readable: How many of the revisions can be read.
        unreadable: How many of them cannot, or are inconsistent.
        undetermined: Of how many that could not be told.
        left_out: How many of the oldest revisions are not among ``revisions``.
        at_stake: What is wrong with the present value means, in one line; "" for nothing.
        revisions: The newest first.
        log: What a write-ahead log tells besides; null where none was named.
        complete: Everything that is kept was seen and could be judged.
    """

    kind: str = "HistoryReport"
    key: str
    key_base64: str | None
    exists: bool
    compacted_revision: int | None
    count: int
    older_versions: int
    readable: int
    unreadable: int
    undetermined: int
    left_out: int
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None
    revisions: list[HistoryRevision]
    log: HistoryLog | None = None
    complete: bool
    incomplete_reasons: list[str]

    def document(self) -> Document:
        """Return the counts, what to do next, and every revision and write of the log, the newest first."""
        gone = "" if self.exists else " and is deleted now"
        told = f"{self.key} has {counted(self.count, 'kept revision')}, {self.readable} readable{gone}"
        state = State.FINDINGS if self.unreadable else State.OK
        older = f"{counted(self.left_out, 'older revision')}: --limit {self.count} shows them"
        facts = [
            ("compacted up to", str(self.compacted_revision or "")),
            ("older versions gone", str(self.older_versions or "")),
            ("not shown", older if self.left_out else ""),
        ]
        log = self.log
        return Document(
            status=Status(state if self.complete else State.INCOMPLETE, told),
            about=self.about(),
            stakes=[text for text in (self.at_stake, self.do_not_restart) if text],
            next=self.next.step() if self.next is not None else None,
            sections=[
                Table(columns=_COLUMNS, rows=self._rows(), noun="revision", brief=12),
                Facts(facts=[*facts, *(log.facts() if log is not None else ())], wide=True),
                Prose(
                    paragraphs=[*(log.notes if log is not None else ()), *self.incomplete_reasons], wide=True
                ),
            ],
        )

    def _rows(self) -> list[tuple[Cell, ...]]:
        told = [((one.mod_revision, 0), one.row()) for one in self.revisions]
        least = 0
        for entry in reversed(self.log.writes if self.log is not None else ()):
            if not entry.kept:  # those of unknown revision stand where they stand in the log
                least = max(least, entry.mod_revision or entry.after_revision or 0)
                told.append(((entry.mod_revision or least, entry.entry_index), entry.row()))
        return [row for _, row in sorted(told, key=lambda pair: pair[0], reverse=True)]


_COLUMNS: Final = (
    Column("REVISION"),
    Column("WHAT"),
    Column("UNTIL"),
    Column("FROM", folds=True),
    Column("UNDER", wide=True, folds=True),
    Column("DIGEST", wide=True),
)
