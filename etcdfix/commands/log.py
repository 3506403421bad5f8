"""What an audit log holds, what backups lie beside it, and whether both are what was written; nothing is written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Record, unicode_text
from etcdfix.remediation.audit.verify import (
    LOG_IS_GONE,
    NO_HEAD_FILE,
    Anchor,
    ChainState,
    Verification,
    is_gone,
    is_there,
    parse_link,
    read_records,
    verify,
    without_head,
)
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.backup.folder import (
    Account,
    FileKind,
    FoundFile,
    Listed,
    anchors_in,
    look_into,
    row_of,
    standing_of,
)
from etcdfix.remediation.durable import open_directory
from etcdfix.remediation.errors import AuditLogUnreadable, NotDurable
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.document import CAP
from etcdfix.report.log import BackupFinding, BackupList, LogRecords, LogVerification
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.words import counted

_HEAD_FILE_ALONE: Final = (
    "Whoever can rewrite the log can rewrite its head file too. Compare it with the backups (etcdfix log backups), "
    "or with --expect-head and a head that is kept elsewhere."
)


def verify_log(log: Path, *, expect_head: str | None) -> LogVerification:
    """Compare a log with itself, its head file, and a head that somebody wrote down.

    Raises ConfigurationError or AuditLogUnreadable.
    """
    anchors = [] if expect_head is None else [Anchor(parse_link(expect_head), "--expect-head")]
    found = verify(log, anchors=anchors)
    tampered = found.state is ChainState.TAMPERED
    compared = [anchor.source for anchor in anchors]
    warnings = list(found.warnings)
    if found.head_missing:
        warnings.append(NO_HEAD_FILE)
    else:
        compared.insert(0, f"the head file {log}{HEAD_SUFFIX}")
        if not anchors and not tampered:
            warnings.append(_HEAD_FILE_ALONE)
    return LogVerification(
        tool=TOOL,
        generated_at=timestamp(),
        audit_log=unicode_text(str(log)),
        state=found.state.value,
        records=found.records,
        head=str(found.head),
        torn_size=found.torn_size,
        head_missing=found.head_missing,
        findings=found.findings,
        more_findings=found.more_findings,
        open_intents=sorted(found.open_intents),
        compared_with=[unicode_text(text) for text in compared],
        warnings=[unicode_text(text) for text in warnings],
        next_step=without_head(log, found.head) if found.head_missing and not tampered else "",
    )


def newest_records(log: Path, records: Iterable[Record]) -> LogRecords:
    """Return the newest records of a log as a person sees them: there may be more than memory holds."""
    count, newest = 0, deque[Record](maxlen=CAP)
    for count, record in enumerate(records, start=1):  # noqa: B007 - how many there were
        newest.append(record)
    return LogRecords(unicode_text(str(log)), count, list(map(_row_of_record, reversed(newest))))


def _row_of_record(record: Record) -> tuple[str | int, ...]:
    operator = record.operator
    who = f"{operator.os_user}@{operator.host}"
    if operator.sudo_user:
        who += f" (sudo: {operator.sudo_user})"
    intent = f"intent {record.intent}" if record.intent else ""
    told = "; ".join(filter(None, (intent, record.reason, record.detail)))
    return (
        record.link.sequence, record.at, record.type.value, record.verb.purpose, record.outcome or "-", who, told,
        display(record.subject.key) or "-",
    )  # fmt: skip


def list_backups(places: RecordPaths) -> BackupList:
    """Return every file of the backup directories, compared with itself and with the log, and the log with them.

    A log that cannot be read is a doubt, and a default directory that is not there holds nothing.
    Raises BackupUnreadable.
    """
    log = places.log_path
    there = [path for path in places.directories if places.backup_directories or os.path.lexists(path)]
    by_place = {_place(file.path): file for directory in there for file in look_into(directory)}
    files = list(by_place.values())
    found, account, head = list(_unsafe(there)), None, None
    try:
        if is_there(log):
            verified = verify(log, anchors=anchors_in(files, log))
            account, head = Account(read_records(log)), str(verified.head)
            found += _about_log(verified)
        else:
            told = f"there is no audit log {log}: whether it knows these backups cannot be told"
            gone = is_gone(log)
            found.append(_finding("log", f"{log}: {LOG_IS_GONE}" if gone else told, wrong=gone))
    except AuditLogUnreadable as exc:
        found.append(_finding("log", exc.message, wrong=False))
    rows = []
    for file in files:
        if file.backup is None:
            found += _about_other(file)
            continue
        standing, its = standing_of(file, file.backup, account, log)
        found += _about_backup(file, file.backup, standing, its)
        rows.append(row_of(file.path, file.backup, standing, its))
    listed = [] if account is None else list(account.listed.values())
    for one in listed:
        found += _absent(one, places.directories, by_place)
    return BackupList(
        tool=TOOL,
        generated_at=timestamp(),
        directories=[unicode_text(str(path)) for path in places.directories],
        audit_log=unicode_text(str(log)),
        audit_log_head=head,
        backups=sorted(rows, key=lambda row: (-row.stored_as_plaintext * (1 + row.secret), row.made_at)),
        findings=sorted(found, key=lambda one: not one.wrong),
        pruned=sum(len(one.pruned) for one in listed),
        size=sum(file.size for file in files if file.backup is not None),
    )


def _place(path: Path) -> str:
    """Return where a file is, the links above it resolved and itself not, as audit logs have it."""
    return unicode_text(os.path.join(os.path.realpath(path.parent), path.name))  # noqa: PTH118 - bytes of any kind


def _finding(
    reason: str, message: str, path: Path | None = None, intent: int | None = None, *, wrong: bool = True
) -> BackupFinding:
    shown = None if path is None else unicode_text(str(path))
    return BackupFinding(wrong, reason, unicode_text(message), shown, intent)


def _unsafe(directories: Sequence[Path]) -> Iterator[BackupFinding]:
    for path in directories:
        try:
            open_directory(path).close()
        except NotDurable as exc:
            yield _finding("unsafe-directory", exc.message, path)


def _about_log(found: Verification) -> Iterator[BackupFinding]:
    for fault in found.findings:
        yield _finding("log", f"{fault.kind}: {fault.message}", intent=fault.record)
    if found.more_findings:
        more = counted(found.more_findings, "more finding")
        yield _finding("log", f"and {more}: etcdfix log verify shows them")
    for sequence in sorted(found.open_intents):
        message = f"intent {sequence} is open: etcdfix log settle says what became of it"
        yield _finding("log", message, intent=sequence, wrong=False)
    if found.torn_size:
        yield _finding("log", "the last line of the audit log is torn", wrong=False)
    if found.head_missing:
        yield _finding("log", NO_HEAD_FILE, wrong=False)


def _about_other(file: FoundFile) -> Iterator[BackupFinding]:
    told = f"{file.path}: {file.what}"
    if file.kind is FileKind.UNREADABLE:
        yield _finding("unreadable", told, file.path, wrong=False)
    elif file.marked:
        after = "its marker stands beside it: a crash cut it off, and nothing was sent"
        yield _finding("unconfirmed", f"{told}; {after}", file.path, wrong=False)
    else:
        yield _finding("damaged", told, file.path)


def _about_backup(
    file: FoundFile, backup: Backup, standing: str, listed: Listed | None
) -> Iterator[BackupFinding]:
    path, number = file.path, backup.intent.sequence
    for problem in file.exposed:
        yield _finding("exposed", f"{path} {problem}", path, number)
    pruned = None if listed is None else listed.pruned.get(_place(path))
    if pruned is not None:
        message = f"record {pruned} says that it is pruned, and it is there: etcdfix log prune removes it"
        yield _finding("pruned", f"{path}: {message}", path, number, wrong=False)
    message = {
        "unlisted": f"the audit log that it names does not know it as the backup of intent {number}",
        "unconfirmed": "its marker stands beside it, and no record names it: nothing was sent for it",
        "another-log": f"it belongs to another audit log, {backup.intent.audit_log}: name that with --audit-log",
    }.get(standing, "")
    if message:
        yield _finding(standing, f"{path}: {message}", path, number, wrong=standing == "unlisted")


def _absent(
    listed: Listed, directories: Iterable[Path], files: dict[str, FoundFile]
) -> Iterator[BackupFinding]:
    """Yield what is not there of a backup that the log lists; a file that is no whole backup is told by itself."""
    intent, number = listed.intent, listed.intent.link.sequence
    named = {unicode_text(os.path.realpath(directory)) for directory in directories}
    copies = [place for place, file in files.items() if file.backup is not None and listed.is_of(file.backup)]
    for text in listed.paths:
        file, path = files.get(text), Path(text)
        if text in copies or text in listed.pruned or (file is not None and file.backup is None):
            continue
        whose = f"{text}: the backup of intent {number} ({intent.verb.purpose} {display(intent.subject.key)})"
        if str(path.parent) in named:
            instead = "; another backup stands in its place" if file is not None else ""
            copy = f"; a copy is {copies[0]}" if copies else ""
            yield _finding("missing", f"{whose} is missing{instead}{copy}", path, number)
        elif not copies:
            message = f"{whose} was not looked at: name its directory with --backup-dir"
            yield _finding("elsewhere", message, path, number, wrong=False)
