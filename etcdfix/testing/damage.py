"""Kinds of damage that a stored value can have, and what etcdfix says of each.

Each is one thing that is done to a value that was in order. They are the public half of the kinds with which etcdfix
itself is examined (``docs/exam.md``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from etcdfix.testing import doing
from etcdfix.testing.doing import inside
from etcdfix.testing.protobytes import entry
from etcdfix.testing.sealing import Seals
from etcdfix.verdicts.causes import Cause


class Damage(StrEnum):
    """What is done to a value; :data:`WAYS` says of each what it does, and which causes say so."""

    # the key, the rule, the place
    WRONG_KEY = "wrong-key"
    KEY_NAME_UNKNOWN = "key-name-unknown"
    KEY_RENAMED = "key-renamed"
    PROVIDER_UNKNOWN = "provider-unknown"
    NO_RULE = "no-rule"
    NOT_ENCRYPTED = "not-encrypted"
    OTHER_PREFIX = "other-prefix"
    BOUND_ELSEWHERE = "bound-elsewhere"
    MOVED = "moved"
    # the stored bytes
    ENVELOPE_BIT = "envelope-bit"
    ENVELOPE_UNKNOWN = "envelope-unknown"
    CIPHERTEXT_BIT = "ciphertext-bit"
    TAG_BIT = "tag-bit"
    NONCE_BIT = "nonce-bit"
    IV_OVERWRITTEN = "iv-overwritten"
    TRUNCATED = "truncated"
    CUT_SHORT = "cut-short"
    APPENDED = "appended"
    TEXT_MODE = "text-mode"
    # the object, before it is encrypted
    ENCRYPTED_TWICE = "encrypted-twice"
    EMPTY = "empty"
    ZEROED = "zeroed"
    EMPTY_OBJECT = "empty-object"
    MAGIC_BIT = "magic-bit"
    WIRE_TYPE = "wire-type"
    TRAILING_BYTES = "trailing-bytes"
    JSON_QUOTE = "json-quote"
    CBOR_BREAK = "cbor-break"
    NO_ENCODING = "no-encoding"
    KIND_BIT = "kind-bit"
    NO_KIND = "no-kind"
    OTHER_KIND = "other-kind"
    REMOVED_VERSION = "removed-version"
    UNKNOWN_VERSION = "unknown-version"
    OTHER_NAME = "other-name"
    INVALID_UTF8 = "invalid-utf8"
    RAW_JSON = "raw-json"
    INT_OR_STRING = "int-or-string"
    ALLOCATOR_CUT = "allocator-cut"


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


_SEALED = "of aesgcm, aescbc or secretbox"
_TAGGED = "of aesgcm or secretbox"
_PROTOBUF = "an object stored as protobuf"

WAYS: Final[Mapping[Damage, Way]] = {
    Damage.WRONG_KEY: Way(
        "encrypted with other bytes under the name of today's key",
        Cause.WRONG_KEY,
        doing.wrong_key,
        (Cause.NONCE_DAMAGED, Cause.CIPHERTEXT_DAMAGED, Cause.AUTHENTICATION_FAILED),
        _SEALED,
    ),
    Damage.KEY_NAME_UNKNOWN: Way(
        "encrypted under a name that the configuration does not have",
        Cause.KEY_NAME_MISSING,
        doing.key_name_unknown,
        (),
        _SEALED,
    ),
    Damage.KEY_RENAMED: Way(
        "encrypted with today's key, under another name", Cause.KEY_RENAMED, doing.key_renamed, (), _SEALED
    ),
    Damage.PROVIDER_UNKNOWN: Way(
        "encrypted by a provider that the configuration does not have",
        Cause.PROVIDER_MISSING,
        doing.provider_unknown,
        (),
        _SEALED,
    ),
    Damage.NO_RULE: Way(
        "encrypted, though the configuration does not name the resource",
        Cause.RESOURCE_NOT_CONFIGURED,
        doing.no_rule,
        (),
        "of a resource that it does not name",
    ),
    Damage.NOT_ENCRYPTED: Way(
        "not encrypted, though the configuration has no identity",
        Cause.PLAINTEXT_NOT_ALLOWED,
        doing.not_encrypted,
        (),
        "of a resource without identity",
    ),
    Damage.OTHER_PREFIX: Way(
        "written under another storage prefix",
        Cause.STORAGE_PREFIX_CHANGED,
        doing.other_prefix,
        (),
        "of aesgcm",
    ),
    Damage.BOUND_ELSEWHERE: Way(
        "bound to an etcd key that nothing names",
        Cause.CIPHERTEXT_DAMAGED,  # where an earlier revision opens
        doing.bound_elsewhere,
        (Cause.ASSOCIATED_DATA_UNKNOWN,),
        "of aesgcm",
    ),
    Damage.MOVED: Way(
        "copied to the etcd key KEY-copy, which is what is planted",
        Cause.VALUE_MOVED,
        doing.as_it_is,
        (Cause.IDENTITY_MISMATCH,),
    ),
    Damage.ENVELOPE_BIT: Way(
        "one bit of k8s:enc: changed", Cause.ENVELOPE_DAMAGED, doing.envelope_bit, (), "encrypted"
    ),
    Damage.ENVELOPE_UNKNOWN: Way(
        "the provider in it replaced by one that there is not",
        Cause.UNKNOWN_ENVELOPE,
        doing.envelope_unknown,
        (),
        "encrypted",
    ),
    Damage.CIPHERTEXT_BIT: Way(
        "one bit of the encrypted data changed",
        Cause.CIPHERTEXT_DAMAGED,
        doing.bit("ciphertext"),
        (),
        _TAGGED,
    ),
    Damage.TAG_BIT: Way(
        "one bit of the tag changed", Cause.CIPHERTEXT_DAMAGED, doing.bit("tag"), (), _TAGGED
    ),
    Damage.NONCE_BIT: Way(
        "one bit of the nonce changed",
        Cause.NONCE_DAMAGED,
        doing.bit("nonce"),
        (Cause.WRONG_KEY, Cause.KEY_NAME_MISSING),
        _TAGGED,
    ),
    Damage.IV_OVERWRITTEN: Way(
        "the initialisation vector overwritten", Cause.IV_DAMAGED, doing.iv_overwritten, (), "of aescbc"
    ),
    Damage.TRUNCATED: Way(
        "cut at the end",
        Cause.VALUE_TRUNCATED,
        doing.truncated,
        (Cause.OWNER_UNKNOWN, Cause.CBOR_DAMAGED),
        "long enough, not of KMS",
    ),
    Damage.CUT_SHORT: Way(
        "cut to less than any value has", Cause.VALUE_TRUNCATED, doing.cut_short, (), _SEALED
    ),
    Damage.APPENDED: Way("bytes appended", Cause.CIPHERTEXT_DAMAGED, doing.appended, (), _SEALED),
    Damage.TEXT_MODE: Way(
        "CR LF written for every LF",
        Cause.TEXT_MODE_DAMAGE,
        doing.text_mode,
        (),
        "with a line feed, not of aescbc or KMS",
    ),
    Damage.ENCRYPTED_TWICE: Way("encrypted twice", Cause.DOUBLE_ENCRYPTED, doing.twice, (), _SEALED),
    Damage.EMPTY: Way("0 bytes", Cause.EMPTY_VALUE, inside(lambda _plaintext: b"")),
    Damage.ZEROED: Way(
        "all bytes of the object replaced by zeros",
        Cause.ZEROED_VALUE,
        inside(lambda plaintext: bytes(len(plaintext))),
        (Cause.WRONG_KEY,),
    ),
    Damage.EMPTY_OBJECT: Way(
        "kind and version left, nothing in it", Cause.EMPTY_OBJECT, inside(doing.empty_object), (), _PROTOBUF
    ),
    Damage.MAGIC_BIT: Way(
        "one bit of the first four bytes changed",
        Cause.MAGIC_DAMAGED,
        inside(doing.magic_bit),
        (Cause.IV_DAMAGED,),
        _PROTOBUF,
    ),
    Damage.WIRE_TYPE: Way(
        "a field of a type that there is not", Cause.PROTOBUF_DAMAGED, inside(doing.wire_type), (), _PROTOBUF
    ),
    Damage.TRAILING_BYTES: Way(
        "zeros after the end of the object", Cause.TRAILING_BYTES, inside(doing.trailing), (), _PROTOBUF
    ),
    Damage.JSON_QUOTE: Way(
        "a quote replaced",
        Cause.JSON_DAMAGED,
        inside(doing.json_quote),
        (),
        "an object stored as JSON, with its CRD",
    ),
    Damage.CBOR_BREAK: Way(
        "a break in place of its first key",
        Cause.CBOR_DAMAGED,
        inside(doing.cbor_break),
        (),
        "an object stored as CBOR, with its CRD",
    ),
    Damage.NO_ENCODING: Way(
        "random bytes in place of the object",
        Cause.UNKNOWN_ENCODING,
        inside(lambda _plaintext: b"\xc3" + secrets.token_bytes(300)),
        (Cause.WRONG_KEY,),
    ),
    Damage.KIND_BIT: Way(
        "one bit of its kind changed", Cause.KIND_NOT_REGISTERED, inside(doing.kind_bit), (), _PROTOBUF
    ),
    Damage.NO_KIND: Way(
        "apiVersion and kind left out (of JSON: the kind)",
        Cause.KIND_MISSING,
        inside(doing.no_kind),
        (Cause.WRONG_KEY,),
        "an object stored as protobuf, or as JSON with its CRD",
    ),
    Damage.OTHER_KIND: Way(
        "an object of another kind", Cause.WRONG_KIND_FOR_KEY, inside(doing.other_kind), (), _PROTOBUF
    ),
    Damage.REMOVED_VERSION: Way(
        "in a version that releases do not read any more; with `kubernetes_version` named",
        Cause.VERSION_REMOVED,
        inside(doing.removed_version),
        (),
        "a HorizontalPodAutoscaler",
    ),
    Damage.UNKNOWN_VERSION: Way(
        "in a version that its CRD does not list",
        Cause.CRD_VERSION_MISSING,
        inside(doing.unknown_version),
        (),
        "an object stored as JSON, with its CRD",
    ),
    Damage.OTHER_NAME: Way(
        "another name inside",
        Cause.IDENTITY_MISMATCH,
        inside(doing.other_name),
        (),
        "an object stored as protobuf, or as JSON with its CRD",
    ),
    Damage.INVALID_UTF8: Way(
        "a label that is not UTF-8",
        Cause.INVALID_UTF8,
        inside(doing.more_metadata(entry(11, b"app", b"a\xff\xfeb"))),
        (),
        _PROTOBUF,
    ),
    Damage.RAW_JSON: Way(
        "managedFields that are no JSON",
        Cause.RAW_JSON_INVALID,
        inside(doing.more_metadata(doing.BROKEN_FIELDS)),
        (),
        _PROTOBUF,
    ),
    Damage.INT_OR_STRING: Way(
        "a port that is neither a number nor a text",
        Cause.INT_OR_STRING_INVALID,
        inside(doing.int_or_string),
        (),
        "a Pod",
    ),
    Damage.ALLOCATOR_CUT: Way("cut", Cause.ALLOCATOR_DAMAGED, doing.allocator_cut, (), "a key below ranges/"),
}
"""Of every damage, how it is done."""
