"""The report of one shard, as ``report merge`` reads it: line by line, so that its findings need not fit into memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from etcdfix.inputs.inputfile import open_regular
from etcdfix.reports.first_step import Urgent
from etcdfix.reports.key_loss import LossRest, Place
from etcdfix.reports.model import (
    API_VERSION,
    Finding,
    ReportBaseline,
    ReportConfiguration,
    ReportSource,
    Scope,
    Shard,
    Summary,
    Tool,
)
from etcdfix.reports.tally import TallyRest
from etcdfix.text.commands import RepeatedOptions

_MAX_LINE_BYTES: Final = 64 << 20
"""A finding is a few kilobytes, the summary of a cluster with hostile names some megabytes."""
_MAX_REST_BYTES: Final = 128 << 20
"""All of a report but its findings."""
_DOCUMENT: Final = b"{"
"""First line of a report that is one document, as etcdfix lays it out: one finding a line."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan came.

    Attributes:
        problems: Why not everything could be shown; empty where it could.
        ended: What ended it early, "" where nothing did.
        lost_midway: The source was lost before the last key.
        below_prefix: Whether any key at all lies below the storage prefix.
        nothing_named_exists: Keys, key prefixes or namespaces were named, and none of them exists.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
    """

    problems: list[str]
    ended: str
    lost_midway: bool
    below_prefix: bool
    nothing_named_exists: bool
    suggested_prefixes: list[str]


class ShardPart(msgspec.Struct, frozen=True, kw_only=True):
    """What ``report merge`` needs of a shard beside its summary; at the end of the shard's report, under ``part``.

    Attributes:
        findings: How many the report has.
        tally: What was counted and does not stand in the summary.
        losses: Values that may belong to lost encryption keys, by key.
        urgent: Which finding to act upon first, by the keys whose loss may explain it.
        seen: How far the scan of the shard came; nothing was decided yet about ``nothing_named_exists``.
        named: Nothing was seen, and keys or key prefixes were named, or namespaces of which none exists.
        prefixes: Of each of its first keys that hold no object, where none of all keys lies below the storage prefix:
            the prefix under which it would make sense, "" for none.
        words: The scope, as words of a command.
        again: What a command must repeat.
    """

    findings: int
    tally: TallyRest
    losses: list[LossRest]
    urgent: list[tuple[tuple[Place, ...], Urgent]]
    seen: Seen
    named: bool
    prefixes: list[str]
    words: list[str]
    again: RepeatedOptions


class ShardHead(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """What a shard's report begins with."""

    kind: str
    tool: Tool
    generated_at: str
    source: ReportSource
    encryption_config: ReportConfiguration | None
    scope: Scope
    api_version: str = ""
    baseline: ReportBaseline | None = None


class ShardEnd(msgspec.Struct, frozen=True):
    """What a shard's report ends with."""

    source: ReportSource
    summary: Summary
    finished_at: str
    part: ShardPart | None = None


class _Version(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""


class ShardFile(msgspec.Struct, frozen=True):
    """The report of a shard, without its findings.

    Attributes:
        path: Of the file.
        head: Its head.
        end: Its end.
        shard: Which one it is.
        part: What a merge needs.
        identity: Tells whether the file is still the same one when its findings are read.
    """

    path: Path
    head: ShardHead
    end: ShardEnd
    shard: Shard
    part: ShardPart
    identity: tuple[int, int, int, int]

    def findings(self) -> Iterator[Finding]:
        """Yield its findings in the order of the file.

        Raises:
            OSError: The file cannot be read, or was changed since.
            msgspec.MsgspecError: It was changed so that it is no report any more.
        """
        with open_regular(self.path) as stream:
            if _identity(stream) != self.identity:
                raise OSError(errno.ESTALE, "it was changed while it was merged")
            decode = msgspec.json.Decoder(Finding).decode
            for is_finding, line in _lines(stream):
                if is_finding:
                    yield decode(line)


def open_shard(path: Path) -> ShardFile:
    """Read all but the findings of a shard's report that was written with ``-o json`` or ``-o jsonl``.

    Raises:
        OSError: It cannot be read, or is too large.
        msgspec.MsgspecError: It is no report, or none of a shard.
    """
    with open_regular(path) as stream:
        identity = _identity(stream)
        rest: list[bytes] = []
        size = 0
        for is_finding, line in _lines(stream):
            if is_finding:
                continue
            size += len(line)
            if size > _MAX_REST_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {_MAX_REST_BYTES} bytes beside its findings")
            rest.append(line)
    head, end = _head_and_end(rest)
    if head.scope.redaction_key_id:
        raise msgspec.ValidationError("its names were replaced (--redact-names)")
    if head.scope.shard is None:
        raise msgspec.ValidationError("it is the report of a whole scan, not of a shard (scan --shard)")
    if end.part is None:
        raise msgspec.ValidationError("it does not have what a merge needs of a shard")
    return ShardFile(path, head, end, head.scope.shard, end.part, identity)


def _identity(stream: BinaryIO) -> tuple[int, int, int, int]:
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _head_and_end(rest: list[bytes]) -> tuple[ShardHead, ShardEnd]:
    """Return what a report has beside its findings: of one document, or of single lines."""
    if rest[0] == _DOCUMENT:
        first = last = b"".join(rest)
        kinds = ("ScanReport", "ScanReport")
    else:
        first, last = rest[0], rest[-1]
        kinds = ("ScanHeader", "ScanSummary")
    seen = msgspec.json.decode(first, type=_Version)
    if seen.kind != kinds[0]:
        raise msgspec.ValidationError(f"its kind is {seen.kind or 'missing'}, expected ScanReport")
    if seen.api_version != API_VERSION:
        raise msgspec.ValidationError(
            f"its apiVersion is {seen.api_version or 'missing'}, expected {API_VERSION}"
        )
    if msgspec.json.decode(last, type=_Version).kind != kinds[1]:
        raise msgspec.ValidationError("it is cut: its last line is missing")
    return msgspec.json.decode(first, type=ShardHead), msgspec.json.decode(last, type=ShardEnd)


def _lines(stream: BinaryIO) -> Iterator[tuple[bool, bytes]]:
    """Yield each line, and whether it is a finding; of a document all other lines make one without its findings."""
    first = _line(stream)
    if first != _DOCUMENT:
        yield from _single_lines(first, stream)
        return
    yield False, first
    inside = False
    while line := _line(stream):
        if inside and line != b"],":
            yield True, line.removesuffix(b",")
        elif inside or line in (b'"findings": [', b'"findings": [],'):
            inside = line == b'"findings": ['
        else:
            yield False, line
    if inside:
        raise msgspec.DecodeError("Input data was truncated")


def _single_lines(first: bytes, stream: BinaryIO) -> Iterator[tuple[bool, bytes]]:
    yield False, first
    while line := _line(stream):
        try:
            kind = msgspec.json.decode(line, type=_Version).kind
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return  # torn by whatever ended the scan; nothing after it is looked at
        if kind == "Finding":
            yield True, line
        elif kind != "Status":
            yield False, line


def _line(stream: BinaryIO) -> bytes:
    """Return the next line that is not empty, without blanks around it; b"" at the end."""
    while raw := stream.readline(_MAX_LINE_BYTES):
        if len(raw) == _MAX_LINE_BYTES:
            raise OSError(errno.EFBIG, f"a line of it is longer than {_MAX_LINE_BYTES} bytes")
        line = raw.strip()
        if line:
            return line
    return b""
