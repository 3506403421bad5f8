"""Is the audit log what was written? One pass over the chain, in memory that does not grow with the log.

Each record names the SHA-256 of the one before it, so a change anywhere shows at the next record. The end of
the chain shows nothing by itself: what is cut off the end is missed only where something else remembers it.
That is an :class:`Anchor`: the head file, a backup (it holds the link of its intent), or a head that somebody
wrote down (``--expect-head``). A file rewritten from some record on, with every later hash made anew, is caught by
anchors alone, and by the head file only if that was not rewritten too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import AuditLogBroken, AuditLogUnreadable, ConfigurationError, why
from etcdfix.inputs.inputfile import read_input
from etcdfix.inputs.ownfiles import HEAD, HEAD_SUFFIX, MAX_RECORD_SIZE
from etcdfix.remediation.audit.record import (
    BEGINNING,
    CLOSING_TYPES,
    Intent,
    Link,
    RecordType,
    Result,
    unicode_text,
)
from etcdfix.remediation.audit.record_line import Event, intent_of, parse_number, parse_record
from etcdfix.remediation.durable import lock, read_limited
from etcdfix.report.audit import LogFault
from etcdfix.text.safetext import quote_command, safe_text

MAX_FINDINGS: Final = 100
"""Findings told one by one; beyond that they are counted."""

NO_HEAD_FILE: Final = "its head file is missing: nothing beside it says which record is the last"
"""Whether such a log is whole is open, for verification and for the next writer alike."""

LOG_IS_GONE: Final = "the log is gone, and its head file is still there"
"""Such a log is not made anew."""

_MAX_HEAD_SIZE: Final = 256
_MAX_GAPS: Final = 1000


class ChainFaultKind(StrEnum):
    """What is wrong with the chain."""

    EDITED = "edited"
    DROPPED = "dropped"
    REORDERED = "reordered"
    MALFORMED = "malformed"
    CUT = "cut"
    HEAD = "head"
    STRAY_OUTCOME = "stray-outcome"


class Anchor(msgspec.Struct, frozen=True):
    """Something outside the log that remembers one of its records.

    Attributes:
        source: Where that stands, for messages: ``the head file``, ``--expect-head``, ``backup <path>``.
    """

    link: Link
    source: str


class ChainState(StrEnum):
    """What a verification comes to."""

    WHOLE = "whole"
    TAMPERED = "tampered"
    UNFINISHED = "unfinished"


_EXIT_CODES = {ChainState.WHOLE: 0, ChainState.TAMPERED: 1, ChainState.UNFINISHED: 3}


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a log.

    Attributes:
        records: Complete lines in the file.
        head: Last record, as it is in the file; sequence 0 for an empty log.
        named: The one that the head file names; None where there is none, or it is no head file.
        size: Bytes up to the end of the last complete line.
        torn_size: Bytes after it: a write that was torn; 0 for none.
        findings: What is wrong, in the order of the file, at most ``MAX_FINDINGS``.
        open_intents: The intents without an outcome, by their sequences, in the order of the file.
        warnings: What to know although nothing is wrong with it, one sentence each.
        head_missing: There is no head file: whether later records existed is open.
    """

    records: int
    head: Link
    named: Link | None
    size: int
    torn_size: int
    findings: tuple[LogFault, ...]
    more_findings: int
    open_intents: dict[int, Intent]
    warnings: tuple[str, ...]
    head_missing: bool = False

    @property
    def state(self) -> ChainState:
        """Tampered wins over unfinished: open intents, a torn last line, or no head file."""
        if self.findings:
            return ChainState.TAMPERED
        if self.open_intents or self.torn_size or self.head_missing:
            return ChainState.UNFINISHED
        return ChainState.WHOLE

    @property
    def trouble(self) -> str:
        """Why the next writer refuses it; "" where it does not: a log without a record may lack its head file."""
        if self.findings:
            return self.findings[0].message
        return NO_HEAD_FILE if self.head_missing and self.records else ""

    @property
    def exit_code(self) -> int:
        """What ``audit verify`` returns; an unreadable log is an exception instead, and 5."""
        return _EXIT_CODES[self.state]


def without_head(path: Path, head: Link) -> str:
    """Return how to go on with a log whose head file is missing; ``head`` is its last record."""
    name = safe_text(str(path))
    if not head.sequence:
        return f"{name} holds no record: the next writer makes a head file for it"
    look = quote_command(["etcdfix", "backup", "list", "--audit-log", str(path), "--backup-dir", "DIR"])
    return (
        f"compare it with its backups ({look}) or with a head that was written down (--expect-head SEQ:SHA256); if "
        f"nothing is cut off, put this line into {name}{HEAD_SUFFIX}: {head}; else keep the log as it is, and begin a "
        "new one with --audit-log"
    )


def parse_link(text: str) -> Link:
    """Read ``SEQ:SHA256``; ``SEQ:sha256:<hex>`` is understood too.

    Raises:
        ConfigurationError: It is something else.
    """
    if found := HEAD.fullmatch(text.strip()):
        return Link(int(found[1]), found[2].lower())
    raise ConfigurationError(
        "a head reads SEQ:SHA256, a record's number and 64 hexadecimal digits",
        hint="the head file holds the present one",
    )


def parse_head(raw: bytes) -> Link | None:
    """Return what a head file says, or None where it is no head file."""
    try:
        return parse_link(raw.decode("ascii"))
    except (UnicodeDecodeError, ConfigurationError):
        return None


class _Chain:
    """The state of one pass: what was seen last, what is missing so far, what is open."""

    def __init__(self, anchors: Iterable[Anchor]) -> None:
        self.anchors: dict[int, list[Anchor]] = {}
        for anchor in anchors:
            self.anchors.setdefault(anchor.link.sequence, []).append(anchor)
        self.lines = 0
        self.last = BEGINNING
        self.open: dict[int, tuple[Link, Event]] = {}
        self.findings: list[LogFault] = []
        self.more_findings = 0
        self._before: Link | None = BEGINNING
        self._gaps: list[tuple[int, int]] = []

    def found(self, kind: ChainFaultKind, record: int, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(LogFault(kind, record, unicode_text(message)))
        else:
            self.more_findings += 1

    def line(self, line: bytes) -> None:
        try:
            here, event = parse_record(line)
        except ValueError as exc:
            self.unusable(str(exc))
            return
        self.lines += 1
        self._place(here, event.annotations.previous)
        for anchor in self.anchors.get(here.sequence, ()):
            if anchor.link != here:
                message = (
                    f"record {here.sequence} is not the one that {anchor.source} names:"
                    " it was edited, or the log was rewritten"
                )
                self.found(ChainFaultKind.EDITED, here.sequence, message)
        self._follow(here, event)

    def unusable(self, problem: str) -> None:
        """Note a line that has no place in the chain; it stands where the next record was expected."""
        self.lines += 1
        self.found(ChainFaultKind.MALFORMED, self.lines, f"line {self.lines}: {problem}")
        self._before = None
        self.last = Link(self.last.sequence + 1, "")

    def _place(self, here: Link, previous: str) -> None:
        expected = self.last.sequence + 1
        before, self._before = self._before, here
        if here.sequence < expected:
            self._late(here, expected - 1)
            return
        if here.sequence > expected:
            if len(self._gaps) < _MAX_GAPS:
                self._gaps.append((expected, here.sequence - 1))
            else:
                self.more_findings += 1
        elif before == BEGINNING and previous != f"sha256:{before.sha256}":
            message = "record 1 says that another came before it: the beginning of the log was changed"
            self.found(ChainFaultKind.EDITED, 1, message)
        # Where the line before it is wrong by itself, that is said already.
        elif before and before.sequence == here.sequence - 1 and previous != f"sha256:{before.sha256}":
            message = f"record {before.sequence} is not the one that record {here.sequence} was chained to"
            self.found(ChainFaultKind.EDITED, before.sequence, f"{message}: one of the two was edited")
        self.last = here

    def _late(self, here: Link, newest: int) -> None:
        number = here.sequence
        for index, (first, last) in enumerate(self._gaps):
            if first <= number <= last:
                rest = [(first, number - 1), (number + 1, last)]
                self._gaps[index : index + 1] = [gap for gap in rest if gap[0] <= gap[1]]
                self.found(ChainFaultKind.REORDERED, number, f"record {number} stands after record {newest}")
                return
        self.found(ChainFaultKind.REORDERED, number, f"record {number} stands there twice")

    def _follow(self, here: Link, event: Event) -> None:
        notes = event.annotations
        if notes.type == RecordType.INTENT:
            self.open[here.sequence] = here, event
        elif notes.type in CLOSING_TYPES and notes.intent:
            intent = parse_number(notes.intent) or 0
            if intent not in self.open:
                message = f"record {here.sequence} tells the outcome of intent {intent}, which is not open"
                self.found(ChainFaultKind.STRAY_OUTCOME, here.sequence, message)
            elif notes.outcome != Result.UNKNOWN:
                del self.open[intent]

    def open_intents(self) -> dict[int, Intent]:
        found: dict[int, Intent] = {}
        for sequence, record in self.open.items():
            try:
                found[sequence] = intent_of(*record)
            except ValueError as exc:
                self.found(ChainFaultKind.MALFORMED, sequence, str(exc))
        return found

    def finish(self, head: Link | None) -> tuple[str, ...]:
        """Judge what only the end of the file can tell; return the warnings."""
        for first, last in self._gaps:
            which = f"record {first} is" if first == last else f"records {first} to {last} are"
            self.found(ChainFaultKind.DROPPED, first, f"{which} missing")
        newest = self.last.sequence
        for sequence, anchors in sorted(self.anchors.items()):
            for anchor in anchors if sequence > newest else ():
                message = (
                    f"cut off the end: {anchor.source} names record {sequence}, the last one is {newest}"
                )
                self.found(ChainFaultKind.CUT, sequence, message)
        if head is not None and head.sequence < newest - 1:
            message = f"the head file names record {head.sequence}, but the log goes on to record {newest}"
            self.found(ChainFaultKind.HEAD, head.sequence, message)
        if self.findings:
            return ()
        if head is not None and head.sequence == newest - 1:
            return (f"the head file is one record behind: a crash came before it could name record {newest}",)
        if head is None and newest not in self.anchors:
            return (f"whole up to record {newest}; nothing here can show that later records existed",)
        return ()


def check_chain(descriptor: int, head: bytes | None, anchors: Iterable[Anchor] = ()) -> Verification:
    """Walk an open log from its beginning; ``head`` is what its head file holds, None where it has none.

    Raises:
        OSError: It cannot be read.
    """
    named = None if head is None else parse_head(head)
    by_head = [] if named is None or named == BEGINNING else [Anchor(named, "the head file")]
    chain = _Chain([*by_head, *anchors])
    if head is not None and named is None:
        chain.found(ChainFaultKind.HEAD, 0, "the head file is no head file")
    size = torn_size = 0
    for line, length in _lines(descriptor):
        if not line.endswith(b"\n"):
            torn_size = length
            break
        if length > MAX_RECORD_SIZE:
            chain.unusable(f"it has {length} bytes, a record has at most {MAX_RECORD_SIZE}")
        else:
            chain.line(line)
        size += length
    open_intents = chain.open_intents()
    warnings = chain.finish(named)
    return Verification(
        records=chain.lines,
        head=chain.last,
        named=named,
        size=size,
        torn_size=torn_size,
        findings=tuple(chain.findings),
        more_findings=chain.more_findings,
        open_intents=open_intents,
        warnings=warnings,
        head_missing=head is None,
    )


def _lines(descriptor: int) -> Iterator[tuple[bytes, int]]:
    """Yield each line and its length; of a line that is too long, only its last part."""
    with open(descriptor, "rb", buffering=1 << 18, closefd=False) as file:
        file.seek(0)
        while line := file.readline(MAX_RECORD_SIZE + 1):
            length = len(line)
            while not line.endswith(b"\n") and (more := file.readline(MAX_RECORD_SIZE + 1)):
                line = more
                length += len(more)
            yield line, length


def verify(path: Path, *, anchors: Iterable[Anchor] = (), wait_seconds: float = 10.0) -> Verification:
    """Verify an audit log and its head file; waits while somebody is writing.

    A symbolic link is followed: nothing is written here.

    Raises:
        AuditLogUnreadable: The log, or its head file, cannot be read, or a writer holds it for too long.
    """
    with _reading(path, wait_seconds) as descriptor:
        return check_chain(descriptor, _read_head(path.with_name(path.name + HEAD_SUFFIX)), anchors)


def read_records(path: Path) -> Iterator[tuple[Link, Event]]:
    """Yield the records of a log as they stand there, without judging the chain; a torn last line is left out.

    Raises:
        AuditLogUnreadable: The log cannot be read, or a line of it is no record.
    """
    with _reading(path) as descriptor:
        yield from records_in(descriptor, path)


def records_in(descriptor: int, path: Path) -> Iterator[tuple[Link, Event]]:
    """Yield the records of a log that is open, and so locked, already; ``path`` is for messages.

    Raises:
        AuditLogUnreadable: See :func:`read_records`.
    """
    number = 0
    try:
        for number, (line, _) in enumerate(_lines(descriptor), start=1):  # noqa: B007 - for the message
            if line.endswith(b"\n"):
                yield parse_record(line)
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc
    except ValueError as exc:
        hint = "etcdfix audit verify shows more"
        raise AuditLogUnreadable(f"audit log {path}: line {number}: {exc}", hint=hint) from exc


@contextmanager
def _reading(path: Path, wait_seconds: float = 10.0) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            read_limited(descriptor, limit=0)  # a folder or a pipe shows itself here
            if not lock(descriptor, fcntl.LOCK_SH, wait_seconds=wait_seconds):
                raise AuditLogUnreadable(f"audit log {path}: another process is writing to it")
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc


def _read_head(path: Path) -> bytes | None:
    try:
        return read_input(path, most_bytes=_MAX_HEAD_SIZE)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise AuditLogUnreadable(f"head file {path}: {why(exc)}") from exc


def broken(
    path: Path, problem: str, findings: tuple[LogFault, ...] = (), *, hint: str = ""
) -> AuditLogBroken:
    """Return the refusal to add to a log whose chain is broken; without a hint it says how to begin a new one."""
    begin = "etcdfix audit verify shows all of it; keep the file, and begin a new one with --audit-log"
    return AuditLogBroken(f"audit log {path}: {problem}", path=path, findings=findings, hint=hint or begin)


def refuse_broken(path: Path, found: Verification) -> None:
    """Refuse a log to which nothing may be added.

    Raises:
        AuditLogBroken: Its chain is broken, or it has no head file.
    """
    if found.trouble:
        hint = without_head(path, found.head) if not found.findings else ""
        raise broken(path, found.trouble, found.findings, hint=hint)
