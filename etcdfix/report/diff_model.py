"""The published shape of what differs between two reports (``etcdfix/v1``), field by field and in order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from etcdfix.report.model import PublishedReport


class DiffedReport(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two reports.

    Attributes:
        path: Its file.
        sha256: Of the file.
        generated_at: When its scan began.
        source_type: ``snapshot``, ``etcd`` or ``kine``.
        revision: Of etcd.
        kube_system_uid: Which cluster; null where the scan could not read it.
        findings: How many it has that are compared: those of readable values, and of what is no object, are not.
        complete: As it says; false where its end is missing.
        incomplete_reasons: Why not.
    """

    path: str
    sha256: str
    generated_at: str
    source_type: str
    revision: int
    kube_system_uid: str | None
    findings: int
    complete: bool
    incomplete_reasons: list[str]


class Unlike(msgspec.Struct, frozen=True):
    """What is not the same for both scans, so that findings may differ for that alone; "" for none, or not known."""

    what: str
    earlier: str
    later: str


class DiffedFinding(msgspec.Struct, frozen=True):
    """What one report says of a key. ``severity`` and ``cause`` are null for none."""

    outcome: str
    cause: str | None
    severity: str | None
    mod_revision: int
    value_sha256: str
    message: str


class FindingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A key of which the two reports do not say the same; ``key_base64`` as in a finding.

    Attributes:
        earlier: Null where it is new.
        later: Null where it is gone: repaired or deleted.
        changed: Which of ``outcome``, ``cause`` and ``value`` differ, where both have it.
    """

    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    earlier: DiffedFinding | None
    later: DiffedFinding | None
    changed: list[str]


class CauseDifference(msgspec.Struct):
    """How many findings of one outcome and cause are new or gone; one whose cause changed is ``came`` and ``went``."""

    outcome: str
    cause: str
    new: int = 0
    gone: int = 0
    came: int = 0
    went: int = 0


class DiffCounts(msgspec.Struct):
    """How many keys: with a finding in the later report alone, in the earlier one alone, another one, the same."""

    new: int = 0
    gone: int = 0
    changed: int = 0
    same: int = 0


class ReportDiff(PublishedReport, frozen=True, kw_only=True):
    """What differs between two reports of one cluster.

    Attributes:
        earlier: The report that was named first.
        later: The other one.
        unlike: What is not the same for both scans.
        counts: Of all keys with a finding.
        by_cause: The same by outcome and cause, those with new ones first.
        complete: Both are, and they are of the same cluster: what is not new was there before.
        incomplete_reasons: Why not.
        new: In the order of the etcd keys, as the following.
        changed: Keys with another outcome, cause or value.
        gone: Keys with no finding in the later report.
    """

    kind: str = "ReportDiff"
    earlier: DiffedReport
    later: DiffedReport
    unlike: list[Unlike]
    counts: DiffCounts
    by_cause: list[CauseDifference]
    complete: bool
    incomplete_reasons: list[str]
    new: Sequence[FindingDifference]
    changed: Sequence[FindingDifference]
    gone: Sequence[FindingDifference]
