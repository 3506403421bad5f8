"""Removes aged backups, with a record of each: a backup is the undo of a change, and often the only copy of an object.

Which ones may go is decided by the audit log alone, never by the file. Three rules keep a backup that is old enough:
the log does not mean exactly this file (``backup-unlisted``), nobody knows what became of its change (``backup-open``),
or its change left nothing else of the object (``only-copy``, which can be accepted).

The log stays locked, and everything is surveyed again. For each backup a record that its files are removed from here on
is made durable; then each is read and compared once more, and removed. A crash between the two leaves a file that the
log calls pruned; the next pruning removes it. No link is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from etcdfix.model.errors import EtcdfixError
from etcdfix.model.interruptions import signals_held
from etcdfix.model.rules import Rule, acceptance, refuse
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Operator, Record, RecordType, Result, Verb, unicode_text
from etcdfix.remediation.audit.verify import broken, is_there, read_records, refuse_broken, verify
from etcdfix.remediation.backup.folder import (
    Account,
    FoundFile,
    Listed,
    anchors_in,
    look_at,
    look_into,
    names_log,
    row_of,
    standing_of,
)
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, open_directory
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.change import Refusal
from etcdfix.report.document import Document
from etcdfix.report.log import BackupFinding, BackupPruning, BackupRow
from etcdfix.report.origin import TOOL, timestamp

NOT_REMOVED: Final = "not-removed"


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pruned: ``only-copy`` may be accepted."""

    before: datetime
    reason: str
    places: RecordPaths
    accepted: Acceptances = Acceptances()

    def report(
        self, *, dry_run: bool = True, refusal: Refusal | None = None, exit_code: int = 0
    ) -> BackupPruning:
        """Return the report of a pruning in which nothing was done."""
        return BackupPruning(
            tool=TOOL,
            generated_at=timestamp(),
            directories=[unicode_text(str(path)) for path in self.places.directories],
            audit_log=unicode_text(str(self.places.log_path)),
            before=timestamp(self.before),
            dry_run=dry_run,
            refusal=refusal,
            exit_code=exit_code,
        )


class _Going(NamedTuple):
    file: FoundFile
    listed: Listed
    row: BackupRow


def run_prune(
    request: PruneRequest,
    *,
    dry_run: bool,
    confirm: Callable[[int], bool],
    preview: Callable[[Document], None],
) -> BackupPruning:
    """Remove aged backups, or say which would go.

    Nothing was removed where it raises RemediationRefused, AuditError, AuditLogUnreadable or BackupUnreadable.
    """
    survey = survey_backups(request)
    if dry_run or not survey.backups:
        return msgspec.structs.replace(survey, dry_run=dry_run)
    preview(survey.document())
    if not confirm(survey.count):
        raise refuse(
            Rule.NOT_CONFIRMED,
            "their number was not typed back; nothing was removed",
            hint="type the number at a terminal, or give --yes in a script",
        )
    return prune_backups(request, survey, operator=Operator.of_this_process())


def survey_backups(request: PruneRequest) -> BackupPruning:
    """Say what may go, and change nothing; raises what :func:`run_prune` raises."""
    log = request.places.log_path
    if not is_there(log):
        hint = "name the log of these backups with --audit-log; nothing goes without one"
        raise broken(log, "it is not there", hint=hint)
    with ExitStack() as stack:
        files = _look(_open_directories(stack, request))
        refuse_broken(log, verify(log, anchors=anchors_in(files, log)))
        report, going = _survey(request, files, Account(read_records(log)))
    return msgspec.structs.replace(report, backups=[one.row for its in going.values() for one in its])


def prune_backups(
    request: PruneRequest, agreed: BackupPruning, *, operator: Operator, step: Step = no_step
) -> BackupPruning:
    """Remove what was agreed upon, as far as it may still go; raises what :func:`run_prune` raises."""
    path = request.places.log_path
    with ExitStack() as stack:
        directories = _open_directories(stack, request, step)
        log = stack.enter_context(request.places.open_log(operator, step))
        files = _look(directories)
        log.check(anchors_in(files, path))
        report, going = _survey(request, files, Account(log.records()))
        stopped = ""
        with signals_held() as held:
            for name in dict.fromkeys(one.content_sha256 for one in agreed.backups):
                stopped = f"{held[0]} arrived" if held else ""
                try:
                    if not stopped and name in going:
                        report.kept.extend(_prune(log, going[name], directories, request, operator))
                        report.backups.extend(one.row for one in going[name])
                except EtcdfixError as exc:
                    if not report.backups:
                        raise
                    stopped = unicode_text(exc.message)
                if stopped:
                    break
        unfinished = stopped or not all(one.removed for one in report.backups)
        torn = (f"a torn last line of the audit log was set aside: {torn}" for torn in log.recovered)
        return msgspec.structs.replace(
            report,
            dry_run=False,
            stopped=stopped,
            warnings=list(map(unicode_text, torn)),
            audit_log_head=str(log.head),
            exit_code=3 if unfinished else report.exit_code,
        )


def _open_directories(stack: ExitStack, request: PruneRequest, step: Step = no_step) -> list[SafeDirectory]:
    return [stack.enter_context(open_directory(path, step=step)) for path in request.places.directories]


def _look(directories: Sequence[SafeDirectory]) -> list[FoundFile]:
    found = {file.path: file for one in directories for file in look_into(one.descriptor, one.path)}
    return list(found.values())


def _survey(
    request: PruneRequest, files: Sequence[FoundFile], account: Account
) -> tuple[BackupPruning, dict[str, list[_Going]]]:
    report, going, younger = request.report(), list[_Going](), 0
    for file in files:
        backup, listed, standing = file.backup, None, ""
        if backup is not None:
            standing, listed = standing_of(file, backup, account, request.places.log_path)
            # By the later word of file and log.
            if (
                max(map(_time, [backup.content.created_at, *([listed.at] if listed else [])]))
                >= request.before
            ):
                younger += 1
                continue
        elif not file.named_as_backup:
            continue
        kept = _why_kept(request, file, listed)
        if kept is not None:
            number = None if backup is None else backup.intent.sequence
            path = unicode_text(str(file.path))
            report.kept.append(BackupFinding(True, kept[0], unicode_text(kept[1]), path, number))
        elif backup is not None and listed is not None:
            going.append(_Going(file, listed, row_of(file.path, backup, standing, listed)))
    by_content: dict[str, list[_Going]] = {}
    for one in sorted(going, key=lambda one: one.row.intent):
        by_content.setdefault(one.row.content_sha256, []).append(one)
    report = msgspec.structs.replace(report, younger=younger, exit_code=4 if report.kept else 0)
    return report, by_content


def _time(text: str) -> datetime:
    """Read a time; what is none counts as now."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _why_kept(request: PruneRequest, file: FoundFile, listed: Listed | None) -> tuple[Rule, str] | None:
    if file.exposed or file.backup is None:
        return Rule.BACKUP_UNLISTED, file.what or f"it {'; '.join(file.exposed)}"
    if listed is None:
        other = file.backup.intent.audit_log
        ours = names_log(file.backup, request.places.log_path)
        return (
            Rule.BACKUP_UNLISTED,
            "the audit log does not know it" if ours else f"it belongs to another log: {other}",
        )
    if unicode_text(str(file.path)) not in listed.paths:
        return Rule.BACKUP_UNLISTED, f"it is a copy: the audit log has it as {', '.join(listed.paths)}"
    number = listed.intent.link.sequence
    if file.marked or listed.outcome is None:
        return Rule.BACKUP_OPEN, f"nobody knows what became of intent {number}: etcdfix log settle says"
    ended = f"intent {number} ended as {listed.outcome}"
    if listed.outcome is Result.ANOMALY:
        return Rule.BACKUP_OPEN, f"{ended}: it may be the only copy of what was there"
    if listed.outcome not in {Result.FIXED, Result.UNDONE} and not request.accepted.accepts(Rule.ONLY_COPY):
        told = f"{ended}: it may be the only copy of that object; {acceptance(Rule.ONLY_COPY)} removes it too"
        return Rule.ONLY_COPY, told
    return None


def _prune(
    log: AuditLog,
    going: list[_Going],
    directories: Sequence[SafeDirectory],
    request: PruneRequest,
    operator: Operator,
) -> Iterator[BackupFinding]:
    """Remove the files of one backup, up to the first that cannot be removed, which is yielded."""
    intent, row = going[0].listed.intent, going[0].row
    record = Record(
        type=RecordType.PRUNE,
        verb=Verb.PRUNE,
        operator=operator,
        subject=intent.subject,
        reason=request.reason,
        cluster_uid=intent.cluster_uid,
        value_sha256=intent.value_sha256,
        backups=tuple(one.row.path for one in going),
        backup_sha256=row.content_sha256,
        detail=f"the backup of intent {row.intent} ({row.command}), made {row.made_at}, is removed from here on",
        accepted=request.accepted.as_flags(),
    )
    link = str(log.append(record))
    for one in going:
        one.row.record = link
    by_path = {directory.path: directory for directory in directories}
    for file, listed, row in going:
        directory = by_path[file.path.parent]
        # It must still be the one that the log means.
        now, problem = look_at(directory.descriptor, file.path), ""
        if now.backup is None or now.exposed or not listed.is_of(now.backup):
            problem = now.what or "; ".join(now.exposed) or "it is not the one that the audit log means"
        else:
            try:
                directory.remove(file.path.name, what="backup pruned")
                row.removed = True
            except EtcdfixError as exc:
                problem = exc.message
        if problem:
            yield BackupFinding(True, NOT_REMOVED, unicode_text(problem), row.path, row.intent)
            return
