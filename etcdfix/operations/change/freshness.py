"""Is anything newer than a saved object overwritten by it? As far as that can be told; it lifts no rule.

A resourceVersion equals the mod revision of the value that it was read from. But a file can be edited, clones of a
cluster share their revisions, and a restored etcd repeats them. So it is a hint, and what else the object says of its
age is held against it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from etcdfix.operations.change.object_file import ObjectFile, generation_of, metadata_of, written_at
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.same_object import last_stored, newest_readable


class Known(NamedTuple):
    """What etcd says of the key.

    Attributes:
        mod_revision: Of the present value, or of the last one that is kept; 0 where none is.
        readable_at: mod_revision of the newest value of the object that reads; 0 for none.
        metadata: Of that one; {} for none.
        same_uid: The object in the file has the uid of the one that is there, or was last.
        cluster_known: It is known which cluster this is.
    """

    mod_revision: int
    readable_at: int
    metadata: dict[str, Any]
    same_uid: bool
    cluster_known: bool


def freshness(file: ObjectFile, known: Known) -> str:
    """Say whether anything newer than an object is overwritten, in a sentence without full stop."""
    age = _age(file, known)
    if not file.resource_version:
        return (
            f"nothing tells whether the object was written after it was saved: it has no resourceVersion{age}"
        )
    if not known.mod_revision:
        return f"nothing tells whether the object was written after it was saved: etcd keeps nothing of the key{age}"
    both = f"its resourceVersion {file.resource_version}, the key's mod_revision {known.mod_revision}"
    if file.resource_version < known.mod_revision:
        return f"the key was WRITTEN AFTER the object was saved ({both}): that write is lost{age}"
    if file.resource_version > known.mod_revision:
        return f"the object was saved LATER than the key was written ({both}): is it of this etcd?{age}"
    doubts = [
        *(["nothing shows that it has the uid of the object that was there"] if not known.same_uid else []),
        *(["it is not known which cluster this is"] if not known.cluster_known else []),
        *([age.removeprefix("; ")] if _later(file, known) in {_LATER_IN_ETCD, _UNTOLD} else []),
    ]
    if doubts:
        return f"its resourceVersion is the key's mod_revision {known.mod_revision}, yet {'; '.join(doubts)}"
    return (
        f"nothing newer is overwritten, as far as can be told: its resourceVersion is the key's mod_revision "
        f"{known.mod_revision}"
    )


_LATER_IN_ETCD: Final = "that one is LATER than the file"
_LATER_IN_FILE: Final = "the file is later"
_UNTOLD: Final = "nothing tells which is later"


def _later(file: ObjectFile, known: Known) -> str:
    """Say which is later by what the objects say themselves; "" where they are alike, or one is not there.

    kubectl leaves managedFields out: of a file without them the generation alone may tell.
    """
    if not known.readable_at:
        return ""
    here = (file.generation, file.written)
    there = (generation_of(known.metadata), written_at(known.metadata))
    if here == there:
        return ""
    if here[0] == there[0] and not (here[1] and there[1]):
        return _UNTOLD
    return _LATER_IN_FILE if here > there else _LATER_IN_ETCD


def _age(file: ObjectFile, known: Known) -> str:
    which = _later(file, known)
    if not which:
        return ""
    there = _age_words(generation_of(known.metadata), written_at(known.metadata))
    here = _age_words(file.generation, file.written)
    return f"; mod_revision {known.readable_at} still reads, and {which} (file: {here}; there: {there})"


def _age_words(generation: int, written: str) -> str:
    times = f"managed {written}" if written else "no times"
    return f"generation {generation}, {times}" if generation else f"no generation, {times}"


def freshness_at(
    cluster: Cluster,
    file: ObjectFile,
    key: bytes,
    reading: KeyReading,
    *,
    same_uid: bool,
    cluster_known: bool,
) -> str:
    """Say whether anything newer than an object is overwritten at a key, in a sentence without full stop.

    Raises:
        SourceError: What etcd keeps of the key could not be read.
    """
    last = last_stored(cluster, reading, key)
    kept = newest_readable(cluster, reading, key)
    examiner = cluster.examiner.apart()
    plaintext = examiner.plaintext(kept) if kept is not None else None
    readable = kept is not None and plaintext is not None
    return freshness(
        file,
        Known(
            mod_revision=last.mod_revision if last is not None else 0,
            readable_at=kept.stored.mod_revision if kept is not None and readable else 0,
            metadata=metadata_of(plaintext, examiner, kept)
            if kept is not None and plaintext is not None
            else {},
            same_uid=same_uid,
            cluster_known=cluster_known,
        ),
    )
