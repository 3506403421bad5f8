"""Kinds of damage that a stored value can have, and what etcdfix says of each: ``docs/testing.md`` has them in words.

Each is one thing that is done to a value that was in order. They are the public half of the kinds with which etcdfix
itself is examined (``docs/exam.md``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.testing import doing
from etcdfix.testing.doing import inside
from etcdfix.testing.objects import Stored, taken_apart
from etcdfix.testing.protobytes import block, entry
from etcdfix.testing.sealing import Seals

_BROKEN_FIELDS: Final = block(
    17, block(1, b"kubectl") + block(2, b"Update") + block(7, block(1, b'{"f:data":{"f:k":}}'))
)


class Way(NamedTuple):
    """How one damage is done.

    Attributes:
        do: Gives the damaged value of a value that is in order; raises DoesNotFit.
        cause: What etcdfix says of it.
        also: What it says in other surroundings: with or without values before and after it that open under the same
            key, of an object in another encoding, or under aescbc, which has no tag.
    """

    do: Callable[[Seals, bytes], bytes]
    cause: Cause
    also: tuple[Cause, ...] = ()

    @property
    def causes(self) -> frozenset[str]:
        """All of them, as findings name them."""
        return frozenset({self.cause.value, *(cause.value for cause in self.also)})


def _way(do: Callable[[Seals, bytes], bytes], cause: Cause, *also: Cause) -> Way:
    return Way(do, cause, also)


def _object(change: Callable[[Stored], Stored], cause: Cause) -> Way:
    return Way(inside(lambda plaintext: change(taken_apart(plaintext)).encoded), cause)


class Damage(Enum):
    """What is done to a value; the value of a member is its :class:`Way`."""

    # the key, the rule, the place
    WRONG_KEY = _way(
        doing.wrong_key, Cause.WRONG_KEY,
        Cause.NONCE_DAMAGED, Cause.CIPHERTEXT_DAMAGED, Cause.AUTHENTICATION_FAILED,
    )  # fmt: skip
    KEY_NAME_UNKNOWN = _way(doing.key_name_unknown, Cause.KEY_NAME_MISSING)
    KEY_RENAMED = _way(doing.key_renamed, Cause.KEY_RENAMED)
    PROVIDER_UNKNOWN = _way(doing.provider_unknown, Cause.PROVIDER_MISSING)
    NO_RULE = _way(doing.no_rule, Cause.RESOURCE_NOT_CONFIGURED)
    NOT_ENCRYPTED = _way(doing.not_encrypted, Cause.PLAINTEXT_NOT_ALLOWED)
    OTHER_PREFIX = _way(doing.other_prefix, Cause.STORAGE_PREFIX_CHANGED)
    # The first where an earlier revision opens.
    BOUND_ELSEWHERE = _way(doing.bound_elsewhere, Cause.CIPHERTEXT_DAMAGED, Cause.ASSOCIATED_DATA_UNKNOWN)
    MOVED = _way(lambda _seals, stored: stored, Cause.VALUE_MOVED, Cause.IDENTITY_MISMATCH)
    # the stored bytes
    ENVELOPE_BIT = _way(doing.envelope_bit, Cause.ENVELOPE_DAMAGED)
    ENVELOPE_UNKNOWN = _way(doing.envelope_unknown, Cause.UNKNOWN_ENVELOPE)
    CIPHERTEXT_BIT = _way(doing.bit("ciphertext"), Cause.CIPHERTEXT_DAMAGED)
    TAG_BIT = _way(doing.bit("tag"), Cause.CIPHERTEXT_DAMAGED)
    NONCE_BIT = _way(doing.bit("nonce"), Cause.NONCE_DAMAGED, Cause.WRONG_KEY, Cause.KEY_NAME_MISSING)
    IV_OVERWRITTEN = _way(doing.iv_overwritten, Cause.IV_DAMAGED)
    TRUNCATED = _way(doing.truncated, Cause.VALUE_TRUNCATED, Cause.OWNER_UNKNOWN, Cause.CBOR_DAMAGED)
    CUT_SHORT = _way(doing.cut_short, Cause.VALUE_TRUNCATED)
    APPENDED = _way(doing.appended, Cause.CIPHERTEXT_DAMAGED)
    TEXT_MODE = _way(doing.text_mode, Cause.TEXT_MODE_DAMAGE)
    # the object, before it is encrypted
    ENCRYPTED_TWICE = _way(doing.twice, Cause.DOUBLE_ENCRYPTED)
    EMPTY = _way(inside(lambda _plaintext: b""), Cause.EMPTY_VALUE)
    ZEROED = _way(inside(lambda plaintext: bytes(len(plaintext))), Cause.ZEROED_VALUE, Cause.WRONG_KEY)
    EMPTY_OBJECT = _object(lambda stored: stored._replace(raw=b""), Cause.EMPTY_OBJECT)
    MAGIC_BIT = _way(inside(doing.magic_bit), Cause.MAGIC_DAMAGED, Cause.IV_DAMAGED)
    WIRE_TYPE = _object(
        lambda stored: stored._replace(raw=stored.raw + b"\x0f\x01\x02"), Cause.PROTOBUF_DAMAGED
    )
    TRAILING_BYTES = _way(
        inside(lambda plaintext: taken_apart(plaintext).encoded + bytes(16)), Cause.TRAILING_BYTES
    )
    JSON_QUOTE = _way(inside(doing.json_quote), Cause.JSON_DAMAGED)
    CBOR_BREAK = _way(inside(doing.cbor_break), Cause.CBOR_DAMAGED)
    NO_ENCODING = _way(
        inside(lambda _plaintext: b"\xc3" + secrets.token_bytes(300)), Cause.UNKNOWN_ENCODING, Cause.WRONG_KEY
    )
    KIND_BIT = _object(
        lambda stored: stored._replace(kind=doing.flipped(stored.kind, len(stored.kind) - 1)), Cause.KIND_NOT_REGISTERED
    )  # fmt: skip
    NO_KIND = _way(inside(doing.no_kind), Cause.KIND_MISSING, Cause.WRONG_KEY)
    OTHER_KIND = _object(doing.other_kind, Cause.WRONG_KIND_FOR_KEY)
    REMOVED_VERSION = _object(doing.removed_version, Cause.VERSION_REMOVED)
    UNKNOWN_VERSION = _way(inside(doing.unknown_version), Cause.CRD_VERSION_MISSING)
    OTHER_NAME = _way(inside(doing.other_name), Cause.IDENTITY_MISMATCH)
    INVALID_UTF8 = _object(
        lambda stored: stored.with_metadata(entry(11, b"app", b"a\xff\xfeb")), Cause.INVALID_UTF8
    )
    RAW_JSON = _object(lambda stored: stored.with_metadata(_BROKEN_FIELDS), Cause.RAW_JSON_INVALID)
    INT_OR_STRING = _object(doing.int_or_string, Cause.INT_OR_STRING_INVALID)
    ALLOCATOR_CUT = _way(lambda _seals, stored: stored[: len(stored) // 2], Cause.ALLOCATOR_DAMAGED)

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")
