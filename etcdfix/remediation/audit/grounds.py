"""What a change rested on, for the record: configuration, encryption key, counts, release, and who was asked.

It stands in records (annotation ``etcdfix.io/grounds``) and in the backup. Nothing in it is key material or plaintext:
an encryption key is named by its fingerprint, a KMS key id by its digest.
"""

from __future__ import annotations

import msgspec

from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.model.model import ClusterIdentity


class RecordedAnswer(msgspec.Struct, frozen=True):
    """What one API server said when it was asked for the object, in one sentence or a status code."""

    server: str
    answer: str


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a change rested on; every field has a value that says that there is nothing to say.

    Attributes:
        configuration_sha256: ``sha256:<hex>`` of the EncryptionConfiguration; None where none was given.
        rule: Rule of the configuration that holds for the resource, as in reports; "" for none.
        key_fingerprints: ``fp:…`` of the encryption key; several where keys share its name, none where it is not known.
        counts: Of the values under each of those keys (same rule, transformer and fingerprint), one for each
            fingerprint, or one where there is none; empty where they were not counted.
        release: Kubernetes release that was assumed (``1.34``), "" for every one that is known.
        warnings: TLS checks off, a password without TLS: one sentence each.
        cluster: Which cluster it was, and what says so; None where that is not certain.
        peek: What was seen without checking tag or padding, one line of evidence each.
        disk_of_etcd: Device that holds the backups and also etcd's data on this machine; unset for none.
    """

    configuration_sha256: str | None = None
    no_encryption: bool = False
    rule: str = ""
    transformer: str = ""
    key_fingerprints: tuple[str, ...] = ()
    kms_key_id_sha256: str = ""
    counts: tuple[KeyCounts, ...] = ()
    release: str = ""
    release_source: str = ""
    warnings: tuple[str, ...] = ()
    server_answers: tuple[RecordedAnswer, ...] = ()
    cluster: ClusterIdentity | None = None
    peek: tuple[str, ...] = ()
    disk_of_etcd: str | msgspec.UnsetType = msgspec.UNSET
