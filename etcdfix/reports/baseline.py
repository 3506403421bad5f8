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
    findings: list[_Known] = []


class _Line(msgspec.Struct):
    kind: str
    key: str = ""
    outcome: str = ""
    value_sha256: str = ""
    key_base64: bytes | None = None  # msgspec undoes the base64


class Baseline:
    """The findings of an earlier report, by key, outcome and value.

    Held as 16-byte digests, so that a report of a hundred thousand findings costs a few megabytes.
    """

    def __init__(self, known: set[bytes]) -> None:
        self._known = known

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
            return Baseline({_known_digest(item) for item in _findings(stream)})
    except OSError as exc:
        raise ConfigurationError(f"--baseline {path}: {exc.strerror}") from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise ConfigurationError(
            f"--baseline {path} is not a report of etcdfix: {exc}",
            hint="write one with: etcdfix scan -o json --output-file FILE",
        ) from exc


def _findings(stream: BinaryIO) -> Iterator[_Known]:
    """Yield what a report knows; one of single lines is read line by line, and may be of any length."""
    first = stream.readline(_MAX_LINE_BYTES)
    whole = len(first) < _MAX_LINE_BYTES and first.rstrip().endswith(b"}")
    if whole and msgspec.json.decode(first, type=_Line).kind == "ScanHeader":
        check_version(first)
        yield from _lines(stream)
        return
    raw = first + stream.read(MAX_REPORT_BYTES)
    if len(raw) > MAX_REPORT_BYTES:
        raise OSError(
            errno.EFBIG, f"it is larger than {MAX_REPORT_BYTES} bytes; -o jsonl is read line by line"
        )
    report = msgspec.json.decode(raw, type=_Report)
    if report.kind != "ScanReport":
        raise msgspec.ValidationError(f"its kind is {report.kind}, expected ScanReport")
    check_version(raw)
    yield from report.findings


def _lines(stream: BinaryIO) -> Iterator[_Known]:
    while line := stream.readline(_MAX_LINE_BYTES):
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
