"""Kinds of damage that a stored value can have, and what etcdfix says of each.

Each is one thing that is done to a value that was in order. They are the public half of the kinds with which etcdfix
itself is examined (``docs/exam.md``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from etcdfix.testing import doing
from etcdfix.testing.doing import inside
from etcdfix.testing.protobytes import entry
from etcdfix.testing.sealing import Seals
from etcdfix.verdicts.causes import Cause


class Way(NamedTuple):
    """How one damage is done.

    Attributes:
        does: What is done, for the documentation.
        cause: What etcdfix says of it.
        do: Gives the damaged value of a value that is in order; raises DoesNotFit.
        also: What it says in other surroundings: with or without values before and after it that open under the same
            key, of an object in another encoding, or under aescbc, which has no tag.
        fits: To which values; "" for all.
    """

    does: str
    cause: Cause
    do: Callable[[Seals, bytes], bytes]
    also: tuple[Cause, ...] = ()
    fits: str = ""

    @property
    def causes(self) -> frozenset[str]:
        """All of them, as findings name them."""
        return frozenset({self.cause.value, *(cause.value for cause in self.also)})


def _way(fits: str, does: str, cause: Cause, do: Callable[[Seals, bytes], bytes], *also: Cause) -> Way:
    return Way(does, cause, do, also, fits)


_any = partial(_way, "")
_encrypted = partial(_way, "encrypted")
_sealed = partial(_way, "of aesgcm, aescbc or secretbox")
_tagged = partial(_way, "of aesgcm or secretbox")
_gcm = partial(_way, "of aesgcm")
_protobuf = partial(_way, "an object stored as protobuf")
_json = partial(_way, "an object stored as JSON, with its CRD")
_either = partial(_way, "an object stored as protobuf, or as JSON with its CRD")


class Damage(Enum):
    """What is done to a value; the value of a member is its :class:`Way`."""

    # the key, the rule, the place
    WRONG_KEY = _sealed(
        "encrypted with other bytes under the name of today's key",
        Cause.WRONG_KEY,
        doing.wrong_key,
        Cause.NONCE_DAMAGED,
        Cause.CIPHERTEXT_DAMAGED,
        Cause.AUTHENTICATION_FAILED,
    )
    KEY_NAME_UNKNOWN = _sealed(
        "encrypted under a name that is not configured", Cause.KEY_NAME_MISSING, doing.key_name_unknown
    )
    KEY_RENAMED = _sealed(
        "encrypted with today's key, under another name", Cause.KEY_RENAMED, doing.key_renamed
    )
    PROVIDER_UNKNOWN = _sealed(
        "encrypted by a provider that is not configured", Cause.PROVIDER_MISSING, doing.provider_unknown
    )
    NO_RULE = _way(
        "of a resource that is not configured", "encrypted", Cause.RESOURCE_NOT_CONFIGURED, doing.no_rule
    )
    NOT_ENCRYPTED = _way(
        "of a resource without identity", "not encrypted", Cause.PLAINTEXT_NOT_ALLOWED, doing.not_encrypted
    )
    OTHER_PREFIX = _gcm(
        "written under another storage prefix", Cause.STORAGE_PREFIX_CHANGED, doing.other_prefix
    )
    BOUND_ELSEWHERE = _gcm(  # the first where an earlier revision opens
        "bound to an unknown etcd key",
        Cause.CIPHERTEXT_DAMAGED,
        doing.bound_elsewhere,
        Cause.ASSOCIATED_DATA_UNKNOWN,
    )
    MOVED = _any(
        "copied to the etcd key KEY-copy, which is planted",
        Cause.VALUE_MOVED,
        doing.as_it_is,
        Cause.IDENTITY_MISMATCH,
    )
    # the stored bytes
    ENVELOPE_BIT = _encrypted("one bit of k8s:enc: changed", Cause.ENVELOPE_DAMAGED, doing.envelope_bit)
    ENVELOPE_UNKNOWN = _encrypted("an unknown provider named", Cause.UNKNOWN_ENVELOPE, doing.envelope_unknown)
    CIPHERTEXT_BIT = _tagged(
        "one bit of the ciphertext changed", Cause.CIPHERTEXT_DAMAGED, doing.bit("ciphertext")
    )
    TAG_BIT = _tagged("one bit of the tag changed", Cause.CIPHERTEXT_DAMAGED, doing.bit("tag"))
    NONCE_BIT = _tagged(
        "one bit of the nonce changed",
        Cause.NONCE_DAMAGED,
        doing.bit("nonce"),
        Cause.WRONG_KEY,
        Cause.KEY_NAME_MISSING,
    )
    IV_OVERWRITTEN = _way(
        "of aescbc", "the initialisation vector overwritten", Cause.IV_DAMAGED, doing.iv_overwritten
    )
    TRUNCATED = _way(
        "long enough, not of KMS",
        "cut at the end",
        Cause.VALUE_TRUNCATED,
        doing.truncated,
        Cause.OWNER_UNKNOWN,
        Cause.CBOR_DAMAGED,
    )
    CUT_SHORT = _sealed("cut to less than any value has", Cause.VALUE_TRUNCATED, doing.cut_short)
    APPENDED = _sealed("bytes appended", Cause.CIPHERTEXT_DAMAGED, doing.appended)
    TEXT_MODE = _way(
        "with a line feed, not of aescbc or KMS",
        "CR LF for every LF",
        Cause.TEXT_MODE_DAMAGE,
        doing.text_mode,
    )
    # the object, before it is encrypted
    ENCRYPTED_TWICE = _sealed("encrypted twice", Cause.DOUBLE_ENCRYPTED, doing.twice)
    EMPTY = _any("0 bytes", Cause.EMPTY_VALUE, inside(lambda _plaintext: b""))
    ZEROED = _any(
        "all bytes zero", Cause.ZEROED_VALUE, inside(lambda plain: bytes(len(plain))), Cause.WRONG_KEY
    )
    EMPTY_OBJECT = _protobuf("kind and version alone left", Cause.EMPTY_OBJECT, inside(doing.empty_object))
    MAGIC_BIT = _protobuf(
        "one bit of the first four bytes changed",
        Cause.MAGIC_DAMAGED,
        inside(doing.magic_bit),
        Cause.IV_DAMAGED,
    )
    WIRE_TYPE = _protobuf("a field of an unknown type", Cause.PROTOBUF_DAMAGED, inside(doing.wire_type))
    TRAILING_BYTES = _protobuf("zeros after the end", Cause.TRAILING_BYTES, inside(doing.trailing))
    JSON_QUOTE = _json("a quote replaced", Cause.JSON_DAMAGED, inside(doing.json_quote))
    CBOR_BREAK = _way(
        "an object stored as CBOR, with its CRD",
        "a break in place of its first key",
        Cause.CBOR_DAMAGED,
        inside(doing.cbor_break),
    )
    NO_ENCODING = _any("random bytes", Cause.UNKNOWN_ENCODING, inside(lambda _: _noise()), Cause.WRONG_KEY)
    KIND_BIT = _protobuf("one bit of its kind changed", Cause.KIND_NOT_REGISTERED, inside(doing.kind_bit))
    NO_KIND = _either(
        "apiVersion and kind left out (of JSON: the kind)",
        Cause.KIND_MISSING,
        inside(doing.no_kind),
        Cause.WRONG_KEY,
    )
    OTHER_KIND = _protobuf("an object of another kind", Cause.WRONG_KIND_FOR_KEY, inside(doing.other_kind))
    REMOVED_VERSION = _way(
        "a HorizontalPodAutoscaler",
        "in a version that the named `kubernetes_version` does not read",
        Cause.VERSION_REMOVED,
        inside(doing.removed_version),
    )
    UNKNOWN_VERSION = _json(
        "in a version that its CRD does not list", Cause.CRD_VERSION_MISSING, inside(doing.unknown_version)
    )
    OTHER_NAME = _either("another name inside", Cause.IDENTITY_MISMATCH, inside(doing.other_name))
    INVALID_UTF8 = _protobuf(
        "a label that is not UTF-8",
        Cause.INVALID_UTF8,
        inside(doing.more_metadata(entry(11, b"app", b"a\xff\xfeb"))),
    )
    RAW_JSON = _protobuf(
        "broken managedFields", Cause.RAW_JSON_INVALID, inside(doing.more_metadata(doing.BROKEN_FIELDS))
    )
    INT_OR_STRING = _way(
        "a Pod", "a port of neither type", Cause.INT_OR_STRING_INVALID, inside(doing.int_or_string)
    )
    ALLOCATOR_CUT = _way("a key below ranges/", "cut", Cause.ALLOCATOR_DAMAGED, doing.allocator_cut)

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


def _noise() -> bytes:
    return b"\xc3" + secrets.token_bytes(300)
