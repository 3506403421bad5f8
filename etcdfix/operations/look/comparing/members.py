"""The members of one etcd, each asked for its own copy: first for the hash of all it stores, then for the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from etcdfix.errors import SourceError
from etcdfix.remediation.preflight.members import CopyState, MemberCopy, MemberSurvey, survey_members
from etcdfix.side_by_side import run_within
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.hashkv import HASHING_SECONDS, StoreHash, read_hash
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import StorageLayout

_NO_HASH: Final = "a member does not say its hash"


class Member(msgspec.Struct, frozen=True):
    """A member that votes.

    Attributes:
        copy: Where it answered, and why it did not.
        source: Reads its own copy; None where it did not answer.
    """

    copy: MemberCopy
    source: LiveSource | None


class Hashes(msgspec.Struct, frozen=True):
    """What the members said of all that they store.

    Attributes:
        found: For each member, None where it did not say.
        equal: They are comparable and equal: nothing differs.
        differ: They are comparable and not equal.
        why_keys: Why they do not show that nothing differs; "" where they do.
    """

    found: tuple[StoreHash | None, ...]
    equal: bool
    differ: bool
    why_keys: str


def reach_members(
    source: LiveSource, layout: StorageLayout, stack: ExitStack, *, revision: int, say: Callable[[str], None]
) -> tuple[list[Member], MemberSurvey]:
    """Connect to every voting member by itself, at one revision that each of them has.

    Args:
        source: The cluster.
        layout: Storage prefix; a key below it is read on every member.
        stack: Closes the connections.
        revision: At which to read; 0 for the newest.
        say: Told what a person should know.

    Raises:
        SourceError: etcd cannot be asked.
        MemberListUnusable: The member list cannot be true.
    """
    prefix = layout.prefix_bytes
    survey = survey_members(source.client, prefix + b"namespaces/kube-system")
    at = revision or survey.reading.revision
    members = []
    for copy in sorted(survey.copies, key=lambda copy: (copy.name, copy.member_id)):
        if copy.state is CopyState.UNCHECKED:
            members.append(Member(copy, None))
            continue
        connection = replace(source.client.connection, endpoints=(copy.endpoint,))
        try:
            opened = LiveSource(
                connection, revision=at, storage_prefix=prefix, on_notice=say, of_member=copy.member_id
            )
        except SourceError as exc:
            lost = replace(copy, state=CopyState.UNCHECKED, reason=exc.message)
            members.append(Member(lost, None))
        else:
            members.append(Member(copy, stack.enter_context(opened)))
    return members, survey


def read_hashes(members: Sequence[Member], revision: int) -> Hashes:
    """Ask the members that answered for their hashes, all at once.

    Args:
        members: At least one of them answered.
        revision: Up to which.

    Raises:
        SourceError: An answer comes from another cluster.
    """
    # Its threads are nobody's to wait for: who interrupts a comparison does not wait for a database to be hashed.
    asked = run_within([partial(_hash_of, member, revision) for member in members], HASHING_SECONDS)
    for one in asked:
        if isinstance(one, BaseException):
            raise one
    found = tuple(one if isinstance(one, StoreHash) else None for one in asked)
    told = [one for one in found if one is not None]
    failures = [one.reason for one in asked if isinstance(one, _NoHash) and one.reason]
    failures += [f"no answer within {HASHING_SECONDS:g} s" for one in asked if one is None]
    if failures:
        return Hashes(found, equal=False, differ=False, why_keys=f"{_NO_HASH}: {failures[0]}")
    first = told[0]
    if not all(first.is_comparable(one) for one in told):
        compacted = ", ".join(str(one.compact_revision) for one in told)
        why = f"their hashes cannot be compared: compacted up to revisions {compacted}"
        return Hashes(found, equal=False, differ=False, why_keys=why)
    equal = all(first == one for one in told)
    return Hashes(found, equal=equal, differ=not equal, why_keys="" if equal else "their hashes differ")


class _NoHash(msgspec.Struct, frozen=True):
    """Why a member has no hash; "" for one that did not answer before."""

    reason: str


def _hash_of(member: Member, revision: int) -> StoreHash | _NoHash:
    if member.source is None:
        return _NoHash("")
    try:
        return read_hash(member.source.client, member_id=member.copy.member_id, revision=revision)
    except CallFailed as failed:
        return _NoHash(failed.failure.message)


def reasons_of(members: Sequence[Member]) -> Iterator[str]:
    """Yield why members were not compared."""
    for member in members:
        if member.source is None:
            yield member.copy.describe()
