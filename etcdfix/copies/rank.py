"""One judgement of every copy, and one order: the best first.

Within one history a generation of an etcd key (its create revision) has one uid: API servers never change it. So a copy
is of the object at the key where it has that object's uid, or is of the same generation by etcd's own history or log.
What is not known is not proven, and whoever puts such a copy back must say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Copy, Freshness, Life, Place, Sameness, Wanted
from etcdfix.model.model import Confidence, RepairKind, RepairProof

_TWO_UIDS: Final = "two uids stand in this generation of the key, and an API server never changes one"
_PLACES: Final = [*Place]
_SAMENESS: Final = [*Sameness]


def ranked(copies: Iterable[Copy], wanted: Wanted) -> list[Copy]:
    """Judge copies of one object, and return them in order, the best first.

    The same object proven comes before unknown, what reads under what is deployed before what needs a key, newer before
    older; of equally new ones the value put right comes before a copy of it.
    """
    copies = [*copies]
    life = _by_backups(copies, wanted.life)
    wanted = msgspec.structs.replace(wanted, life=life)
    told = {
        copy.uid
        for copy in copies
        if copy.uid and copy.place is Place.REVISION and copy.create_revision == life.create_revision
    }
    found = [judged(copy, wanted) for copy in copies]
    if len(told | ({life.uid} - {""})) > 1:
        found = [
            msgspec.structs.replace(copy, same_object=Sameness.UNKNOWN, proof="", doubt=_TWO_UIDS)
            if copy.uid in told | {life.uid}
            else copy
            for copy in found
        ]
    return sorted(found, key=_turn)


def _by_backups(copies: Iterable[Copy], life: Life) -> Life:
    """Return a life with the uid that the newest listed backup of the generation says, where etcd tells none."""
    said = [
        copy for copy in copies
        if copy.place is Place.BACKUP and copy.listed and copy.history is Sameness.SAME and copy.reads and copy.uid
        and copy.create_revision == life.create_revision
    ]  # fmt: skip
    if life.uid_from or not life.create_revision or not said:
        return life
    newest = max(said, key=lambda copy: copy.mod_revision)
    return msgspec.structs.replace(life, uid=newest.uid, uid_from=newest.where)


def judged(copy: Copy, wanted: Wanted) -> Copy:
    """Return a copy with what is known of it: is it of the same object, and what was written after it?"""
    same, proof = _same_object(copy, wanted)
    fresh, later = _freshness(copy, wanted)
    return msgspec.structs.replace(
        copy,
        same_object=same,
        freshness=fresh,
        later_writes=later,
        proof=f"{copy.proof}. {proof[0].upper()}{proof[1:]}" if copy.proof and proof else copy.proof or proof,
        doubt=copy.doubt or _doubt(copy, wanted),
    )


def alike(one: Copy, other: Copy) -> bool:
    """Say whether nothing but their contents tells two copies apart: then a person has to choose."""
    if Place.MEMORY in {one.place, other.place} and one.uid == other.uid:
        return False  # what a server answers with the same uid and revision is the same write
    same_turn = _turn(one)[:-1] == _turn(other)[:-1]
    return same_turn and not (one.value_sha256 and one.value_sha256 == other.value_sha256)


def _turn(copy: Copy) -> tuple[int, ...]:
    return (
        not copy.reads,
        _SAMENESS.index(copy.same_object),
        bool(copy.doubt),
        copy.sure is Confidence.POSSIBLE,
        copy.place is Place.CANDIDATE,
        -copy.mod_revision,
        _PLACES.index(copy.place),
    )


def _the_value(copy: Copy) -> str:
    if copy.repair is None or copy.repair.proof is RepairProof.NONE:
        return "this is the current value"
    told = "with one bit corrected" if copy.repair.kind is RepairKind.BIT else "corrected"
    return f"nothing is lost: this is the current value {told}"


def _same_object(copy: Copy, wanted: Wanted) -> tuple[Sameness, str]:
    life = wanted.life
    if copy.history is Sameness.OTHER:
        return Sameness.OTHER, "its place is of another cluster, or of another history of this one"
    put_right = copy.place in THE_VALUE and copy.reads and copy.stored is not None and life.uid_from
    if ((copy.uid and life.uid) or put_right) and copy.uid != life.uid:
        theirs = f"that of the object at the key {life.uid or 'missing'} ({life.uid_from})"
        return Sameness.OTHER, f"its uid is {copy.uid or 'missing'}, and {theirs}"
    if copy.place in THE_VALUE:
        return Sameness.SAME, _the_value(copy)
    if copy.uid and life.uid:
        return Sameness.SAME, f"it has the uid of the object at the key ({life.uid_from})"
    if copy.place is Place.MEMORY and copy.mod_revision == life.mod_revision:
        return Sameness.SAME, "it is the write that stands there, read before its key was lost"
    told = copy.place in {Place.REVISION, Place.SNAPSHOT} and copy.history is Sameness.SAME
    generation = copy.create_revision if told else 0
    if copy.log is not None:
        generation = copy.log.create_revision
        if wanted.found is None and copy.log.deleted_at:
            return Sameness.SAME, "the log shows its life to its end, and nothing was at the key since"
    if generation and generation == life.create_revision and (copy.uid or not life.uid):
        if copy.place is Place.SNAPSHOT:  # what the file says of revisions, it alone says
            return Sameness.UNKNOWN, "by the snapshot alone, it is of the same generation of the key"
        return Sameness.SAME, "it is of the same generation of the key"
    return Sameness.UNKNOWN, ""


def _freshness(copy: Copy, wanted: Wanted) -> tuple[Freshness, int | None]:
    life, logged = wanted.life, copy.later_writes
    if wanted.found is None and copy.log is not None and copy.log.deleted_at:
        return (Freshness.OLDER if logged else Freshness.CURRENT), logged
    if not copy.mod_revision or not life.mod_revision or copy.history is not Sameness.SAME:
        return Freshness.UNKNOWN, logged
    if copy.mod_revision == life.mod_revision:
        return Freshness.CURRENT, 0
    if copy.mod_revision > life.mod_revision:
        return Freshness.UNKNOWN, logged
    counted = copy.version and life.version and copy.create_revision == life.create_revision
    return Freshness.OLDER, max(life.version - copy.version, 0) if counted else logged


def _doubt(copy: Copy, wanted: Wanted) -> str:
    """Return what else speaks against a copy that reads; "" for nothing."""
    life = wanted.life
    if copy.history is Sameness.UNKNOWN:
        return "whether it is of the same cluster and history is not known"
    if copy.place in THE_VALUE or copy.place in {Place.MEMORY, Place.KEY}:
        return ""
    if life.mod_revision and copy.mod_revision > life.mod_revision:
        return "it is newer than what stands there, so it may be of another history"
    same_write = copy.mod_revision and copy.mod_revision == life.mod_revision
    if same_write and copy.value_sha256 and wanted.value_sha256 and copy.value_sha256 != wanted.value_sha256:
        return "it has other bytes at the same mod_revision: those were changed on disk, or it is of a clone"
    return ""
