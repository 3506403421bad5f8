"""The published shape of what is said of many clusters together (``etcdfix/v1``), field by field and in order.

It is made of saved reports alone, and holds none of their findings but the first ones of each. Text that comes from a
report is shortened in the middle where it is longer than any honest one; the report itself has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from etcdfix.reports.model import Counts, Document, ReportBaseline


class FleetFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the first findings of a cluster, in few words.

    Attributes:
        key: Etcd key, as the report shows it.
        key_base64: The key itself where it is no plain text; absent where it is, or is too long to stand here.
        outcome: As the report has it.
        cause: Likewise; null for none.
        severity: Absent where nothing is proven wrong.
        mod_revision: Of the etcd key.
        message: One sentence.
        baseline: True where the baseline of the scan knew it, else absent.
    """

    key: str
    key_base64: str | None = None
    outcome: str
    cause: str | None
    severity: str | None = None
    mod_revision: int
    message: str
    baseline: bool = False


class FleetKeyLoss(msgspec.Struct, frozen=True):
    """A key that a report calls lost: ``failures`` of the values under it (``of``) do not open or do not decode."""

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    failures: int
    of: int


class FleetCounts(Counts, kw_only=True):
    """How many keys had which outcome, those that are no objects too."""

    not_objects: int = 0


class NewFindings(msgspec.Struct, kw_only=True):
    """How many keys of each outcome the baseline of the scan did not know; all of them where there was no baseline."""

    decrypt_failures: int = 0
    decode_failures: int = 0
    inconsistent: int = 0
    undetermined: int = 0


class FleetCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What one report says.

    Attributes:
        name: Of the cluster.
        named_by: Who says so: ``list`` (``--clusters``), ``report`` (``--cluster-name`` of the scan), or ``file``: the
            name of the report's file, for want of a better one.
        kube_system_uid: Null where the scan could not read it.
        same_uid: How many other reports have the same uid: of the same cluster, or of one that was restored from its
            snapshot.
        report: Path of the report.
        report_sha256: Of that file.
        generated_at: When the scan began.
        source_type: ``snapshot``, ``etcd`` or ``kine``.
        revision: Of etcd.
        data_from: When what was scanned was so: for a snapshot, when its file was last written; else when the scan
            began; "" where that is not known.
        data_age_seconds: How long that was before this document was made; null where it is not known, or lies ahead.
        limited_to: Resources, key prefixes and namespaces that the scan was limited to; empty for everything.
        counts: Of all keys in scope.
        severity: The worst; null where nothing is proven wrong.
        at_stake: What that means, in the report's words.
        do_not_restart: The report warns against restarting an API server of this cluster.
        key_loss: Encryption keys that are lost, the first ten.
        key_losses: How many there are.
        baseline: What the scan knew already; null where it had no baseline.
        new: What that did not know.
        first_findings: The first ten findings, in the order of their etcd keys, those of ``not_objects`` and readable
            ones left out.
        complete: The scan saw and decided everything in its scope.
        lost_midway: It is incomplete for another reason than values that could not be decided.
        incomplete_reasons: The first ten.
    """

    name: str
    named_by: str
    kube_system_uid: str | None
    same_uid: int
    report: str
    report_sha256: str
    generated_at: str
    source_type: str
    revision: int
    data_from: str
    data_age_seconds: int | None
    limited_to: list[str]
    counts: FleetCounts
    severity: str | None
    at_stake: str
    do_not_restart: bool
    key_loss: list[FleetKeyLoss]
    key_losses: int
    baseline: ReportBaseline | None
    new: NewFindings
    first_findings: list[FleetFinding]
    complete: bool
    lost_midway: bool
    incomplete_reasons: list[str]


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster says of a shared key.

    Attributes:
        cluster: Its name.
        report: Path of its report: two clusters may have one name.
        transformer: What its configuration calls the key; names say nothing about whether two keys are the same.
        resources: Of the rule; empty for a KMS key.
        keys: How many etcd keys are under it.
        readable: How many of them open and decode; of a KMS key id: how many open.
        unreadable: How many do not, or could not be tried.
    """

    cluster: str
    report: str
    transformer: str
    resources: list[str]
    keys: int
    readable: int
    unreadable: int


class SharedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that several clusters use: one KMS key id, or the same bytes.

    Attributes:
        type: ``kms-key-id``, or ``encryption-key`` for one whose bytes a configuration holds.
        id: SHA-256 of the KMS key id, or the fingerprint of the bytes; never a name.
        reads: ``everywhere``, ``nowhere``, or ``in-part``.
        clusters: How many clusters use it: reports of one kube-system uid are of one. Where a report does not know it,
            it is of one cluster with those of the same snapshot or cluster name.
        without_uid: Of how many of them no report knows the uid: each may be one of the others.
        keys: How many etcd keys are under it, in all reports.
        readable: How many of them open and decode; of a KMS key id: how many open.
        unreadable: How many do not, or could not be tried.
        uses: What each says, the first thousand.
        uses_in_all: How many there are.
    """

    type: str
    id: str
    reads: str
    clusters: int
    without_uid: int
    keys: int
    readable: int
    unreadable: int
    uses: list[KeyUse]
    uses_in_all: int


class SameCluster(msgspec.Struct, frozen=True):
    """Reports with one kube-system uid: of one cluster, or of what was restored from its snapshot; none is merged."""

    kube_system_uid: str
    reports: list[str]


class LeftOut(msgspec.Struct, frozen=True):
    """A report that has no row.

    Attributes:
        report: Path of the report.
        cluster: Name in the list of clusters; "" where there is none.
        line: Its line there, from 1; 0 where there is none.
        index: Of the Job that makes the report again; null where there is no list.
        reason: ``missing``, ``unreadable``, ``not-a-report``, ``cut``, ``double``, ``filtered``,
            ``too-old`` or ``other-scan``.
        message: In words.
    """

    report: str
    cluster: str
    line: int
    index: int | None
    reason: str
    message: str


class FleetSummary(msgspec.Struct, kw_only=True):
    """All clusters together.

    Attributes:
        clusters: How many have a row.
        expected: How many reports there should be.
        with_findings: Clusters with a key that is unreadable or inconsistent.
        complete: Clusters whose scan was complete.
        without_baseline: Clusters that were scanned without one.
        do_not_restart: Clusters whose report warns against restarting an API server.
        by_severity: Clusters by their worst severity.
        counts: Of all keys of all clusters.
        new: Of all clusters.
        severity: The worst of all; null where nothing is proven wrong.
        shared_keys: How many keys are shared.
    """

    clusters: int = 0
    expected: int = 0
    with_findings: int = 0
    complete: int = 0
    without_baseline: int = 0
    do_not_restart: int = 0
    by_severity: dict[str, int] = msgspec.field(default_factory=dict)
    counts: FleetCounts = msgspec.field(default_factory=FleetCounts)
    new: NewFindings = msgspec.field(default_factory=NewFindings)
    severity: str | None = None
    shared_keys: int = 0


class FleetReport(Document, frozen=True, kw_only=True):
    """Many clusters together, the worst first.

    Attributes:
        clusters: A row for each report, the worst severity first, then by name.
        shared_keys: Keys that several clusters use, those under which nothing reads first.
        same_clusters: Reports with the same kube-system uid.
        left_out: Reports that have no row: what lacks.
        summary: All counts.
        complete: No report lacks, and each is complete.
        incomplete_reasons: Why not, in few words.
    """

    kind: str = "FleetReport"
    clusters: Sequence[FleetCluster]
    shared_keys: Sequence[SharedKey]
    same_clusters: list[SameCluster]
    left_out: list[LeftOut]
    summary: FleetSummary
    complete: bool
    incomplete_reasons: list[str]
