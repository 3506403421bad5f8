"""The file of a saved scan, read piece by piece: however many findings it has, one of them is in memory.

Nothing of the file is believed. A report of etcdfix has one finding a line, which is quick to take apart; any other
layout of the same JSON document is taken apart by its marks.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, SPOILED, Readable, mapped_input, spoiled
from etcdfix.inputs.jsonparts import (
    MOST_PIECE_BYTES,
    OtherFormError,
    Span,
    beginning,
    items,
    members,
    piece,
)
from etcdfix.report.counts import COUNTED
from etcdfix.report.model import API_VERSION, Ending, Header, Summary, other_version, read_command
from etcdfix.temporary import temporary_directory
from etcdfix.text.safetext import safe_text

T = TypeVar("T")

_MOST_REASONS: Final = 10
_LISTS: Final = frozenset({b"findings", b"statuses"})
_SAME_SOURCE: Final = ("type", "path", "endpoints", "kube_system_uid", "sha256", "file_modified_at")


class Kind(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """What a document says that it is."""

    kind: str = ""
    api_version: str = ""


def kind_of(raw: Readable) -> Kind:
    """Return what a file says that it is: its first line, or the whole document.

    Raises:
        msgspec.MsgspecError: It is no JSON object.
    """
    start, end = beginning(raw), raw.find(b"\n")
    first = bytes(raw[start : min(end if end >= 0 else len(raw), MOST_PIECE_BYTES)])
    try:
        return msgspec.json.decode(first, type=Kind)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(_without_lists(raw, members(raw)), type=Kind)


def _without_lists(raw: Readable, spans: Mapping[bytes, Span]) -> bytes:
    found = (b'"%s":%s' % (name, piece(raw, span)) for name, span in spans.items() if name not in _LISTS)
    return b"{%s}" % b",".join(found)


class ReportFile:
    """A report of ``-o json`` or ``-o jsonl``.

    Attributes:
        sha256: Of the file, ``sha256:<hex>``.

    Raises:
        msgspec.MsgspecError: It is no report of a scan, or of another version.
    """

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        self.sha256 = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        found = kind_of(raw)
        self._members: dict[bytes, Span] = {}
        end = raw.find(b"\n")
        self._head: Span = (beginning(raw), end if end >= 0 else len(raw))
        self._last: Span | None = None
        if found.kind != "ScanHeader":
            self._members = members(raw)
            if found.kind != "ScanReport":
                raise msgspec.ValidationError(f"its kind is {found.kind or 'missing'}, expected ScanReport")
        if found.api_version != API_VERSION:
            raise msgspec.ValidationError(other_version(found.api_version))

    def header(self) -> Header:
        """Return what stands before the findings.

        Raises:
            msgspec.MsgspecError: It is not as it has to be, as with everything that is read from here.
        """
        raw = _without_lists(self._raw, self._members) if self._members else piece(self._raw, self._head)
        return msgspec.json.decode(raw, type=Header, dec_hook=read_command)

    def findings(self) -> Iterator[tuple[int, bytes]]:
        """Yield at which byte each finding begins, and the finding, encoded; of a cut ``jsonl`` what was written."""
        if not self._members:
            yield from ((at, line) for at, kind, line in self._lines() if kind == "Finding")
        elif b"findings" not in self._members:
            raise msgspec.ValidationError("it has no findings, not even an empty list of them")
        else:
            for span in items(self._raw, self._members[b"findings"], "findings"):
                yield span[0], piece(self._raw, span)

    def at(self, start: int, size: int) -> bytes:
        """Return what stands at a place; it never changes, see :func:`open_report`."""
        return self._raw[start : start + size]

    def ending(self) -> Ending | None:
        """Return what stands after the findings; None where a ``jsonl`` was cut before its end."""
        if self._members:
            raw = _without_lists(self._raw, self._members)
            return msgspec.json.decode(raw, type=Ending, dec_hook=read_command)
        if self._last is None:
            for _ in self._lines():
                pass
        if self._last is None:
            return None
        last = piece(self._raw, self._last)
        end = msgspec.json.decode(last, type=Ending, dec_hook=read_command)
        began, ended = self.header().source, end.source
        # After a compaction, a live scan goes on at a newer revision.
        newer = ended.type == "etcd" and ended.revision > began.revision
        same = all(getattr(began, name) == getattr(ended, name) for name in _SAME_SOURCE)
        if not same or (ended.revision != began.revision and not newer):
            raise msgspec.ValidationError("its end is of another scan than its head")
        return end

    def statuses(self) -> Iterator[bytes]:
        """Yield each Status, encoded."""
        if not self._members:
            yield from (line for _at, kind, line in self._lines() if kind == "Status")
        elif b"statuses" in self._members:
            for span in items(self._raw, self._members[b"statuses"], "statuses"):
                yield piece(self._raw, span)

    def _lines(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield at which byte each line behind the first one begins, its kind, and the line."""
        at, size, last = self._head[1] + 1, len(self._raw), None
        while at < size:
            end = self._raw.find(b"\n", at)
            line = piece(self._raw, (at, end if end >= 0 else size))
            if line.strip():
                if last is not None:
                    raise msgspec.ValidationError("there is something after its ScanSummary")
                try:
                    kind = msgspec.json.decode(line, type=Kind).kind
                except msgspec.DecodeError:
                    if end >= 0:
                        raise
                    return  # whatever ended the scan has torn its last line
                if kind == "ScanHeader":
                    raise msgspec.ValidationError("another report begins in it")
                last = (at, at + len(line)) if kind == "ScanSummary" else None
                yield at, kind, line
            at = size if end < 0 else end + 1
        self._last = last


class NoReport(ConfigurationError):
    """Raised when a file is no report that can be used.

    Attributes:
        reason: Why, as half a sentence.
    """

    def __init__(self, name: str, error: Exception) -> None:
        self.reason = error.strerror or "" if isinstance(error, OSError) else safe_text(spoiled(error))
        hint = "write one with: etcdfix scan -o json --output-file FILE"
        message = f"{name} cannot be used as a report: {self.reason}"
        if isinstance(error, OtherFormError):
            hint = error.hint
        elif isinstance(error, OSError):
            message = f"{name}: {self.reason}"
            hint = "scan a part of the cluster only" if error.errno == errno.EFBIG else ""
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                hint = f"point TMPDIR at a directory with more room than {temporary_directory()}"
        super().__init__(message, hint=hint)


@contextmanager
def reading(path: Path, name: str, make: Callable[[Readable], T]) -> Iterator[T]:
    """Yield what is made of a saved file; it is a copy that nobody else can change.

    Raises:
        NoReport: It cannot be read, or what is read of it is not as it has to be.
    """
    with ExitStack() as stack:
        try:
            made = make(stack.enter_context(mapped_input(path, most_bytes=MAX_REPORT_BYTES)))
        except (OSError, *SPOILED) as exc:
            raise NoReport(name, exc) from exc
        try:
            yield made
        except SPOILED as exc:
            raise NoReport(name, exc) from exc


def open_report(path: Path, option: str = "") -> AbstractContextManager[ReportFile]:
    """Open a report of a scan, see :func:`reading`."""
    return reading(path, f"{option} {path}".lstrip(), ReportFile)


def contradictions(found: Mapping[str, int], summary: Summary) -> Iterator[str]:
    """Say where the findings are not those that the summary counts: the file was edited, or a part of it is lost."""
    for outcome, field in COUNTED.items():
        told = getattr(summary, field)
        if found.get(outcome, 0) != told:
            number = found.get(outcome, 0)
            yield f"the report contradicts itself: it has {number} findings of {outcome}, and counts {told}"


def problems_of(report: ReportFile, found: Mapping[str, int]) -> list[str]:
    """Return why a report is not of everything."""
    end = report.ending()
    if end is None:
        return ["the report is cut: its last line is missing"]
    told = end.incomplete_reasons[:_MOST_REASONS] or ["it does not say why"]
    reasons = [] if end.complete else [f"the report is incomplete: {reason}" for reason in told]
    return [*reasons, *contradictions(found, end.summary)]
