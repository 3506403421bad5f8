"""A saved scan report, as far as those who go on from it need it."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.jsonparts import DocumentCut
from etcdfix.model import Outcome
from etcdfix.report.contradictions import contradictions
from etcdfix.report.model import COUNTED
from etcdfix.report.report_file import (
    ReportFile,
    open_report,
    refused,
)
from etcdfix.storagekey import display

MOST_FINDINGS: Final = 100_000
"""So many can be taken by who keeps something of each in memory."""

MOST_OF_A_PLAN: Final = 2_000_000
"""So many can be taken by who keeps nothing of each but its place."""

_OPTION: Final = "--from-report"


class ReportedSource(msgspec.Struct, frozen=True):
    """Where the report's data came from."""

    type: str = ""
    path: str | None = None
    endpoints: list[str] | None = None
    kube_system_uid: str | None = None
    revision: int = 0


class ReportedConfiguration(msgspec.Struct, frozen=True):
    """The EncryptionConfiguration of the report."""

    path: str
    sha256: str


class ReportedScope(msgspec.Struct, frozen=True):
    """What was asked for."""

    etcd_prefix: str = "/registry"
    kubernetes_version: str | None = None


class _SavedFinding(msgspec.Struct, frozen=True):
    key: str
    outcome: str
    mod_revision: int
    value_sha256: str
    key_base64: bytes | None = None  # msgspec undoes the base64
    cause: str | None = None
    transformer: str = ""
    rule: str | None = None


class ReportedValue(msgspec.Struct, frozen=True, gc=False):
    """What a report says of one value that is not readable.

    Attributes:
        mod_revision: Of its etcd key.
        value_sha256: Of the stored bytes, ``sha256:<hex>``.
        outcome: As the report has it; a newer one may have words that nobody knows here.
        cause: Likewise, "" for none.
        transformer: That wrote it.
        rule: Of the configuration, "" for none.
    """

    mod_revision: int
    value_sha256: str
    outcome: str = ""
    cause: str = ""
    transformer: str = ""
    rule: str = ""


class _Header(msgspec.Struct):
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope


class _End(msgspec.Struct):
    complete: bool
    incomplete_reasons: list[str]
    summary: dict[str, msgspec.Raw] = {}


class SavedFindings(Mapping[bytes, ReportedValue]):
    """What is not readable by a report, by etcd key, in the order of the report.

    In memory is where each finding stands, in about 30 bytes; it is read again whenever it is asked for. Each has a
    number, from 0.

    Args:
        report: All of its findings are looked at once.
        most: More are refused.

    Attributes:
        counts: How many findings there are of each outcome, the readable ones too.

    Raises:
        ConfigurationError: There are too many.
        msgspec.MsgspecError: One is not as it has to be, or a key has two of them.
    """

    def __init__(self, report: ReportFile, most: int) -> None:
        self._report = report
        self._decode = msgspec.json.Decoder(_SavedFinding).decode
        self._starts, self._sizes, self._hashes = array("Q"), array("I"), array("q")
        self.counts: Counter[str] = Counter()
        try:
            for start, raw in report.placed_findings():
                self._take(start, raw)
                if len(self._starts) > most:
                    raise ConfigurationError(
                        f"it has more than {most} findings, which is all that can be taken",
                        hint="scan one resource or one namespace, and go on with that report",
                    )
        except DocumentCut:
            if not report.in_lines:
                raise
        # By the last bits of its hash, at the next free place: the number of a finding and one, 0 for none.
        self._slots = array("I", bytes(4 << (2 * len(self)).bit_length()))
        for number, hashed in enumerate(self._hashes):
            self._slots[self._free_slot(number, hashed)] = number + 1

    def _take(self, start: int, raw: bytes) -> None:
        finding = self._decode(raw)
        self.counts[sys.intern(finding.outcome)] += 1
        if finding.outcome != Outcome.READABLE:
            self._starts.append(start)
            self._sizes.append(len(raw))
            self._hashes.append(_hash(_key_of(finding)))

    def _free_slot(self, number: int, hashed: int) -> int:
        last = len(self._slots) - 1
        slot = hashed & last
        while there := self._slots[slot]:
            if self._hashes[there - 1] == hashed and self.key(there - 1) == self.key(number):
                raise msgspec.ValidationError(f"it has two findings of {display(self.key(number))}")
            slot = (slot + 1) & last
        return slot

    def find(self, key: bytes) -> tuple[int, ReportedValue] | None:
        """Return the number of a key's finding and what it says; None where the report has none."""
        hashed, last = _hash(key), len(self._slots) - 1
        slot = hashed & last
        while there := self._slots[slot]:
            if self._hashes[there - 1] == hashed:
                finding = self._finding(there - 1)
                if _key_of(finding) == key:
                    return there - 1, _value_of(finding)
            slot = (slot + 1) & last
        return None

    def key(self, number: int) -> bytes:
        """Return the etcd key of a finding."""
        return _key_of(self._finding(number))

    def _finding(self, number: int) -> _SavedFinding:
        return self._decode(self._report.at(self._starts[number], self._sizes[number]))

    def __getitem__(self, key: bytes) -> ReportedValue:
        """Return what the report says of a key.

        Raises:
            KeyError: Nothing.
        """
        found = self.find(key)
        if found is None:
            raise KeyError(key)
        return found[1]

    def __iter__(self) -> Iterator[bytes]:
        """Yield the keys."""
        return map(self.key, range(len(self)))

    def __len__(self) -> int:
        """Return how many findings there are."""
        return len(self._starts)


class SavedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says.

    Attributes:
        path: Its file, as given.
        sha256: Of the file.
        generated_at: As it says.
        source: Where its data came from.
        encryption_config: None where none was given.
        scope: What was asked for.
        findings: Everything that is not readable, by etcd key.
        problems: Why it is not everything.
    """

    path: str
    sha256: str
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope
    findings: SavedFindings
    problems: tuple[str, ...]


def _hash(key: bytes) -> int:
    """Nobody can choose keys that have the same: Python has a secret for it in each process."""
    return hash(key)


def _key_of(finding: _SavedFinding) -> bytes:
    return finding.key_base64 if finding.key_base64 is not None else finding.key.encode()


def _value_of(finding: _SavedFinding) -> ReportedValue:
    # A few words, a hundred thousand times.
    words = (finding.outcome, finding.cause or "", finding.transformer, finding.rule or "")
    return ReportedValue(finding.mod_revision, finding.value_sha256, *map(sys.intern, words))


def load_report(path: Path, *, most_findings: int = MOST_FINDINGS) -> SavedReport:
    """Read a report that was written with ``-o json`` or ``-o jsonl``.

    Args:
        path: Its file, or ``-`` for standard input.
        most_findings: One with more that are not readable is refused.

    Raises:
        ConfigurationError: The file cannot be read, is too large, or is no scan report.
    """
    try:
        with open_report(path) as report:
            header = report.head(_Header)
            findings = SavedFindings(report, most_findings)
            problems = tuple(_problems(report, findings))
    except ConfigurationError as exc:
        raise ConfigurationError(f"{_OPTION} {path}: {exc.message}", hint=exc.hint) from exc
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise refused(_OPTION, path, exc) from exc
    return SavedReport(
        path=str(path),
        sha256=report.sha256,
        generated_at=header.generated_at,
        source=header.source,
        encryption_config=header.encryption_config,
        scope=header.scope,
        findings=findings,
        problems=problems,
    )


def _problems(report: ReportFile, findings: SavedFindings) -> Iterator[str]:
    """Yield why a report is not of everything.

    Raises:
        msgspec.MsgspecError: Its end is not as it has to be.
    """
    try:
        end = report.end(_End)
    except DocumentCut:
        yield "the report is cut: its last line is missing"
        return
    if not end.complete:
        why = "; ".join(end.incomplete_reasons[:3]) or "it does not say why"
        yield f"the report is incomplete: {why}"
    found = {field: findings.counts[outcome] for outcome, field in COUNTED.items()}
    told = {
        field: msgspec.json.decode(end.summary[field], type=int) if field in end.summary else count
        for field, count in found.items()
    }
    yield from contradictions(found, told)
