"""Backup, intent, one transaction, outcome: the only way in which etcdfix changes a key.

A deletion, a fix and an undo differ in what the transaction does and in what was checked before; from here on they walk
the same steps, and a dry run walks them without the intent::

    places          backup directories are ours and last; audit log open, whole, locked; open intents about the same key
                    are reconciled first; room for the outcome
    signals         SIGINT, SIGTERM, SIGHUP and SIGQUIT wait until the outcome is recorded; no --timeout counts any more
    backup, intent  durable and read back, or nothing is done
    transaction     one, compared with what was examined and with the landmarks of its cluster, sent once; where an API
                    server is to write, its :class:`Sender` stands here
    outcome         recorded; what nobody knows is recorded as unknown, never guessed
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

import msgspec

from etcdfix.errors import (
    EtcdfixError,
    NotDurable,
    RefusedByRule,
    SourceError,
    TransactionAnomaly,
    TransactionNotSent,
    TransactionRefused,
    TransactionUnanswered,
)
from etcdfix.model import Confidence, Outcome, ServerBehaviour, StoredValue
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Entry, Intent, Link, Operator, RecordType, Result
from etcdfix.remediation.backup.file import BackupCluster, BackupContent, make_content
from etcdfix.remediation.backup.write import (
    ANOMALY,
    BackupPlan,
    keep_second_backup,
    record_intent,
    resting_on,
)
from etcdfix.remediation.datastore import (
    Datastore,
    EtcdNow,
    Expected,
    Landmarks,
    find_difference,
    find_elsewhere,
)
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, open_directory, probe
from etcdfix.remediation.places import RecordPaths, require_lasting
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import judge_reading, open_intents_of, predict, reconcile_intent
from etcdfix.remediation.writer import TxnAnswer, send_transaction
from etcdfix.rules import refuse
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.storagekey import display
from etcdfix.text.safetext import shown_key
from etcdfix.verdicts.judge import Verdict

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# One record is what a transaction about one key gives back; a bound for whatever an anomaly may bring.
_MOST_KEPT = 16
# Nothing is found out about it between the answer and the record.
_NOT_EXAMINED = Verdict(
    outcome=Outcome.UNDETERMINED,
    cause=None,
    confidence=Confidence.POSSIBLE,
    apiserver=ServerBehaviour.NOT_ASKED,
    message="etcd gave it back although another value was expected; it was not examined",
)


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done to one key.

    Attributes:
        entry: Its intent, but for digests and backups.
        landmarks: Of the cluster in which the key was examined, read before anything else was.
        content: What the backup holds, which is what was examined; None where there was nothing.
        value: What to put; None deletes, unless a sender has it made.
        done: What the outcome is called when all went well.
        accepted: What is accepted of intents that are reconciled first.
    """

    entry: Entry
    landmarks: Landmarks
    content: BackupContent | None
    value: bytes | None = None
    lease: int = 0
    done: Result
    accepted: Acceptances = Acceptances()

    def __repr__(self) -> str:
        # Without the bytes to put: under identity they are plaintext.
        size = "nothing" if self.value is None else f"{len(self.value)} bytes"
        return f"Write({self.entry.verb}, {shown_key(self.key)!r}, {self.examined!r}, to {size})"

    @property
    def key(self) -> bytes:
        """Which key."""
        assert self.entry.subject is not None  # only torn lines have none
        return self.entry.subject.key

    @property
    def examined(self) -> StoredValue | None:
        """What was examined at it; None where there was nothing."""
        return self.content.stored if self.content is not None else None

    @property
    def expected(self) -> Expected:
        """What must still be so."""
        return Expected(key=self.key, stored=self.examined, landmarks=self.landmarks)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change that was sent, as a transaction or as a request to an API server.

    Attributes:
        result: For the record; ``unknown`` leaves the intent open.
        detail: One sentence, for the record too: nothing of any object's contents.
        doubtful: It was made, and something about it is not as it should be.
        refusal: To be raised once the outcome is recorded; None where the change was made, or may have been.
        answer: Of a transaction that was made, and gave back something else than what was examined.
    """

    result: Result
    detail: str = ""
    revision: int = 0
    warnings: tuple[str, ...] = ()
    doubtful: bool = False
    refusal: EtcdfixError | None = None
    answer: TxnAnswer | None = None


class Sender(Protocol):
    """Asks an API server once for one change, and finds out what became of it."""

    def send(self, expected: Expected, *, step: Step) -> Sent:
        """Ask for the change if the key stands as examined; never raises for what goes wrong on the way."""
        ...


class ChangeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change.

    Attributes:
        result: See :class:`~etcdfix.remediation.audit.record.Result`; None for a dry run.
        revision: etcd's revision after it, 0 where unknown.
        values: Digests of the values that these hold, in their order, each once: to be written down, for a backup whose
            log is lost restores only for whoever brings the digest.
        head: Its head afterwards, for ``--expect-head``; None where the outcome could not be recorded.
        doubtful: It was made and recorded, and what etcd holds then is not known to be what was written.
        unknown_cluster: Nothing named the cluster, as accepted; whatever follows up on it needs that accepted as well.
        patched: An API server was asked to make it: there is no undo, since nobody could read the old value.
        signals: Names of those that came between intent and outcome, and are still to be heeded by who has more to do.
    """

    result: Result | None
    detail: str
    revision: int = 0
    backups: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    audit_log: Path
    head: Link | None = None
    warnings: tuple[str, ...] = ()
    doubtful: bool = False
    unknown_cluster: bool = False
    patched: bool = False
    signals: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """What etcd holds then is known and recorded."""
        return not self.doubtful and self.head is not None


def commit(
    now: Datastore,
    change: Write,
    places: RecordPaths,
    *,
    operator: Operator,
    by: EtcdClient | Sender | None,
    log: AuditLog | None = None,
    step: Step = no_step,
) -> ChangeOutcome:
    """Make the change, with backup and record.

    ``by`` is the connection for a transaction of our own, or who has somebody else make the change. None for a dry run:
    everything but the change, with the places probed, the compare looked at, and a record that says so.

    Raises:
        RefusedByRule: The key moved, or another cluster answers; nothing was changed. A refusal of what was sent is
            recorded.
        RemediationRefused: An open intent of the same key cannot be settled here.
        NotDurable: A backup could not be made durable; nothing was changed.
        AuditError: The intent could not be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    with ExitStack() as stack:
        # First of all: where one is missing, no log is begun either.
        directories = _open_directories(stack, places, change, step)
        if log is None:
            log = stack.enter_context(open_log(places, operator, step))
        else:
            stack.callback(log.release)  # room that no outcome has used
        require_lasting(log.path.parent, named=places.audit_log is not None)
        warnings = [f"a torn last line of the audit log was set aside: {path}" for path in log.recovered]
        if by is None:
            for directory in directories:
                step("preview only: probe backup directory")
                probe(directory, step=step)
            if change.content is not None:
                # Names, size and number of directories are looked at as for the real thing.
                content = resting_on(change.content, change.entry)
                BackupPlan(content, directories, sequence=log.head.sequence + 1)
        warnings += _settle_first(now, log, change, None if by is None else operator, step)
        log.reserve()  # not earlier: settling another intent would use it up
        if by is None:
            return _compare_only(now, log, change, warnings, step)
        with signals_held() as held:
            intent = _record(log, change, directories, step)
            sent = (
                _transact(by, change, intent, step)
                if isinstance(by, EtcdClient)
                else by.send(change.expected, step=step)
            )
            if sent.refusal is not None:
                log.append(
                    intent.closed_by(
                        sent.result, operator=operator, detail=sent.detail, header_revision=sent.revision
                    )
                )
                raise sent.refusal
            kept, detail = _keep_others(by, change, intent, log, directories, operator, sent, step)
            outcome = _close(log, intent, operator, msgspec.structs.replace(sent, detail=detail), kept)
        if held:
            warnings.append(f"{held[0]} arrived meanwhile and waited for the outcome")
        return msgspec.structs.replace(outcome, warnings=(*warnings, *outcome.warnings), signals=tuple(held))


def open_log(places: RecordPaths, operator: Operator, step: Step = no_step) -> AuditLog:
    """Open the audit log of changes, locked until it is closed.

    Raises:
        AuditError: It is broken, or somebody else writes to it.
    """
    return AuditLog.open(
        places.log_path,
        step=step,
        create_directory=places.audit_log is None,
        operator=operator,
        syslog=places.syslog,
    )


def _open_directories(
    stack: ExitStack, places: RecordPaths, change: Write, step: Step
) -> list[SafeDirectory]:
    named = bool(places.backup_directories)
    if change.content is None and not named:
        return []  # there is nothing to back up
    directories: list[SafeDirectory] = []
    for path in places.directories:
        directory = stack.enter_context(open_directory(path, create=not named, step=step))
        require_lasting(directory.path, named=named)
        directories.append(directory)
    return directories


def _settle_first(
    now: Datastore, log: AuditLog, change: Write, operator: Operator | None, step: Step
) -> list[str]:
    """Settle the open intents about the same key, or foretell it without an operator; say what became of each."""
    cluster, accepted, warnings = change.entry.cluster, change.accepted, []
    for intent in open_intents_of(log, change.key, cluster=cluster):
        try:
            if operator is None:
                became, found = "would be", predict(now, intent, cluster=cluster, accepted=accepted)
            else:
                step("reconcile: open intent of the same key")
                became = "was"
                found = reconcile_intent(now, log, intent, operator, cluster=cluster, accepted=accepted)
        except RefusedByRule as refusal:  # it is of another etcd, and of nothing that is done here
            warnings.append(refusal.message)
            continue
        first = " first" if operator is None else ""
        said = f"{became} settled{first}: {found.result}" if found.settled else "stays open"
        warnings += [f"the open intent {intent.link.sequence} {said}, {found.detail}", *found.warnings]
    return warnings


def _compare_only(
    now: Datastore, log: AuditLog, change: Write, warnings: Sequence[str], step: Step
) -> ChangeOutcome:
    """Say what the compare would find: the channel for reading does not take ``KV/Txn``, and is not to learn it."""
    step("preview only: compare")
    seen = now.sight(change.key, change.landmarks)
    difference = find_difference(change.expected, seen)
    if difference is not None:
        raise refuse(difference.rule, f"{display(change.key)}: {difference.text}", hint=difference.hint)
    entry, content = change.entry, change.content
    head = log.append(
        msgspec.structs.replace(
            entry,
            type=RecordType.DRY_RUN,
            header_revision=seen.reading.revision,
            value_sha256=entry.value_sha256 if content is None else content.value_sha256,
            detail="dry run: nothing was changed",
        )
    )
    return ChangeOutcome(
        result=None,
        detail="dry run: nothing was changed; it would go ahead",
        revision=seen.reading.revision,
        audit_log=log.path,
        head=head,
        warnings=tuple(warnings),
    )


def _record(log: AuditLog, change: Write, directories: Sequence[SafeDirectory], step: Step) -> Intent:
    if change.content is not None:
        return record_intent(log, change.entry, change.content, directories, step=step)
    # Nothing is replaced, so there is nothing to back up.
    link = log.append(msgspec.structs.replace(change.entry, type=RecordType.INTENT))
    return log.intent(link.sequence)


def _transact(client: EtcdClient, change: Write, intent: Intent, step: Step) -> Sent:
    step("transaction: before send")
    try:
        answer = send_transaction(client, change.expected, change.value, lease=change.lease)
    except (TransactionNotSent, TransactionRefused) as exc:
        result = Result.REFUSED if isinstance(exc, TransactionRefused) else Result.NOT_APPLIED
        return Sent(result=result, detail=exc.message, refusal=exc)
    except TransactionAnomaly as exc:
        revision = exc.answer.revision
        return Sent(result=Result.ANOMALY, detail=exc.message, revision=revision, answer=exc.answer)
    except TransactionUnanswered as exc:
        step("transaction: no answer")
        return _after_silence(EtcdNow(client), change, intent, exc)
    step("transaction: after answer")
    if answer.difference is not None:
        rule, text, hint = answer.difference
        text += "; nothing was changed" if answer.sent else "; no transaction was sent"
        refusal = refuse(rule, f"{display(change.key)}: {text}", hint=hint)
        return Sent(result=Result.REFUSED, detail=text, revision=answer.revision, refusal=refusal)
    if answer.previous != change.examined:
        detail = "the value that was there is not the one that was examined, although its revisions are"
        return Sent(result=Result.ANOMALY, detail=detail, revision=answer.revision, answer=answer)
    return Sent(result=change.done, revision=answer.revision)


def _after_silence(now: Datastore, change: Write, intent: Intent, error: TransactionUnanswered) -> Sent:
    """No answer came, or an error that proves nothing: read the key again, and say no more than that shows."""
    try:
        sighting = now.sight(change.key, change.landmarks)
    except SourceError as exc:
        detail = f"{error.message}; reading the key again failed too: {exc.message}"
        return Sent(result=Result.UNKNOWN, detail=detail)
    elsewhere = find_elsewhere(change.landmarks, sighting)
    if elsewhere is not None:
        # How the key stands there says nothing of what was sent here.
        return Sent(result=Result.UNKNOWN, detail=f"{error.message}; {elsewhere.text}")
    reading = sighting.reading
    result, seen = judge_reading(intent, reading)
    present, revision = reading.stored, reading.revision
    later = present is not None and present.mod_revision > intent.header_revision
    if present is not None and later and present.value == change.value:
        # The revision of the put, as an answer would have said it: by it an undo recognises what we wrote.
        result, revision = change.done, present.mod_revision
        seen = f"the key holds the bytes of this intent at mod_revision {present.mod_revision}"
    if result is Result.NOT_APPLIED and not error.ended:
        # What was sent may still be on its way to a member that was slow.
        seen += f" (as of revision {revision}; a transaction that is still on its way could arrive later)"
    return Sent(result=result, detail=f"{error.message}; {seen}", revision=revision)


def _keep_others(
    by: EtcdClient | Sender,
    change: Write,
    intent: Intent,
    log: AuditLog,
    directories: Sequence[SafeDirectory],
    operator: Operator,
    sent: Sent,
    step: Step,
) -> tuple[list[BackupPlan], str]:
    """Something else came back than what was asked for: keep what was there, if there was anything else."""
    kept: list[BackupPlan] = []
    answer, detail = sent.answer, sent.detail
    if answer is None or not answer.applied or not isinstance(by, EtcdClient):
        return kept, detail
    # What another cluster gave back would be no undo in this one.
    ours = answer.cluster_id == by.cluster_id
    cluster = BackupCluster(
        (change.entry.cluster_uid or None) if ours else None,
        f"{answer.cluster_id:x}",
        (answer.endpoint,),
        answer.revision,
        change.entry.cluster if ours else None,
    )
    others = [stored for stored in dict.fromkeys(answer.returned) if stored != change.examined]
    try:
        for other in others[:_MOST_KEPT]:
            content = make_content(
                other,
                purpose=ANOMALY,
                verdict=_NOT_EXAMINED,
                cluster=cluster,
                operator=operator,
                reason=change.entry.reason,
                lease_ttl_seconds=None,
                at=datetime.now(UTC),
            )
            resting = resting_on(content, change.entry)
            kept.append(
                keep_second_backup(resting, directories, intent=intent, audit_log=log.path, step=step)
            )
    except NotDurable as exc:
        # etcd was changed already: that must be told whatever else fails.
        detail += f"; it could not be kept: {exc.message}"
    if kept:
        detail += "; what was there was kept as a second backup"
    if len(others) > _MOST_KEPT:
        detail += f"; {len(others) - _MOST_KEPT} more values came back and were not kept"
    return kept, detail


def _close(
    log: AuditLog, intent: Intent, operator: Operator, sent: Sent, second: Sequence[BackupPlan]
) -> ChangeOutcome:
    """Record the outcome; where that fails, say what happened all the same, and that the record is missing."""
    more = tuple(str(path) for plan in second for path in plan.paths)
    entry = intent.closed_by(
        sent.result,
        operator=operator,
        detail=sent.detail,
        header_revision=sent.revision,
        backups=more or None,
        backup_sha256=" ".join(plan.content_sha256 for plan in second) or None,
    )
    head, warnings = None, sent.warnings
    try:
        head = log.append(entry)
    except EtcdfixError as exc:
        missing = (
            f"the outcome could not be recorded: {exc.message}; etcdfix audit reconcile will do so later"
        )
        warnings = (*warnings, missing)
    return ChangeOutcome(
        result=sent.result,
        detail=sent.detail,
        revision=sent.revision,
        backups=(*intent.backups, *more),
        values=(*([intent.value_sha256] if intent.backups else []), *(plan.value_sha256 for plan in second)),
        audit_log=log.path,
        head=head,
        warnings=warnings,
        doubtful=sent.doubtful,
        unknown_cluster=not intent.cluster.is_known,
        patched=intent.is_patch,
    )


@contextmanager
def signals_held() -> Iterator[list[str]]:
    """Let the signals wait that a person, a terminal or a service manager sends; yield the names of those that came.

    From here on no ``--timeout`` counts any more either: one that is over is heard before anything is recorded.
    """
    signal.setitimer(signal.ITIMER_REAL, 0)
    came: list[str] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in _HELD}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
