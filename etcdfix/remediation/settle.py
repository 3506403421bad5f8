"""What became of an intent whose outcome nobody recorded: read the key, decide, append.

A deletion leaves no trace of who asked for it, so a key that is gone is ``applied-or-gone``, never ``deleted``. A
marker beside the backup proves that nothing was sent; etcd's revisions only grow, so a cluster that stands at an
earlier one was put back to an older state, and the question cannot be answered there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.model.errors import RefusedByRule, RemediationRefused, SourceError
from etcdfix.model.model import ClusterIdentity, StoredValue, digest_of
from etcdfix.model.rules import Rule, acceptance
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Operator, Record, Result, Verb, unicode_text
from etcdfix.remediation.backup.file import MARKER_SUFFIX, BackupCluster, confirm_backups, read_backup
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.datastore import Datastore, KeyReading
from etcdfix.remediation.errors import BackupUnreadable, NotDurable
from etcdfix.remediation.same_etcd import Recorded, compare_with_etcd, other_etcd
from etcdfix.report.log import SettledIntent
from etcdfix.text.safetext import quote_command

_NOTHING: Final = Acceptances()
_PUTS: Final = {Verb.FIX: Result.FIXED, Verb.UNDO: Result.UNDONE}


class PatchProof(NamedTuple):
    """Whether a stored value opens and carries what an intent asked an API server to write; None: it cannot be told."""

    ours: bool | None
    why: str = ""


WasPatched = Callable[[Record, StoredValue], PatchProof]
"""Examines a value of which an intent says that an API server was to write it."""


def predict(
    now: Datastore,
    intent: Record,
    *,
    cluster: ClusterIdentity,
    accepted: Acceptances = _NOTHING,
    was_patched: WasPatched | None = None,
) -> SettledIntent:
    """Say what became of an intent, and record nothing; raises RemediationRefused where that must not be said here.

    Accepted may be ``unknown-cluster``, where nothing tells whether the intent is about this cluster, and
    ``other-cluster-id``, where it is of another etcd, the snapshot or data of which this one has. ``was_patched``
    is None where nothing here can open what an API server was to write.
    """
    _refuse_other_cluster(intent, cluster, accepted)
    try:
        reading = now.read_key(intent.subject.key)
        recorded = Recorded.of_intent(intent, cluster_id=_made_in(intent).cluster_id)
        held = compare_with_etcd(now, recorded, cluster, reading)
    except SourceError as exc:
        detail = f"how the key stands could not be read: {exc.message}"
        return settled_intent(intent, Result.UNKNOWN, detail)
    outcome, detail = judge_reading(
        intent, reading, nothing_was_sent=_is_unconfirmed(intent), was_patched=was_patched
    )
    contradiction = held.contradiction or (detail if outcome is Result.ANOMALY else "")
    other = held.other_id
    if contradiction and not other:
        if held.has_same_id and not held.is_older:
            # Members disagree, or it is a copy of that etcd's data: what stands here says nothing of the outcome.
            outcome, detail = Result.ANOMALY, contradiction
        else:
            other = contradiction
    if other and not accepted.accepts(Rule.OTHER_CLUSTER_ID):
        raise other_etcd(f"intent {intent.link.sequence}, which stays open,", other)
    revision, present = reading.revision, reading.stored
    was_put = outcome not in {Result.NOT_APPLIED, Result.ANOMALY}
    if was_put and present is not None and _is_its_write(intent, present):
        revision = present.mod_revision
    return settled_intent(
        intent,
        outcome,
        f"{detail}; of another etcd, as was accepted: {other}" if other else detail,
        header_revision=revision,
        other_etcd=unicode_text(other),
        warnings=[unicode_text(held.unseen)] if held.unseen else [],
    )


def settled_intent(intent: Record, outcome: Result, detail: str, **known: Any) -> SettledIntent:
    """Return what became of an intent, as it is published."""
    return SettledIntent(
        sequence=intent.link.sequence,
        verb=intent.verb.value,
        key=display(intent.subject.key),
        key_base64=intent.subject.key,
        backups=intent.backups,
        outcome=outcome.value,
        detail=unicode_text(detail),
        **known,
    )


def settle_intent(
    now: Datastore,
    log: AuditLog,
    intent: Record,
    operator: Operator,
    *,
    cluster: ClusterIdentity,
    accepted: Acceptances = _NOTHING,
    was_patched: WasPatched | None = None,
) -> SettledIntent:
    """Say what became of an intent, and record it; raises RemediationRefused or AuditError."""
    found = predict(now, intent, cluster=cluster, accepted=accepted, was_patched=was_patched)
    record = log.append(
        intent.closed_by(
            Result(found.outcome),
            operator=operator,
            detail=found.detail,
            header_revision=found.header_revision,
            settled=True,
            accepted=accepted.as_flags(),
        )
    )
    # After the record: while the markers stand they prove that nothing was sent.
    try:
        if found.settled and _is_unconfirmed(intent):
            confirm_backups(intent)
    except NotDurable as exc:
        told = f"a backup keeps its marker, and proves nothing about the log: {exc.message}"
        found.warnings.append(unicode_text(told))
    return msgspec.structs.replace(found, record=str(record))


def settle_open(
    now: Datastore,
    log: AuditLog,
    keys: Container[bytes],
    operator: Operator | None,
    *,
    cluster: ClusterIdentity,
    accepted: Acceptances,
    say: Callable[[str], object],
) -> Iterator[SettledIntent]:
    """Settle the open intents about some keys of one cluster, or foretell it where there is no operator; yield each.

    An intent that does not name its cluster counts. One of another etcd stays open: it hinders nothing that is done
    here. Raises RemediationRefused or AuditError.
    """
    for intent in log.open_intents():
        if intent.subject.key not in keys or cluster.is_same(intent.cluster) is False:
            continue
        try:
            if operator is not None:
                found = settle_intent(now, log, intent, operator, cluster=cluster, accepted=accepted)
            else:
                found = predict(now, intent, cluster=cluster, accepted=accepted)
        except RefusedByRule as refusal:
            say(refusal.message)
            continue
        became = "was settled" if operator is not None else "would be settled first"
        said = f"{became}: {found.outcome}" if found.settled else "stays open"
        for text in (f"the open intent {intent.link.sequence} {said}, {found.detail}", *found.warnings):
            say(text)
        yield found


def _refuse_other_cluster(intent: Record, cluster: ClusterIdentity, accepted: Acceptances) -> None:
    number, same = intent.link.sequence, cluster.is_same(intent.cluster)
    if same is False:
        raise RemediationRefused(
            f"intent {number} is about another cluster ({intent.cluster.describe()}); this etcd holds the cluster with "
            f"{cluster.describe()}",
            hint="name the etcd of that cluster with --endpoints",
        )
    if same is None and not accepted.accepts(Rule.UNKNOWN_CLUSTER):
        whose = "this etcd" if intent.cluster_uid else f"intent {number}"
        raise RemediationRefused(
            f"the kube-system uid of {whose} is unknown: intent {number} may be about another cluster",
            hint="--encryption-config, where namespaces are encrypted; if you are sure that it is this one: "
            f"etcdfix log settle LOG {acceptance(Rule.UNKNOWN_CLUSTER)}",
        )


def refuse_other_store(now: Datastore, intent: Record) -> None:
    """Refuse an intent that is about another file of kine, or about an etcd where a file is read, or the other way.

    A copy has the same cluster and the same keys, and says nothing of what stands there now; nor does a backup that
    cannot be read. Raises RemediationRefused.
    """
    here, made = now.file, ", ".join(_made_in(intent).endpoints)
    of_kine = made.startswith("/")
    if not made or (here is None and not of_kine):
        return
    if here is not None and of_kine and os.path.realpath(here) == os.path.realpath(made):
        return
    where = f"{quote_command(['--kine', made])}; if k3s has it in another place now, let that path lead there"
    raise RemediationRefused(
        f"intent {intent.link.sequence} was made with {made}, and {here or 'an etcd'} does not say what stands there",
        hint=where if of_kine else "name the etcd of that cluster with --endpoints",
    )


def _made_in(intent: Record) -> BackupCluster:
    for path in intent.backups:
        with suppress(BackupUnreadable):
            return read_backup(Path(path)).content.cluster
    return BackupCluster(None, "", (), 0)


def judge_reading(
    intent: Record,
    reading: KeyReading,
    *,
    nothing_was_sent: bool = False,
    was_patched: WasPatched | None = None,
) -> tuple[Result, str]:
    """Decide from one linearizable read what became of an intent: the outcome and one sentence."""
    expected, at, present = intent.subject.mod_revision, intent.header_revision, reading.stored
    if nothing_was_sent:
        stands = "is absent" if present is None else f"stands at mod_revision {present.mod_revision}"
        return Result.NOT_APPLIED, f"the process ended before anything was sent; the key {stands}"
    older = _older_state(expected, at, reading)
    if older:
        return Result.ANOMALY, f"{older}: etcd was put back to an older state"
    if present is None:
        absent = f"the key is absent at revision {reading.revision}"
        if not expected:
            return Result.NOT_APPLIED, f"{absent}, as it was before"
        unseen = "somebody deleted it; whether it was written before cannot be seen"
        by = "deleted by this intent, or by somebody else" if intent.verb is Verb.DELETE else unseen
        return Result.APPLIED_OR_GONE, f"{absent}: {by}"
    if expected == 0:
        created = f"the key was created at revision {present.create_revision} and holds"
        if digest_of(present.value) == intent.value_sha256:
            return _PUTS[intent.verb], f"{created} the bytes of the intent"
        other = "other bytes than those of the intent: written again since, or created by somebody else"
        return Result.APPLIED_OR_GONE, f"{created} {other}"
    if present.mod_revision == expected:
        return _judge_unmoved(intent, present)
    if present.create_revision > expected:
        again = f"the key was created again at revision {present.create_revision}"
        return Result.APPLIED_OR_GONE, f"what was examined is gone, and {again}"
    if intent.verb is Verb.DELETE:
        again = f"the key was written again since, to mod_revision {present.mod_revision}"
        return Result.NOT_APPLIED, f"{again}, and never deleted"
    written = (
        f"the key was written since, to mod_revision {present.mod_revision} with {digest_of(present.value)}"
    )
    if intent.is_patch:  # only its value tells by whom
        carried = PatchProof(None, "it was not examined")
        if was_patched is not None:
            carried = was_patched(intent, present)
        if carried.ours:
            return Result.FIXED, f"{written}: its value opens, and carries the annotation of this intent"
        if carried.ours is None:
            untold = f"by whom, only its value tells ({carried.why.removesuffix('.')})"
            return Result.UNKNOWN, f"{written}: {untold}"
    elif _is_its_write(intent, present):
        once = f"the key was written once since, at mod_revision {present.mod_revision}"
        return _PUTS[intent.verb], f"{once}, and holds the bytes of the intent"
    return Result.APPLIED_OR_GONE, f"{written}: by this intent, or by somebody else"


def _older_state(expected: int, at: int, reading: KeyReading) -> str:
    """Say why etcd cannot have stood like this after the intent; "" where it can."""
    present = reading.stored
    if reading.revision < max(expected, at):
        stood = max(expected, at)
        return f"etcd stands at revision {reading.revision}, and stood at {stood} at the time of the intent"
    if present is None:
        return ""
    stands = f"the key stands at mod_revision {present.mod_revision}"
    if expected < present.mod_revision <= at:
        # The read before the intent would have found it.
        return f"{stands}, and had none after {expected} when etcd stood at {at}"
    if present.mod_revision < expected:
        return f"{stands}, before {expected} which was examined"
    return ""


def _is_its_write(intent: Record, present: StoredValue) -> bool:
    """Say whether a key holds what the intent put: the very next write after what was examined, with its bytes.

    A record without a version says nothing of it, unless the key was not there.
    """
    subject = intent.subject
    known = subject.version > 0 or subject.mod_revision == 0
    return (
        intent.verb in _PUTS
        and known
        and present.version == subject.version + 1
        and present.mod_revision > max(intent.header_revision, subject.mod_revision)
        and intent.detail.endswith(digest_of(present.value))
    )


def _judge_unmoved(intent: Record, present: StoredValue) -> tuple[Result, str]:
    stands = f"the key stands at mod_revision {present.mod_revision}"
    if digest_of(present.value) != intent.value_sha256:
        other = "but with other bytes: members disagree, or etcd was put back to an older state and went on from there"
        return Result.ANOMALY, f"{stands} as examined, {other}"
    late = " (a request that an API server still works on could arrive later)" if intent.is_patch else ""
    return Result.NOT_APPLIED, f"{stands}, as it was examined{late}"


def _is_unconfirmed(intent: Record) -> bool:
    return any(os.path.lexists(path + MARKER_SUFFIX) for path in intent.backups)
