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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import AuditError, BackupUnreadable, EtcdfixError, NotDurable, why
from etcdfix.interruptions import signals_held
from etcdfix.remediation.audit.log import AuditLog
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
from etcdfix.remediation.audit.verify import broken, read_records, refuse_broken, verify
from etcdfix.remediation.backup.account import Account, Listed
from etcdfix.remediation.backup.directory import (
    FileKind,
    FoundFile,
    anchors_in,
    is_backup_name,
    look_at,
    look_through,
    names_log,
)
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, open_directory
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import Reconciliation
from etcdfix.report.backups import BackupPruning, KeptBackup, PrunedBackup
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64

_UNDONE: Final = frozenset({Result.NOT_APPLIED, Result.REFUSED})
_GONE: Final = frozenset({Result.DELETED, Result.APPLIED_OR_GONE})


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

    def report(self, *, dry_run: bool) -> BackupPruning:
        """Return the report of a pruning in which nothing was done yet."""
        return BackupPruning(
            tool=TOOL,
            generated_at=timestamp(),
            directories=[unicode_text(str(path)) for path in self.places.directories],
            audit_log=unicode_text(str(self.places.log_path)),
            before=timestamp(self.before),
            dry_run=dry_run,
        )


class _Survey(msgspec.Struct):
    going: dict[str, tuple[Listed, list[FoundFile]]] = msgspec.field(default_factory=dict)
    kept: list[KeptBackup] = msgspec.field(default_factory=list)
    younger: int = 0

    def into(self, report: BackupPruning, pruned: Iterable[PrunedBackup]) -> BackupPruning:
        return msgspec.structs.replace(
            report,
            pruned=list(pruned),
            kept=self.kept,
            younger=self.younger,
            exit_code=4 if self.kept else 0,
        )


def survey_backups(request: PruneRequest) -> BackupPruning:
    """Say what may go, and change nothing.

    Raises:
        UnsafePlace: A directory is not ours alone.
        BackupUnreadable: A directory cannot be listed.
        AuditLogBroken: The chain is broken, a backup speaks against it, or there is no log.
        AuditLogUnreadable: The log cannot be read.
    """
    log = request.places.log_path
    if not is_there(log):
        hint = "name the log of these backups with --audit-log; nothing goes without one"
        raise broken(log, "it is not there", hint=hint)
    with ExitStack() as stack:
        files = _look(_open_directories(stack, request))
        found = verify(log, anchors=anchors_in(files, log))
        refuse_broken(log, found)
        survey = _survey(request, files, Account.of(log, read_records(log)))
    return survey.into(request.report(dry_run=True), (_pruned(*one) for one in survey.going.values()))


def prune_backups(
    request: PruneRequest, agreed: BackupPruning, *, operator: Operator, step: Step = no_step
) -> BackupPruning:
    """Remove what was agreed upon, as far as it may still go.

    Raises:
        UnsafePlace: A directory is not ours alone; nothing was removed.
        AuditError: The log cannot be written; nothing was removed.
        BackupUnreadable: A directory cannot be listed; nothing was removed.
    """
    names = {backup.content_sha256 for backup in agreed.pruned}
    path = request.places.log_path
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
        going = [one for digest, one in survey.going.items() if digest in names]
        done, stopped = _prune_each(
            going, lambda listed, files: _prune(log, listed, files, directories, request, operator, step)
        )
        report = survey.into(request.report(dry_run=False), done)
        unfinished = stopped or any(one.problem for one in done)
        return msgspec.structs.replace(
            report,
            stopped=unicode_text(stopped),
            audit_log_head=str(log.head),
            warnings=[unicode_text(text) for text in warnings],
            exit_code=3 if unfinished else report.exit_code,
        )


def _prune_each(
    going: Iterable[tuple[Listed, list[FoundFile]]],
    prune: Callable[[Listed, list[FoundFile]], PrunedBackup],
) -> tuple[list[PrunedBackup], str]:
    """Remove one after the other; return what became of each, and why it ended before all were done."""
    done: list[PrunedBackup] = []
    with signals_held() as held:
        for one in going:
            if held:
                return done, f"{held[0]} arrived"
            try:
                done.append(prune(*one))
            except EtcdfixError as exc:
                if not done:
                    raise
                return done, exc.message
            if done[-1].record is None:
                return done, done[-1].problem
    return done, ""


def _open_directories(stack: ExitStack, request: PruneRequest) -> list[SafeDirectory]:
    return [stack.enter_context(open_directory(path)) for path in request.places.directories]


def _look(directories: Sequence[SafeDirectory]) -> list[FoundFile]:
    found = {
        file.path: file
        for directory in directories
        for file in look_through(directory.descriptor, directory.path)
    }
    return list(found.values())


def _survey(request: PruneRequest, files: Sequence[FoundFile], account: Account) -> _Survey:
    survey = _Survey()
    for file in files:
        path, backup = unicode_text(str(file.path)), file.backup
        if backup is None or file.exposed:
            if backup is not None or is_backup_name(file.path.name):
                problem = file.what or f"it {'; '.join(file.exposed)}"
                survey.kept.append(KeptBackup(path, Rule.BACKUP_NOT_OURS, unicode_text(problem)))
            continue
        listed = account.listing(backup)
        told = [backup.content.created_at, *([listed.at] if listed is not None else [])]
        if max(map(_time, told)) >= request.before:  # by the later word of file and log
            survey.younger += 1
        elif listed is None:
            other = backup.intent.audit_log
            message = "the audit log does not know it"
            if not names_log(backup, request.places.log_path):
                message = f"it belongs to another audit log: {other}"
            survey.kept.append(KeptBackup(path, Rule.BACKUP_UNLISTED, unicode_text(message)))
        elif why_kept := _why_kept(request, file, listed, account):
            survey.kept.append(KeptBackup(path, *why_kept))
        else:
            survey.going.setdefault(listed.content_sha256, (listed, []))[1].append(file)
    by_age = sorted(survey.going.items(), key=lambda item: item[1][0].intent.link.sequence)
    survey.going = dict(by_age)
    return survey


def _time(text: str) -> datetime:
    """Read a time; what is none counts as now."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _why_kept(
    request: PruneRequest, file: FoundFile, listed: Listed, account: Account
) -> tuple[Rule, str] | None:
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


def _pruned(listed: Listed, files: Iterable[FoundFile]) -> PrunedBackup:
    intent = listed.intent
    return PrunedBackup(
        content_sha256=listed.content_sha256,
        paths=[unicode_text(str(file.path)) for file in files],
        key=display(intent.subject.key),
        key_base64=key_base64(intent.subject.key),
        command=intent.verb.purpose,
        made_at=listed.at,
        outcome=listed.outcome,
        intent=intent.link.sequence,
    )


def _prune(
    log: AuditLog,
    listed: Listed,
    files: Sequence[FoundFile],
    directories: Sequence[SafeDirectory],
    request: PruneRequest,
    operator: Operator,
    step: Step,
) -> PrunedBackup:
    of, pruned = listed.intent, _pruned(listed, files)
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
            backups=tuple(pruned.paths),
            backup_sha256=listed.content_sha256,
            detail=f"the backup of intent {of.link.sequence} ({of.verb.purpose}), made {listed.at}",
            accepted=request.accepted.as_flags(),
        )
    )
    intent = log.intent(link.sequence)
    problem = ""
    by_path = {directory.path: directory for directory in directories}
    for file, path in zip(files, pruned.paths, strict=True):
        try:
            _remove(by_path[file.path.parent], file, listed, step)
        except (NotDurable, BackupUnreadable) as exc:
            problem = exc.message
            break
        pruned.removed.append(path)
    gone = tuple(pruned.removed)
    result = Result.PRUNED if gone else Result.NOT_APPLIED
    record: Link | None = None
    try:
        record = log.append(intent.closed_by(result, operator=operator, detail=problem, backups=gone or None))
    except AuditError as exc:
        later = "etcdfix audit reconcile will do so later"
        problem = f"the outcome could not be recorded: {exc.message}; {later}"
    return msgspec.structs.replace(
        pruned, record=None if record is None else str(record), problem=unicode_text(problem)
    )


def _remove(directory: SafeDirectory, file: FoundFile, listed: Listed, step: Step) -> None:
    """Remove one file, if it is still the one that the log means."""
    now = look_at(directory.descriptor, file.path, marked=False)
    problem = now.what or "; ".join(now.exposed)
    if now.kind is FileKind.BACKUP and not problem:
        assert now.backup is not None  # which its kind says
        if now.backup.content_sha256 == listed.content_sha256 and listed.is_of(now.backup):
            directory.remove(file.path.name, what="backup pruned", step=step)
            return
        problem = "it is not the one that the audit log means"
    raise BackupUnreadable(f"backup {file.path}: {problem}; it was not removed", path=file.path)


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
    gone: list[str] = []
    try:
        for path in map(Path, intent.backups):
            path.parent.stat()  # a directory that is not mounted says nothing
            if not os.path.lexists(path):
                gone.append(str(path))
    except OSError as exc:
        detail = f"its directory cannot be looked at: {why(exc)}"
        return Reconciliation(intent=intent, result=Result.UNKNOWN, detail=detail, header_revision=0), ()
    result = Result.PRUNED if gone else Result.NOT_APPLIED
    detail = f"{len(gone)} of its {len(intent.backups)} files are gone"
    return Reconciliation(intent=intent, result=result, detail=detail, header_revision=0), tuple(gone)
