"""One examined key: where it belongs, what was found, and the verdict."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.plaintext import bounded
from etcdfix.model.model import DecodedObject, GroupVersionKind, Outcome, Repair, StoredValue, key_id_digest
from etcdfix.model.storagekey import ResourcePrefix


class KeyName(NamedTuple):
    """One encryption key as values are counted under it.

    A key's name is local to its rule: two rules with one name and different bytes are two keys.

    Attributes:
        rule: Resources of the effective provider list, ``secrets,configmaps``; "" for none.
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``; "" for an envelope that nobody knows.
        key: Fingerprint of a local key, digest of a KMS v2 key id; "" where there is neither.
    """

    rule: str
    transformer: str
    key: str


class Examination(msgspec.Struct, frozen=True, gc=False):
    """The result for one key. Holds stored bytes, never plaintext.

    Attributes:
        transformer: What opened the value, else what its envelope names; "" where neither is known.
        stale: Opened, but not written with today's write key.
        kms_key_id: KMS key id in the envelope, "" where there is none; reports show its digest.
        key_fingerprints: Of the key that opened the value; of one that did not open, those of all keys of its name.
        repair: How its own stored bytes can be put right; None where nothing was found, or no search was made: a look
            that is not thorough finds those that cost nothing.
        keys_untried: Its KMS envelope is damaged, and not all data keys that opened others could be tried on it.
    """

    stored: StoredValue
    directory: ResourcePrefix
    namespace: str
    name: str
    transformer: str
    opened: bool
    stale: bool
    verdict: Verdict
    decoded: DecodedObject | None = None
    kms_key_id: str = ""
    rule: str = ""
    key_fingerprints: tuple[str, ...] = ()
    repair: Repair | None = None
    keys_untried: bool = False

    @property
    def encryption_keys(self) -> tuple[KeyName, ...]:
        """The encryption keys under which the value counts: one, or all that share its key's name."""
        return names_of_keys(self.rule, self.transformer, self.key_fingerprints, self.kms_key_id)

    @property
    def kms_key_id_sha256(self) -> str:
        """``sha256:<hex>`` of the KMS key id, "" for none."""
        return key_id_digest(self.kms_key_id)

    @property
    def uid(self) -> str:
        """The uid that a readable value says; "" where it does not read or says none."""
        if self.decoded is None or self.verdict.outcome is not Outcome.READABLE:
            return ""
        return bounded((self.decoded.uid or b"").decode("utf-8", "replace"))

    @property
    def gvk(self) -> GroupVersionKind | None:
        """Group, version and kind that the value itself states."""
        return self.decoded.gvk if self.decoded is not None else None


class PlainCount(msgspec.Struct, frozen=True, array_like=True):
    """So many values of one directory that are readable, and of which there is nothing to say.

    Attributes:
        key_fingerprints: Of the key that did; empty for identity and KMS.
    """

    directory: ResourcePrefix
    rule: str
    transformer: str
    key_fingerprints: tuple[str, ...]
    kms_key_id: str
    stale: bool
    count: int
    first: int
    last: int

    @property
    def encryption_keys(self) -> tuple[KeyName, ...]:
        """The encryption keys under which the values count, as for :class:`Examination`."""
        return names_of_keys(self.rule, self.transformer, self.key_fingerprints, self.kms_key_id)


def names_of_keys(
    rule: str, transformer: str, key_fingerprints: tuple[str, ...], kms_key_id: str
) -> tuple[KeyName, ...]:
    """Return the encryption keys that a rule, a transformer, fingerprints and a KMS key id name."""
    if key_fingerprints:
        return tuple(KeyName(rule, transformer, key) for key in key_fingerprints)
    return (KeyName(rule, transformer, key_id_digest(kms_key_id)),)
