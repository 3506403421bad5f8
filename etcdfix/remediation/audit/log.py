"""The hash-chained record of what was done to a cluster: what is written, and what a crash leaves behind.

``docs/formats/audit-log.md`` has the steps of an append, and what the next writer does with what a crash left. Under
the lock nobody else can write, so an append checks only that the path still leads to this file, and that the file ends
where we left it. Backups and written-down heads are compared by ``log verify`` and ``log backups`` alone.

What was done must be told although the disk is full by then: :meth:`AuditLog.reserve`. A call that fails takes its own
partial line back, and leaves the log object unusable: open it again. A syslog that cannot be reached stops nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.inputs.ownfiles import HEAD_SUFFIX, LOCK_SUFFIX, MAX_RECORD_SIZE
from etcdfix.model.closing import Closing
from etcdfix.model.errors import why
from etcdfix.remediation.audit.record import (
    BEGINNING,
    Draft,
    Link,
    Operator,
    Record,
    RecordType,
    Verb,
    hash_of,
    in_unicode,
    microtime,
    placed,
)
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.audit.verify import (
    LOG_IS_GONE,
    WRITTEN_HERE,
    Anchor,
    Holder,
    broken,
    check_chain,
    file_of,
    held_by,
    records_in,
    refuse_broken,
)
from etcdfix.remediation.durable import SafeDirectory, Step, announced, no_step, open_directory, write_fully
from etcdfix.remediation.errors import AuditError, AuditLogLocked, NotDurable, UnsafePlace

RESERVE_SUFFIX: Final = ".reserve"
"""The file that keeps the room is the log's name and this."""

RESERVE_SIZE: Final = MAX_RECORD_SIZE + (64 << 10)
"""Bytes that it keeps: the longest record, and what a new head file takes."""

_MAX_HEAD_SIZE: Final = 256
_MAX_FRAGMENT_SIZE: Final = 16 << 20


def _now() -> datetime:
    return datetime.now(UTC)


class AuditLog(Closing):
    """A log that is open, locked and whole; ``recovered`` are the fragments that opening it set aside."""

    def __init__(
        self,
        path: Path,
        directory: SafeDirectory,
        descriptor: int,
        *,
        clock: Callable[[], datetime],
        syslog: Syslog | None,
    ) -> None:
        self.path = path
        self.head: Link = BEGINNING
        self.recovered: tuple[Path, ...] = ()
        self._directory = directory
        self._descriptor = descriptor
        WRITTEN_HERE.add(file_of(descriptor))
        self._step = directory.step
        self._clock = clock
        self._syslog = syslog
        self._size = 0
        self._open: dict[int, Record] = {}
        self._reserved = False
        self._usable = True

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        step: Step = no_step,
        wait_seconds: float = 10.0,
        create_directory: bool = False,
        operator: Operator | None = None,
        clock: Callable[[], datetime] = _now,
        syslog: Syslog | None = None,
    ) -> AuditLog:
        """Open a log for appending, making it where it is not there; put right what a crash left.

        ``create_directory`` makes the directory too, for the default one only. The record of a torn line
        names ``operator``, by default who runs this process.
        Raises UnsafePlace, AuditLogBroken, AuditLogLocked or AuditError.
        """
        operator = operator or Operator.of_this_process()

        def refuse_gone() -> None:  # in this order: a log is made before its head file
            if directory.has(path.name + HEAD_SUFFIX) and not directory.has(path.name):
                raise broken(directory.path / path.name, LOG_IS_GONE)

        with ExitStack() as on_failure:
            try:
                directory = open_directory(path.parent, create=create_directory, step=step)
                on_failure.enter_context(directory)
                descriptor = directory.open_locked(
                    path.name,
                    what="audit log",
                    wait_seconds=wait_seconds,
                    before_making=refuse_gone,
                )
            except UnsafePlace:
                raise
            except NotDurable as exc:
                problem = exc.message.removeprefix(f"audit log {exc.path}: ")
                raise AuditError(f"audit log {path}: {problem}", path=path) from exc
            except BlockingIOError as exc:
                raise AuditLogLocked(
                    f"audit log {path}: {held_by(path)}", path=path, hint="wait for it to finish"
                ) from exc
            whole = directory.path / path.name
            log = cls(whole, directory, descriptor, clock=clock, syslog=syslog)
            on_failure.callback(log.close)
            log._begin(operator)
            on_failure.pop_all()
        return log

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor >= 0:
            self.release()
            self._directory.forget(self.path.name + LOCK_SUFFIX)
            WRITTEN_HERE.discard(file_of(self._descriptor))
            os.close(self._descriptor)
            self._descriptor = -1
            self._directory.close()
        self._usable = False

    def reserve(self) -> None:
        """Keep room on the disk for the record of an outcome; call it before an intent is recorded.

        A file beside the log takes the room, and makes way when the record is written. Its bytes are random, so that
        no file system makes less of them. Raises AuditError.
        """
        self._require_usable()
        self._reserved = True
        name = self.path.name + RESERVE_SUFFIX
        try:
            self._directory.create(name, os.urandom(RESERVE_SIZE), what="audit reserve")
        except NotDurable as exc:
            raise self._error(
                f"there is no room for the record of the outcome: {exc.message}",
                hint=f"make {RESERVE_SIZE >> 10} KiB of room there, and as much as the backup takes",
            ) from exc

    def release(self) -> None:
        """Give back the room of :meth:`reserve`, where no outcome has used it."""
        if not self._reserved:
            return
        self._reserved = False
        # Where it stays, the record may still find room; the next writer removes it.
        with suppress(NotDurable):
            self._directory.remove(self.path.name + RESERVE_SUFFIX, what="audit reserve")

    def draft(self, record: Record) -> Draft:
        """Give a record its place and its exact bytes, without writing anything; raises AuditError."""
        self._require_usable()
        draft = placed(record, self.head, at=self._clock())
        if len(draft.line) > MAX_RECORD_SIZE:
            size = len(draft.line)
            raise self._error(f"the record would have {size} bytes, at most {MAX_RECORD_SIZE} can be kept")
        return draft

    def append(self, record: Record) -> Link:
        """Write a record; it is on disk, read back, and named by the head file when this returns; raises AuditError."""
        return self.append_draft(self.draft(record))

    def append_draft(self, draft: Draft) -> Link:
        """Write a record that was drafted; the log must not have grown since."""
        self._require_usable()
        record, link = draft.record, draft.record.link
        if (link.sequence, record.previous) != (self.head.sequence + 1, f"sha256:{self.head.sha256}"):
            raise self._error(f"record {link.sequence} was drafted for another place in the chain")
        if record.intent:
            self.intent(record.intent)
            self.release()
        self._usable = False  # until this record is whole
        self._write(draft)
        self._usable = True
        if record.type is RecordType.INTENT:
            self._open[link.sequence] = record
        elif record.intent and record.closes:
            del self._open[record.intent]
        if self._syslog is not None:
            self._syslog.send(self.head, self.path)
        return link

    def records(self) -> Iterator[Record]:
        """Yield what it holds, oldest first; raises AuditLogUnreadable."""
        return records_in(self._descriptor, self.path)

    def check(self, anchors: Iterable[Anchor]) -> None:
        """Compare it with what else remembers its records; raises AuditLogBroken."""
        refuse_broken(self.path, check_chain(self._descriptor, str(self.head).encode(), anchors))

    def open_intents(self) -> tuple[Record, ...]:
        """Return the intents of which nobody knows what became, oldest first."""
        return tuple(self._open.values())

    def intent(self, sequence: int) -> Record:
        """Return one open intent; raises AuditError."""
        if sequence not in self._open:
            raise self._error(f"intent {sequence} is not open")
        return self._open[sequence]

    def _begin(self, operator: Operator) -> None:
        try:
            self._note_holder(operator)
            # A log is made with its head file before the first record: no crash leaves a record without one.
            head: bytes | None = None
            with suppress(FileNotFoundError):
                name = self.path.name + HEAD_SUFFIX
                head = self._directory.read(name, limit=_MAX_HEAD_SIZE, ours="head file")
            found = check_chain(self._descriptor, head)
            refuse_broken(self.path, found)
            self.head, self._size, self._open = found.head, found.size, found.open_intents
            self._reserved = self._directory.has(self.path.name + RESERVE_SUFFIX)
            self.release()  # what a crash left takes the room that the next records need
            if found.named != found.head:
                self._write_head()
            self._set_aside(found.torn_size, operator)
        except UnsafePlace:
            raise
        except NotDurable as exc:
            raise self._error(exc.message) from exc
        except OSError as exc:
            raise self._error(why(exc)) from exc

    def _note_holder(self, operator: Operator) -> None:
        """Note who holds the lock, for whoever waits for it; of the command no word that could be a secret."""
        words = ("etcdfix", *takewhile(str.isalpha, sys.argv[1:3]))
        since = microtime(self._clock())
        holder = Holder(operator.os_user, operator.host, os.getpid(), " ".join(words), since)
        self._directory.scribble(self.path.name + LOCK_SUFFIX, msgspec.json.encode(in_unicode(holder)))

    def _write(self, draft: Draft) -> None:
        number = draft.record.link.sequence
        try:
            self._refuse_changed()
            with announced(self._step, "audit log", "write record"):
                write_fully(self._descriptor, draft.line)
            with announced(self._step, "audit log", "fsync file"):
                os.fsync(self._descriptor)
            with announced(self._step, "audit log", "read back"):
                os.posix_fadvise(self._descriptor, self._size, 0, os.POSIX_FADV_DONTNEED)
                same = os.pread(self._descriptor, len(draft.line) + 1, self._size) == draft.line
        except OSError as exc:
            self._take_back()
            raise self._error(f"record {number} could not be made durable: {why(exc)}") from exc
        if not same:
            self._take_back()
            raise self._error(f"record {number}: other bytes came back than were written")
        self._size += len(draft.line)
        self.head = draft.record.link
        try:
            self._write_head()
        except NotDurable as exc:
            problem = f"record {number} is written, but not named by the head file: {exc.message}"
            raise self._error(problem) from exc

    def _write_head(self) -> None:
        data = f"{self.head}\n".encode()
        self._directory.replace(self.path.name + HEAD_SUFFIX, data, what="audit head")

    def _take_back(self) -> None:
        # Nobody else writes while we hold the lock, so what stands after our end is our own partial line. Where this
        # fails too, the next writer finds a torn line, or a record that the head does not name yet.
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)

    def _refuse_changed(self) -> None:
        if not self._directory.leads_to(self.path.name, self._descriptor):
            raise broken(self.path, "the path leads to another file than the one that is locked")
        size = os.fstat(self._descriptor).st_size
        if size != self._size:
            problem = f"it has {size} bytes, expected {self._size}: somebody wrote past the lock"
            raise broken(self.path, problem)

    def _set_aside(self, torn_size: int, operator: Operator) -> None:
        """Set a torn last line aside, and record that; also what an earlier writer could not record any more."""
        if torn_size > _MAX_FRAGMENT_SIZE:
            problem = f"its last line has {torn_size} bytes and no end"
            raise self._error(problem, hint="keep a copy, then cut it off")
        prefix = f"{self.path.name}.torn-{self.head.sequence + 1}-"
        if torn_size:
            fragment = os.pread(self._descriptor, torn_size, self._size)
            # The digest in the name: stopped after this and started again, the same fragment gets the same name.
            name = prefix + hash_of(fragment)[:16]
            self._directory.replace(name, fragment, what="audit fragment")
            with announced(self._step, "audit log", "truncate file"):
                os.ftruncate(self._descriptor, self._size)
            with announced(self._step, "audit log", "fsync file"):
                os.fsync(self._descriptor)
        for name in self._directory.names():
            if name.startswith(prefix) and not name.endswith(".new"):
                fragment = self._directory.read(name, limit=_MAX_FRAGMENT_SIZE)
                path = self._directory.path / name
                self.append(
                    Record(
                        type=RecordType.TORN_LINE,
                        verb=Verb.RECOVER,
                        operator=operator,
                        value_sha256=f"sha256:{hash_of(fragment)}",
                        detail=f"the last line was torn after {len(fragment)} bytes; they are kept in {path}",
                    )
                )
                self.recovered = (*self.recovered, path)

    def _require_usable(self) -> None:
        if not self._usable:
            raise self._error("it was closed, or an earlier record failed", hint="open it again")

    def _error(self, problem: str, *, hint: str = "") -> AuditError:
        return AuditError(f"audit log {self.path}: {problem}", path=self.path, hint=hint)
