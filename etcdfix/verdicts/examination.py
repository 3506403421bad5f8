"""One examined key: where it belongs, what was found, and the verdict."""

from __future__ import annotations

import msgspec

from etcdfix.model import DecodedObject, GroupVersionKind, StoredValue, key_id_digest
from etcdfix.storagekey import Directory
from etcdfix.verdicts.judge import Verdict


class Examination(msgspec.Struct, frozen=True, gc=False):
    """The result for one key. Holds stored bytes, never plaintext.

    Attributes:
        stored: The record as the source gave it.
        directory: Where the key belongs.
        namespace: Namespace in the key; "" for none.
        name: Name in the key.
        transformer: What opened the value, else what its envelope names; "" where neither is known.
        opened: The value decrypted (or was plain).
        stale: Opened, but not written with today's write key.
        verdict: What it is.
        decoded: What came out, or None.
        kms_key_id: KMS key id in the envelope, "" where there is none; reports show its digest.
    """

    stored: StoredValue
    directory: Directory
    namespace: str
    name: str
    transformer: str
    opened: bool
    stale: bool
    verdict: Verdict
    decoded: DecodedObject | None = None
    kms_key_id: str = ""

    @property
    def kms_key_id_sha256(self) -> str:
        """``sha256:<hex>`` of the KMS key id, "" for none."""
        return key_id_digest(self.kms_key_id)

    @property
    def gvk(self) -> GroupVersionKind | None:
        """Group, version and kind that the value itself states."""
        return self.decoded.gvk if self.decoded is not None else None
