"""A saved scan report, as far as a plan needs it."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, read_input
from etcdfix.reports.model import API_VERSION, READ_VERSIONS

MOST_FINDINGS: Final = 100_000
_HEALTHY: Final = "readable"


class ReportedSource(msgspec.Struct, frozen=True):
    """Where the report's data came from."""

    kube_system_uid: str | None = None
    revision: int = 0


class ReportedConfiguration(msgspec.Struct, frozen=True):
    """The EncryptionConfiguration of the report."""

    path: str
    sha256: str


class ReportedScope(msgspec.Struct, frozen=True):
    """What was asked for."""

    etcd_prefix: str = "/registry"


class SavedFinding(msgspec.Struct, frozen=True):
    """One finding; the key as bytes is :meth:`raw_key`."""

    key: str
    outcome: str
    mod_revision: int
    value_sha256: str
    key_base64: bytes | None = None  # msgspec undoes the base64

    def raw_key(self) -> bytes:
        """Return the etcd key."""
        return self.key_base64 if self.key_base64 is not None else self.key.encode()


class _Header(msgspec.Struct):
    kind: str
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope


class _Report(_Header):
    findings: list[SavedFinding]
    complete: bool
    incomplete_reasons: list[str]


class _Kind(msgspec.Struct):
    kind: str


class _Redaction(msgspec.Struct, frozen=True):
    redaction_key_id: str = ""


class _Version(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    scope: _Redaction = _Redaction()


class _Summary(msgspec.Struct):
    complete: bool
    incomplete_reasons: list[str]


class SavedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says.

    Attributes:
        path: Its file, as given.
        sha256: Of the file.
        generated_at: As it says.
        source: Where its data came from.
        encryption_config: None where none was given.
        scope: What was asked for.
        findings: Everything that is not readable, each key once.
        problems: Why it is not everything.
    """

    path: str
    sha256: str
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope
    findings: tuple[SavedFinding, ...]
    problems: tuple[str, ...]


def load_report(path: Path) -> SavedReport:
    """Read a report that was written with ``-o json`` or ``-o jsonl``.

    Raises:
        ConfigurationError: The file cannot be read, is too large, or is no scan report.
    """
    try:
        raw = read_input(path, most_bytes=MAX_REPORT_BYTES, standard_input=True)
    except OSError as exc:
        hint = "scan a part of the cluster only" if exc.errno == errno.EFBIG else ""
        raise ConfigurationError(f"--from-report {path}: {exc.strerror}", hint=hint) from exc
    try:
        header, findings, problems = _read(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        # msgspec recurses into fields that nobody asked for, too.
        why = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        raise ConfigurationError(
            f"--from-report {path} is not a report of etcdfix: {why}",
            hint="write one with: etcdfix scan -o json --output-file FILE",
        ) from exc
    broken = {f.raw_key(): f for f in findings if f.outcome != _HEALTHY}
    if len(broken) > MOST_FINDINGS:
        raise ConfigurationError(
            f"--from-report {path} has {len(broken)} findings, a plan takes {MOST_FINDINGS}",
            hint="scan one resource or one namespace, and plan that",
        )
    return SavedReport(
        path=str(path),
        sha256=f"sha256:{hashlib.sha256(raw).hexdigest()}",
        generated_at=header.generated_at,
        source=header.source,
        encryption_config=header.encryption_config,
        scope=header.scope,
        findings=tuple(broken.values()),
        problems=tuple(problems),
    )


def _read(raw: bytes) -> tuple[_Header, list[SavedFinding], list[str]]:
    first = raw.split(b"\n", 1)[0].rstrip()
    if first.endswith(b"}") and _kind_of(first) == "ScanHeader":
        check_version(first)
        return _read_lines(raw)
    kind = _kind_of(raw)
    if kind != "ScanReport":
        raise msgspec.ValidationError(f"its kind is {kind}, expected ScanReport")
    check_version(raw)
    report = msgspec.json.decode(raw, type=_Report)
    return report, report.findings, _doubts(report.complete, report.incomplete_reasons)


def check_version(raw: bytes) -> None:
    """Look at the version before the fields: those of another one may mean something else, or be missing.

    Raises:
        msgspec.ValidationError: It is none that is read.
    """
    header = msgspec.json.decode(raw, type=_Version)
    if header.api_version not in READ_VERSIONS:
        raise msgspec.ValidationError(
            f"its apiVersion is {header.api_version or 'missing'}, expected {API_VERSION}"
        )
    if header.scope.redaction_key_id:
        raise msgspec.ValidationError(
            "its names were replaced (--redact-names), so that no etcd key can be found by it"
        )


def _read_lines(raw: bytes) -> tuple[_Header, list[SavedFinding], list[str]]:
    lines = raw.splitlines()
    header = msgspec.json.decode(lines[0], type=_Header)
    findings: list[SavedFinding] = []
    problems = ["the report is cut: its last line is missing"]
    for number, line in enumerate(lines[1:], start=2):
        try:
            kind = _kind_of(line)
            if kind == "Finding":
                findings.append(msgspec.json.decode(line, type=SavedFinding))
            elif kind == "ScanSummary":
                summary = msgspec.json.decode(line, type=_Summary)
                problems = _doubts(summary.complete, summary.incomplete_reasons)
        except msgspec.DecodeError as exc:
            # Only the last line may be torn, by whatever ended the scan.
            if number == len(lines) and not isinstance(exc, msgspec.ValidationError):
                break
            raise
    return header, findings, problems


def _doubts(complete: bool, reasons: list[str]) -> list[str]:
    return (
        [] if complete else [f"the report is incomplete: {'; '.join(reasons[:3]) or 'it does not say why'}"]
    )


def _kind_of(line: bytes) -> str:
    return msgspec.json.decode(line, type=_Kind).kind
