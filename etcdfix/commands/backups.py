"""What backups there are, whether they are what the audit log says, and what of them is missing; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from etcdfix.errors import AuditLogUnreadable, NotDurable
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.audit.search import is_there
from etcdfix.remediation.audit.verify import (
    LOG_IS_GONE,
    NO_HEAD_FILE,
    ChainState,
    Verification,
    read_records,
    verify,
)
from etcdfix.remediation.backup.account import Account, Listed
from etcdfix.remediation.backup.directory import (
    FileKind,
    FoundFile,
    anchors_in,
    is_backup_name,
    look_into,
    names_log,
    resource_of,
)
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.durable import open_directory
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.backups import BackupFinding, BackupList, ListedBackup, OtherFile
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted

_SECRETS = "secrets"

_Found = tuple[bool, BackupFinding]
"""True where it is wrong, False where it cannot be told; and what."""


def list_backups(places: RecordPaths) -> BackupList:
    """Return every file of the backup directories, compared with itself and with the log, and the log with them.

    A log that cannot be read is a doubt, and a default directory that is not there holds nothing.

    Raises:
        BackupUnreadable: A directory cannot be listed.
    """
    log = places.log_path
    there = [path for path in places.directories if places.backup_directories or os.path.lexists(path)]
    by_place = {_place(file.path): file for directory in there for file in look_into(directory)}
    files = list(by_place.values())
    account, head, found = _read_log(log, files)
    found = [*_unsafe(there), *found]
    for file in files:
        found.extend(_about_file(file, account, log))
    every = [] if account is None else list(account.in_order())
    going = set() if account is None else account.files_to_prune()
    for listed in every:
        found.extend(_absent(listed, places.directories, by_place, going))
    rows = [_row(file, file.backup, account, log) for file in files if file.backup is not None]
    rows.sort(
        key=lambda row: (-row.stored_as_plaintext - (row.stored_as_plaintext and row.secret), row.made_at)
    )
    findings, doubts = ([one for bad, one in found if bad is wrong] for wrong in (True, False))
    state = ChainState.TAMPERED if findings else ChainState.UNFINISHED if doubts else ChainState.WHOLE
    return BackupList(
        tool=TOOL,
        generated_at=timestamp(),
        state=state.value,
        directories=[unicode_text(str(path)) for path in places.directories],
        audit_log=unicode_text(str(log)),
        audit_log_head=head,
        backups=rows,
        others=[
            OtherFile(unicode_text(str(file.path)), file.kind.value, unicode_text(file.what))
            for file in files
            if file.backup is None
        ],
        findings=findings,
        doubts=doubts,
        pruned=sum(len(listed.pruned) for listed in every),
        size=sum(file.size for file in files if file.backup is not None),
    )


def _place(path: Path) -> str:
    """Return where a file is, the links above it resolved and itself not, as audit logs have it."""
    return unicode_text(os.path.join(os.path.realpath(path.parent), path.name))  # noqa: PTH118 - bytes of any kind


def _finding(reason: str, message: str, path: Path | None = None, intent: int | None = None) -> BackupFinding:
    return BackupFinding(
        reason, unicode_text(message), None if path is None else unicode_text(str(path)), intent
    )


def _unsafe(directories: Sequence[Path]) -> Iterator[_Found]:
    for path in directories:
        try:
            open_directory(path).close()
        except NotDurable as exc:
            yield True, _finding("unsafe-directory", exc.message, path)


def _read_log(log: Path, files: Sequence[FoundFile]) -> tuple[Account | None, str | None, list[_Found]]:
    """Return what the log says of backups, its head, and what is wrong with it or cannot be told."""
    try:
        if is_there(log):
            found = verify(log, anchors=anchors_in(files, log))
            return Account.of(log, read_records(log)), str(found.head), list(_about_log(found))
        gone = is_there(log.with_name(log.name + HEAD_SUFFIX))
        told = f"there is no audit log {log}: whether it knows these backups cannot be told"
        return None, None, [(gone, _finding("log", f"{log}: {LOG_IS_GONE}" if gone else told))]
    except AuditLogUnreadable as exc:
        return None, None, [(False, _finding("log", exc.message))]


def _about_log(found: Verification) -> Iterator[_Found]:
    for fault in found.findings:
        yield True, _finding("log", f"{fault.kind}: {fault.message}", intent=fault.record)
    if found.more_findings:
        more = f"and {counted(found.more_findings, 'more finding')}: etcdfix audit verify shows them"
        yield True, _finding("log", more)
    for sequence in sorted(found.open_intents):
        message = f"intent {sequence} is open: etcdfix audit reconcile says what became of it"
        yield False, _finding("log", message, intent=sequence)
    if found.torn_size:
        yield False, _finding("log", "the last line of the audit log is torn")
    if found.head_missing:
        yield False, _finding("log", NO_HEAD_FILE)


def _about_file(file: FoundFile, account: Account | None, log: Path) -> Iterator[_Found]:
    path, backup = file.path, file.backup
    if backup is None:
        if file.kind is FileKind.UNREADABLE:
            yield False, _finding("unreadable", f"{path}: {file.what}", path)
        elif file.marked:
            after = "its marker stands beside it: a crash cut it off, and nothing was sent"
            yield False, _finding("unconfirmed", f"{path}: {file.what}; {after}", path)
        elif file.kind is FileKind.DAMAGED or is_backup_name(path.name):
            yield True, _finding("damaged", f"{path}: {file.what}", path)
        return
    number = backup.intent.sequence
    for problem in file.exposed:
        yield True, _finding("exposed", f"{path} {problem}", path, number)
    standing, listed = _standing(file, backup, account, log)
    record = listed.pruned.get(_place(path)) if listed is not None else None
    wrong = {
        "unlisted": f"the audit log that it names does not know it as the backup of intent {number}",
        "listed": f"by record {record.sequence} it was pruned, and it is there" if record is not None else "",
    }
    unknown = {
        "unconfirmed": "its marker stands beside it, and no record names it: nothing was sent for it",
        "another-log": f"it belongs to another audit log, {backup.intent.audit_log}: name that with --audit-log",
    }
    if message := wrong.get(standing):
        yield True, _finding("returned" if listed else standing, f"{path}: {message}", path, number)
    elif message := unknown.get(standing):
        yield False, _finding(standing, f"{path}: {message}", path, number)


def _standing(
    file: FoundFile, backup: Backup, account: Account | None, log: Path
) -> tuple[str, Listed | None]:
    if account is None:
        return "no-log", None
    listed = account.listing(backup)
    if listed is not None:
        return "listed", listed
    if file.marked:
        return "unconfirmed", None
    return ("unlisted" if names_log(backup, log) else "another-log"), None


def _absent(
    listed: Listed, directories: Iterable[Path], files: dict[str, FoundFile], going: set[str]
) -> Iterator[_Found]:
    """Yield what is not there of a backup that the log lists; a file that is no whole backup is told by itself."""
    intent, number = listed.intent, listed.intent.link.sequence
    named = {unicode_text(os.path.realpath(directory)) for directory in directories}
    copies = [
        place
        for place, file in files.items()
        if file.backup is not None and file.backup.content_sha256 == listed.content_sha256
    ]
    for text in listed.paths:
        file = files.get(text)
        if text in copies or text in listed.pruned or (file is not None and file.backup is None):
            continue
        path = Path(text)
        whose = f"{text}: the backup of intent {number} ({intent.verb.purpose} {display(intent.subject.key)})"
        if text in going:
            message = f"{whose} is gone, and the intent to prune it is open: etcdfix audit reconcile"
            yield False, _finding("missing", message, path, number)
        elif str(path.parent) in named:
            instead = "; another backup stands in its place" if file is not None else ""
            copy = f"; a copy is {copies[0]}" if copies else ""
            yield True, _finding("missing", f"{whose} is missing{instead}{copy}", path, number)
        elif not copies:
            message = f"{whose} was not looked at: name its directory with --backup-dir"
            yield False, _finding("elsewhere", message, path, number)


def _row(file: FoundFile, backup: Backup, account: Account | None, log: Path) -> ListedBackup:
    content = backup.content
    standing, listed = _standing(file, backup, account, log)
    subject = listed.intent.subject if listed is not None else None
    secret = resource_of(content.key_base64) == _SECRETS
    return ListedBackup(
        path=unicode_text(str(file.path)),
        key=content.key,
        key_base64=key_base64(content.key_base64),
        secret=secret or (subject is not None and (subject.group, subject.resource) == ("", _SECRETS)),
        stored_as_plaintext=content.stored_as_plaintext,
        made_at=content.created_at,
        command=content.purpose,
        value_sha256=content.value_sha256,
        value_size=content.value_size,
        mod_revision=content.mod_revision,
        cluster_uid=content.cluster.kube_system_uid,
        audit_log=backup.intent.audit_log,
        intent=backup.intent.sequence,
        log=standing,
        outcome=listed.outcome if listed is not None else None,
    )
