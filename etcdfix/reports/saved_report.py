"""A saved scan report, as far as those who go on from it need it."""

from __future__ import annotations

import errno
import hashlib
import mmap
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, mapped_input
from etcdfix.reports.model import API_VERSION, READ_VERSIONS

MOST_FINDINGS: Final = 100_000
_HINTS: Final = {
    errno.EFBIG: "scan a part of the cluster only",
    errno.ENOSPC: f"point TMPDIR at a directory with more room than {tempfile.gettempdir()}",
}
_HEALTHY: Final = "readable"
Readable = bytes | mmap.mmap


class ReportedSource(msgspec.Struct, frozen=True):
    """Where the report's data came from."""

    type: str = ""
    path: str | None = None
    endpoints: list[str] | None = None
    kube_system_uid: str | None = None
    revision: int = 0
    cluster_name: str = ""


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
    kind: str
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope


class _Report(_Header):
    findings: list[msgspec.Raw]
    complete: bool
    incomplete_reasons: list[str]


class _Kind(msgspec.Struct):
    kind: str


class _Shard(msgspec.Struct, frozen=True):
    index: int = 0
    of: int = 0


class _Part(msgspec.Struct, frozen=True):
    redaction_key_id: str = ""
    shard: _Shard | None = None


class _Version(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    scope: _Part = _Part()


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
        findings: Everything that is not readable, by etcd key.
        problems: Why it is not everything.
    """

    path: str
    sha256: str
    generated_at: str
    source: ReportedSource
    encryption_config: ReportedConfiguration | None
    scope: ReportedScope
    findings: dict[bytes, ReportedValue]
    problems: tuple[str, ...]


def load_report(path: Path) -> SavedReport:
    """Read a report that was written with ``-o json`` or ``-o jsonl``.

    Raises:
        ConfigurationError: The file cannot be read, is too large, or is no scan report.
    """
    try:
        with mapped_input(path, most_bytes=MAX_REPORT_BYTES) as raw:
            sha256 = hashlib.sha256(raw).hexdigest()
            header, findings, problems = _read(raw)
    except OSError as exc:
        hint = _HINTS.get(exc.errno or 0, "")
        raise ConfigurationError(f"--from-report {path}: {exc.strerror}", hint=hint) from exc
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        # msgspec recurses into fields that nobody asked for, too.
        why = "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        raise ConfigurationError(
            f"--from-report {path} is not a report of etcdfix: {why}",
            hint="write one with: etcdfix scan -o json --output-file FILE",
        ) from exc
    if len(findings) > MOST_FINDINGS:
        raise ConfigurationError(
            f"--from-report {path} has {len(findings)} findings, {MOST_FINDINGS} can be taken",
            hint="scan one resource or one namespace, and go on with that report",
        )
    return SavedReport(
        path=str(path),
        sha256=f"sha256:{sha256}",
        generated_at=header.generated_at,
        source=header.source,
        encryption_config=header.encryption_config,
        scope=header.scope,
        findings=findings,
        problems=tuple(problems),
    )


def _read(raw: Readable) -> tuple[_Header, dict[bytes, ReportedValue], list[str]]:
    first = raw[: raw.find(b"\n") + 1].rstrip()
    if first.endswith(b"}") and _kind_of(first) == "ScanHeader":
        check_version(first)
        return _read_lines(raw)
    kind = _kind_of(raw)
    if kind != "ScanReport":
        raise msgspec.ValidationError(f"its kind is {kind}, expected ScanReport")
    check_version(raw)
    report = msgspec.json.decode(raw, type=_Report)
    findings: dict[bytes, ReportedValue] = {}
    decode = msgspec.json.Decoder(_SavedFinding).decode
    for finding in report.findings:
        _keep(findings, decode(finding))
    # Without the raw findings, which would keep all of the file.
    header = _Header(report.kind, report.generated_at, report.source, report.encryption_config, report.scope)
    return header, findings, _doubts(report.complete, report.incomplete_reasons)


def _keep(findings: dict[bytes, ReportedValue], finding: _SavedFinding) -> None:
    if finding.outcome != _HEALTHY:
        key = finding.key_base64 if finding.key_base64 is not None else finding.key.encode()
        findings[key] = ReportedValue(
            finding.mod_revision,
            finding.value_sha256,
            # A few words, a hundred thousand times.
            *map(sys.intern, (finding.outcome, finding.cause or "", finding.transformer, finding.rule or "")),
        )


def check_version(raw: Readable) -> None:
    """Look at the version before the fields: those of another one may mean something else, or be missing.

    Raises:
        msgspec.ValidationError: It is none that is read, or what it tells is not enough to go on from.
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
    if header.scope.shard is not None:
        shard = header.scope.shard
        raise msgspec.ValidationError(
            f"it is shard {shard.index} of {shard.of}: merge them all first (etcdfix report merge)"
        )


def _read_lines(raw: Readable) -> tuple[_Header, dict[bytes, ReportedValue], list[str]]:
    header: _Header | None = None
    findings: dict[bytes, ReportedValue] = {}
    problems = ["the report is cut: its last line is missing"]
    decode = msgspec.json.Decoder(_SavedFinding).decode
    for line, is_last in _lines(raw):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=_Header)
                continue
            kind = _kind_of(line)
            if kind == "Finding":
                _keep(findings, decode(line))
            elif kind == "ScanSummary":
                summary = msgspec.json.decode(line, type=_Summary)
                problems = _doubts(summary.complete, summary.incomplete_reasons)
        except msgspec.DecodeError as exc:
            # Only the last line may be torn, by whatever ended the scan.
            if is_last and header is not None and not isinstance(exc, msgspec.ValidationError):
                break
            raise
    assert header is not None  # the caller has looked at it
    return header, findings, problems


def _lines(raw: Readable) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is the last one."""
    start = 0
    while start < len(raw):
        end = raw.find(b"\n", start)
        end = len(raw) if end < 0 else end
        yield raw[start:end].rstrip(b"\r"), end + 1 >= len(raw)
        start = end + 1


def _doubts(complete: bool, reasons: list[str]) -> list[str]:
    return (
        [] if complete else [f"the report is incomplete: {'; '.join(reasons[:3]) or 'it does not say why'}"]
    )


def _kind_of(line: Readable) -> str:
    return msgspec.json.decode(line, type=_Kind).kind
