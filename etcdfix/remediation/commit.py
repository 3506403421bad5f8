"""Backup, intent, one transaction, outcome: the only way in which etcdfix changes a key.

A deletion, a fix and an undo differ in what the transaction does and in what was checked before; from here on they walk
the same steps, and a dry run walks them without the intent::

    places          backup directories are ours and last; audit log open, whole, locked; open intents about the same key
                    are reconciled first; room for the outcome
    signals         SIGINT, SIGTERM, SIGHUP and SIGQUIT wait until the outcome is recorded; no --timeout counts any more
    backup, intent  durable and read back, or nothing is done
    transaction     one, compared with what was examined and with the landmarks of its cluster, sent once; where an API
                    server is to write, its PATCH stands here
    outcome         recorded; what nobody knows is recorded as unknown, never guessed
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.model.errors import EtcdfixError, SourceError
from etcdfix.model.interruptions import signals_held
from etcdfix.model.model import Confidence, Outcome, ServerBehaviour, StoredValue
from etcdfix.model.rules import refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, Operator, Record, RecordType, Result
from etcdfix.remediation.backup.file import (
    ANOMALY,
    BackupCluster,
    BackupContent,
    BackupPlan,
    keep_second_backup,
    make_content,
    record_intent,
    resting_on,
)
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.datastore import (
    Datastore,
    EtcdNow,
    Expected,
    Landmarks,
    find_difference,
    find_elsewhere,
)
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, probe
from etcdfix.remediation.errors import (
    NotDurable,
    TransactionAnomaly,
    TransactionNotSent,
    TransactionRefused,
    TransactionUnanswered,
)
from etcdfix.remediation.places import RecordPaths, lasting_warnings
from etcdfix.remediation.settle import judge_reading, settle_open
from etcdfix.remediation.writer import TxnAnswer, send_transaction
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.text.safetext import shown_key

if TYPE_CHECKING:
    from etcdfix.remediation.memory.patch import PatchSender

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

    entry: Record
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
    by: EtcdClient | PatchSender | None,
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
        # Without a value that is replaced there is nothing to back up.
        needed = change.content is not None or places.backup_directories
        directories = places.open_directories(stack, step) if needed else []
        if log is None:
            log = stack.enter_context(places.open_log(operator, step))
        else:
            stack.callback(log.release)  # room that no outcome has used
        lasting_warnings(log.path.parent, named=places.audit_log is not None)
        warnings = [f"a torn last line of the audit log was set aside: {path}" for path in log.recovered]
        run = _Run(now, change, operator, directories, log, step)
        if by is None:
            run.probe()
        warnings += run.settle_first(for_real=by is not None)
        log.reserve()  # not earlier: settling another intent would use it up
        if by is None:
            outcome, held = run.compare_only(), []
        else:
            with signals_held() as held:
                outcome = run.make(by)
            if held:
                warnings.append(f"{held[0]} arrived meanwhile and waited for the outcome")
        return msgspec.structs.replace(outcome, warnings=(*warnings, *outcome.warnings), signals=tuple(held))


class _Run(NamedTuple):
    """One change on its way: its places are open, and its log is locked."""

    now: Datastore
    change: Write
    operator: Operator
    directories: Sequence[SafeDirectory]
    log: AuditLog
    step: Step

    def probe(self) -> None:
        """See whether a backup could be made, without making one."""
        for directory in self.directories:
            self.step("preview only: probe backup directory")
            probe(directory)
        if self.change.content is not None:
            # Names, size and number of directories are looked at as for the real thing.
            content = resting_on(self.change.content, self.change.entry)
            BackupPlan(content, self.directories, sequence=self.log.head.sequence + 1)

    def settle_first(self, *, for_real: bool) -> list[str]:
        """Settle the open intents about the same key, or foretell it; say what became of each."""
        change, said = self.change, list[str]()
        operator, cluster = self.operator if for_real else None, change.entry.cluster
        for _ in settle_open(
            self.now,
            self.log,
            {change.key},
            operator,
            cluster=cluster,
            accepted=change.accepted,
            say=said.append,
        ):
            self.step("reconcile: open intent of the same key")
        return said

    def compare_only(self) -> ChangeOutcome:
        """Say what the compare would find: the channel for reading does not take ``KV/Txn``, and is not to learn it."""
        self.step("preview only: compare")
        entry, content = self.change.entry, self.change.content
        seen = self.now.sight(self.change.key, self.change.landmarks)
        difference = find_difference(self.change.expected, seen)
        if difference is not None:
            rule, text, hint = difference
            raise refuse(rule, f"{display(self.change.key)}: {text}", hint=hint)
        head = self.log.append(
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
            audit_log=self.log.path,
            head=head,
        )

    def make(self, by: EtcdClient | PatchSender) -> ChangeOutcome:
        """Record the intent, send the change, and record what became of it."""
        intent = self._record()
        if isinstance(by, EtcdClient):
            sent = _transact(by, self.change, intent, self.step)
        else:
            sent = by.send(self.change.expected, step=self.step)
        if sent.refusal is not None:
            self.log.append(self._closed(intent, sent))
            raise sent.refusal
        kept: list[BackupPlan] = []
        if sent.answer is not None and sent.answer.applied:
            kept, trouble = self._keep_others(intent, sent.answer)
            sent = msgspec.structs.replace(sent, detail=sent.detail + trouble)
        return self._close(intent, sent, kept)

    def _record(self) -> Record:
        entry, content = self.change.entry, self.change.content
        if content is not None:
            return record_intent(self.log, entry, content, self.directories)
        # Nothing is replaced, so there is nothing to back up.
        link = self.log.append(msgspec.structs.replace(entry, type=RecordType.INTENT))
        return self.log.intent(link.sequence)

    def _keep_others(self, intent: Record, answer: TxnAnswer) -> tuple[list[BackupPlan], str]:
        """Something else came back than what was asked for: keep what was there, if there was anything else."""
        entry, kept, said = self.change.entry, [], ""
        # What another cluster gave back would be no undo in this one.
        cluster = BackupCluster(
            entry.cluster_uid or None if answer.is_ours else None,
            f"{answer.cluster_id:x}",
            (answer.endpoint,),
            answer.revision,
            entry.cluster if answer.is_ours else None,
        )
        others = [stored for stored in dict.fromkeys(answer.returned) if stored != self.change.examined]
        try:
            for other in others[:_MOST_KEPT]:
                content = make_content(
                    other,
                    purpose=ANOMALY,
                    verdict=_NOT_EXAMINED,
                    cluster=cluster,
                    operator=self.operator,
                    reason=entry.reason,
                    lease_ttl_seconds=None,
                    at=datetime.now(UTC),
                )
                resting, log = resting_on(content, entry), self.log.path
                kept.append(keep_second_backup(resting, self.directories, intent=intent, audit_log=log))
        except NotDurable as exc:
            # etcd was changed already: that must be told whatever else fails.
            said += f"; it could not be kept: {exc.message}"
        if kept:
            said += "; what was there was kept as a second backup"
        if len(others) > _MOST_KEPT:
            said += f"; {len(others) - _MOST_KEPT} more values came back and were not kept"
        return kept, said

    def _closed(self, intent: Record, sent: Sent, second: Sequence[BackupPlan] = ()) -> Record:
        return intent.closed_by(
            sent.result,
            operator=self.operator,
            detail=sent.detail,
            header_revision=sent.revision,
            backups=tuple(str(path) for plan in second for path in plan.paths),
            backup_sha256=" ".join(plan.content_sha256 for plan in second),
        )

    def _close(self, intent: Record, sent: Sent, second: Sequence[BackupPlan]) -> ChangeOutcome:
        """Record the outcome; where that fails, say what happened all the same, and that the record is missing."""
        head, warnings = None, sent.warnings
        try:
            head = self.log.append(self._closed(intent, sent, second))
        except EtcdfixError as exc:
            missing = f"the outcome could not be recorded: {exc.message}; etcdfix log settle will do so later"
            warnings = (*warnings, missing)
        values = [intent.value_sha256] if intent.backups else []
        return ChangeOutcome(
            result=sent.result,
            detail=sent.detail,
            revision=sent.revision,
            backups=(*intent.backups, *(str(path) for plan in second for path in plan.paths)),
            values=(*values, *(plan.value_sha256 for plan in second)),
            audit_log=self.log.path,
            head=head,
            warnings=warnings,
            doubtful=sent.doubtful,
            unknown_cluster=not intent.cluster.is_known,
            patched=intent.is_patch,
        )


def _transact(client: EtcdClient, change: Write, intent: Record, step: Step) -> Sent:
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


def _after_silence(now: Datastore, change: Write, intent: Record, error: TransactionUnanswered) -> Sent:
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
