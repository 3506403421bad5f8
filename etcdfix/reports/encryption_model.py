"""The published shape of the reports on encryption keys (``etcdfix/v1alpha2``), field by field and in order.

An encryption key is named by its transformer, its rule and its fingerprint; under KMS v2 by the digest of its key id.
Nothing here holds key material or contents of objects.
"""

from __future__ import annotations

import msgspec

from etcdfix.reports.model import Remedy, SourcedReport


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
