"""A saved report of a scan, as far as the commands that go on from it need it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.report.model import ReportConfiguration, ReportSource, Scope
from etcdfix.report.report_file import ReportFile, open_report, problems_of

MOST_FINDINGS: Final = 100_000
"""Most findings for a command that keeps something of each in memory."""
MOST_OF_A_PLAN: Final = 2_000_000
"""Most findings for a command that keeps only the place of each."""


class ReportedFinding(msgspec.Struct, frozen=True, gc=False):
    """What a report says of one value. A newer report may have words that are unknown here."""

    key: str
    outcome: str
    mod_revision: int
    value_sha256: str
    key_base64: bytes | None = None  # msgspec undoes the base64
    cause: str | None = None
    transformer: str = ""
    rule: str | None = None

    @property
    def etcd_key(self) -> bytes:
        """The key as etcd has it."""
        return self.key_base64 if self.key_base64 is not None else self.key.encode()


F = TypeVar("F", bound=ReportedFinding)


class SavedFindings(Mapping[bytes, ReportedFinding]):
    """What is not readable according to a report, by etcd key, in the order of the keys.

    In memory is where each finding stands, in 12 bytes; it is read again whenever it is asked for. Each has a number,
    from 0.

    Args:
        report: All of its findings are read once.
        most: More are refused.

    Attributes:
        counts: How many findings there are of each outcome, the readable ones too.

    Raises:
        ConfigurationError: There are too many.
        msgspec.MsgspecError: One is not as it has to be, or does not stand in the order of the keys.
    """

    def __init__(self, report: ReportFile, most: int) -> None:
        self._report = report
        self._decode = msgspec.json.Decoder(ReportedFinding).decode
        self._starts, self._sizes = array("Q"), array("I")
        self.counts: Counter[str] = Counter()
        for start, size, finding in in_order(report, self._decode):
            self.counts[finding.outcome] += 1
            if finding.outcome != Outcome.READABLE:
                self._starts.append(start)
                self._sizes.append(size)
            if len(self._starts) > most:
                raise ConfigurationError(
                    f"the report has more than {most} findings, which is all that can be taken",
                    hint="scan one resource or one namespace, and go on with that report",
                )

    def find(self, key: bytes) -> tuple[int, ReportedFinding] | None:
        """Return the number of a key's finding and what it says; None where the report has none."""
        number = bisect_left(range(len(self)), key, key=self.key)
        if number == len(self):
            return None
        finding = self._finding(number)
        return (number, finding) if finding.etcd_key == key else None

    def key(self, number: int) -> bytes:
        """Return the etcd key of a finding."""
        return self._finding(number).etcd_key

    def _finding(self, number: int) -> ReportedFinding:
        return self._decode(self._report.at(self._starts[number], self._sizes[number]))

    def __getitem__(self, key: bytes) -> ReportedFinding:
        """Return what the report says of a key."""
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


def in_order(report: ReportFile, decode: Callable[[bytes], F]) -> Iterator[tuple[int, int, F]]:
    """Yield where each finding of a report begins, its size, and the finding.

    Raises:
        msgspec.MsgspecError: One is not as it has to be, or they do not stand in the order of their etcd keys.
    """
    before = b""
    for start, raw in report.findings():
        finding = decode(raw)
        if finding.etcd_key <= before:
            raise msgspec.ValidationError("its findings are not in the order of their etcd keys")
        before = finding.etcd_key
        yield start, len(raw), finding


class SavedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says.

    Attributes:
        source: Where its data came from.
        encryption_config: None where none was given.
        findings: Everything that is not readable, by etcd key.
        problems: Why it is not everything.
    """

    path: str
    sha256: str
    generated_at: str
    source: ReportSource
    encryption_config: ReportConfiguration | None
    scope: Scope
    findings: SavedFindings
    problems: tuple[str, ...]


def load_report(path: Path, *, most_findings: int = MOST_FINDINGS) -> SavedReport:
    """Read the report that ``--from-report`` names, written with ``-o json`` or ``-o jsonl``.

    Args:
        path: Its file, or ``-`` for standard input.
        most_findings: One with more that are not readable is refused.

    Raises:
        ConfigurationError: The file cannot be read, is too large, or is no scan report.
    """
    with open_report(path, "--from-report") as report:
        header, findings = report.header(), SavedFindings(report, most_findings)
        return SavedReport(
            path=str(path),
            sha256=report.sha256,
            generated_at=header.generated_at,
            source=header.source,
            encryption_config=header.encryption_config,
            scope=header.scope,
            findings=findings,
            problems=tuple(problems_of(report, findings.counts)),
        )
