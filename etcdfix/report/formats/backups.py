"""Formats of ``etcdfix backup list``, ``verify`` and ``prune``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final

from etcdfix.report.backup_model import (
    BackupFinding,
    BackupList,
    BackupPruning,
    BackupVerification,
    ListedBackup,
)
from etcdfix.report.base import Output, fit
from etcdfix.report.formats.machine import document_text
from etcdfix.text.safetext import quote_command, safe_text
from etcdfix.text.words import counted

Document = BackupList | BackupVerification | BackupPruning

FORMATS: Final = ("table", "json", "yaml")
_MOST_SHOWN: Final = 100
_WORDS: Final = {
    "whole": "whole",
    "tampered": "SOMETHING IS WRONG OR MISSING",
    "unfinished": "nothing is wrong, but not everything can be told",
}


def write_backups(document: Document, stream: BinaryIO, form: str) -> None:
    """Write what a command on backups came to, as ``table``, ``json`` or ``yaml``."""
    if form != "table":
        stream.write(document_text(document, form).encode())
        return
    output = Output(stream)
    match document:
        case BackupList():
            _write_list(document, output)
        case BackupVerification():
            _lines(output, _verified(document))
        case BackupPruning():
            _lines(output, pruned_lines(document))


def _lines(output: Output, lines: Iterable[str]) -> None:
    output.lines(lines)


def _write_list(listed: BackupList, output: Output) -> None:
    rows = [_row(backup) for backup in listed.backups]
    where = ", ".join(map(_shown, listed.directories))
    if not rows:
        output.line(f"no backups in {where}")
    else:
        output.line(f"{counted(listed.count, 'backup')} in {where}, {listed.size} bytes in all")
        if listed.plaintext_secrets:
            number = listed.plaintext_secrets
            output.line(f"PLAINTEXT SECRETS: {number}; whoever can read these files has what is in them")
        output.line(f"audit log {_shown(listed.audit_log)}: {listed.audit_log_state}")
        output.line()
        heads = ("HOLDS", "MADE", "COMMAND", "OUTCOME", "LOG", "INTENT", "SIZE", "CLUSTER", "ETCD KEY")
        output.table(heads, rows[:_MOST_SHOWN])
        _lines(output, _files(listed.backups[:_MOST_SHOWN]))
        if len(rows) > _MOST_SHOWN:
            output.line(f"… {len(rows) - _MOST_SHOWN} more; -o json shows them")
    if listed.others:
        output.line()
        output.line("Other files")
        for other in listed.others[:_MOST_SHOWN]:
            output.line(f"  {other.kind}: {_shown(other.path)}: {_shown(other.what)}")
        if len(listed.others) > _MOST_SHOWN:
            output.line(f"  … {len(listed.others) - _MOST_SHOWN} more; -o json shows them")
    if any(backup.outcome not in {None, "open"} for backup in listed.backups):
        output.line()
        places = [word for path in listed.directories for word in ("--backup-dir", path)]
        words = [
            "etcdfix",
            "backup",
            "prune",
            *places,
            "--audit-log",
            listed.audit_log,
            "--older-than",
            "90d",
        ]
        output.line("To remove old ones, with a record of it:")
        output.line(f"  {safe_text(quote_command([*words, '--reason', 'TEXT', '--dry-run']))}")


def _row(backup: ListedBackup) -> tuple[str, ...]:
    holds = "plaintext" if backup.stored_as_plaintext else "enveloped"
    if backup.secret:
        holds = "PLAINTEXT SECRET" if backup.stored_as_plaintext else "enveloped Secret"
    cells = (
        holds, backup.made_at[:19] + "Z", backup.command, backup.outcome or "-", backup.log, str(backup.intent),
        str(backup.value_size), backup.cluster_uid or "unknown", backup.key,
    )  # fmt: skip
    return tuple(map(_shown, cells))


def _files(backups: Sequence[ListedBackup]) -> Iterator[str]:
    yield ""
    yield "Files, in the same order, and the digests of their values"
    for backup in backups:
        yield f"  {_shown(backup.path)}  {backup.value_sha256}"


def _verified(verified: BackupVerification) -> Iterator[str]:
    where = ", ".join(map(_shown, verified.directories))
    yield f"{where}: {_WORDS[verified.state]}"
    yield f"{counted(verified.backups, 'backup')} compared with {_shown(verified.audit_log)}, head {verified.head}"
    if verified.pruned:
        yield f"{counted(verified.pruned, 'file')} pruned, by the log"
    yield from _told("Wrong", verified.findings)
    yield from _told("Cannot be told", verified.doubts)
    for warning in verified.warnings:
        yield _shown(warning)


def _told(title: str, findings: Sequence[BackupFinding]) -> Iterator[str]:
    if findings:
        yield f"{title}:"
    for finding in findings[:_MOST_SHOWN]:
        yield f"  {finding.reason}: {_shown(finding.message)}"
    if len(findings) > _MOST_SHOWN:
        yield f"  … {len(findings) - _MOST_SHOWN} more; -o json shows them"


def pruned_lines(pruning: BackupPruning) -> Iterator[str]:
    """Yield what became of a pruning, for a person."""
    if pruning.refusal is not None:
        yield f"REFUSED: {_shown(pruning.refusal.message)}"
        return
    gone = [one for one in pruning.pruned if one.removed]
    if pruning.dry_run:
        yield f"DRY RUN: {counted(len(pruning.pruned), 'backup')} would be removed. Nothing was removed."
    else:
        yield f"{counted(len(gone), 'backup')} removed."
    for one in pruning.pruned[:_MOST_SHOWN]:
        yield f"  {one.made_at}  {one.command} of {_shown(one.key)} ({one.outcome}, intent {one.intent})"
        for path in one.paths:
            yield f"    {'gone' if path in one.removed else 'stays' if not pruning.dry_run else 'file'}: {_shown(path)}"
        if one.problem:
            yield f"    {_shown(one.problem)}"
    if len(pruning.pruned) > _MOST_SHOWN:
        yield f"  … {len(pruning.pruned) - _MOST_SHOWN} more; -o json shows them"
    if pruning.kept:
        yield f"Kept, although old enough: {len(pruning.kept)}"
    by_reason: dict[tuple[str, str], list[str]] = {}
    for kept in pruning.kept[:_MOST_SHOWN]:
        by_reason.setdefault((kept.rule, kept.message), []).append(kept.path)
    for (rule, message), paths in by_reason.items():
        yield f"  {rule}: {_shown(message)}"
        yield from (f"    {_shown(path)}" for path in paths)
    if len(pruning.kept) > _MOST_SHOWN:
        yield f"  … {len(pruning.kept) - _MOST_SHOWN} more; -o json shows them"
    if pruning.younger:
        yield f"Not old enough: {pruning.younger}"
    if pruning.stopped:
        yield f"STOPPED before all were done: {_shown(pruning.stopped)}"
    for warning in pruning.warnings:
        yield f"Note: {_shown(warning)}"
    if pruning.audit_log_head is not None:
        yield f"Audit log: {_shown(pruning.audit_log)}, head {pruning.audit_log_head}"


def _shown(text: str) -> str:
    return safe_text(fit(text))
