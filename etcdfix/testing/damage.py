"""Kinds of damage that a test can plant in a stored value, and what etcdfix says of each.

Each takes how values are sealed and the value as stored. Where a damage does not fit a value, it raises
:class:`~etcdfix.testing.sealing.DoesNotFit`. ``docs/testing.md`` says which values each fits.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.providers import ENCRYPTED_PREFIX, ProviderType
from etcdfix.testing.objects import MAGIC, Stored, taken_apart
from etcdfix.testing.protobytes import block, entry
from etcdfix.testing.sealing import DoesNotFit, Seals, goes_on_as_a_name

_NONCE: Final = {ProviderType.AESGCM: 12, ProviderType.SECRETBOX: 24, ProviderType.AESCBC: 16}
_TAG: Final = 16
_BEGINS: Final = 96
"""Bytes at the start of a plaintext by which an encryption key is shown to be right; a cut leaves them."""


def _need(fits: object, why: str) -> None:
    if not fits:
        raise DoesNotFit(why)


def _body(seals: Seals, stored: bytes, *providers: ProviderType) -> tuple[int, int]:
    """Return where the nonce and where the encrypted data begins in a value of a local provider."""
    key = seals.local_key()
    _need(
        key.provider in (providers or _NONCE) and stored.startswith(key.prefix),
        f"it wants a value of {' or '.join(providers or _NONCE)}, written with the first key of the configuration",
    )
    start = len(key.prefix)
    return start, start + _NONCE[key.provider]


def _document(plaintext: bytes) -> dict[str, Any]:
    try:
        document = json.loads(plaintext)
    except (ValueError, UnicodeDecodeError) as exc:
        raise DoesNotFit("it wants an object stored as JSON, as custom resources are") from exc
    _need(isinstance(document, dict), "it wants an object stored as JSON")
    return dict(document)


def _flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _wrong_key(seals: Seals, stored: bytes) -> bytes:
    name = seals.local_key().prefix.split(b":", 4)[4][:-1].decode()
    return seals.seal_with(seals.open(stored), name)


def _key_name_unknown(seals: Seals, stored: bytes) -> bytes:
    return seals.seal_with(seals.open(stored), f"not-{secrets.token_hex(4)}")


def _provider_unknown(seals: Seals, stored: bytes) -> bytes:
    seals.local_key()
    return seals.seal_with(seals.open(stored), "key1", provider=seals.other_provider())


def _no_rule(seals: Seals, stored: bytes) -> bytes:
    _need(seals.transformers.rule is None, "it wants a resource that the configuration does not name")
    return seals.seal_with(stored, "key1", provider=ProviderType.AESGCM)


def _not_encrypted(seals: Seals, stored: bytes) -> bytes:
    _need(not seals.transformers.has_identity, "it wants a configuration without identity for this resource")
    return seals.open(stored)


def _envelope_bit(_seals: Seals, stored: bytes) -> bytes:
    _need(stored.startswith(ENCRYPTED_PREFIX), "it wants an encrypted value")
    return _flipped(stored, 5)


def _bit(part: str) -> Callable[[Seals, bytes], bytes]:
    def change(seals: Seals, stored: bytes) -> bytes:
        _nonce, data = _body(seals, stored, ProviderType.AESGCM, ProviderType.SECRETBOX)
        tag_first = seals.local_key().provider is ProviderType.SECRETBOX
        ciphertext = data + _TAG if tag_first else data
        size = len(stored) - data - _TAG
        at = {"nonce": data - 1, "ciphertext": ciphertext + size * 2 // 3}[part]
        return _flipped(stored, at, 2)

    return change


def _iv_overwritten(seals: Seals, stored: bytes) -> bytes:
    start, end = _body(seals, stored, ProviderType.AESCBC)
    while goes_on_as_a_name(other := secrets.token_bytes(end - start)):
        pass
    return stored[:start] + other + stored[end:]


def _truncated(seals: Seals, stored: bytes) -> bytes:
    start = _BEGINS + (_body(seals, stored)[1] if stored.startswith(ENCRYPTED_PREFIX) else 0)
    room = len(stored) - start
    _need(room > 1, f"it wants a longer value: {_BEGINS} bytes of the object have to be left")
    return stored[: start + room // 2]


def _inside(change: Callable[[bytes], bytes]) -> Callable[[Seals, bytes], bytes]:
    """Return what changes the plaintext, and encrypts it again where it was encrypted."""

    def do(seals: Seals, stored: bytes) -> bytes:
        encrypted = stored.startswith(ENCRYPTED_PREFIX)
        changed = change(seals.open(stored) if encrypted else stored)
        return seals.seal(changed) if encrypted else changed

    return do


def _twice(seals: Seals, stored: bytes) -> bytes:
    seals.local_key()
    return seals.seal(seals.seal(seals.open(stored)))


def _magic_bit(plaintext: bytes) -> bytes:
    taken_apart(plaintext)
    return _flipped(plaintext, 1, 2)


def _json_quote(plaintext: bytes) -> bytes:
    _document(plaintext)
    at = plaintext.rindex(b'":')
    return plaintext[:at] + b"!" + plaintext[at + 1 :]


def _other_name(plaintext: bytes) -> bytes:
    if plaintext.startswith(MAGIC):
        return taken_apart(plaintext).with_metadata(name=b"somebody-else").encoded
    document = _document(plaintext)
    renamed = {**document, "metadata": {**document.get("metadata", {}), "name": "somebody-else"}}
    return json.dumps(renamed, separators=(",", ":")).encode() + b"\n"


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
    return Way(_inside(lambda plaintext: change(taken_apart(plaintext)).encoded), cause)


class Damage(Enum):
    """What is done to a value; the value of a member is its :class:`Way`."""

    # the key, the rule, the place
    WRONG_KEY = _way(
        _wrong_key, Cause.WRONG_KEY,
        Cause.NONCE_DAMAGED, Cause.CIPHERTEXT_DAMAGED, Cause.AUTHENTICATION_FAILED,
    )  # fmt: skip
    KEY_NAME_UNKNOWN = _way(_key_name_unknown, Cause.KEY_NAME_MISSING)
    PROVIDER_UNKNOWN = _way(_provider_unknown, Cause.PROVIDER_MISSING)
    NO_RULE = _way(_no_rule, Cause.RESOURCE_NOT_CONFIGURED)
    NOT_ENCRYPTED = _way(_not_encrypted, Cause.PLAINTEXT_NOT_ALLOWED)
    MOVED = _way(lambda _seals, stored: stored, Cause.VALUE_MOVED, Cause.IDENTITY_MISMATCH)
    # the stored bytes
    ENVELOPE_BIT = _way(_envelope_bit, Cause.ENVELOPE_DAMAGED)
    CIPHERTEXT_BIT = _way(_bit("ciphertext"), Cause.CIPHERTEXT_DAMAGED)
    NONCE_BIT = _way(_bit("nonce"), Cause.NONCE_DAMAGED, Cause.WRONG_KEY, Cause.KEY_NAME_MISSING)
    IV_OVERWRITTEN = _way(_iv_overwritten, Cause.IV_DAMAGED)
    TRUNCATED = _way(_truncated, Cause.VALUE_TRUNCATED, Cause.OWNER_UNKNOWN, Cause.CBOR_DAMAGED)
    # the object, before it is encrypted
    ENCRYPTED_TWICE = _way(_twice, Cause.DOUBLE_ENCRYPTED)
    EMPTY = _way(_inside(lambda _plaintext: b""), Cause.EMPTY_VALUE)
    ZEROED = _way(_inside(lambda plaintext: bytes(len(plaintext))), Cause.ZEROED_VALUE, Cause.WRONG_KEY)
    EMPTY_OBJECT = _object(lambda stored: stored._replace(raw=b""), Cause.EMPTY_OBJECT)
    MAGIC_BIT = _way(_inside(_magic_bit), Cause.MAGIC_DAMAGED, Cause.IV_DAMAGED)
    WIRE_TYPE = _object(
        lambda stored: stored._replace(raw=stored.raw + b"\x0f\x01\x02"), Cause.PROTOBUF_DAMAGED
    )
    JSON_QUOTE = _way(_inside(_json_quote), Cause.JSON_DAMAGED)
    KIND_BIT = _object(
        lambda stored: stored._replace(kind=_flipped(stored.kind, len(stored.kind) - 1)), Cause.KIND_NOT_REGISTERED
    )  # fmt: skip
    OTHER_NAME = _way(_inside(_other_name), Cause.IDENTITY_MISMATCH)
    INVALID_UTF8 = _object(
        lambda stored: stored.with_metadata(entry(11, b"app", b"a\xff\xfeb")), Cause.INVALID_UTF8
    )
    RAW_JSON = _object(lambda stored: stored.with_metadata(_BROKEN_FIELDS), Cause.RAW_JSON_INVALID)

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")
