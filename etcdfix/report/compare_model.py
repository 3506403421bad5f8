"""The published shape of a comparison (``etcdfix/v1``, kind ``ComparisonReport``), field by field."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from etcdfix.report.model import PublishedReport, Remedy, ReportConfiguration, Scope


class Change(StrEnum):
    """How a key differs, the worst first. The first three are said of members, the others of two points in time."""

    READABLE_ON_SOME = "readable-on-some"
    READABLE_ON_NONE = "readable-on-none"
    READABLE_ON_ALL = "readable-on-all"
    UNREADABLE_NOW = "unreadable-now"
    SAME_REVISION_OTHER_BYTES = "same-revision-other-bytes"
    REMOVED = "removed"
    CHANGED = "changed"
    ADDED = "added"


class CopyHash(msgspec.Struct, frozen=True):
    """What HashKV said: a CRC-32, comparable only at an equal ``compact_revision`` and ``hash_revision``.

    ``hash_revision`` is 0 before etcd 3.6, which does not say it.
    """

    hash: str
    compact_revision: int
    hash_revision: int


class ComparedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One of what was compared.

    Attributes:
        label: As it is called in messages: a member's name and id, ``earlier`` or ``later``.
        type: ``member``, ``etcd`` or ``snapshot``.
        member_id: Lower-case hex; "" for no member.
        name: Of the member, "" for none.
        endpoint: Where it answered; "" for none.
        path: Of a snapshot, "" for none.
        revision: At which it was read.
        compared: Whether it was; for a member, whether it answered.
        reason: Why it was not, else "".
        hash: What HashKV said; null where it was not asked, or did not say.
        only_readable_here: Of how many keys its copy can be read where that of another one cannot.
        unreadable_here: Of how many keys its copy cannot be read, or is not there, where that of another one can.
    """

    label: str
    type: str
    member_id: str = ""
    name: str = ""
    endpoint: str = ""
    path: str = ""
    revision: int = 0
    compared: bool = True
    reason: str = ""
    hash: CopyHash | None = None
    only_readable_here: int = 0
    unreadable_here: int = 0


class CopyOfKey(msgspec.Struct, frozen=True, kw_only=True):
    """What one of them holds for a key.

    Attributes:
        label: Which: that of the :class:`ComparedCopy`.
        state: ``present``, ``absent``, or ``unknown`` where it could not be read whole.
        mod_revision: As stored, as are the following; 0 where it is not present.
        lease: Lower-case hex, null for none.
        value_sha256: ``sha256:<hex>``, "" where it is not present.
        outcome: As in a scan; "" where it is not present.
        cause: Likewise; null for none.
    """

    label: str
    state: str
    mod_revision: int = 0
    create_revision: int = 0
    version: int = 0
    lease: str | None = None
    value_size: int = 0
    value_sha256: str = ""
    outcome: str = ""
    cause: str | None = None


class KeyDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is not the same everywhere; ``key_base64`` as in a finding."""

    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    change: Change
    copies: tuple[CopyOfKey, ...]


class ResourceChanges(msgspec.Struct, frozen=True):
    """How many keys of a resource differ in which way."""

    group: str
    resource: str
    changes: dict[str, int]


class ComparisonReport(PublishedReport, frozen=True, kw_only=True):
    """What is not the same on all members of an etcd, or at two points in time.

    Attributes:
        mode: ``members``, or ``sources``: then ``copies`` are the earlier one and the later one.
        copies: What was compared.
        method: ``hash`` where HashKV alone showed that members agree, else ``keys``.
        why_keys: Why hashes did not decide, "" where they did or were not asked for.
        keys: How many keys were compared; 0 under the method ``hash``.
        differing: How many of them differ.
        hashes_differ: The members' hashes are comparable and differ, whatever was found in the keys that were read.
        changes: How many in which way.
        by_resource: The same for each resource.
        unknown: How many keys could not be compared, since a copy could not be read whole.
        warnings: One sentence each.
        advice: What to do, in this order.
        differences: The worst first, then in the order of the keys.
    """

    kind: str = "ComparisonReport"
    encryption_config: ReportConfiguration | None
    scope: Scope
    mode: str
    copies: list[ComparedCopy]
    method: str
    why_keys: str
    keys: int
    differing: int
    hashes_differ: bool
    changes: dict[str, int]
    by_resource: list[ResourceChanges]
    unknown: int
    warnings: list[str]
    advice: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]
    differences: Sequence[KeyDifference]
