"""Reads the audit log, and says whether it is what was written: one pass, in memory that does not grow with the log.

Each record names the SHA-256 of the one before it, so a change anywhere shows at the next record. The end of
the chain shows nothing by itself: what is cut off the end is missed only where something else remembers it.
That is an :class:`Anchor`: the head file, a backup (it holds the link of its intent), or a head that somebody
wrote down (``--expect-head``). A file rewritten from some record on, with every later hash made anew, is caught by
anchors alone, and by the head file only if that was not rewritten too.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.inputs.inputfile import read_input
from etcdfix.inputs.ownfiles import HEAD, HEAD_SUFFIX, LOCK_SUFFIX, MAX_RECORD_SIZE
from etcdfix.model.errors import ConfigurationError, why
from etcdfix.remediation.audit.record import (
    BEGINNING,
    Event,
    Link,
    Record,
    RecordType,
    parse_event,
    parse_record,
    unicode_text,
)
from etcdfix.remediation.durable import lock, read_limited
from etcdfix.remediation.errors import AuditLogBroken, AuditLogUnreadable
from etcdfix.report.log import LogFault
from etcdfix.text.safetext import quote_command, safe_text

T = TypeVar("T")

MAX_FINDINGS: Final = 100
"""Findings told one by one; beyond that they are counted."""

NO_HEAD_FILE: Final = "its head file is missing: nothing beside it says which record is the last"
"""Whether such a log is whole is open, for verification and for the next writer alike."""

LOG_IS_GONE: Final = "the log is gone, and its head file is still there"
"""Such a log is not made anew."""

WRITTEN_HERE: Final = set[tuple[int, int]]()
"""Device and inode of each log that this process has open to write: it does not wait for itself to read one."""

_BEGIN_ANEW: Final = "etcdfix log verify shows all of it; keep the file, and begin a new one with --audit-log"
_MAX_HEAD_SIZE: Final = 256
_MAX_HOLDER_SIZE: Final = 4096


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
    """Something outside the log that remembers one of its records; ``source`` says where, for messages."""

    link: Link
    source: str


class ChainState(StrEnum):
    """What a verification comes to: tampered wins over unfinished (open intents, a torn last line, or no head file)."""

    WHOLE = "whole"
    TAMPERED = "tampered"
    UNFINISHED = "unfinished"


class Verification(msgspec.Struct, kw_only=True):
    """What was found out about a log.

    Attributes:
        named: The record that the head file names; None where there is none, or it is no head file.
        size: Bytes up to the end of the last complete line; ``torn_size`` more come after it.
        findings: What is wrong, in the order of the file, at most ``MAX_FINDINGS``.
        open_intents: The intents without an outcome, by their sequences, in the order of the file.
        warnings: What to know although nothing is wrong with it, one sentence each.
    """

    records: int = 0
    head: Link = BEGINNING
    named: Link | None = None
    size: int = 0
    torn_size: int = 0
    findings: list[LogFault] = msgspec.field(default_factory=list)
    more_findings: int = 0
    open_intents: dict[int, Record] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    head_missing: bool = False

    @property
    def state(self) -> ChainState:
        """What it comes to."""
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

    def find(self, kind: ChainFaultKind, record: int, message: str) -> None:
        """Take something that is wrong."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(LogFault(kind, record, unicode_text(message)))
        else:
            self.more_findings += 1


def check_chain(descriptor: int, head: bytes | None, anchors: Iterable[Anchor] = ()) -> Verification:
    """Walk an open log; ``head`` is what its head file holds, None where it has none; raises OSError."""
    found = Verification(head_missing=head is None, named=None if head is None else _parse_head(head))
    remembered: dict[int, list[Anchor]] = {}
    if found.named is not None and found.named != BEGINNING:
        anchors = [Anchor(found.named, "the head file"), *anchors]
    for anchor in anchors:
        remembered.setdefault(anchor.link.sequence, []).append(anchor)
    if head is not None and found.named is None:
        found.find(ChainFaultKind.HEAD, 0, "the head file is not valid")
    for line, length in _lines(descriptor):
        if not line.endswith(b"\n"):
            found.torn_size = length
            break
        found.records += 1
        found.size += length
        try:
            record = parse_record(line, length)
        except ValueError as exc:
            # It stands where the next record was expected, and nobody knows its hash.
            found.find(ChainFaultKind.MALFORMED, found.records, f"line {found.records}: {exc}")
            found.head = Link(found.head.sequence + 1, "")
            continue
        _follow(found, record)
        number = record.link.sequence
        for anchor in remembered.get(number, ()):
            if anchor.link != record.link:
                which = f"record {number} is not the one that {anchor.source} names"
                found.find(ChainFaultKind.EDITED, number, f"{which}: it was edited, or the log was rewritten")
    _judge_end(found, remembered)
    return found


def _follow(found: Verification, record: Record) -> None:
    """Hold a record against the one before it, and against the open intents."""
    here, last = record.link.sequence, found.head
    if here > last.sequence + 1:
        first, end = last.sequence + 1, here - 1
        missing = f"record {first} is" if first == end else f"records {first} to {end} are"
        found.find(ChainFaultKind.DROPPED, first, f"{missing} missing before record {here}")
    elif here <= last.sequence:
        where = "there twice" if here == last.sequence else f"after record {last.sequence}"
        found.find(ChainFaultKind.REORDERED, here, f"record {here} stands {where}")
    elif last == BEGINNING and record.previous != f"sha256:{last.sha256}":
        message = "record 1 says that another came before it: the beginning of the log was changed"
        found.find(ChainFaultKind.EDITED, 1, message)
    elif last.sha256 and record.previous != f"sha256:{last.sha256}":
        message = f"record {last.sequence} is not the one that record {here} was chained to: one of the two was edited"
        found.find(ChainFaultKind.EDITED, last.sequence, message)
    if here > last.sequence:
        found.head = record.link
    if record.type is RecordType.INTENT:
        found.open_intents[here] = record
    elif record.tells_outcome:
        if record.intent not in found.open_intents:
            message = f"record {here} tells the outcome of intent {record.intent}, which is not open"
            found.find(ChainFaultKind.STRAY_OUTCOME, here, message)
        elif record.closes:
            del found.open_intents[record.intent]


def _judge_end(found: Verification, remembered: dict[int, list[Anchor]]) -> None:
    newest, named = found.head.sequence, found.named
    for sequence, anchors in sorted(remembered.items()):
        for anchor in anchors if sequence > newest else ():
            message = f"cut off the end: {anchor.source} names record {sequence}, the last one is {newest}"
            found.find(ChainFaultKind.CUT, sequence, message)
    if named is not None and named.sequence < newest - 1:
        message = f"the head file names record {named.sequence}, but the log goes on to record {newest}"
        found.find(ChainFaultKind.HEAD, named.sequence, message)
    if found.findings:
        return
    if named is not None and named.sequence == newest - 1:
        found.warnings.append(
            f"the head file is one record behind: a crash came before it could name record {newest}"
        )
    if named is None and newest not in remembered:
        found.warnings.append(
            f"whole up to record {newest}; nothing here can show that later records existed"
        )


def parse_link(text: str) -> Link:
    """Read ``SEQ:SHA256``; ``SEQ:sha256:<hex>`` is understood too; raises ConfigurationError."""
    if found := HEAD.fullmatch(text.strip()):
        return Link(int(found[1]), found[2].lower())
    raise ConfigurationError(
        "a head reads SEQ:SHA256, a record's number and 64 hexadecimal digits",
        hint="the head file holds the present one",
    )


def _parse_head(raw: bytes) -> Link | None:
    try:
        return parse_link(raw.decode("ascii"))
    except (UnicodeDecodeError, ConfigurationError):
        return None


def verify(path: Path, *, anchors: Iterable[Anchor] = (), wait_seconds: float = 10.0) -> Verification:
    """Verify an audit log and its head file; waits while somebody is writing.

    A symbolic link is followed: nothing is written here. Raises AuditLogUnreadable.
    """
    head_file = path.with_name(path.name + HEAD_SUFFIX)
    with _reading(path, wait_seconds) as descriptor:
        head: bytes | None = None
        try:
            head = read_input(head_file, most_bytes=_MAX_HEAD_SIZE)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise AuditLogUnreadable(f"head file {head_file}: {why(exc)}") from exc
        return check_chain(descriptor, head, anchors)


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a log, without judging the chain, and without a torn last line; or AuditLogUnreadable."""
    with _reading(path, by_its_writer=True) as descriptor:
        yield from records_in(descriptor, path)


def read_events(path: Path) -> Iterator[Event]:
    """Yield the records of a log as audit events; raises what :func:`read_records` raises."""
    with _reading(path) as descriptor:
        yield from _each(descriptor, path, parse_event)


def records_in(descriptor: int, path: Path) -> Iterator[Record]:
    """Yield the records of a log that is open, and so locked, already; ``path`` is for messages."""
    return _each(descriptor, path, parse_record)


def _each(descriptor: int, path: Path, parse: Callable[[bytes, int], T]) -> Iterator[T]:
    number = 0
    try:
        for number, (line, length) in enumerate(_lines(descriptor), start=1):  # noqa: B007 - for the message
            if line.endswith(b"\n"):
                yield parse(line, length)
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc
    except ValueError as exc:
        hint = "etcdfix log verify shows more"
        raise AuditLogUnreadable(f"audit log {path}: line {number}: {exc}", hint=hint) from exc


def is_there(path: Path) -> bool:
    """Say whether there is an audit log; the default one is made by the first change; raises AuditLogUnreadable."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc
    return True


def is_gone(path: Path) -> bool:
    """Say whether a log is not there, and its head file still is."""
    return not is_there(path) and is_there(path.with_name(path.name + HEAD_SUFFIX))


def file_of(descriptor: int) -> tuple[int, int]:
    """Return what tells an open file from every other."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


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


@contextmanager
def _reading(path: Path, wait_seconds: float = 10.0, *, by_its_writer: bool = False) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            read_limited(descriptor, limit=0)  # a folder or a pipe shows itself here
            ours = by_its_writer and file_of(descriptor) in WRITTEN_HERE
            if not ours and not lock(descriptor, fcntl.LOCK_SH, wait_seconds=wait_seconds):
                raise AuditLogUnreadable(f"audit log {path}: {held_by(path)}", hint="wait for it to finish")
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc


class Holder(msgspec.Struct, frozen=True):
    """Who writes to a log, as that process notes it in ``FILE.lock``."""

    user: str
    host: str
    pid: int
    command: str
    since: str


def held_by(path: Path) -> str:
    """Say who holds the lock of a log, and since when; the note of a process that has died says nothing."""
    try:
        note = read_input(path.with_name(path.name + LOCK_SUFFIX), most_bytes=_MAX_HOLDER_SIZE)
        holder = msgspec.json.decode(note, type=Holder)
        if holder.host == socket.gethostname():
            os.kill(holder.pid, 0)
    except PermissionError:
        pass  # it lives, and belongs to somebody else
    except (OSError, ValueError, OverflowError):
        return "another process holds it"
    who = f"{holder.user}@{holder.host} holds it since {holder.since}"
    return safe_text(f"{who}: {holder.command} (process {holder.pid})")


def broken(path: Path, problem: str, *, hint: str = "") -> AuditLogBroken:
    """Return the refusal to add to a log whose chain is broken; without a hint it says how to begin a new one."""
    return AuditLogBroken(f"audit log {path}: {problem}", path=path, hint=hint or _BEGIN_ANEW)


def refuse_broken(path: Path, found: Verification) -> None:
    """Refuse a log to which nothing may be added; raises AuditLogBroken."""
    if found.trouble:
        hint = "" if found.findings else without_head(path, found.head)
        raise broken(path, found.trouble, hint=hint)


def trouble_with(path: Path) -> str:
    """Say why a writer would not rely upon a log; "" for one that is whole, or not there; or AuditLogUnreadable."""
    if not is_there(path):
        return LOG_IS_GONE if is_gone(path) else ""
    return verify(path).trouble


def without_head(path: Path, head: Link) -> str:
    """Return how to go on with a log whose head file is missing; ``head`` is its last record."""
    name = safe_text(str(path))
    if not head.sequence:
        return f"{name} holds no record: the next writer makes a head file for it"
    look = quote_command(["etcdfix", "log", "backups", "--audit-log", str(path), "--backup-dir", "DIR"])
    return (
        f"compare it with its backups ({look}) or with a head that was written down (--expect-head SEQ:SHA256); if "
        f"nothing is cut off, put this line into {name}{HEAD_SUFFIX}: {head}; else keep the log as it is, and begin a "
        "new one with --audit-log"
    )
