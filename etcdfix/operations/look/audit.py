"""What an audit log holds, and whether it is what was written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.errors import BackupUnreadable, ConfigurationError
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.remediation.audit.record import Link, Verb, unicode_text
from etcdfix.remediation.audit.record_line import Event
from etcdfix.remediation.audit.verify import (
    NO_HEAD_FILE,
    Anchor,
    ChainState,
    Verification,
    parse_link,
    verify,
    without_head,
)
from etcdfix.report.model import API_VERSION
from etcdfix.storagekey import display
from etcdfix.text.safetext import quote_command, safe_text
from etcdfix.text.words import counted

_LONGEST_CELL: Final = 300
_LONGEST_LIST: Final = 20

# Whoever could write the log could write that file too.
_HEAD_FILE_ALONE: Final = (
    "the head file stands beside the log: who rewrote both would not be found; compare with --backup-dir, or with "
    "--expect-head and a head that is kept elsewhere"
)


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a log came to.

    Attributes:
        log: Which.
        found: The result.
        compared: With what it was compared.
        in_short: The same for a person, who needs no list of backups.
        warnings: Backups that proved nothing, one sentence each.
    """

    log: Path
    found: Verification
    compared: list[str]
    in_short: list[str]
    warnings: list[str]


def verify_log(
    log: Path,
    *,
    expect_head: str | None,
    backups: Sequence[Path],
    backup_directories: Sequence[Path],
) -> Verified:
    """Compare a log with itself, its head file, backups, and a head that somebody wrote down.

    Raises:
        ConfigurationError: The head is none, or a directory cannot be read.
        BackupUnreadable: A backup that was named cannot be read.
        AuditLogUnreadable: Nothing can be said about the log.
    """
    anchors, warnings = _gather_anchors(log, expect_head, backups, backup_directories)
    found = verify(log, anchors=anchors)
    compared = _compared_with(log, anchors)
    if compared and not anchors and found.state is not ChainState.TAMPERED:
        found = msgspec.structs.replace(found, warnings=(*found.warnings, _HEAD_FILE_ALONE))
    return Verified(
        log=log,
        found=found,
        compared=compared,
        in_short=_in_short(log, anchors),
        warnings=warnings,
    )


def _gather_anchors(
    log: Path, expect_head: str | None, backups: Sequence[Path], directories: Sequence[Path]
) -> tuple[list[Anchor], list[str]]:
    from etcdfix.remediation.backup.file import Backup, read_backup  # noqa: PLC0415
    from etcdfix.remediation.backup.write import anchor_of  # noqa: PLC0415 - only where a backup is named

    anchors = [] if expect_head is None else [Anchor(parse_link(expect_head), "--expect-head")]
    warnings: list[str] = []

    def take(backup: Backup) -> None:
        anchor = anchor_of(backup)
        if anchor is None:
            warnings.append(f"{backup.path} proves nothing: its intent was never confirmed")
        else:
            anchors.append(anchor)

    for path in backups:
        take(read_backup(path))
    ours = os.path.realpath(log)
    for directory in directories:
        others = 0
        for path in _backup_files(directory):
            try:
                backup = read_backup(path)
            except BackupUnreadable as exc:
                warnings.append(f"{exc.message}; it was not compared")
                continue
            if os.path.realpath(backup.intent.audit_log) == ours:
                take(backup)
            else:
                others += 1
        if others:
            warnings.append(
                f"{directory}: {counted(others, 'backup')} of another audit log left out; "
                "--backup compares one all the same"
            )
    return anchors, warnings


def _backup_files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == ".json")
    except OSError as exc:
        raise ConfigurationError(f"--backup-dir {directory}: {exc.strerror}") from exc


def _compared_with(log: Path, anchors: Sequence[Anchor]) -> list[str]:
    head = log.with_name(log.name + HEAD_SUFFIX)
    return [f"the head file {head}"] * os.path.lexists(head) + [anchor.source for anchor in anchors]


def _in_short(log: Path, anchors: Sequence[Anchor]) -> list[str]:
    """Return the same for a person, who needs no list of backups."""
    backups = [anchor for anchor in anchors if anchor.source.startswith("backup ")]
    shown = _compared_with(log, [anchor for anchor in anchors if anchor not in backups])
    return [*shown, counted(len(backups), "backup")] if backups else shown


def verification_document(verified: Verified) -> dict[str, Any]:
    """Return the result as it is published."""
    found = verified.found
    return {
        "apiVersion": API_VERSION,
        "kind": "AuditVerification",
        "audit_log": unicode_text(str(verified.log)),
        "state": found.state,
        "records": found.records,
        "head": found.head,
        "torn_size": found.torn_size,
        "head_missing": found.head_missing,
        "findings": [
            {**msgspec.structs.asdict(f), "message": unicode_text(f.message)} for f in found.findings
        ],
        "more_findings": found.more_findings,
        "open_intents": sorted(found.open_intents),
        "compared_with": [unicode_text(text) for text in verified.compared],
        "warnings": [unicode_text(text) for text in (*found.warnings, *verified.warnings)],
    }


def verification_lines(verified: Verified) -> Iterator[str]:
    """Yield the result for a person."""
    log, found, compared = verified.log, verified.found, verified.in_short
    words = {
        ChainState.WHOLE: "whole",
        ChainState.TAMPERED: "TAMPERED",
        ChainState.UNFINISHED: "whole, but unfinished",
    }
    known = "open" if found.head_missing and found.state is ChainState.UNFINISHED else words[found.state]
    yield f"{log}: {known}, {counted(found.records, 'record')}, head {found.head}"
    if compared:
        yield f"compared with {' and '.join(filter(None, (', '.join(compared[:-1]), compared[-1])))}"
    else:
        yield "compared with nothing: no head file, no backup, no head that was written down"
    for finding in found.findings:
        yield f"  {finding.kind}: {finding.message}"
    if found.more_findings:
        yield f"  and {found.more_findings} more"
    if found.torn_size:
        yield (
            f"its last line is torn after {counted(found.torn_size, 'byte')}: a write that a crash cut off; "
            "the next writer keeps them aside"
        )
    if found.open_intents:
        numbers = sorted(found.open_intents)
        shown = ", ".join(map(str, numbers[:_LONGEST_LIST])) + (", …" if len(numbers) > _LONGEST_LIST else "")
        yield f"open intents, of which nobody knows what became: {shown}"
        yield f"  next: {quote_command(['etcdfix', 'audit', 'reconcile', str(log)])}"
    if found.head_missing:
        yield NO_HEAD_FILE
        if found.state is not ChainState.TAMPERED:
            yield f"  next: {without_head(log, found.head)}"
    yield from found.warnings


def record_row(link: Link, event: Event) -> tuple[str, ...]:
    """Return a record as the cells of a table."""
    notes = event.annotations
    who = f"{notes.os_user or event.user.username}@{notes.host}"
    if notes.sudo_user:
        who += f" (sudo: {notes.sudo_user})"
    told = [text for text in (notes.reason, notes.detail) if text]
    if notes.intent:
        told.insert(0, f"intent {notes.intent}")
    verb = Verb.DELETE.purpose if event.verb == Verb.DELETE else event.verb
    cells = (
        str(link.sequence), event.stage_timestamp, notes.type, verb, _key_of(event), notes.outcome or "-", who,
        "; ".join(told),
    )  # fmt: skip
    return tuple(_cell(cell) for cell in cells)


def _key_of(event: Event) -> str:
    try:
        return display(msgspec.convert(event.annotations.key_base64, bytes)) or "-"
    except msgspec.ValidationError:
        return "?"


def _cell(text: str) -> str:
    safe = safe_text(text)
    return safe if len(safe) <= _LONGEST_CELL else f"{safe[: _LONGEST_CELL - 1]}…"
