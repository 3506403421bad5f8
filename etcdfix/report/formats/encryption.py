"""Formats of the reports on encryption keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from etcdfix.model import GroupResource
from etcdfix.report.base import Output
from etcdfix.report.encryption_model import (
    EncryptionTryReport,
    EncryptionUsageReport,
    FindingGroup,
    KeyUsage,
    WhatIfReport,
    WriteKey,
)
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import incomplete, introduction, shown, shown_transformer
from etcdfix.report.head import head_lines
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_DIGITS = 12


def write_usage(report: EncryptionUsageReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the keys as a table, and below it why each is not safe to remove."""
    output = Output(stream)
    line = output.line
    line(_usage_headline(report))
    safe = [_called(key) for key in report.keys if key.safe_to_remove]
    if safe:
        more = [f"{len(safe) - max_rows} more"] if len(safe) > max_rows else []
        output.prose(f"Safe to remove: {'; '.join([*safe[:max_rows], *more])}")
    output.lines(incomplete(report))
    output.lines(head_lines("", "", report.next))
    line()
    line(introduction(report))
    line()
    keys = report.keys[:max_rows]
    output.table(
        ("RULE", "TRANSFORMER", "KEY", "SAFE TO REMOVE", "OBJECTS", "STALE", "UNREADABLE", "UNDETERMINED",
         "MOD REVISIONS", "KEPT", "BACKUPS", "SNAPSHOTS"),
        [_usage_row(key) for key in keys],
        spare=("SNAPSHOTS", "BACKUPS", "MOD REVISIONS", "KEPT"),
    )  # fmt: skip
    rest(output, len(report.keys), max_rows, "encryption key")
    alike: dict[tuple[str, ...], list[KeyUsage]] = {}
    for key in keys:
        alike.setdefault(tuple(key.reasons), []).append(key)
    for reasons, members in alike.items():
        if not reasons:
            continue
        line()
        for key in members:
            output.prose(_called(key))
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
        shown_transformer(key.transformer) or "(unknown)",
        key_words(key.key_fingerprint or key.kms_key_id_sha256) or "-",
        f"{safe} (write key)" if key.write_key else safe,
        str(key.objects),
        str(key.stale),
        str(key.failing),
        str(key.undetermined),
        revisions,
        "?" if key.kept_revisions is None else str(key.kept_revisions),
        str(key.backups),
        str(key.snapshots),
    )


def _called(key: KeyUsage) -> str:
    return named(key.transformer, key.resources, key.key_fingerprint or key.kms_key_id_sha256)


def named(transformer: str, resources: Sequence[str], key: str | None) -> str:
    """Return what an encryption key is called in a sentence."""
    which = f" ({key_words(key)})" if key else ""
    return f"{shown_transformer(transformer) or '(unknown)'}{which} of {rule_words(resources)}"


def key_words(key: str | None) -> str:
    """Return a fingerprint, or the beginning of the digest of a KMS key id."""
    if key is None or key.startswith("fp:"):
        return key or ""
    kind, _, digest = key.partition(":")
    return f"{kind}:{digest[:_DIGITS]}…"


def rule_words(resources: Sequence[str]) -> str:
    """Return the resources of a rule."""
    return shown(",".join(resources)) or "(no rule)"


def write_what_if(report: WhatIfReport, stream: BinaryIO, max_rows: int) -> None:
    """Write what would happen, the worst first, and what to know before the configuration is deployed."""
    output = Output(stream)
    line = output.line
    new = shown(report.new_config.path) if report.new_config is not None else ""
    line(f"{_what_if_headline(report)} under {new}")
    told = [
        f"{number} {words}"
        for number, words in (
            (report.undetermined, "undetermined"),
            (report.stays_unreadable, "stay unreadable"),
            (report.becomes_readable, "become readable"),
            (report.becomes_stale, "become stale"),
            (report.no_longer_stale, "are stale no longer"),
        )
        if number
    ]
    nothing = (
        "nothing else changes"
        if report.becomes_unreadable or report.loses_its_way_back
        else "nothing changes"
    )
    line(f"Of {counted(report.values, 'value')}: {', '.join(told) if told else nothing}")
    output.lines(incomplete(report))
    output.lines(head_lines("", "", report.next))
    for warning in report.warnings:
        output.prose(f"warning: {shown(warning)}")
    line()
    line(introduction(report))
    if report.changes:
        line()
        output.table(
            ("CHANGE", "RESOURCE", "TRANSFORMER", "KEY", "VALUES", "CAUSE THEN", "EXAMPLE"),
            [
                (
                    change.change.value,
                    shown(GroupResource(change.group, change.resource)),
                    shown_transformer(change.transformer) or "(unknown)",
                    key_words(change.key_fingerprint or change.kms_key_id_sha256) or "-",
                    str(change.count),
                    change.cause or "-",
                    shown(change.examples[0]),
                )
                for change in report.changes[:max_rows]
            ],
            key="EXAMPLE",
        )
        rest(output, len(report.changes), max_rows, "row")
    if report.write_keys:
        line()
        output.table(
            ("RESOURCE", "WRITE KEY TODAY", "WRITE KEY THEN"),
            [
                (
                    shown(GroupResource(key.group, key.resource)),
                    _write_key_words(key.today),
                    _write_key_words(key.new),
                )
                for key in report.write_keys[:max_rows]
            ],
        )
        rest(output, len(report.write_keys), max_rows, "row")


def _what_if_headline(report: WhatIfReport) -> str:
    parts = []
    lost, losing = report.becomes_unreadable, report.loses_its_way_back
    if lost:
        parts.append(f"{counted(lost, 'value')} {'becomes' if lost == 1 else 'become'} unreadable")
    if losing:
        verb = "loses its way back" if losing == 1 else "lose their way back"
        parts.append(f"{counted(losing, 'unreadable value')} {verb}")
    lacks = "" if report.complete else "INCOMPLETE: "
    return lacks + (" and ".join(parts) or "Nothing becomes unreadable")


def _write_key_words(key: WriteKey) -> str:
    return f"{shown_transformer(key.transformer)} {key.key_fingerprint or ''}".rstrip()


def write_try(report: EncryptionTryReport, stream: BinaryIO, max_rows: int) -> None:
    """Write what each candidate opens, then the values by encryption key, and what none opens."""
    output = Output(stream)
    line = output.line
    if report.findings:
        line(
            f"The candidates open {report.opened} of {counted(report.findings, 'value')} not known to open today"
        )
    else:
        line("Nothing was found that does not open today")
    if report.undetermined_today and report.encryption_config is not None:
        line(f"Of {report.undetermined_today} it could not be told whether today's configuration opens them")
    for number, words in (
        (report.readable_now, "readable now"),
        (report.gone, "gone"),
        (report.changed, "changed since, and tried as they are now"),
    ):
        if number:
            line(f"Of the report's findings {number} {'is' if number == 1 else 'are'} {words}")
    output.lines(incomplete(report))
    output.lines(head_lines("", "", report.next))
    line()
    line(introduction(report))
    line()
    output.table(
        ("CANDIDATE", "OPENS", "RIGHT KEY ONLY", "UNDETERMINED", "NOT OPENED", "EXAMPLE THAT OPENS"),
        [
            (
                " ".join([shown(found.name), *found.key_fingerprints]),
                f"{found.opens} of {report.findings}",
                str(found.right_key),
                str(found.undetermined),
                shown(found.not_opened[0]) if found.not_opened else "-",
                shown(found.opened[0]) if found.opened else "-",
            )
            for found in report.candidates
        ],
        key="EXAMPLE THAT OPENS",
        spare=("NOT OPENED",),
    )
    for group in report.groups[:max_rows]:
        line()
        write_group(output, group)
    rest(output, len(report.groups), max_rows, "encryption key")


def write_group(output: Output, group: FindingGroup) -> None:
    """Write what the candidates do for the values under one encryption key."""
    output.prose(
        f"{named(group.transformer, group.resources, group.kms_key_id_sha256)}: {group.opened} of "
        f"{counted(group.findings, 'value')} open"
    )
    for entry in group.candidates:
        parts = [f"opens {entry.opens}"]
        if entry.right_key:
            parts.append(f"has the key of {entry.right_key} more, which do not open as they are")
        if entry.named:
            parts.append(f"its key is called {shown(entry.named)} in the values")
        if entry.undetermined:
            parts.append(f"{entry.undetermined} undetermined")
        output.prose(f"- {shown(entry.candidate)}: {'; '.join(parts)}", "  ")
    if group.damaged:
        output.prose(
            f"{group.damaged} of them proven damaged: no other encryption key opens these (etcdfix explain KEY)",
            "  ",
        )
    if group.not_opened:
        output.line(f"  not opened by any: {', '.join(map(shown, group.not_opened))}")
    if group.next is not None:
        output.prose(shown(group.next.action), "  ")
        if group.next.command:
            output.line(f"    {safe_text(group.next.command.text)}")


def rest(output: Output, count: int, max_rows: int, noun: str) -> None:
    """Say how many rows of a list were left out; nothing where none was."""
    if count > max_rows:
        output.line(
            f"… {count - max_rows} of {counted(count, noun)} not shown; --max-rows {count} or -o json shows them"
        )


def _write_what_if_junit(report: WhatIfReport, stream: BinaryIO, _max_rows: int) -> None:
    from etcdfix.report.formats.junit_what_if import write_junit  # noqa: PLC0415 - only this form loads XML

    write_junit(report, stream)


USAGE_FORMATS: Mapping[str, Callable[[EncryptionUsageReport, BinaryIO, int], None]] = {
    "table": write_usage,
    "json": write_document,
    "yaml": write_yaml,
}
WHAT_IF_FORMATS: Mapping[str, Callable[[WhatIfReport, BinaryIO, int], None]] = {
    "table": write_what_if,
    "json": write_document,
    "yaml": write_yaml,
    "junit": _write_what_if_junit,
}
TRY_FORMATS: Mapping[str, Callable[[EncryptionTryReport, BinaryIO, int], None]] = {
    "table": write_try,
    "json": write_document,
    "yaml": write_yaml,
}
