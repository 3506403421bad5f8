"""What speaks for a value that is to be put back: an audit log, etcd itself, its uid; and what needs a person's word.

A backup whose log is lost or broken restores by itself, unread, and only where nothing is: its own digests fit, it
names this cluster, and whoever restores it brings the digest that the deletion printed. A file that somebody made up
has fitting digests too; the digest that was written down on the day is what it cannot have. So nothing here says it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.encryption.encrypt import Sealed
from etcdfix.errors import AuditLogUnreadable, SourceDenied
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.operations.change.candidate import Candidate, RestoreRequest
from etcdfix.operations.change.sealing import (
    find_proof,
    how_to_prove,
    refuse_unencrypted,
    unproven_message,
)
from etcdfix.remediation.audit.log import broken
from etcdfix.remediation.audit.record import Intent, Result, Verb
from etcdfix.remediation.audit.search import is_there, outcomes_of, trouble_with, wrote
from etcdfix.remediation.backup.file import Backup, digest
from etcdfix.remediation.backup.write import ANOMALY, intent_of
from etcdfix.remediation.durable import Step
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.noencryption import looks_enveloped
from etcdfix.remediation.preflight.same_object import (
    check_same_object,
    check_uid,
    last_stored,
    uid_of,
)
from etcdfix.remediation.same_etcd import Recorded, differing_id, hold_against_history, other_etcd
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_BY_ITSELF: Final = (
    f"a backup restores by itself with {acceptance(Rule.UNLISTED_SOURCE)} and --expect-value-sha256, the digest that "
    "the deletion printed"
)
_ANOTHER_LOG: Final = f"keep it as it is, and begin a new one with --audit-log; {_BY_ITSELF}"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks for a value that is to be put back.

    Attributes:
        intent: Of this audit log, that made the backup: a true undo; None for any other value.
        listed: This audit log knows the backup, which is all the same no true undo.
        same_object: It is of the object that is at the key, or was there last: etcd, or its uid, says so.
        by_itself: Why no audit log speaks for the backup, where it restores by itself; else "".
        doubts: Whether a backup is of this etcd at all: what was accepted, or is compacted. One sentence each.
    """

    intent: Intent | None = None
    listed: bool = False
    same_object: bool = False
    by_itself: str = ""
    doubts: tuple[str, ...] = ()


def check_same_cluster(candidate: Candidate, identity: ClusterIdentity, accepted: Acceptances) -> None:
    """Refuse a value of another cluster.

    Raises:
        RefusedByRule: It is of another one, or nothing tells.
    """
    if candidate.cluster is None:
        return
    same = identity.is_same(candidate.cluster)
    if same is False:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the {candidate.origin} comes from the cluster with {candidate.cluster.describe()}; this etcd "
            f"holds the cluster with {identity.describe()}",
            hint="name the etcd of that cluster with --endpoints",
        )
    if same is None and not accepted.accepts(Rule.UNKNOWN_CLUSTER):
        why = f": {candidate.unnamed}" if candidate.unnamed else ""
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {candidate.origin} does not say which cluster it comes from, in a way that can be compared here{why}",
            hint=f"if you are sure that it is this one: {acceptance(Rule.UNKNOWN_CLUSTER)}",
        )


def check_digest(request: RestoreRequest) -> None:
    """Hold the value against the digest that was named.

    Raises:
        RefusedByRule: It has another one.
    """
    # The digest of the value is not said: from this file it would prove nothing.
    if request.value_sha256 and request.value_sha256 != digest(request.candidate.stored.value):
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"the value from the {request.candidate.origin} does not have the digest {request.value_sha256}",
            hint="it is another value, or was changed; the digest is the one that the deletion printed",
        )


def check_source(
    cluster: Cluster,
    request: RestoreRequest,
    found: Examination,
    identity: ClusterIdentity,
    reading: KeyReading,
    step: Step,
) -> Source:
    """Find out what speaks for the value that is to be put back.

    Raises:
        RefusedByRule: Too little does.
        AuditLogUnreadable: The log cannot be read, or its chain is broken.
        SourceError: What etcd keeps of the key could not be read.
    """
    candidate, log = request.candidate, request.record_paths.log_path
    intent, another_past = _intent_behind(candidate, log), ""
    doubts: tuple[str, ...] = ()
    if not candidate.revision and intent is None:
        _check_unlisted(request)
    if candidate.backup is not None:
        step("check: history")
        recorded = _recorded(candidate.backup, intent, log)
        held = hold_against_history(cluster.now, recorded, reading)
        another_past = held.contradiction
        other = differing_id(recorded, identity, reading) or another_past
        if other and not request.accepted.accepts(Rule.OTHER_CLUSTER_ID):
            raise other_etcd(f"the {candidate.origin}", other)
        accepted = f"the backup is of another etcd, as accepted: {other}" if other else ""
        doubts = tuple(filter(None, (accepted, held.unseen)))
    if intent is not None and not another_past and _leads_back(intent, candidate, log, reading.stored):
        return Source(intent=intent, doubts=doubts)
    if found.verdict.outcome is not Outcome.READABLE:
        if another_past:
            raise refuse(
                Rule.OTHER_CLUSTER,
                f"the {candidate.origin} is of another etcd: {another_past}",
                hint="only a readable value may come from there; give the --encryption-config that reads it",
            )
        if intent is None:
            by_itself = _check_unread(found, request, identity, reading.stored)
            return Source(by_itself=by_itself, doubts=doubts)
        # It is asked for once it is known that what is there may be replaced at all: check_unknown_uid
        return Source(listed=True, doubts=doubts)
    step("check: same object")
    same = bool(candidate.revision) and check_same_object(cluster, reading, found)
    same = same or check_uid(cluster, reading, found, identity, request.record_paths)
    if not same and candidate.generation:
        # API servers never change the uid of an object: one generation of a key has one.
        last = last_stored(cluster, reading, found.stored.key)
        same = last is not None and last.create_revision == candidate.generation
    if not same and candidate.deleted_at and reading.stored is None:
        same = _was_last(cluster, candidate, reading)
    if not same:
        check_unknown_uid(request, found)
    return Source(listed=intent is not None, same_object=same, doubts=doubts)


def _was_last(cluster: Cluster, candidate: Candidate, reading: KeyReading) -> bool:
    """Say whether nothing was at a key since its log has it deleted: up to a revision the log tells, then etcd."""
    with suppress(SourceDenied), cluster.kept(reading.revision) as source:
        history = source.history(candidate.stored.key)
        since = [kept for kept in history if kept.revision.main > candidate.deleted_at]
        kept_from = source.compacted_revision()
        return not since and kept_from is not None and kept_from <= candidate.agreed_until
    return False


def check_write_key(
    cluster: Cluster,
    request: RestoreRequest,
    found: Examination,
    identity: ClusterIdentity,
    reading: KeyReading,
    step: Step,
) -> bytes:
    """Refuse to write what was sealed now, unless API servers are known to hold the key; return what shows it.

    No flag lifts it: under a configuration that is not deployed, a healthy value looks like a broken one.

    Raises:
        RefusedByRule: Nothing shows it, or contents that are encrypted now would be written in plain.
    """
    candidate = request.candidate
    if candidate.file is None:
        return b""
    step("check: write key")
    sealed = Sealed(candidate.transformer, candidate.stored.value)
    if reading.stored is not None and looks_enveloped(reading.stored.value):
        refuse_unencrypted(sealed)
    if cluster.no_encryption:
        return b""  # every value in this etcd was looked at
    paths = request.record_paths
    proof = find_proof(cluster, found, identity, directories=paths.directories, audit_log=paths.log_path)
    if not proof:
        raise refuse(Rule.WRITE_KEY, unproven_message(found, sealed), hint=how_to_prove(found))
    return proof


def check_absent(request: RestoreRequest, found: Examination) -> None:
    """Refuse to create from a file what the cluster depends on; what is replaced is held against that as a deletion.

    Raises:
        RefusedByRule: It is protected, and that is not accepted.
    """
    reason = protected_reason(found.directory.group_resource, found.namespace)
    if request.candidate.file is not None and reason and not request.accepted.accepts(Rule.CLUSTER_BREAKING):
        raise refuse(
            Rule.CLUSTER_BREAKING,
            f"{reason}; a file that may have been edited would be put in place of it",
            hint=f"if that is understood: {acceptance(Rule.CLUSTER_BREAKING)}",
        )


def _recorded(backup: Backup, intent: Intent | None, log: Path) -> Recorded:
    deleted_at, content = 0, backup.content
    if content.purpose == ANOMALY:
        # Members may disagree on what was there: then the history of another one says nothing of it.
        return msgspec.structs.replace(Recorded.of_backup(content), mod_revision=0)
    if intent is not None and content.purpose == Verb.DELETE.purpose:
        deleted_at = max(
            (
                int(notes.header_revision or 0)
                for notes in outcomes_of(log, intent)
                if notes.outcome == Result.DELETED
            ),
            default=0,
        )
    return Recorded.of_backup(content, deleted_at=deleted_at)


def _leads_back(intent: Intent, candidate: Candidate, log: Path, present: StoredValue | None) -> bool:
    """Say whether a key is still what a change of ours left: nothing, the same generation, or what we put there.

    A key that was deleted and made again holds another object: to go back over that is no undo.
    """
    return (
        present is None
        or present.create_revision == candidate.stored.create_revision
        or wrote(log, intent, present)
    )


def _check_unlisted(request: RestoreRequest) -> None:
    if not request.accepted.accepts(Rule.UNLISTED_SOURCE):
        origin, log = request.candidate.origin, request.record_paths.log_path
        raise refuse(
            Rule.UNLISTED_SOURCE,
            f"the {origin} is no backup that this audit log ({log}) knows",
            hint=f"name the log that was used then with --audit-log, or {acceptance(Rule.UNLISTED_SOURCE)}"
            if request.candidate.backup is not None
            else f"look at what it holds; if it is the right one: {acceptance(Rule.UNLISTED_SOURCE)}",
        )


def check_unknown_uid(request: RestoreRequest, found: Examination) -> None:
    """Refuse a value of which nothing tells whether it is of the key's object, unless that is accepted.

    Raises:
        RefusedByRule: It is not.
    """
    if not request.accepted.accepts(Rule.UNKNOWN_UID):
        uid = uid_of(found)
        raise refuse(
            Rule.UNKNOWN_UID,
            f"nothing that etcd keeps, and no backup, shows that the value of {request.candidate.origin} is of the "
            f"object that is at {display(found.stored.key)}, or was there last",
            hint=f"find out whether that had {f'the uid {uid}' if uid else 'no uid either'} (owner references to it, "
            f"logs, other snapshots); if it had: {acceptance(Rule.UNKNOWN_UID)}",
        )


def _check_unread(
    found: Examination, request: RestoreRequest, identity: ClusterIdentity, present: StoredValue | None
) -> str:
    """Refuse a value that does not read, but for a backup that restores by itself; say why no log speaks for that."""
    candidate, verdict = request.candidate, found.verdict
    if candidate.revision:
        raise refuse(
            Rule.NOT_READABLE,
            f"the value of {candidate.origin} is {verdict.outcome}: {verdict.message}",
            hint="that is the present value: name an earlier revision"
            if present == candidate.stored
            else "only a readable value may be put back; give the --encryption-config that reads it",
        )
    if candidate.backup is None or not request.value_sha256:
        more = "" if candidate.backup is None else f"; {_BY_ITSELF}"
        raise refuse(
            Rule.NOT_READABLE,
            f"the value from the {candidate.origin} is {verdict.outcome}: {verdict.message}",
            hint="only a readable value may come from elsewhere; give the --encryption-config that reads it"
            + more,
        )
    _check_by_itself(found, candidate, request.accepted, identity, present)
    return _lost_log(candidate.backup)


def _intent_behind(candidate: Candidate, audit_log: Path) -> Intent | None:
    """Return the intent by whose word the value was at this very key of this very cluster; None where there is none."""
    if candidate.backup is None:
        return None
    try:
        trouble = trouble_with(audit_log)
        if trouble:
            raise broken(audit_log, trouble, hint=_ANOTHER_LOG)
        return intent_of(candidate.backup, audit_log) if is_there(audit_log) else None
    except AuditLogUnreadable as exc:
        raise AuditLogUnreadable(exc.message, hint=exc.hint or _ANOTHER_LOG) from exc


def _check_by_itself(
    found: Examination,
    candidate: Candidate,
    accepted: Acceptances,
    identity: ClusterIdentity,
    present: StoredValue | None,
) -> None:
    """Refuse a backup that no log speaks for, unless it can only bring back what was there."""
    origin = candidate.origin
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        raise refuse(
            Rule.NOT_AN_OBJECT,
            f"the {origin} is about {display(found.stored.key)}, which holds no object of the API",
            hint="name the storage prefix of this cluster: --etcd-prefix",
        )
    if candidate.cluster is None or not identity.is_same(candidate.cluster):
        unknown = not identity.is_known
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {origin} restores by itself only in the cluster that it names; "
            + ("that cannot be read here" if unknown else "it names none that can be compared with this one"),
            hint="name the audit log that knows it with --audit-log"
            + (", or give the --encryption-config that reads namespace kube-system" if unknown else ""),
        )
    if present is not None:
        raise refuse(
            Rule.PRESENT,
            f"{display(present.key)} exists, at mod_revision {present.mod_revision}: a backup that no audit log speaks "
            "for is put only where nothing is",
            hint="name the audit log that knows it with --audit-log",
        )
    reason = protected_reason(found.directory.group_resource, found.namespace)
    if reason and not accepted.accepts(Rule.CLUSTER_BREAKING):
        raise refuse(
            Rule.CLUSTER_BREAKING,
            f"{reason}; no audit log says that this value was there",
            hint=f"if that is understood: {acceptance(Rule.CLUSTER_BREAKING)}",
        )


def _lost_log(backup: Backup) -> str:
    """Say what became of the log that a backup names; if it lists the backup, it is not the one that is written now."""
    own = Path(backup.intent.audit_log)
    try:
        trouble = trouble_with(own)
        if trouble:
            return f"its audit log {own} has a broken chain: {trouble}"
        if not is_there(own):
            return f"its audit log {own} is not there"
        if intent_of(backup, own) is not None:
            return f"its audit log {own} lists it, but another one was named"
    except AuditLogUnreadable as exc:
        return f"its log cannot be read: {exc.message}"
    return f"its audit log {own} does not list it"
