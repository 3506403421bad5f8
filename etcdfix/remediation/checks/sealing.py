"""Writing a value under today's write key: what is sealed opens again, and API servers are known to hold the key.

A configuration in our hands says what API servers would write if they had it. What they do write, etcd shows: the
newest value of the resource. Only where that is stored as ours will be, it is certain that they can read ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.copies.model import Copy, Place
from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.golang.gojsontext import parse_exactly
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.model.providers import IDENTITY
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.model.storagekey import ResourcePrefix
from etcdfix.remediation.audit.search import own_writes
from etcdfix.remediation.backup.file import name_of
from etcdfix.remediation.backup.folder import unlisted_writes
from etcdfix.remediation.cluster import Cluster, looks_enveloped, require_unencrypted
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.masking import is_masked
from etcdfix.sources.base import Source
from etcdfix.text.safetext import quote_command

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

BY_API: Final = (
    "let an API server write it: save the object (etcdfix get --reveal -o json with the configuration that reads it), "
    "delete the unreadable value, and kubectl create -f it without metadata.resourceVersion and metadata.uid"
)
"""What remains where we cannot seal a value."""


def write_key(present: Present, change: Change) -> Iterator[RefusedByRule]:
    """Etcdfix can write as API servers do today. For an object in a file that is proven, and no word stands in for it.

    Under a configuration that is not deployed, a healthy value looks like a broken one.
    """
    sealed = change.sealed
    if (
        sealed is not None
        and change.of(Place.OBJECT)
        and not change.proof
        and not present.cluster.no_encryption
    ):
        yield refuse(Rule.WRITE_KEY, _not_shown(present, change), hint=how_to_prove(present.name))


def undeployed_write_key(present: Present, change: Change) -> Iterator[RefusedByRule]:
    """API servers wrote the newest value of the resource with the current write key."""
    # Of a configuration that etcdfix made, nobody knows whether they have it: then each change rests on that.
    cluster, accepted = present.cluster, change.accepts(Rule.UNDEPLOYED_WRITE_KEY)
    seals = change.sealed is not None and not change.of(Place.OBJECT)
    if not (seals or cluster.config_made_by) or cluster.no_encryption or accepted or change.proof:
        return
    hint = how_to_prove(present.name)
    yield unless_accepted(Rule.UNDEPLOYED_WRITE_KEY, _not_shown(present, change), hint=hint)


def _not_shown(present: Present, change: Change) -> str:
    resource, made_by = present.name.directory.group_resource, present.cluster.config_made_by
    key = f"the key of {change.sealed.transformer}" if change.sealed is not None else "today's write key"
    made = f"etcdfix encryption {made_by} made the configuration, and " if made_by else ""
    return (
        f"{made}nothing shows that the API servers hold {key}: the newest value of {resource} must open under it, "
        "and be an API server's"
    )


def require_write_key(cluster: Cluster) -> None:
    """Refuse where nobody said how API servers encrypt today; raises RefusedByRule."""
    if not cluster.configured:
        why = "no encryption configuration was given, so today's write key is unknown"
        hint = "--encryption-config FILE: the one that the API servers use today"
        raise refuse(Rule.NO_CONFIGURATION, why, hint=hint)


def seal_contents(present: Present, copy: Copy) -> tuple[Sealed, Examination]:
    """Encrypt the contents of a copy as API servers write today; return that, and what it would be at its key.

    Raises RefusedByRule.
    """
    cluster, plaintext, from_file = present.cluster, copy.plaintext, copy.place is Place.OBJECT
    assert plaintext is not None  # it reads
    if not from_file:
        require_write_key(cluster)
    elif is_masked(parse_exactly(plaintext)):
        why = f"{copy.where}: something in it is masked, as etcdfix get shows a Secret"
        hint = "save the object with etcdfix get --reveal -o json, or from an API server"
        raise refuse(Rule.OBJECT_FILE, why, hint=hint)
    resource, now = (
        cluster.examiner.readers.reader_for(present.key).directory.group_resource,
        present.reading.stored,
    )
    transformers = cluster.examiner.transformers
    sealed = Sealed(IDENTITY, plaintext)
    if transformers is not None:
        made = to_storage(transformers.for_resource(resource), plaintext, present.key)
        if isinstance(made, NotSealed):
            kms = made.reason is SealRefusal.KMS_WRITES
            kms_only = "writing through a KMS plugin is not supported"
            why = kms_only if kms else "what was written does not read back"
            why = f"today's write key of this resource is {made.transformer}: {why}"
            raise refuse(Rule.WRITE_KEY, why, hint=BY_API)
        sealed = made
    if now is not None and looks_enveloped(now.value) and sealed.transformer == IDENTITY:
        # Its contents would lie in etcd unencrypted from then on, and their digest in the record.
        why = (
            "today's configuration does not encrypt this resource: that would leave its contents unencrypted"
        )
        hint = f"name the configuration that the API servers use today; if it is meant to be unencrypted: {BY_API}"
        raise refuse(Rule.WRITE_KEY, why, hint=hint)
    stored = StoredValue(present.key, sealed.data, 0, 0, 0, 0)
    found = cluster.examiner.independent_copy().examine(stored)
    if found.verdict.outcome is not Outcome.READABLE or cluster.examiner.plaintext(found) != plaintext:
        raise refuse(
            Rule.OBJECT_FILE if from_file else Rule.NOT_READABLE,
            f"{copy.where}: stored at {present.shown} it would be {found.verdict.outcome}: {found.verdict.message}",
            hint="look at what it holds, with etcdfix get",
        )
    require_unencrypted(cluster, stored)
    return sealed, found


def find_proof(
    source: Source,
    examiner: Examiner,
    directory: ResourcePrefix,
    paths: RecordPaths,
    identity: ClusterIdentity,
) -> bytes:
    """Return the key of the newest object of a resource, if an API server has written it as it would be written now.

    An older one proves nothing: the API servers may have had another key since. Nor does a newest one about which
    nothing is known, such as the one that is to be rewritten, or one that may be ours. Only what is surely ours is
    passed over. Backups name what we may have written without this audit log saying so. b"" where nothing proves it.
    Raises BackupUnreadable, AuditLogUnreadable or SourceError.
    """
    unlisted = unlisted_writes(paths.directories, paths.log_path, identity)
    ours = own_writes(paths.log_path, identity.uid)
    stored = source.current(examiner.layout.directory_prefix(directory))
    others = (one for one in stored if one.mod_revision != ours.get(one.key, 0))
    newest = max(others, key=lambda one: one.mod_revision, default=None)
    if newest is None or newest.mod_revision < ours.get(newest.key, 0) or name_of(newest.key) in unlisted:
        return b""
    other = examiner.examine(newest)
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
