"""Is an earlier revision of a key one of the object that stands there now, or stood there last?

etcd itself is the list of its revisions. But a key can have had several objects, one after the other, and a value of
another one would come back over what was made since.
"""

from __future__ import annotations

from etcdfix.readable_revision import Kept, kept_of_history, newest_kept, reads
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.rules import Rule, refuse
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination


def check_same_object(cluster: Cluster, reading: KeyReading, found: Examination) -> bool:
    """Say whether a readable earlier value of a key is proven to be of its present object, or of its last one.

    Args:
        cluster: Whose etcd it is.
        reading: The linearizable read of the key.
        found: The earlier value.

    Returns:
        False where nothing that is kept tells the uid of that object.

    Raises:
        RefusedByRule: It is of another object.
        SourceError: What etcd keeps of the key could not be read.
    """
    newest = _newest_readable(cluster, reading, found.stored.key)
    if newest is None:  # compacted meanwhile
        return reading.stored is not None and reading.stored.create_revision == found.stored.create_revision
    if not newest.same_object:
        return False
    there, here = _uid(newest.examination), _uid(found)
    same_generation = newest.examination.stored.create_revision == found.stored.create_revision
    if there == here and (here or same_generation):
        return True
    if not there or not here:
        return False
    raise refuse(
        Rule.OTHER_OBJECT,
        f"the value of mod_revision {found.stored.mod_revision} is of an earlier object at "
        f"{display(found.stored.key)}, with uid {here}; since then the object there had uid {there}",
        hint=f"of that one, mod_revision {newest.examination.stored.mod_revision} reads (--from-revision); the earlier "
        "one can be created anew through the API",
    )


def _newest_readable(cluster: Cluster, reading: KeyReading, key: bytes) -> Kept | None:
    examiner = cluster.examiner.apart()
    with LiveSource(cluster.source.client.connection, revision=reading.revision) as source:
        if reading.stored is not None:
            return newest_kept(source, examiner, reading.stored, reads)
        return kept_of_history(source, examiner, key, reads, newest=None)


def _uid(found: Examination) -> str:
    uid = found.decoded.uid if found.decoded is not None else None
    return (uid or b"").decode("utf-8", "replace")
