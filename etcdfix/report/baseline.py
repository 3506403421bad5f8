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
from etcdfix.report.saved_report import ReportedFinding, open_report
from etcdfix.verdicts.examination import Examination


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
    with open_report(path, "--baseline") as report:
        decode = msgspec.json.Decoder(ReportedFinding).decode
        found = (decode(finding) for finding in report.findings)
        known = {_digest(one.etcd_key, one.outcome, one.value_sha256) for one in found}
        named = ReportBaseline(shown_word(str(path)), report.sha256, report.header.generated_at)
        return Baseline(known, named)


def _digest(key: bytes, outcome: str, value_sha256: str) -> bytes:
    text = b"\x00".join((key, outcome.encode(), value_sha256.encode()))
    return hashlib.blake2b(text, digest_size=16).digest()
