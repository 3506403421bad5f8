"""The members of one etcd, each read by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import msgspec

from etcdfix.errors import SourceError
from etcdfix.remediation.preflight.members import CopyState, MemberCopy, MemberSurvey, survey_members
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import StorageLayout


class Member(msgspec.Struct, frozen=True):
    """A member that votes.

    Attributes:
        source: Reads its own copy; None where it did not answer.
    """

    copy: MemberCopy
    source: LiveSource | None


def reach_members(
    source: LiveSource, layout: StorageLayout, stack: ExitStack, *, revision: int, say: Callable[[str], None]
) -> tuple[list[Member], MemberSurvey]:
    """Connect to every voting member by itself, at one revision that each of them has.

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
