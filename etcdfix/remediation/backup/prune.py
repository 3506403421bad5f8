"""Removes aged backups, with a record of each: a backup is the undo of a change, and often the only copy of an object.

Which ones may go is decided by the audit log alone, never by the file::

    survey          directories are ours; log whole, compared with every backup that names it; each file with the log
    confirmation    by whoever saw what would go
    lock            the log is opened to write, and stays locked to the end; everything is surveyed again
    for each one    room for the outcome; intent, durable; the file is read and compared once more, removed, and the
                    directory fsynced; outcome with the files that are gone

So a crash leaves an open intent at most, and the files tell what became of it (:func:`settle_prune`). Nothing outside
the directories is touched: files are reached by plain name from their descriptors, and no link is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import (
    AuditError,
    BackupUnreadable,
    EtcdfixError,
    NotDurable,
    UnsafePlace,
    why,
)
from etcdfix.remediation.audit.log import AuditLog, broken
from etcdfix.remediation.audit.record import (
    Entry,
    Intent,
    Link,
    Operator,
    RecordType,
    Result,
    Verb,
    unicode_text,
)
from etcdfix.remediation.audit.search import is_there
from etcdfix.remediation.audit.verify import NO_HEAD_FILE, read_records, verify, without_head
from etcdfix.remediation.backup.account import Account, Listed
from etcdfix.remediation.backup.directory import (
    FileKind,
    FoundFile,
    anchors_in,
    is_backup_name,
    look_at,
    look_through,
)
from etcdfix.remediation.commit import signals_held
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    no_step,
    open_directory,
    refuse_foreign_file,
)
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import Reconciliation
from etcdfix.rules import Rule, acceptance

_UNDONE: Final = frozenset({Result.NOT_APPLIED, Result.REFUSED})
_GONE: Final = frozenset({Result.DELETED, Result.APPLIED_OR_GONE})
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pruned.

    Attributes:
        places: Which directories, which log, and where its head is told.
        accepted: What may be the only copy of an object, or of a change that was not made, may go too.
    """

    before: datetime
    reason: str
    places: RecordPaths
    accepted: Acceptances = Acceptances()


class Prunable(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that may go.

    Attributes:
        files: Where it is, in the directories that were named.
        made: When, by the later word of file and log.
    """

    listed: Listed
    files: tuple[FoundFile, ...]
    made: datetime

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, as the log has them."""
        return tuple(unicode_text(str(file.path)) for file in self.files)


class KeptBackup(msgspec.Struct, frozen=True):
    """A backup that stays although it is old enough, or of which nobody can tell how old it is."""

    path: Path
    rule: Rule
    message: str


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What may go, and what may not.

    Attributes:
        prunable: Oldest intent first.
        younger: How many are not old enough.
    """

    prunable: tuple[Prunable, ...]
    kept: tuple[KeptBackup, ...]
    younger: int


class PrunedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one.

    Attributes:
        problem: Why some were not, "" where all were.
        record: Of the outcome; None where it could not be recorded.
    """

    backup: Prunable
    gone: tuple[str, ...]
    problem: str
    record: Link | None


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """What a pruning came to.

    Attributes:
        stopped: Why it ended before all were done, "" where it did not.
        head: Of the log afterwards; None where nothing was recorded.
    """

    done: tuple[PrunedBackup, ...]
    survey: Survey
    stopped: str
    head: Link | None
    warnings: tuple[str, ...]


def survey_backups(request: PruneRequest) -> Survey:
    """Say what may go, and change nothing.

    Raises:
        UnsafePlace: A directory is not ours alone.
        BackupUnreadable: A directory cannot be listed.
        AuditLogBroken: The chain is broken, a backup speaks against it, or there is no log.
        AuditLogUnreadable: The log cannot be read.
    """
    log = request.places.log_path
    if not is_there(log):
        raise broken(
            log,
            "it is not there",
            hint="name the log of these backups with --audit-log; nothing goes without one",
        )
    with ExitStack() as stack:
        files = _look(_open_directories(stack, request))
        found = verify(log, anchors=anchors_in(files, log))
        if found.findings:
            raise broken(log, found.findings[0].message, found.findings)
        if found.head_missing:
            raise broken(log, NO_HEAD_FILE, hint=without_head(log, found.head))
        return _survey(request, files, Account.of(log, read_records(log)))


def prune_backups(
    request: PruneRequest, agreed: Survey, *, operator: Operator, step: Step = no_step
) -> Pruning:
    """Remove what was agreed upon, as far as it may still go.

    Raises:
        UnsafePlace: A directory is not ours alone; nothing was removed.
        AuditError: The log cannot be written; nothing was removed.
        BackupUnreadable: A directory cannot be listed; nothing was removed.
    """
    names = {backup.listed.content_sha256 for backup in agreed.prunable}
    path = request.places.log_path
    done: list[PrunedBackup] = []
    with ExitStack() as stack:
        directories = _open_directories(stack, request)
        log = stack.enter_context(
            AuditLog.open(path, step=step, operator=operator, syslog=request.places.syslog)
        )
        warnings = [f"a torn last line of the audit log was set aside: {torn}" for torn in log.recovered]
        for intent in log.open_intents():
            if intent.verb is Verb.PRUNE:
                settled = settle_prune(log, intent, operator)
                warnings.append(f"the open intent {intent.link.sequence} was settled: {settled.detail}")
        files = _look(directories)
        log.check(anchors_in(files, path))
        survey = _survey(request, files, Account.of(path, log.records()))
        stopped = ""
        with signals_held() as held:
            for backup in survey.prunable:
                if backup.listed.content_sha256 not in names:
                    continue
                if held:
                    stopped = f"{held[0]} arrived"
                    break
                try:
                    done.append(_prune(log, backup, directories, request, operator, step))
                except EtcdfixError as exc:
                    if not done:
                        raise
                    stopped = exc.message
                    break
                if done[-1].record is None:
                    stopped = done[-1].problem
                    break
        return Pruning(
            done=tuple(done),
            survey=survey,
            stopped=stopped,
            head=log.head,
            warnings=tuple(warnings),
        )


def _open_directories(stack: ExitStack, request: PruneRequest) -> list[SafeDirectory]:
    return [stack.enter_context(open_directory(path)) for path in request.places.directories]


def _look(directories: Sequence[SafeDirectory]) -> list[FoundFile]:
    found: dict[Path, FoundFile] = {}
    for directory in directories:
        for file in look_through(directory.descriptor, directory.path):
            found[file.path] = _checked(directory, file)
    return list(found.values())


def _checked(directory: SafeDirectory, file: FoundFile) -> FoundFile:
    if file.kind is not FileKind.BACKUP:
        return file
    try:
        descriptor = os.open(file.path.name, _FLAGS, dir_fd=directory.descriptor)
    except OSError as exc:
        return msgspec.structs.replace(file, kind=FileKind.UNREADABLE, what=why(exc))
    try:
        refuse_foreign_file(descriptor, file.path, what="backup")
    except UnsafePlace as exc:
        return msgspec.structs.replace(file, kind=FileKind.FOREIGN, what=exc.message)
    finally:
        os.close(descriptor)
    return file


def _survey(request: PruneRequest, files: Sequence[FoundFile], account: Account) -> Survey:
    kept: list[KeptBackup] = []
    going: dict[str, list[FoundFile]] = {}
    younger = 0
    for file in files:
        if file.kind is not FileKind.BACKUP:
            if is_backup_name(file.path.name):
                kept.append(KeptBackup(file.path, Rule.BACKUP_NOT_OURS, file.what))
            continue
        assert file.backup is not None  # which its kind says
        listed = account.listing(file.backup)
        if _made(file, listed) >= request.before:
            younger += 1
            continue
        problem = _why_kept(request, file, listed, account)
        if problem is not None:
            kept.append(KeptBackup(file.path, *problem))
        else:
            going.setdefault(file.backup.content_sha256, []).append(file)
    prunable = [
        Prunable(
            listed=account.listed[digest], files=tuple(group), made=_made(group[0], account.listed[digest])
        )
        for digest, group in going.items()
    ]
    prunable.sort(key=lambda backup: backup.listed.intent.link.sequence)
    return Survey(prunable=tuple(prunable), kept=tuple(kept), younger=younger)


def _made(file: FoundFile, listed: Listed | None) -> datetime:
    """The later of what file and log say. What is no time counts as now."""
    assert file.backup is not None
    told = [file.backup.content.created_at, *([listed.at] if listed is not None else [])]
    return max(map(_time, told))


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _why_kept(
    request: PruneRequest, file: FoundFile, listed: Listed | None, account: Account
) -> tuple[Rule, str] | None:
    assert file.backup is not None
    if listed is None:
        other = file.backup.intent.audit_log
        if os.path.realpath(other) != os.path.realpath(request.places.log_path):
            return Rule.BACKUP_UNLISTED, f"it belongs to another audit log: {other}"
        return Rule.BACKUP_UNLISTED, "the audit log does not know it"
    if unicode_text(str(file.path)) not in listed.paths:
        return Rule.BACKUP_UNLISTED, f"it is a copy: the audit log has it as {', '.join(listed.paths)}"
    number = listed.intent.link.sequence
    if file.marked or listed.result is None:
        return Rule.BACKUP_OPEN, f"nobody knows what became of intent {number}: etcdfix audit reconcile says"
    ended = f"intent {number} ended as {listed.result}"
    if listed.result is Result.ANOMALY:
        return Rule.BACKUP_UNDECIDED, f"{ended}: it may be the only copy of what was there"
    if listed.result in _UNDONE and not request.accepted.accepts(Rule.NOT_APPLIED):
        return Rule.NOT_APPLIED, f"{ended}: {acceptance(Rule.NOT_APPLIED)} removes it too"
    if (
        listed.result in _GONE
        and not account.written_since(listed)
        and not request.accepted.accepts(Rule.ONLY_COPY)
    ):
        told = (
            f"{ended}, and the log does not say that this value was put back: it may be the only copy of that "
            f"object; {acceptance(Rule.ONLY_COPY)} removes it too"
        )
        return Rule.ONLY_COPY, told
    return None


def _prune(
    log: AuditLog,
    backup: Prunable,
    directories: Sequence[SafeDirectory],
    request: PruneRequest,
    operator: Operator,
    step: Step,
) -> PrunedBackup:
    of = backup.listed.intent
    log.reserve()
    link = log.append(
        Entry(
            type=RecordType.INTENT,
            verb=Verb.PRUNE,
            operator=operator,
            subject=of.subject,
            reason=request.reason,
            cluster_uid=of.cluster_uid,
            value_sha256=of.value_sha256,
            backups=backup.paths,
            backup_sha256=backup.listed.content_sha256,
            detail=f"the backup of intent {of.link.sequence} ({of.verb.purpose}), made {backup.listed.at}",
            accepted=request.accepted.as_flags(),
        )
    )
    intent = log.intent(link.sequence)
    gone: list[str] = []
    problem = ""
    by_path = {directory.path: directory for directory in directories}
    for file, path in zip(backup.files, backup.paths, strict=True):
        try:
            _remove(by_path[file.path.parent], file, backup.listed, step)
        except (NotDurable, BackupUnreadable) as exc:
            problem = exc.message
            break
        gone.append(path)
    record, closing = _close(log, intent, operator, gone, problem)
    return PrunedBackup(backup=backup, gone=tuple(gone), problem=closing or problem, record=record)


def _close(
    log: AuditLog, intent: Intent, operator: Operator, gone: Sequence[str], problem: str
) -> tuple[Link | None, str]:
    try:
        result = Result.PRUNED if gone else Result.NOT_APPLIED
        entry = intent.closed_by(result, operator=operator, detail=problem, backups=tuple(gone) or None)
        return log.append(entry), ""
    except AuditError as exc:
        return (
            None,
            f"the outcome could not be recorded: {exc.message}; etcdfix audit reconcile will do so later",
        )


def _remove(directory: SafeDirectory, file: FoundFile, listed: Listed, step: Step) -> None:
    """Remove one file, if it is still the one that the log means."""
    name = file.path.name
    now = _checked(directory, look_at(directory.descriptor, file.path, marked=False))
    if now.kind is not FileKind.BACKUP:
        raise BackupUnreadable(f"backup {file.path}: {now.what}; it was not removed", path=file.path)
    assert now.backup is not None  # which its kind says
    if now.backup.content_sha256 != listed.content_sha256 or not listed.is_of(now.backup):
        raise BackupUnreadable(
            f"backup {file.path}: it is not the one that the audit log means; it was not removed",
            path=file.path,
        )
    directory.remove(name, what="backup pruned", step=step)


def settle_prune(log: AuditLog, intent: Intent, operator: Operator) -> Reconciliation:
    """Say what became of an open intent to remove a backup, and record it.

    Raises:
        AuditError: The record could not be made durable.
    """
    found, gone = judge_prune(intent)
    entry = intent.closed_by(
        found.result, operator=operator, detail=found.detail, backups=gone or None, reconciled=True
    )
    return msgspec.structs.replace(found, record=log.append(entry))


def judge_prune(intent: Intent) -> tuple[Reconciliation, tuple[str, ...]]:
    """Say what became of an open intent to remove a backup, by its files; return those that are gone too."""
    try:
        gone = tuple(_gone(intent.backups))
    except OSError as exc:
        result, detail, gone = Result.UNKNOWN, f"its directory cannot be looked at: {why(exc)}", ()
    else:
        left = len(intent.backups) - len(gone)
        result = Result.PRUNED if gone else Result.NOT_APPLIED
        detail = f"{len(gone)} of its {len(intent.backups)} files are gone" if left else "its files are gone"
        if not gone:
            detail = "its files are still there"
    return Reconciliation(intent=intent, result=result, detail=detail, header_revision=0), gone


def _gone(paths: Sequence[str]) -> Iterator[str]:
    for path in map(Path, paths):
        path.parent.stat()  # a directory that is not mounted says nothing
        if not os.path.lexists(path):
            yield str(path)
