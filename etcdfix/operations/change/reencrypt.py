"""Rewrites a value that today's configuration cannot read, and a candidate configuration can.

The contents stay as they are, byte for byte; only the envelope changes, to the one that API servers write today.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

import msgspec

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.encryption.transformer import ResourceTransformers
from etcdfix.examine import Examiner
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.operations.change.execute_change import (
    ChangeRequest,
    CheckedChange,
    Confirmer,
    execute_change,
)
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.audit.search import own_writes
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.backup.write import name_of, unlisted_writes
from etcdfix.remediation.commit import (
    ChangeOutcome,
    place_warnings,
)
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.preflight.api_servers import check_api_servers
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.target import (
    check_writable,
    read_target,
    require_alive,
)
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import piped
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.remediation.preflight.members import LeaseState

_IDENTITY = "identity"
_BY_API = (
    "let an API server write it: save the object (etcdfix get --reveal -o json with the candidate configuration), "
    "delete the unreadable value, and kubectl create -f it without metadata.resourceVersion and metadata.uid"
)


class ReencryptRequest(ChangeRequest, frozen=True, kw_only=True):
    """One re-encryption.

    Attributes:
        key: Complete etcd key.
        undeployed_write_key: Nothing of the resource needs to be stored under today's write key yet.
    """

    key: bytes
    undeployed_write_key: bool = False


class ReencryptPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown before a value is rewritten.

    Attributes:
        reading: The linearizable read on which everything rests.
        found: What today's configuration says of it.
        candidate: What the candidate configuration says of it: readable.
        write_transformer: What it will be written with.
        proof: Key of another object that is stored under that already; b"" where none was needed.
        identity: Which cluster it is.
        lease: That it keeps; None for none.
        servers: What the API servers said.
        warnings: One sentence each.
    """

    reading: KeyReading
    found: Examination
    candidate: Examination
    write_transformer: str
    proof: bytes
    identity: ClusterIdentity
    lease: LeaseState | None
    servers: ServerAnswers
    warnings: tuple[str, ...]


def run_reencrypt(
    cluster: Cluster,
    candidate: Examiner,
    request: ReencryptRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[ReencryptPreview], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Rewrite one value under today's write key, or find out whether it could be.

    Args:
        cluster: Where, read with today's configuration.
        candidate: Reads with the candidate configuration.
        request: What.
        confirmer: Confirms.
        preview: Shows what was found out, before anything is asked.
        step: Told the name of each step before it is taken.

    Raises:
        RemediationRefused: A rule says no, or a file cannot be made safe; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    key = request.key
    step("check: configuration")
    if not cluster.configured:
        raise refuse(
            Rule.NO_CONFIGURATION, "no encryption configuration was given, so today's write key is unknown",
            hint="--encryption-config FILE: the one that the API servers use today",
        )  # fmt: skip
    target = read_target(cluster, key, request.accepted, step)
    landmarks, reading, stored = target
    step("check: examine")
    today = cluster.examiner.examine(stored)
    _check_today(today)
    found = candidate.examine(stored)
    plaintext = candidate.plaintext(found)
    if found.verdict.outcome is not Outcome.READABLE or found.verdict.cause is not None or plaintext is None:
        raise refuse(
            Rule.NOT_READABLE,
            f"under the candidate configuration {display(key)} is {found.verdict.outcome}: {found.verdict.message}",
            hint="find the configuration, or the key, that it was written with",
        )
    identity, warnings = check_writable(
        cluster, target, request.accepted, request.record_paths.directories, step
    )
    step("check: write key")
    sealed = _seal(_transformers(cluster, today), plaintext, key)
    log = request.record_paths.log_path
    unlisted = unlisted_writes(request.record_paths.directories, log, identity)
    proof = _find_proof(cluster, today, own_writes(log, identity.uid), unlisted)
    if not proof and not request.undeployed_write_key:
        raise refuse(
            Rule.WRITE_KEY,
            f"nothing shows that the API servers hold the key of {sealed.transformer}: the newest value of "
            f"{today.directory.group_resource} must be another object's, written by an API server, and open under it",
            hint=f"{_new_object(today)}; then run this again (an update of one that is readable would do as well, "
            "never one of this object). Or, if you are sure: --accept-undeployed-write-key",
        )
    step("check: API servers")
    servers = check_api_servers(today, identity, request.api, request.accepted)
    step("check: lease")
    lease = require_alive(cluster, stored)
    step("check: places")
    warnings += place_warnings(request.record_paths)
    shown = ReencryptPreview(
        reading=reading,
        found=today,
        candidate=found,
        write_transformer=sealed.transformer,
        proof=proof,
        identity=identity,
        lease=lease,
        servers=servers,
        warnings=tuple(warnings),
    )
    return execute_change(
        cluster,
        request,
        CheckedChange(
            verb=Verb.REENCRYPT,
            done=Result.REENCRYPTED,
            found=today,
            reading=reading,
            identity=identity,
            servers=servers,
            landmarks=landmarks,
            replaced=shown,
            flags=() if proof else ("--accept-undeployed-write-key",),
            value=sealed.data,
            lease=stored.lease,
            detail=f"from {found.transformer} to {sealed.transformer}, {digest(sealed.data)}",
        ),
        confirmer,
        preview=lambda: preview(shown),
        step=step,
    )


def _check_today(today: Examination) -> None:
    key, verdict = display(today.stored.key), today.verdict
    if today.opened:
        readable = verdict.outcome is Outcome.READABLE
        raise refuse(
            Rule.READABLE,
            f"today's configuration opens {key} ({verdict.message})",
            hint=f"to rewrite it under today's key, let an API server do it: {_replacement(today)}"
            if readable
            else "another encryption key does not change what is wrong inside it; what can be done: etcdfix scan KEY",
        )
    if verdict.outcome is not Outcome.DECRYPT_FAILURE:
        rule = Rule.NOT_AN_OBJECT if verdict.outcome is Outcome.NOT_AN_OBJECT else Rule.UNDETERMINED
        raise refuse(
            rule,
            f"it is not proven that today's configuration cannot read {key}: {verdict.message}",
            hint="the plugin may answer later; see etcdfix scan",
        )


def _replacement(today: Examination) -> str:
    """Return the command that has an API server write an object anew as it is; in words where no command names it."""
    name, namespace = today.name, today.namespace
    if not name or name.startswith("-") or "/" in name or not (name + namespace).isprintable():
        return "kubectl get -o json, and kubectl replace"
    where = ["-n", namespace] if namespace else []
    words = ["kubectl", "get", str(today.directory.group_resource), name, *where, "-o", "json"]
    return piped(quote_command(words), ["kubectl", "replace", "-f", "-"])


def _new_object(today: Examination) -> str:
    """Return how an API server is had to write a new object of a resource: that shows which key it writes with."""
    resource = str(today.directory.group_resource)
    if resource == "secrets":
        return "create a new one through the API: " + quote_command(
            [
                "kubectl",
                "create",
                "secret",
                "generic",
                "etcdfix-write-key",
                "-n",
                today.namespace or "default",
            ]
        )
    return f"create a new object of {resource} through the API: kubectl create -f FILE"


def _transformers(cluster: Cluster, today: Examination) -> ResourceTransformers:
    assert cluster.examiner.transformers is not None  # there is a configuration
    return cluster.examiner.transformers.for_resource(today.directory.group_resource)


def _seal(transformers: ResourceTransformers, plaintext: bytes, key: bytes) -> Sealed:
    sealed = to_storage(transformers, plaintext, key)
    if isinstance(sealed, NotSealed):
        why = (
            "writing through a KMS plugin is not supported"
            if sealed.reason is SealRefusal.KMS_WRITES
            else "what was written does not read back"
        )
        raise refuse(
            Rule.WRITE_KEY,
            f"today's write key of this resource is {sealed.transformer}: {why}",
            hint=_BY_API,
        )
    if sealed.transformer == _IDENTITY:
        # What today's configuration reads without a key is never rewritten, so the value has an envelope now. Its
        # contents would lie in etcd unencrypted from here on, and their digest in the record.
        raise refuse(
            Rule.WRITE_KEY,
            "today's configuration writes this resource without encryption, and the value is stored encrypted: "
            "rewriting it would leave its contents unencrypted",
            hint="name the configuration that the API servers use today, in case it encrypts this resource; if it is "
            f"meant to be unencrypted: {_BY_API}",
        )
    return sealed


def _find_proof(
    cluster: Cluster,
    today: Examination,
    ours: Mapping[str, int],
    unlisted: Container[str],
) -> bytes:
    """Return the key of the newest object of the resource, if an API server has written it as it would be written now.

    An older one proves nothing: the API servers may have had another key since. Nor does a newest one about which
    nothing is known, such as the one that is to be rewritten, or one that may be ours. Only what is surely ours is
    passed over.

    Args:
        cluster: Where.
        today: The object that is to be rewritten.
        ours: What we wrote ourselves; see :func:`~etcdfix.remediation.audit.search.own_writes`.
        unlisted: What we may have written besides; see :func:`~etcdfix.remediation.backup.write.unlisted_writes`.
    """
    prefix = cluster.examiner.layout.directory_prefix(today.directory)

    def reach(stored: StoredValue) -> int:
        return ours.get(b64encode(stored.key).decode(), 0)

    newest = max(
        (stored for stored in cluster.source.current(prefix) if stored.mod_revision != reach(stored)),
        key=lambda stored: stored.mod_revision,
        default=None,
    )
    if newest is None or newest.mod_revision < reach(newest) or name_of(newest.key) in unlisted:
        return b""
    found = cluster.examiner.examine(newest)
    # What is not stale opens under the first key of the first provider, which is the one that writes.
    return newest.key if found.verdict.outcome is Outcome.READABLE and not found.stale else b""
