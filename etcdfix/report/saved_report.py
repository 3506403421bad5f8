"""A saved report, read again: of a scan one finding at a time, however many it has.

Nothing of the file is believed. It is mapped from a copy that nobody else can change; of each finding there is only its
place in memory until it is decoded.
"""

from __future__ import annotations

import errno
import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.inputs.inputfile import (
    MAX_REPORT_BYTES,
    SPOILED,
    OtherFormError,
    Readable,
    mapped_input,
    require_json,
    spoiled,
)
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import Outcome, digest_of
from etcdfix.report.model import (
    API_VERSION,
    COUNTED,
    ReportBaseline,
    ScanEnding,
    ScanHeader,
    Summary,
    other_version,
    read_command,
)
from etcdfix.report.origin import shown_word
from etcdfix.text.safetext import safe_text

T = TypeVar("T")

MOST_FINDINGS: Final = 100_000
"""Most findings for a command that keeps something of each in memory."""
MOST_OF_A_PLAN: Final = 2_000_000
"""Most findings for a command that keeps only the place of each."""

CUT: Final = "it is cut: its end is missing"
_MOST_REASONS: Final = 10
_lines: Final = msgspec.json.Decoder(msgspec.Raw).decode_lines


class DocumentKind(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """What a document says that it is."""

    kind: str = ""
    api_version: str = ""


class _Lists(msgspec.Struct):
    findings: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    statuses: list[msgspec.Raw] = []


def kind_of(raw: Readable) -> DocumentKind:
    """Return what a file says that it is: its first line where that is JSON by itself, else the whole document.

    Raises:
        msgspec.MsgspecError: It is no JSON object.
    """
    require_json(raw)
    try:
        return msgspec.json.decode(_first_line(raw), type=DocumentKind)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(raw, type=DocumentKind)


def _first_line(raw: Readable) -> bytes:
    end = raw.find(b"\n")
    return raw[: end if end >= 0 else len(raw)]


class ReportFile:
    """A report of ``-o json`` or ``-o jsonl``.

    Attributes:
        sha256: Digest of the file, ``sha256:<hex>``.
        header: What stands before the findings.
        findings: Each finding, encoded; of a cut ``jsonl`` what was written.
        statuses: Each Status, encoded.
        ending: What stands after the findings; None where a ``jsonl`` was cut before its end.

    Raises:
        msgspec.MsgspecError: It is no report of a scan, or of another version.
    """

    def __init__(self, raw: Readable) -> None:
        self.sha256 = digest_of(raw)
        found = kind_of(raw)
        if found.kind not in {"ScanReport", "ScanHeader"}:
            raise msgspec.ValidationError(f"its kind is {found.kind or 'missing'}, expected ScanReport")
        if found.api_version != API_VERSION:
            raise msgspec.ValidationError(other_version(found.api_version))
        last: Readable | msgspec.Raw | None = raw
        if found.kind == "ScanReport":
            lists = msgspec.json.decode(raw, type=_Lists)
            if lists.findings is msgspec.UNSET:
                raise msgspec.ValidationError("it has no findings, not even an empty list of them")
            self.findings, self.statuses = lists.findings, lists.statuses
        else:
            self.findings, self.statuses, last = _of_lines(_whole_lines(raw)[1:])
            raw = _first_line(raw)
        header = msgspec.json.decode(raw, type=ScanHeader, dec_hook=read_command)
        self.header = msgspec.structs.replace(header, kind="ScanReport")
        self.ending: ScanEnding | None = None
        if last is not None:
            self.ending = msgspec.json.decode(last, type=ScanEnding, dec_hook=read_command)
            if self.ending.source != self.header.source:
                raise msgspec.ValidationError("its end is of another scan than its head")


def _of_lines(lines: list[msgspec.Raw]) -> tuple[list[msgspec.Raw], list[msgspec.Raw], msgspec.Raw | None]:
    """Return findings, statuses and the summary among the lines behind a header."""
    kinds = [msgspec.json.decode(line, type=DocumentKind).kind for line in lines]
    if "ScanHeader" in kinds:
        raise msgspec.ValidationError("another report begins in it")
    if "ScanSummary" in kinds[:-1]:
        raise msgspec.ValidationError("there is something after its ScanSummary")
    found, statuses = (
        [line for kind, line in zip(kinds, lines, strict=True) if kind == wanted]
        for wanted in ("Finding", "Status")
    )
    return found, statuses, lines[-1] if kinds[-1:] == ["ScanSummary"] else None


def _whole_lines(raw: Readable) -> list[msgspec.Raw]:
    """Return the lines of a file, without a last one that whatever ended the scan has torn."""
    try:
        return _lines(raw)
    except msgspec.DecodeError:
        return _lines(memoryview(raw)[: raw.rfind(b"\n") + 1])


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
    end = report.ending
    if end is None:
        return ["the report is cut: its last line is missing"]
    told = end.incomplete_reasons[:_MOST_REASONS] or ["it does not say why"]
    reasons = [] if end.complete else [f"the report is incomplete: {reason}" for reason in told]
    return [*reasons, *contradictions(found, end.summary)]


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
    severity: str | None = None
    message: str = ""

    @property
    def etcd_key(self) -> bytes:
        """The key as etcd has it."""
        return self.key_base64 if self.key_base64 is not None else self.key.encode()


_decode: Final = msgspec.json.Decoder(ReportedFinding).decode


def reported(report: ReportFile) -> Iterator[ReportedFinding]:
    """Yield the findings of a report.

    Raises:
        msgspec.MsgspecError: One is not as it has to be, or they do not stand in the order of their etcd keys.
    """
    before = b""
    for finding in map(_decode, report.findings):
        if finding.etcd_key <= before:
            raise msgspec.ValidationError("its findings are not in the order of their etcd keys")
        before = finding.etcd_key
        yield finding


class SavedFindings(Mapping[bytes, ReportedFinding]):
    """What is not readable according to a report, by etcd key, in the order of the keys.

    Each has a number, from 0, and is decoded whenever it is asked for.

    Args:
        report: All of its findings are read once.
        most: More are refused.

    Attributes:
        counts: How many findings there are of each outcome, the readable ones too.

    Raises:
        ConfigurationError: There are too many.
        msgspec.MsgspecError: As of :func:`reported`.
    """

    def __init__(self, report: ReportFile, most: int) -> None:
        self.counts: Counter[str] = Counter()
        self._rows: list[msgspec.Raw] = []
        for raw, finding in zip(report.findings, reported(report), strict=True):
            self.counts[finding.outcome] += 1
            if finding.outcome != Outcome.READABLE:
                self._rows.append(raw)
        if len(self._rows) > most:
            raise ConfigurationError(
                f"the report has more than {most} findings, which is all that can be taken",
                hint="scan one resource or one namespace, and go on with that report",
            )

    def find(self, key: bytes) -> tuple[int, ReportedFinding] | None:
        """Return the number of a key's finding and what it says; None where the report has none."""
        number = bisect_left(range(len(self)), key, key=self.key)
        if number == len(self):
            return None
        finding = _decode(self._rows[number])
        return (number, finding) if finding.etcd_key == key else None

    def key(self, number: int) -> bytes:
        """Return the etcd key of a finding."""
        return _decode(self._rows[number]).etcd_key

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
        return len(self._rows)


class SavedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says.

    Attributes:
        header: What stands before its findings.
        findings: Everything that is not readable, by etcd key.
        problems: Why it is not everything.
    """

    path: str
    sha256: str
    header: ScanHeader
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
        findings = SavedFindings(report, most_findings)
        return SavedReport(
            path=str(path),
            sha256=report.sha256,
            header=report.header,
            findings=findings,
            problems=tuple(problems_of(report, findings.counts)),
        )


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
        value = digest_of(found.stored.value)
        return _digest(found.stored.key, outcome.value, value) in self._known


def load_baseline(path: Path) -> Baseline:
    """Read a report written with ``-o json`` or ``-o jsonl``.

    Raises:
        ConfigurationError: The file cannot be read or is no scan report.
    """
    with open_report(path, "--baseline") as report:
        known = {_digest(one.etcd_key, one.outcome, one.value_sha256) for one in reported(report)}
        named = ReportBaseline(shown_word(str(path)), report.sha256, report.header.generated_at)
        return Baseline(known, named)


def _digest(key: bytes, outcome: str, value_sha256: str) -> bytes:
    text = b"\x00".join((key, outcome.encode(), value_sha256.encode()))
    return hashlib.blake2b(text, digest_size=16).digest()
