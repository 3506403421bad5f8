"""Backup, intent, one transaction, outcome: the only way in which etcdfix changes a key.

A deletion, a fix and an undo differ in what the transaction does and in what was checked before; from
here on they walk the same steps::

    places          backup directories are ours and last; audit log open, whole, locked; open intents about the same key
                    are reconciled first; room for the outcome
    signals         SIGINT, SIGTERM, SIGHUP and SIGQUIT wait until the outcome is recorded; no --timeout counts any more
    backup, intent  durable and read back, or nothing is done
    transaction     one, compared with what was examined and with the landmarks of its cluster, sent once; where an API
                    server is to write, its sender stands here (:mod:`~etcdfix.remediation.sending`)
    outcome         recorded; what nobody knows is recorded as unknown, never guessed
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

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
from etcdfix.remediation.datastore import Datastore
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    no_step,
    open_directory,
    probe,
)
from etcdfix.remediation.landmarks import Landmarks, find_elsewhere, sight
from etcdfix.remediation.places import RecordPaths, require_lasting
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import (
    Reconciliation,
    judge_reading,
    open_intents_of,
    predict,
    reconcile_intent,
)
from etcdfix.remediation.sending import Sender
from etcdfix.remediation.writer import Expected, TxnAnswer, Writer, evaluate_compare
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


def preview_only(
    now: Datastore,
    change: Write,
    places: RecordPaths,
    *,
    operator: Operator,
    log: AuditLog | None = None,
    step: Step = no_step,
) -> ChangeOutcome:
    """Do everything but the change: probe the places, look at the compare, record a dry run.

    Raises:
        RefusedByRule: The compare would not hold.
        RemediationRefused: An open intent of the same key cannot be settled here.
        NotDurable: A place cannot take a backup.
        AuditError: The record cannot be made durable.
        SourceError: etcd could not be asked.
    """
    with ExitStack() as stack:
        # First of all: where one is missing, no log is begun either.
        directories = _open_directories(stack, places, change, step)
        log, warnings = _open_log(stack, places, operator, log, step)
        for directory in directories:
            step("preview only: probe backup directory")
            probe(directory, step=step)
        if change.content is not None:
            # Names, size and number of directories are looked at as for the real thing.
            BackupPlan(resting_on(change.content, change.entry), directories, sequence=log.head.sequence + 1)
        warnings += _settle_first(log, change, "would be settled first", partial(predict, now))
        log.reserve()
        step("preview only: compare")
        outlook = evaluate_compare(now, change.expected)
        if outlook.difference is not None:
            rule, text, hint = outlook.difference
            raise refuse(rule, f"{display(change.key)}: {text}", hint=hint)
        entry = msgspec.structs.replace(
            change.entry,
            type=RecordType.DRY_RUN,
            header_revision=outlook.revision,
            value_sha256=change.content.value_sha256
            if change.content is not None
            else change.entry.value_sha256,
            detail="dry run: nothing was changed",
        )
        head = log.append(entry)
        return ChangeOutcome(
            result=None,
            detail="dry run: nothing was changed; it would go ahead",
            revision=outlook.revision,
            audit_log=log.path,
            head=head,
            warnings=tuple(warnings),
        )


def commit(
    now: Datastore,
    change: Write,
    places: RecordPaths,
    *,
    operator: Operator,
    by: EtcdClient | Sender,
    log: AuditLog | None = None,
    step: Step = no_step,
) -> ChangeOutcome:
    """Make the change, with backup and record.

    ``by`` is the connection for a transaction of our own, or who has somebody else make the change.

    Raises:
        RefusedByRule: The key moved, or another cluster answers; nothing was changed. The refusal is recorded.
        NotDurable: A backup could not be made durable; nothing was changed.
        AuditError: The intent could not be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
    """
    with ExitStack() as stack:
        directories = _open_directories(stack, places, change, step)
        log, warnings = _open_log(stack, places, operator, log, step)

        def settle(intent: Intent, **given: Any) -> Reconciliation:
            step("reconcile: open intent of the same key")
            return reconcile_intent(now, log, intent, operator, **given)

        warnings += _settle_first(log, change, "was settled", settle)
        log.reserve()  # not earlier: settling another intent would use it up
        with signals_held() as held:
            intent = _record(log, change, directories, step)
            try:
                if isinstance(by, EtcdClient):
                    outcome = _transact(by, change, intent, log, directories, operator, step)
                else:
                    outcome = _have_made(by, change, intent, log, operator, step)
            finally:
                if held:
                    warnings.append(f"{held[0]} arrived meanwhile and waited for the outcome")
        return msgspec.structs.replace(outcome, warnings=(*warnings, *outcome.warnings), signals=tuple(held))


def _open_log(
    stack: ExitStack, places: RecordPaths, operator: Operator, kept: AuditLog | None, step: Step
) -> tuple[AuditLog, list[str]]:
    path = places.log_path
    log = kept
    if log is None:
        log = stack.enter_context(open_log(places, operator, step))
    else:
        stack.callback(log.release)  # room that no outcome has used
    require_lasting(path.parent, named=places.audit_log is not None)
    warnings = [f"a torn last line of the audit log was set aside: {path}" for path in log.recovered]
    return log, warnings


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
    log: AuditLog, change: Write, became: str, settle: Callable[..., Reconciliation]
) -> list[str]:
    """Settle the open intents about the same key, or foretell it; say what became of each."""
    cluster, warnings = change.entry.cluster, []
    for intent in open_intents_of(log, change.key, cluster=cluster):
        try:
            found = settle(intent, cluster=cluster, accepted=change.accepted)
        except RefusedByRule as refusal:  # it is of another etcd, and of nothing that is done here
            warnings.append(refusal.message)
            continue
        said = f"{became}: {found.result}" if found.settled else "stays open"
        warnings += [f"the open intent {intent.link.sequence} {said}, {found.detail}", *found.warnings]
    return warnings


def _record(log: AuditLog, change: Write, directories: Sequence[SafeDirectory], step: Step) -> Intent:
    if change.content is not None:
        return record_intent(log, change.entry, change.content, directories, step=step)
    # Nothing is replaced, so there is nothing to back up.
    link = log.append(msgspec.structs.replace(change.entry, type=RecordType.INTENT))
    return log.intent(link.sequence)


def _transact(
    client: EtcdClient,
    change: Write,
    intent: Intent,
    log: AuditLog,
    directories: Sequence[SafeDirectory],
    operator: Operator,
    step: Step,
) -> ChangeOutcome:
    step("transaction: before send")
    try:
        with Writer(client) as writer:
            if change.value is None:
                answer = writer.compare_and_delete(change.expected)
            else:
                answer = writer.compare_and_put(change.expected, change.value, lease=change.lease)
    except (TransactionNotSent, TransactionRefused) as exc:
        result = Result.REFUSED if isinstance(exc, TransactionRefused) else Result.NOT_APPLIED
        log.append(intent.closed_by(result, operator=operator, detail=exc.message))
        raise
    except TransactionAnomaly as exc:
        return _anomaly(client, change, intent, log, directories, operator, exc.answer, exc.message, step)
    except TransactionUnanswered as exc:
        step("transaction: no answer")
        return _after_silence(client, change, intent, log, operator, exc)
    step("transaction: after answer")
    if answer.difference is not None:
        rule, text, hint = answer.difference
        text += "; nothing was changed" if answer.sent else "; no transaction was sent"
        log.append(
            intent.closed_by(Result.REFUSED, operator=operator, detail=text, header_revision=answer.revision)
        )
        raise refuse(rule, f"{display(change.key)}: {text}", hint=hint)
    if answer.previous != change.examined:
        detail = "the value that was there is not the one that was examined, although its revisions are"
        return _anomaly(client, change, intent, log, directories, operator, answer, detail, step)
    return _close(log, intent, operator, change.done, "", answer.revision)


def _have_made(
    sender: Sender, change: Write, intent: Intent, log: AuditLog, operator: Operator, step: Step
) -> ChangeOutcome:
    sent = sender.send(change.expected, step=step)
    if sent.refusal is not None:
        log.append(
            intent.closed_by(
                sent.result, operator=operator, detail=sent.detail, header_revision=sent.revision
            )
        )
        raise sent.refusal
    outcome = _close(log, intent, operator, sent.result, sent.detail, sent.revision)
    return msgspec.structs.replace(
        outcome, warnings=(*sent.warnings, *outcome.warnings), doubtful=sent.doubtful
    )


def _close(
    log: AuditLog,
    intent: Intent,
    operator: Operator,
    result: Result,
    detail: str,
    revision: int,
    second: Sequence[BackupPlan] = (),
) -> ChangeOutcome:
    """Record the outcome; where that fails, say what happened all the same, and that the record is missing."""
    more = tuple(str(path) for plan in second for path in plan.paths)
    entry = intent.closed_by(
        result,
        operator=operator,
        detail=detail,
        header_revision=revision,
        backups=more or None,
        backup_sha256=" ".join(plan.content_sha256 for plan in second) or None,
    )
    head, warnings = None, []
    try:
        head = log.append(entry)
    except EtcdfixError as exc:
        warnings.append(
            f"the outcome could not be recorded: {exc.message}; etcdfix audit reconcile will do so later"
        )
    return ChangeOutcome(
        result=result,
        detail=detail,
        revision=revision,
        backups=(*intent.backups, *more),
        values=(*([intent.value_sha256] if intent.backups else []), *(plan.value_sha256 for plan in second)),
        audit_log=log.path,
        head=head,
        warnings=tuple(warnings),
        unknown_cluster=not intent.cluster.is_known,
        patched=intent.is_patch,
    )


def _after_silence(
    client: EtcdClient,
    change: Write,
    intent: Intent,
    log: AuditLog,
    operator: Operator,
    error: TransactionUnanswered,
) -> ChangeOutcome:
    """No answer came, or an error that proves nothing: read the key again, and say no more than that shows."""
    try:
        sighting = sight(client, change.key, change.landmarks)
    except SourceError as exc:
        detail = f"{error.message}; reading the key again failed too: {exc.message}"
        return _close(log, intent, operator, Result.UNKNOWN, detail, 0)
    reading = sighting.reading
    elsewhere = find_elsewhere(change.landmarks, sighting.revisions, reading.revision)
    if elsewhere is not None:
        # How the key stands there says nothing of what was sent here.
        return _close(log, intent, operator, Result.UNKNOWN, f"{error.message}; {elsewhere.text}", 0)
    result, seen = judge_reading(intent, reading)
    present, revision = reading.stored, reading.revision
    if (
        present is not None
        and present.mod_revision > intent.header_revision
        and present.value == change.value
    ):
        # The revision of the put, as an answer would have said it: by it an undo recognises what we wrote.
        result, revision = change.done, present.mod_revision
        seen = f"the key holds the bytes of this intent at mod_revision {present.mod_revision}"
    if result is Result.NOT_APPLIED and not error.ended:
        # What was sent may still be on its way to a member that was slow.
        seen += (
            f" (as of revision {reading.revision}; a transaction that is still on its way could arrive later)"
        )
    return _close(log, intent, operator, result, f"{error.message}; {seen}", revision)


def _anomaly(
    client: EtcdClient,
    change: Write,
    intent: Intent,
    log: AuditLog,
    directories: Sequence[SafeDirectory],
    operator: Operator,
    answer: TxnAnswer,
    detail: str,
    step: Step,
) -> ChangeOutcome:
    """Something else came back than what was asked for: keep what was there, if there was anything else."""
    others = [
        stored for stored in dict.fromkeys(answer.returned) if answer.applied and stored != change.examined
    ]
    kept: list[BackupPlan] = []
    try:
        for other in others[:_MOST_KEPT]:
            content = _second_content(client, change, answer, operator, other)
            kept.append(
                keep_second_backup(content, directories, intent=intent, audit_log=log.path, step=step)
            )
    except NotDurable as exc:
        # etcd was changed already: that must be told whatever else fails.
        detail = f"{detail}; it could not be kept: {exc.message}"
    if kept:
        detail = f"{detail}; what was there was kept as a second backup"
    if len(others) > _MOST_KEPT:
        detail = f"{detail}; {len(others) - _MOST_KEPT} more values came back and were not kept"
    return _close(log, intent, operator, Result.ANOMALY, detail, answer.revision, kept)


def _second_content(
    client: EtcdClient, change: Write, answer: TxnAnswer, operator: Operator, other: StoredValue
) -> BackupContent:
    # What another cluster gave back would be no undo in this one.
    ours = answer.cluster_id == client.cluster_id
    content = make_content(
        other,
        purpose=ANOMALY,
        verdict=_NOT_EXAMINED,
        cluster=BackupCluster(
            (change.entry.cluster_uid or None) if ours else None,
            f"{answer.cluster_id:x}",
            (answer.endpoint,),
            answer.revision,
            change.entry.cluster if ours else None,
        ),
        operator=operator,
        reason=change.entry.reason,
        lease_ttl_seconds=None,
        at=datetime.now(UTC),
    )
    return resting_on(content, change.entry)


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
