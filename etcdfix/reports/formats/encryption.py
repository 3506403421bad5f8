"""Formats of the reports on encryption keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import msgspec

from etcdfix.reports.base import Output, counted
from etcdfix.reports.encryption_model import EncryptionUsageReport, KeyUsage
from etcdfix.reports.formats.machine import document_text, write_document
from etcdfix.reports.formats.text import incomplete, introduction, shown
from etcdfix.reports.head import head_lines

_DIGITS = 12


def write_usage(report: EncryptionUsageReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the keys as a table, and below it why each is not safe to remove."""
    output = Output(stream)
    line = output.line
    line(_usage_headline(report))
    for text in incomplete(report):
        line(text)
    for text in head_lines("", "", report.next):
        line(text)
    line()
    line(introduction(report))
    line()
    keys = report.keys[:max_rows]
    output.table(
        ("RULE", "TRANSFORMER", "KEY", "OBJECTS", "STALE", "UNREADABLE", "UNDETERMINED", "MOD REVISIONS", "KEPT",
         "BACKUPS", "SNAPSHOTS", "SAFE TO REMOVE"),
        [_usage_row(key) for key in keys],
        spare=("SNAPSHOTS", "BACKUPS", "MOD REVISIONS", "KEPT"),
    )  # fmt: skip
    _rest(output, len(report.keys), max_rows, "encryption key")
    alike: dict[tuple[str, ...], list[KeyUsage]] = {}
    for key in keys:
        alike.setdefault(tuple(key.reasons), []).append(key)
    for reasons, members in alike.items():
        if not reasons:
            continue
        line()
        for key in members:
            output.prose(named(key.transformer, key.resources, key.key_fingerprint or key.kms_key_id_sha256))
        for reason in reasons:
            output.prose(f"- {shown(reason)}", "  ")
    if report.notes:
        line()
    for note in report.notes:
        output.prose(shown(note))


def _usage_headline(report: EncryptionUsageReport) -> str:
    if report.encryption_config is None:
        known = counted(len(report.keys), "encryption key")
        return (
            f"{known} by the names in the values; none can be called safe to remove without a configuration"
        )
    configured = sum(key.configured for key in report.keys)
    verb = "is" if report.safe_to_remove == 1 else "are"
    return (
        f"{report.safe_to_remove} of {counted(configured, 'configured encryption key')} {verb} safe to remove: as of "
        f"revision {report.source.revision}, in this etcd"
    )


def _usage_row(key: KeyUsage) -> tuple[str, ...]:
    revisions = "-"
    if key.first_mod_revision is not None:
        revisions = f"{key.first_mod_revision} to {key.last_mod_revision}"
    safe = "yes" if key.safe_to_remove else "no"
    return (
        rule_words(key.resources),
        shown(key.transformer) or "(unknown)",
        key_words(key.key_fingerprint or key.kms_key_id_sha256) or "-",
        str(key.objects),
        str(key.stale),
        str(key.failing),
        str(key.undetermined),
        revisions,
        "?" if key.kept_revisions is None else str(key.kept_revisions),
        str(key.backups),
        str(key.snapshots),
        f"{safe} (write key)" if key.write_key else safe,
    )


def named(transformer: str, resources: Sequence[str], key: str | None) -> str:
    """Return what an encryption key is called in a sentence."""
    which = f" ({key_words(key)})" if key else ""
    return f"{shown(transformer) or '(unknown)'}{which} of {rule_words(resources)}"


def key_words(key: str | None) -> str:
    """Return a fingerprint, or the beginning of the digest of a KMS key id."""
    if key is None or key.startswith("fp:"):
        return key or ""
    kind, _, digest = key.partition(":")
    return f"{kind}:{digest[:_DIGITS]}…"


def rule_words(resources: Sequence[str]) -> str:
    """Return the resources of a rule."""
    return shown(",".join(resources)) or "(no rule)"


def _rest(output: Output, count: int, max_rows: int, noun: str) -> None:
    if count > max_rows:
        output.line(
            f"… {count - max_rows} of {counted(count, noun)} not shown; --max-rows {count} or -o json shows them"
        )


def write_yaml(report: msgspec.Struct, stream: BinaryIO, _max_rows: int) -> None:
    """Write the whole report as YAML."""
    stream.write(document_text(report, "yaml").encode())


USAGE_FORMATS: Mapping[str, Callable[[EncryptionUsageReport, BinaryIO, int], None]] = {
    "table": write_usage,
    "json": write_document,
    "yaml": write_yaml,
}
