"""The published shape of the reports on encryption keys (``etcdfix/v1``), field by field and in order.

An encryption key is named by its transformer, its rule and its fingerprint; under KMS v2 by the digest of its key id.
Nothing here holds key material or contents of objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.report.cases import Case, CaseState, whole_case
from etcdfix.report.model import Remedy, ReportConfiguration, SourcedReport


class KeyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What needs one encryption key of one rule.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``; "" for an envelope that nobody knows.
        resources: Of the rule, empty for none.
        key_fingerprint: Of the key's bytes; null under KMS, for identity, and for a key that is not configured.
        kms_key_id_sha256: Digest of the KMS v2 key id; null where there is none.
        configured: The configuration has it.
        write_key: API servers that run with this configuration write with it.
        objects: How many values are stored under it now. One that does not open counts under each key of its name.
        stale: Of these: readable, and to be written again with the write key.
        failing: Of these: cannot be read.
        undetermined: Of these: could not be told.
        first_mod_revision: Lowest of all these; null for none.
        last_mod_revision: Highest; null for none.
        kept_revisions: Earlier values under it that etcd still keeps, until it compacts them; null where that
            is not known.
        backups: Values under it in the backups that were named.
        snapshots: Values under it in the other snapshots that were named, earlier values included.
        safe_to_remove: Nothing that was looked at needs it, and everything was looked at that could be.
        reasons: Why it is not safe to remove, one sentence each; empty where it is.
    """

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    kms_key_id_sha256: str | None
    configured: bool
    write_key: bool
    objects: int
    stale: int
    failing: int
    undetermined: int
    first_mod_revision: int | None
    last_mod_revision: int | None
    kept_revisions: int | None
    backups: int
    snapshots: int
    safe_to_remove: bool
    reasons: list[str]


class EncryptionUsageReport(SourcedReport, frozen=True, kw_only=True):
    """Which encryption key is needed by how many objects.

    Attributes:
        keys: In the order of the configuration; those that it does not have come last.
        safe_to_remove: How many of them are safe to remove: as of the revision of ``source``, in this etcd.
        backup_directories: Whose backups were looked at.
        other_snapshots: That were looked at besides.
        notes: What the answer does not cover, one sentence each.
        next: What to do first; null where there is nothing to do.
        complete: Everything was seen and decided.
        incomplete_reasons: Why not.
    """

    kind: str = "EncryptionUsageReport"
    keys: list[KeyUsage]
    safe_to_remove: int
    backup_directories: list[str]
    other_snapshots: list[str]
    notes: list[str]
    next: Remedy | None
    complete: bool
    incomplete_reasons: list[str]


class ConfigurationChange(StrEnum):
    """What another configuration would do to a value, the worst first."""

    BECOMES_UNREADABLE = "becomes-unreadable"
    LOSES_ITS_WAY_BACK = "loses-its-way-back"
    """Unreadable under both, and only today's configuration has the key with which it may be repaired."""
    UNDETERMINED = "undetermined"
    """Could not be told under one of the configurations."""
    STAYS_UNREADABLE = "stays-unreadable"
    BECOMES_READABLE = "becomes-readable"
    BECOMES_STALE = "becomes-stale"
    """Readable, and not written with what would then be the write key."""
    NO_LONGER_STALE = "no-longer-stale"


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to the values of one resource under one encryption key.

    Attributes:
        change: See :class:`ConfigurationChange`.
        group: API group.
        resource: Plural.
        transformer: That opens them today, else what their envelope names.
        key_fingerprint: Of that key; null where there is none, or where several have its name.
        kms_key_id_sha256: Digest of the KMS v2 key id; null where there is none.
        cause: Of the verdict under the new configuration; null where they would be readable.
        count: How many.
        examples: The first etcd keys, at most five.
    """

    change: ConfigurationChange
    group: str
    resource: str
    transformer: str
    key_fingerprint: str | None
    kms_key_id_sha256: str | None
    cause: str | None
    count: int
    examples: list[str]


class WriteKey(msgspec.Struct, frozen=True, kw_only=True):
    """An encryption key that writes; the fingerprint is null under KMS, and for identity."""

    transformer: str
    key_fingerprint: str | None


class WriteKeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that API servers would write with another encryption key.

    Attributes:
        group: API group.
        resource: Plural.
        today: The write key of today's configuration.
        new: That of the new one.
        today_reads_new: Today's configuration has the new write key already.
        new_reads_today: The new configuration still has today's write key.
    """

    group: str
    resource: str
    today: WriteKey
    new: WriteKey
    today_reads_new: bool
    new_reads_today: bool


class WhatIfReport(SourcedReport, frozen=True, kw_only=True):
    """What another configuration would do to everything that is stored.

    Attributes:
        new_config: The configuration in question; ``encryption_config`` is today's, null where there is none.
        values: How many values were compared; of those that are not counted below nothing changes.
        changes: What happens, by resource and encryption key, the worst first.
        write_keys: Resources whose write key changes.
        warnings: What to know before it is deployed, one sentence each.
        next: What to do first; null where there is nothing to do.
        complete: Everything was seen and decided.
        incomplete_reasons: Why not.
    """

    kind: str = "WhatIfReport"
    new_config: ReportConfiguration | None
    values: int
    becomes_unreadable: int
    loses_its_way_back: int
    undetermined: int
    stays_unreadable: int
    becomes_readable: int
    becomes_stale: int
    no_longer_stale: int
    changes: list[ValueChange]
    write_keys: list[WriteKeyChange]
    warnings: list[str]
    next: Remedy | None
    complete: bool
    incomplete_reasons: list[str]

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each change of the values of one resource under one encryption key."""
        whole = "everything was examined under both configurations"
        yield whole_case(whole, self.incomplete_reasons, complete=self.complete)
        lost = bool(self.becomes_unreadable or self.loses_its_way_back)
        told = f"{self.becomes_unreadable} become unreadable, {self.loses_its_way_back} lose their way back"
        yield Case(
            name="no value becomes unreadable, or loses the key with which it can be repaired",
            state=CaseState.FAILED if lost else CaseState.PASSED,
            type="lost" if lost else "",
            message=told,
            detail=[f"{self.values} values compared: {told}"],
        )
        for row in self.changes:
            key = row.key_fingerprint or row.kms_key_id_sha256 or ""
            under = f"{row.transformer or '(unknown)'} {key}".rstrip()
            cause = f", {row.cause}" if row.cause else ""
            yield Case(
                name=f"{under}: {row.change}{cause}",
                group=f"{row.resource}.{row.group}".rstrip("."),
                state=_CASES.get(row.change, CaseState.PASSED),
                type=row.cause or row.change,
                message=f"{row.count} values under {under}: {row.change}{cause}",
                detail=[f"{row.count} values, such as:", *row.examples],
            )


_CASES: Final = {
    ConfigurationChange.BECOMES_UNREADABLE: CaseState.FAILED,
    ConfigurationChange.LOSES_ITS_WAY_BACK: CaseState.FAILED,
    ConfigurationChange.UNDETERMINED: CaseState.ERROR,
    ConfigurationChange.STAYS_UNREADABLE: CaseState.SKIPPED,
}
"""All other changes pass."""


class CandidateOnGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What one candidate does for the values under one encryption key.

    Attributes:
        candidate: Its name.
        opens: So many open, decode, and fit their etcd key.
        right_key: So many more were written with a key of it, and do not open as they are: damaged, moved, or under
            another name of the key.
        named: The name by which the values call that key, where it has another one here; "" otherwise.
        undetermined: Could not be told: a KMS plugin did not answer, or refused.
    """

    candidate: str
    opens: int
    right_key: int
    named: str
    undetermined: int


class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Unreadable values under one encryption key of one rule.

    Attributes:
        transformer: That their envelopes name; "" for an envelope that nobody knows.
        resources: Of the rule today, empty for none.
        kms_key_id_sha256: Digest of the KMS v2 key id; null where there is none.
        findings: How many.
        opened: So many are opened by at least one candidate.
        damaged: Of so many it is proven that they are damaged, with today's configuration: no other key opens these.
        opened_by: Candidates that open all of them.
        candidates: What each does for them; those that do nothing are left out.
        not_opened: The first etcd keys that none opens, at most five.
        next: What to do first; null where no candidate opens any.
    """

    transformer: str
    resources: list[str]
    kms_key_id_sha256: str | None
    findings: int
    opened: int
    damaged: int
    opened_by: list[str]
    candidates: list[CandidateOnGroup]
    not_opened: list[str]
    next: Remedy | None


class CandidateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one candidate opens.

    Attributes:
        name: Its file; of a single key its name and file.
        kind: ``configuration`` or ``key``.
        key_fingerprints: Of a single key: what its file may mean; empty for a configuration.
        opens: So many open, decode, and fit their etcd key.
        right_key: So many more were written with a key of it, and do not open as they are.
        undetermined: Could not be told.
        opened: The first etcd keys that it opens, at most five.
        not_opened: The first that it does not, at most five.
    """

    name: str
    kind: str
    key_fingerprints: list[str]
    opens: int
    right_key: int
    undetermined: int
    opened: list[str]
    not_opened: list[str]


class EncryptionTryReport(SourcedReport, frozen=True, kw_only=True):
    """Which candidate opens which of the values that cannot be read.

    Attributes:
        findings: How many values were tried: all that do not open today, within the scope.
        opened: So many are opened by at least one candidate.
        undetermined_today: Of so many it could not be told whether they open today, or no configuration was given.
        readable_now: So many of a saved report are readable today.
        changed: So many of a saved report have another value today, which was tried.
        gone: So many of a saved report are not there any more.
        candidates: In the order given.
        groups: By encryption key, most findings first.
        next: What to do first; null where there is nothing to do.
        complete: Everything was seen and decided.
        incomplete_reasons: Why not.
    """

    kind: str = "EncryptionTryReport"
    findings: int
    opened: int
    undetermined_today: int
    readable_now: int
    changed: int
    gone: int
    candidates: list[CandidateResult]
    groups: list[FindingGroup]
    next: Remedy | None
    complete: bool
    incomplete_reasons: list[str]
