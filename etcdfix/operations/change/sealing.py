"""Writing a value under today's write key: what is sealed opens again, and API servers are known to hold the key.

A configuration in our hands says what API servers would write if they had it. What they do write, etcd shows: the
newest value of the resource. Only where that is stored as ours will be, it is certain that they can read ours.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.model import ClusterIdentity, GroupResource, Outcome, StoredValue
from etcdfix.remediation.audit.search import own_writes
from etcdfix.remediation.backup.write import name_of, unlisted_writes
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.rules import Rule, refuse
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination

BY_API: Final = (
    "let an API server write it: save the object (etcdfix get --reveal -o json with the candidate configuration), "
    "delete the unreadable value, and kubectl create -f it without metadata.resourceVersion and metadata.uid"
)
"""What remains where we cannot seal a value."""


def seal(
    cluster: Cluster, key: bytes, resource: GroupResource, plaintext: bytes, *, by_api: str = BY_API
) -> Sealed:
    """Turn plaintext into what API servers store today at an etcd key.

    Raises:
        RefusedByRule: It would be written through a KMS plugin, or what is sealed does not open.
    """
    transformers = cluster.examiner.transformers
    if transformers is None:
        return Sealed(IDENTITY, plaintext)
    sealed = to_storage(transformers.for_resource(resource), plaintext, key)
    if not isinstance(sealed, NotSealed):
        return sealed
    why = (
        "writing through a KMS plugin is not supported"
        if sealed.reason is SealRefusal.KMS_WRITES
        else "what was written does not read back"
    )
    raise refuse(
        Rule.WRITE_KEY, f"today's write key of this resource is {sealed.transformer}: {why}", hint=by_api
    )


def refuse_unencrypted(sealed: Sealed) -> None:
    """Refuse to write what was stored encrypted without encryption.

    Its contents would lie in etcd unencrypted from then on, and their digest in the record.

    Raises:
        RefusedByRule: It would be written so.
    """
    if sealed.transformer == IDENTITY:
        raise refuse(
            Rule.WRITE_KEY,
            "today's configuration writes this resource without encryption, and the value is stored encrypted: "
            "rewriting it would leave its contents unencrypted",
            hint="name the configuration that the API servers use today, in case it encrypts this resource; if it is "
            f"meant to be unencrypted: {BY_API}",
        )


def find_proof(
    cluster: Cluster,
    found: Examination,
    identity: ClusterIdentity,
    *,
    directories: Sequence[Path],
    audit_log: Path,
) -> bytes:
    """Return the key of the newest object of a resource, if an API server has written it as it would be written now.

    An older one proves nothing: the API servers may have had another key since. Nor does a newest one about which
    nothing is known, such as the one that is to be rewritten, or one that may be ours. Only what is surely ours is
    passed over.

    Backups in the directories name what we may have written without this audit log saying so.

    Returns:
        b"" where nothing proves it.

    Raises:
        BackupUnreadable: A directory cannot be listed.
        AuditLogUnreadable: The log cannot be read.
        SourceError: etcd could not be asked.
    """
    unlisted = unlisted_writes(directories, audit_log, identity)
    return _newest_of_others(cluster, found, own_writes(audit_log, identity.uid), unlisted)


def _newest_of_others(
    cluster: Cluster, found: Examination, ours: Mapping[str, int], unlisted: Container[str]
) -> bytes:
    prefix = cluster.examiner.layout.directory_prefix(found.directory)

    def reach(stored: StoredValue) -> int:
        return ours.get(b64encode(stored.key).decode(), 0)

    newest = max(
        (stored for stored in cluster.source.current(prefix) if stored.mod_revision != reach(stored)),
        key=lambda stored: stored.mod_revision,
        default=None,
    )
    if newest is None or newest.mod_revision < reach(newest) or name_of(newest.key) in unlisted:
        return b""
    other = cluster.examiner.examine(newest)
    # What is not stale opens under the first key of the first provider, which is the one that writes.
    return newest.key if other.verdict.outcome is Outcome.READABLE and not other.stale else b""


def unproven_message(found: Examination, sealed: Sealed) -> str:
    """Say that nothing shows that API servers hold the key that a value was sealed with."""
    return (
        f"nothing shows that the API servers hold the key of {sealed.transformer}: the newest value of "
        f"{found.directory.group_resource} must be another object's, written by an API server, and open under it"
    )


def how_to_prove(found: Examination) -> str:
    """Return how an API server is had to write a new object of a resource: that shows which key it writes with."""
    resource = str(found.directory.group_resource)
    if resource == "secrets":
        where = ["-n", found.namespace or "default"]
        create = ["kubectl", "create", "secret", "generic", "etcdfix-write-key", *where]
        new = f"create a new one through the API: {quote_command(create)}"
    else:
        new = f"create a new object of {resource} through the API: kubectl create -f FILE"
    return f"{new}; then run this again (an update of one that is readable would do as well, never one of this object)"
