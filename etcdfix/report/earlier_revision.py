"""How an earlier revision that still reads is put back, or saved where it cannot be put back as it is."""

from __future__ import annotations

from collections.abc import Sequence

from etcdfix.model import GroupResource, ReadableRevision
from etcdfix.report.model import Remedy
from etcdfix.report.ways import Way, WayKind, risks_to_accept
from etcdfix.rules import Rule
from etcdfix.text.commands import GRANTED, Command, RepeatedOptions
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import Deletability, deletability_of, risks_of
from etcdfix.verdicts.examination import Examination

_SECRETS = GroupResource("", "secrets")

_COMPACTS = (
    "An API server has etcd compact, every five minutes, what is older than that; a snapshot keeps it too."
)
_OTHER_OBJECT = (
    "The etcd key was deleted and put again since then, and nothing shows that the object is the same: compare before "
    "you use it. "
)
NOT_TO_KINE = "etcdfix writes nothing to kine: what changes an object there goes through an API server."
_OLD_VALUE = "kine keeps the value before the last one until the key is written or deleted again."
_OF_A_FILE = "A live etcd may have compacted it by now."
_SAVED_ONLY = (
    "It can be put back only where the present value may be deleted, and that is not so as things are. "
)


def readable_way(
    found: Examination,
    readable: ReadableRevision,
    again: RepeatedOptions,
    *,
    breaking: bool = False,
    refused: bool = False,
) -> Way:
    """Return how an earlier revision that still reads is put back, or saved where it cannot be put back as it is.

    Args:
        found: The value that cannot be read.
        readable: The revision.
        again: Options that a command must repeat.
        breaking: As in :func:`~etcdfix.report.remedies.ways_out`.
        refused: A deletion of the value was refused, and for the same reason it could not be written over.
    """
    stored = found.stored
    save = save_command(stored.key, found.directory.group_resource, readable.at, again)
    which = f"readable revision {readable.at}"
    if again.of_kine:
        other = "" if readable.same_object else _OTHER_OBJECT
        keep = Remedy(
            f"Save {which}, before kine compacts it", Command(text=save), f"{other}{NOT_TO_KINE} {_OLD_VALUE}"
        )
        return Way(keep, WayKind.SAVE)
    if again.of_a_file:
        see = Remedy(
            f"See {which}, which this file still holds"
            + ("" if readable.same_object else ": it may be of another object"),
            Command(text=again.get(stored.key, revision=readable.at)),
            f"To save it: {save}. {_OTHER_OBJECT if not readable.same_object else _OF_A_FILE}",
        )
        return Way(see, WayKind.SAVE)
    if not readable.same_object:
        other = f"Save {which}, before etcd compacts it: it may be of another object"
        return Way(Remedy(other, Command(text=save), _OTHER_OBJECT + _COMPACTS), WayKind.SAVE)
    # What may only be newer than this tool may be in order; a lease that ran out takes its object with it.
    # What can be repaired is newer than any earlier revision.
    better = {Rule.NEWER_THAN_KNOWN, Rule.ONLY_COPY} & set(risks_of(found))
    unsure = refused or better or readable.leased or again.of_the_past
    if unsure or deletability_of(found) is not Deletability.DELETABLE:
        kept = Remedy(f"Save {which}, before etcd compacts it", Command(text=save), _SAVED_ONLY + _COMPACTS)
        return Way(kept, WayKind.SAVE)
    risks = risks_to_accept(found, breaking=breaking)
    accepts = f"It accepts what must be accepted: {', '.join(risks)}. " if risks else ""
    granted = "" if again.told_of_encryption else GRANTED
    put_back = Remedy(
        f"Put back {which}, soon compacted: a dry run first",
        Command(
            text=again.restore(
                stored.key,
                readable.at,
                replacing=stored.mod_revision,
                accepting=risks,
                asking=found.verdict.damage is Damage.POSSIBLE,
            )
        ),
        f"What is there now is backed up first. {accepts}{granted}{_COMPACTS} Save it now: {save}",
    )
    return Way(put_back, WayKind.PUT_BACK)


def save_command(key: bytes, resource: GroupResource, revision: int, again: RepeatedOptions) -> str:
    """Return the command that shows a whole object at a revision, to be kept: a Secret that is masked is no copy."""
    return again.get(key, *revealed(resource), "-o", "json", revision=revision)


def revealed(resource: GroupResource) -> Sequence[str]:
    """Return what shows the contents of a Secret, for other objects nothing."""
    return ["--reveal"] if resource == _SECRETS else []
