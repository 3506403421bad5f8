"""What backups there are, and whether they are what the audit log says; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etcdfix.errors import BackupUnreadable, NotDurable
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.audit.verify import (
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
)
from etcdfix.remediation.backup.rows import UNREADABLE, account_of
from etcdfix.remediation.durable import open_directory
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.backups import (
    BackupFinding,
    BackupList,
    BackupVerification,
    ListedBackup,
    OtherFile,
)
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted

_SECRETS = "secrets"


def list_backups(places: RecordPaths) -> BackupList:
    """Return every file of the backup directories, with what the log says of it.

    A log that cannot be read, and a default directory that is not there, are said and no error.

    Raises:
        BackupUnreadable: A directory cannot be listed.
    """
    directories, files = _look(places)
    account, state, warnings = account_of(places.log_path, files)
    rows = [_row(file, account, places.log_path) for file in files if file.backup is not None]
    rows.sort(
        key=lambda row: (
            not (row.secret and row.stored_as_plaintext),
            not row.stored_as_plaintext,
            row.made_at,
        )
    )
    return BackupList(
        tool=TOOL,
        generated_at=timestamp(),
        directories=_words(directories),
        audit_log=_word(places.log_path),
        audit_log_state=state,
        backups=rows,
        others=[_other(file) for file in files if file.backup is None],
        size=sum(file.size for file in files if file.backup is not None),
        warnings=[
            *warnings,
            *(
                f"{_word(file.path)} {problem}"
                for file in files
                if file.backup is not None
                for problem in file.exposed
            ),
        ],
    )


def list_exit_code(listed: BackupList) -> int:
    """Return 3 where a file could not be read or the log could not be, else 0."""
    unsure = any(
        other.kind in {FileKind.DAMAGED, FileKind.UNREADABLE, FileKind.LINK} for other in listed.others
    )
    return 3 if unsure or listed.audit_log_state in {UNREADABLE, ChainState.TAMPERED} else 0


def _look(places: RecordPaths) -> tuple[list[Path], list[FoundFile]]:
    default = not places.backup_directories
    directories = [path for path in places.directories if not default or os.path.lexists(path)]
    found: dict[str, FoundFile] = {}
    for directory in directories:
        for file in look_into(directory):
            found.setdefault(_place(file.path), file)
    return list(places.directories), list(found.values())


def _place(path: Path) -> str:
    """Return where a file is, the links above it resolved and itself not, as audit logs have it."""
    return unicode_text(os.path.join(os.path.realpath(path.parent), path.name))  # noqa: PTH118 - bytes of any kind


def _row(file: FoundFile, account: Account | None, log: Path) -> ListedBackup:
    assert file.backup is not None
    content, intent = file.backup.content, file.backup.intent
    listed = account.listing(file.backup) if account is not None else None
    outcome = None
    if listed is not None:
        outcome = listed.result.value if listed.result is not None else "open"
    return ListedBackup(
        path=_word(file.path),
        key=content.key,
        key_base64=key_base64(content.key_base64),
        resource=file.resource,
        secret=_is_secret(file, listed),
        stored_as_plaintext=content.stored_as_plaintext,
        made_at=content.created_at,
        command=content.purpose,
        value_sha256=content.value_sha256,
        value_size=content.value_size,
        mod_revision=content.mod_revision,
        cluster_uid=content.cluster.kube_system_uid,
        audit_log=intent.audit_log,
        intent=intent.sequence,
        log=_standing(file, account, listed, log),
        outcome=outcome,
    )


def _is_secret(file: FoundFile, listed: Listed | None) -> bool:
    if file.resource == _SECRETS:
        return True
    subject = listed.intent.subject if listed is not None else None
    return subject is not None and (subject.group, subject.resource) == ("", _SECRETS)


def _standing(file: FoundFile, account: Account | None, listed: Listed | None, log: Path) -> str:
    assert file.backup is not None
    if account is None:
        return "no-log"
    if listed is not None:
        return "listed"
    if file.marked:
        return "unconfirmed"
    return "unlisted" if names_log(file.backup, log) else "another-log"


def _other(file: FoundFile) -> OtherFile:
    return OtherFile(path=_word(file.path), kind=file.kind.value, what=unicode_text(file.what))


def _word(path: Path) -> str:
    return unicode_text(str(path))


def _words(paths: Sequence[Path]) -> list[str]:
    return [_word(path) for path in paths]


def verify_backups(places: RecordPaths) -> BackupVerification:
    """Compare every backup with itself and with the log, and the log with the backups.

    Raises:
        BackupUnreadable: A directory cannot be listed.
        AuditLogUnreadable: The log cannot be read, or is not there.
    """
    log = places.log_path
    for directory in places.directories:
        if not os.path.lexists(directory):
            raise BackupUnreadable(f"backup directory {directory} is not there", path=directory)
    directories, files = _look(places)
    found = verify(log, anchors=anchors_in(files, log))
    account = Account.of(log, read_records(log))
    findings = [*_unsafe(directories), *_log_findings(found)]
    doubts = list(_log_doubts(found))
    for file in files:
        findings.extend(_file_findings(file, account, log))
        doubts.extend(_file_doubts(file, account, log))
    for listed in account.in_order():
        for wrong, finding in _absences(listed, directories, files, account):
            (findings if wrong else doubts).append(finding)
    state = ChainState.TAMPERED if findings else ChainState.UNFINISHED if doubts else ChainState.WHOLE
    return BackupVerification(
        tool=TOOL,
        generated_at=timestamp(),
        directories=_words(directories),
        audit_log=_word(log),
        state=state.value,
        backups=sum(file.backup is not None for file in files),
        pruned=sum(len(listed.pruned) for listed in account.in_order()),
        findings=findings,
        doubts=doubts,
        head=str(found.head),
        warnings=[unicode_text(text) for text in found.warnings],
    )


def verification_exit_code(verified: BackupVerification) -> int:
    """Return what ``backup verify`` returns, as ``audit verify`` does."""
    return {ChainState.WHOLE.value: 0, ChainState.TAMPERED.value: 1}.get(verified.state, 3)


def _finding(
    reason: str, message: str, *, path: Path | None = None, intent: int | None = None
) -> BackupFinding:
    return BackupFinding(
        reason=reason,
        path=None if path is None else _word(path),
        intent=intent,
        message=unicode_text(message),
    )


def _unsafe(directories: Sequence[Path]) -> Iterator[BackupFinding]:
    for path in directories:
        try:
            open_directory(path).close()
        except NotDurable as exc:
            yield _finding("unsafe-directory", exc.message, path=path)


def _log_findings(found: Verification) -> Iterator[BackupFinding]:
    for fault in found.findings:
        yield _finding("log", f"{fault.kind}: {fault.message}", intent=fault.record)
    if found.more_findings:
        yield _finding(
            "log", f"and {counted(found.more_findings, 'more finding')}: etcdfix audit verify shows them"
        )


def _log_doubts(found: Verification) -> Iterator[BackupFinding]:
    for sequence in sorted(found.open_intents):
        yield _finding(
            "log",
            f"intent {sequence} is open: etcdfix audit reconcile says what became of it",
            intent=sequence,
        )
    if found.torn_size:
        yield _finding("log", "the last line of the audit log is torn")
    if found.head_missing:
        yield _finding("log", NO_HEAD_FILE)


def _file_findings(file: FoundFile, account: Account, log: Path) -> Iterator[BackupFinding]:
    backup = file.backup
    if file.kind is FileKind.DAMAGED and not file.marked:
        yield _finding("damaged", file.what, path=file.path)
    elif file.kind is FileKind.LINK and is_backup_name(file.path.name):
        yield _finding("link", f"{file.path} is {file.what}", path=file.path)
    if backup is None:
        return
    for problem in file.exposed:
        yield _finding("exposed", f"{file.path} {problem}", path=file.path, intent=backup.intent.sequence)
    listed, number = account.listing(backup), backup.intent.sequence
    if listed is None and not file.marked and names_log(backup, log):
        message = (
            f"{file.path}: the audit log that it names does not know it as the backup of intent {number}"
        )
        yield _finding("unlisted", message, path=file.path, intent=number)
    elif listed is not None and _place(file.path) in listed.pruned:
        message = f"{file.path}: by record {listed.pruned[_place(file.path)].sequence} it was pruned, and it is there"
        yield _finding("returned", message, path=file.path, intent=number)


def _file_doubts(file: FoundFile, account: Account, log: Path) -> Iterator[BackupFinding]:
    backup = file.backup
    if file.kind is FileKind.UNREADABLE:
        yield _finding("unreadable", f"{file.path}: {file.what}", path=file.path)
    elif file.kind is FileKind.DAMAGED and file.marked:
        message = f"{file.what}; its marker stands beside it: a crash cut it off, and nothing was sent"
        yield _finding("unconfirmed", message, path=file.path)
    if backup is None:
        return
    number = backup.intent.sequence
    if account.listing(backup) is not None:
        return
    if file.marked:
        message = f"{file.path}: its marker stands beside it, and no record names it: nothing was sent for it"
        yield _finding("unconfirmed", message, path=file.path, intent=number)
    elif not names_log(backup, log):
        message = (
            f"{file.path} belongs to another audit log, {backup.intent.audit_log}: name that with --audit-log"
        )
        yield _finding("another-log", message, path=file.path, intent=number)


_TOLD_BY_ITSELF: Final = frozenset({FileKind.DAMAGED, FileKind.UNREADABLE, FileKind.LINK})


def _absences(
    listed: Listed, directories: Sequence[Path], files: Sequence[FoundFile], account: Account
) -> Iterator[tuple[bool, BackupFinding]]:
    """Yield what of a backup that the log lists is not there; True where that is wrong, False where nobody can tell."""
    number = listed.intent.link.sequence
    named = {unicode_text(os.path.realpath(directory)) for directory in directories}
    copies = [
        file
        for file in files
        if file.backup is not None and file.backup.content_sha256 == listed.content_sha256
    ]
    there = {_place(file.path) for file in copies}
    told = {_place(file.path) for file in files if file.kind in _TOLD_BY_ITSELF}
    others = {_place(file.path) for file in files if file.backup is not None} - there
    going = {path for intent in account.open_prunes.values() for path in intent.backups}
    for text in listed.paths:
        if text in there or text in told or text in listed.pruned:
            continue
        path = Path(text)
        whose = (
            f"backup of intent {number} ({listed.intent.verb.purpose} {display(listed.intent.subject.key)})"
        )
        if text in going:
            message = (
                f"{path}: the {whose} is gone, and the intent to prune it is open: etcdfix audit reconcile"
            )
            yield False, _finding("missing", message, path=path, intent=number)
        elif str(path.parent) in named:
            instead = "; another backup stands in its place" if text in others else ""
            message = f"{path}: the {whose} is missing{instead}"
            if copies:
                message += f"; a copy is {copies[0].path}"
            yield True, _finding("missing", message, path=path, intent=number)
        elif not copies:
            message = f"{path}: the {whose} was not looked at: name its directory with --backup-dir"
            yield False, _finding("elsewhere", message, path=path, intent=number)
