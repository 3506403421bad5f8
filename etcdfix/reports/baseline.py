"""An earlier report as a baseline: what was known then does not count towards the exit code now.

A finding is known by its etcd key, its outcome and the digest of its value. Its cause does not matter: the next version
may find a better name for what is wrong with the same bytes.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, open_input
from etcdfix.model import Outcome
from etcdfix.reports.model import ReportBaseline
from etcdfix.reports.origin import shown_word
from etcdfix.reports.saved_report import check_version
from etcdfix.verdicts.examination import Examination

_MAX_LINE_BYTES: Final = 16 << 20
"""A finding is a few kilobytes."""


class _Known(msgspec.Struct):
    key: str
    outcome: str
    value_sha256: str = ""
    key_base64: bytes | None = None  # msgspec undoes the base64


class _Report(msgspec.Struct):
    kind: str
    generated_at: str = ""
    findings: list[_Known] = []


class _Line(msgspec.Struct):
    kind: str
    generated_at: str = ""
    key: str = ""
    outcome: str = ""
    value_sha256: str = ""
    key_base64: bytes | None = None  # msgspec undoes the base64


class Baseline:
    """The findings of an earlier report, by key, outcome and value.

    Held as 16-byte digests, so that a report of a hundred thousand findings costs a few megabytes.

    Attributes:
        report: Which report it is, for the one that is written now.
    """

    def __init__(self, known: set[bytes], report: ReportBaseline) -> None:
        self._known = known
        self.report = report

    def knows(self, found: Examination) -> bool:
        """Say whether the earlier report had this key with this outcome and the very same value."""
        outcome = found.verdict.outcome
        if outcome is Outcome.READABLE:
            return False
        value = f"sha256:{hashlib.sha256(found.stored.value).hexdigest()}"
        return _digest(found.stored.key, outcome.value, value) in self._known


def load_baseline(path: Path) -> Baseline:
    """Read a report written with ``-o json`` or ``-o jsonl``.

    Raises:
        ConfigurationError: The file cannot be read or is no scan report.
    """
    try:
        with open_input(path) as stream:
            read = _Reading(stream)
            known = {_known_digest(item) for item in read.findings()}
            named = ReportBaseline(shown_word(str(path)), read.sha256, read.generated_at)
            return Baseline(known, named)
    except OSError as exc:
        raise ConfigurationError(f"--baseline {path}: {exc.strerror}") from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise ConfigurationError(
            f"--baseline {path} is not a report of etcdfix: {exc}",
            hint="write one with: etcdfix scan -o json --output-file FILE",
        ) from exc


class _Reading:
    """Reads a report from a stream, once, and takes the digest of what it reads.

    Attributes:
        generated_at: As the report says, "" until its first line was read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.generated_at = ""

    @property
    def sha256(self) -> str:
        """Of all that was read, ``sha256:<hex>``."""
        return f"sha256:{self._hash.hexdigest()}"

    def _line(self) -> bytes:
        line = self._stream.readline(_MAX_LINE_BYTES)
        self._hash.update(line)
        return line

    def findings(self) -> Iterator[_Known]:
        """Yield what a report knows; one of single lines is read line by line, and may be of any length."""
        first = self._line()
        whole = len(first) < _MAX_LINE_BYTES and first.rstrip().endswith(b"}")
        if whole and (head := msgspec.json.decode(first, type=_Line)).kind == "ScanHeader":
            check_version(first)
            self.generated_at = head.generated_at
            yield from self._lines()
            return
        rest = self._stream.read(MAX_REPORT_BYTES)
        self._hash.update(rest)
        raw = first + rest
        if len(raw) > MAX_REPORT_BYTES:
            raise OSError(
                errno.EFBIG, f"it is larger than {MAX_REPORT_BYTES} bytes; -o jsonl is read line by line"
            )
        report = msgspec.json.decode(raw, type=_Report)
        if report.kind != "ScanReport":
            raise msgspec.ValidationError(f"its kind is {report.kind}, expected ScanReport")
        check_version(raw)
        self.generated_at = report.generated_at
        yield from report.findings

    def _lines(self) -> Iterator[_Known]:
        while line := self._line():
            if not line.strip():
                continue
            if len(line) == _MAX_LINE_BYTES:
                raise OSError(errno.EFBIG, f"a line of it is longer than {_MAX_LINE_BYTES} bytes")
            found = msgspec.json.decode(line, type=_Line)
            if found.kind == "Finding":
                yield _Known(found.key, found.outcome, found.value_sha256, found.key_base64)


def _known_digest(item: _Known) -> bytes:
    key = item.key_base64 if item.key_base64 is not None else item.key.encode()
    return _digest(key, item.outcome, item.value_sha256)


def _digest(key: bytes, outcome: str, value_sha256: str) -> bytes:
    text = b"\x00".join((key, outcome.encode(), value_sha256.encode()))
    return hashlib.blake2b(text, digest_size=16).digest()
