"""Writing a value under today's write key: what is sealed opens again, and API servers are known to hold the key.

A configuration in our hands says what API servers would write if they had it. What they do write, etcd shows: the
newest value of the resource. Only where that is stored as ours will be, it is certain that they can read ours.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from etcdfix.copies.model import Place
from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.golang.gojsontext import parse_exactly
from etcdfix.model import ClusterIdentity, GroupResource, Outcome, StoredValue
from etcdfix.remediation.audit.search import own_writes
from etcdfix.remediation.backup.file import name_of
from etcdfix.remediation.backup.folder import unlisted_writes
from etcdfix.remediation.checks.situation import Situation
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.noencryption import check_no_encryption, looks_enveloped
from etcdfix.remediation.preflight.target import require_write_key
from etcdfix.report.masking import is_masked
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination

BY_API: Final = (
    "let an API server write it: save the object (etcdfix get --reveal -o json with the configuration that reads it), "
    "delete the unreadable value, and kubectl create -f it without metadata.resourceVersion and metadata.uid"
)
"""What remains where we cannot seal a value."""


def seal_contents(one: Situation) -> None:
    """The contents are encrypted as API servers write today, and API servers are known to hold that key.

    Of an object in a file no flag lifts that: under a configuration that is not deployed, a healthy value looks like a
    broken one.
    """
    cluster, copy, present, request = one.cluster, one.copy, one.present, one.request
    plaintext, from_file = copy.plaintext, copy.place is Place.OBJECT
    assert plaintext is not None  # it reads
    if not from_file:
        require_write_key(cluster)
    elif is_masked(parse_exactly(plaintext)):
        raise refuse(
            Rule.OBJECT_FILE,
            f"{copy.where}: something in it is masked, as etcdfix get shows a Secret",
            hint="save the object with etcdfix get --reveal -o json, or from an API server",
        )
    resource = cluster.examiner.readers.reader_for(one.key).directory.group_resource
    one.sealed = sealed = seal(cluster, one.key, resource, plaintext)
    if present is not None and looks_enveloped(present.value):
        refuse_unencrypted(sealed)
    stored = StoredValue(one.key, sealed.data, 0, 0, 0, 0)
    one.examined = found = cluster.examiner.apart().examine(stored)
    if found.verdict.outcome is not Outcome.READABLE or cluster.examiner.plaintext(found) != plaintext:
        raise refuse(
            Rule.OBJECT_FILE if from_file else Rule.NOT_READABLE,
            f"{copy.where}: stored at {one.shown} it would be {found.verdict.outcome}: {found.verdict.message}",
            hint="look at what it holds, with etcdfix get",
        )
    if cluster.no_encryption:
        check_no_encryption(cluster, stored)
        return
    paths = request.record_paths
    one.proof = find_proof(
        cluster, found, one.identity, directories=paths.directories, audit_log=paths.log_path
    )
    if one.proof or (not from_file and request.accepted.accepts(Rule.UNDEPLOYED_WRITE_KEY)):
        return
    message = (
        f"nothing shows that the API servers hold the key of {sealed.transformer}: the newest value of {resource} must "
        "be another object's, written by an API server, and open under it"
    )
    if from_file:
        raise refuse(Rule.WRITE_KEY, message, hint=how_to_prove(found))
    sure = f"Or, if you are sure: {acceptance(Rule.UNDEPLOYED_WRITE_KEY)}"
    raise refuse(Rule.UNDEPLOYED_WRITE_KEY, message, hint=f"{how_to_prove(found)}. {sure}")


def seal(cluster: Cluster, key: bytes, resource: GroupResource, plaintext: bytes) -> Sealed:
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
        Rule.WRITE_KEY, f"today's write key of this resource is {sealed.transformer}: {why}", hint=BY_API
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
    cluster: Cluster, found: Examination, ours: Mapping[bytes, int], unlisted: Container[str]
) -> bytes:
    prefix = cluster.examiner.layout.directory_prefix(found.directory)

    def reach(stored: StoredValue) -> int:
        return ours.get(stored.key, 0)

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
