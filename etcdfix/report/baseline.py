"""An earlier report as a baseline: what was known then does not count towards the exit code now.

A finding is known by its etcd key, its outcome and the digest of its value. Its cause does not matter: the next version
may find a better name for what is wrong with the same bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.model import ReportBaseline
from etcdfix.report.origin import shown_word
from etcdfix.report.report_file import open_report, refused
from etcdfix.verdicts.examination import Examination


class _Known(msgspec.Struct):
    key: str
    outcome: str
    value_sha256: str = ""
    key_base64: bytes | None = None  # msgspec undoes the base64


class _Head(msgspec.Struct):
    generated_at: str = ""


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
        with open_report(path) as report:
            decode = msgspec.json.Decoder(_Known).decode
            known = {_known_digest(decode(finding)) for finding in report.findings()}
            generated_at = report.head(_Head).generated_at
            return Baseline(known, ReportBaseline(shown_word(str(path)), report.sha256, generated_at))
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise refused("--baseline", path, exc) from exc


def _known_digest(item: _Known) -> bytes:
    key = item.key_base64 if item.key_base64 is not None else item.key.encode()
    return _digest(key, item.outcome, item.value_sha256)


def _digest(key: bytes, outcome: str, value_sha256: str) -> bytes:
    text = b"\x00".join((key, outcome.encode(), value_sha256.encode()))
    return hashlib.blake2b(text, digest_size=16).digest()
