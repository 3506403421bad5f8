"""What does damage: from a value that was in order to one that is not.

Each takes how values are sealed and the value as stored, or, inside :func:`inside`, the object before it is encrypted.
One that cannot be done to a value raises :class:`~etcdfix.testing.sealing.DoesNotFit`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from etcdfix.model.providers import ENCRYPTED_PREFIX, ProviderType
from etcdfix.testing.objects import MAGIC, Stored, taken_apart
from etcdfix.testing.protobytes import block, number
from etcdfix.testing.sealing import DoesNotFit, Seals, goes_on_as_a_name

_NONCE: Final = {ProviderType.AESGCM: 12, ProviderType.SECRETBOX: 24, ProviderType.AESCBC: 16}
_TAG: Final = 16
_BEGINS: Final = 96
"""Bytes at the start of a plaintext by which an encryption key is shown to be right; a cut leaves them."""
_TRIES: Final = 1000
_CBOR: Final = b"\xd9\xd9\xf7"


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


def _need_encrypted(stored: bytes) -> None:
    _need(stored.startswith(ENCRYPTED_PREFIX), "it wants an encrypted value")


def _document(plaintext: bytes) -> dict[str, Any]:
    try:
        document = json.loads(plaintext)
    except (ValueError, UnicodeDecodeError) as exc:
        raise DoesNotFit("it wants an object stored as JSON, as custom resources are") from exc
    _need(isinstance(document, dict), "it wants an object stored as JSON")
    return dict(document)


def _written(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def wrong_key(seals: Seals, stored: bytes) -> bytes:
    name = seals.local_key().prefix.split(b":", 4)[4][:-1].decode()
    return seals.seal_with(seals.open(stored), name)


def key_name_unknown(seals: Seals, stored: bytes) -> bytes:
    return seals.seal_with(seals.open(stored), f"not-{secrets.token_hex(4)}")


def key_renamed(seals: Seals, stored: bytes) -> bytes:
    material = seals.local_key().material
    return seals.seal_with(seals.open(stored), f"was-{secrets.token_hex(4)}", key=material)


def provider_unknown(seals: Seals, stored: bytes) -> bytes:
    seals.local_key()
    return seals.seal_with(seals.open(stored), "key1", provider=seals.other_provider())


def no_rule(seals: Seals, stored: bytes) -> bytes:
    _need(seals.transformers.rule is None, "it wants a resource that the configuration does not name")
    return seals.seal_with(stored, "key1", provider=ProviderType.AESGCM)


def not_encrypted(seals: Seals, stored: bytes) -> bytes:
    _need(not seals.transformers.has_identity, "it wants a configuration without identity for this resource")
    return seals.open(stored)


def other_prefix(seals: Seals, stored: bytes) -> bytes:
    _body(seals, stored, ProviderType.AESGCM)
    other = seals.layout.under_other_prefixes(seals.key)
    return seals.seal(seals.open(stored), bound_to=other[0])


def bound_elsewhere(seals: Seals, stored: bytes) -> bytes:
    _body(seals, stored, ProviderType.AESGCM)
    return seals.seal(seals.open(stored), bound_to=f"/{secrets.token_hex(6)}".encode() + seals.key)


def envelope_bit(_seals: Seals, stored: bytes) -> bytes:
    _need_encrypted(stored)
    return flipped(stored, 5)


def envelope_unknown(_seals: Seals, stored: bytes) -> bytes:
    _need_encrypted(stored)
    return ENCRYPTED_PREFIX + b"chacha" + stored[stored.index(b":", len(ENCRYPTED_PREFIX)) :]


def bit(part: str) -> Callable[[Seals, bytes], bytes]:
    def change(seals: Seals, stored: bytes) -> bytes:
        _nonce, data = _body(seals, stored, ProviderType.AESGCM, ProviderType.SECRETBOX)
        tag_first = seals.local_key().provider is ProviderType.SECRETBOX
        tag = data if tag_first else len(stored) - _TAG
        ciphertext = data + _TAG if tag_first else data
        size = len(stored) - data - _TAG
        at = {"nonce": data - 1, "tag": tag + 3, "ciphertext": ciphertext + size * 2 // 3}[part]
        return flipped(stored, at, 2)

    return change


def iv_overwritten(seals: Seals, stored: bytes) -> bytes:
    start, end = _body(seals, stored, ProviderType.AESCBC)
    while goes_on_as_a_name(other := secrets.token_bytes(end - start)):
        pass
    return stored[:start] + other + stored[end:]


def truncated(seals: Seals, stored: bytes) -> bytes:
    start = _BEGINS + (_body(seals, stored)[1] if stored.startswith(ENCRYPTED_PREFIX) else 0)
    room = len(stored) - start
    _need(room > 1, f"it wants a longer value: {_BEGINS} bytes of the object have to be left")
    return stored[: start + room // 2]


def cut_short(seals: Seals, stored: bytes) -> bytes:
    return stored[: _body(seals, stored)[0] + 5]


def appended(seals: Seals, stored: bytes) -> bytes:
    _body(seals, stored)
    return stored + secrets.token_bytes(24)


def text_mode(seals: Seals, stored: bytes) -> bytes:
    """Write CR LF for every LF; of an encrypted value only behind the bytes that show that the key is right."""
    if not stored.startswith(ENCRYPTED_PREFIX):
        _need(stored.startswith(MAGIC), "it wants an object stored as protobuf: JSON means the same after it")
    else:
        start = _body(seals, stored, ProviderType.AESGCM, ProviderType.SECRETBOX)[1] + _TAG + _BEGINS
        for _ in range(_TRIES):  # each time with another nonce
            if b"\n" not in stored[:start] and b"\n" in stored and b"\r\n" not in stored:
                break
            stored = seals.seal(seals.open(stored))
        else:
            raise DoesNotFit(
                "it wants a longer value: with this one no line feed stands where it can be undone"
            )
    _need(b"\n" in stored and b"\r\n" not in stored, "it wants a value with a line feed in it")
    return stored.replace(b"\n", b"\r\n")


def inside(change: Callable[[bytes], bytes]) -> Callable[[Seals, bytes], bytes]:
    """Return what changes the plaintext, and encrypts it again where it was encrypted."""

    def do(seals: Seals, stored: bytes) -> bytes:
        encrypted = stored.startswith(ENCRYPTED_PREFIX)
        changed = change(seals.open(stored) if encrypted else stored)
        return seals.seal(changed) if encrypted else changed

    return do


def twice(seals: Seals, stored: bytes) -> bytes:
    seals.local_key()
    return seals.seal(seals.seal(seals.open(stored)))


def magic_bit(plaintext: bytes) -> bytes:
    taken_apart(plaintext)
    return flipped(plaintext, 1, 2)


def json_quote(plaintext: bytes) -> bytes:
    _document(plaintext)
    at = plaintext.rindex(b'":')
    return plaintext[:at] + b"!" + plaintext[at + 1 :]


def cbor_break(plaintext: bytes) -> bytes:
    _need(plaintext.startswith(_CBOR), "it wants an object stored as CBOR")
    return plaintext[:4] + b"\xff" + plaintext[5:]


def no_kind(plaintext: bytes) -> bytes:
    if plaintext.startswith(MAGIC):
        return taken_apart(plaintext)._replace(api_version=b"", kind=b"").encoded
    document = _document(plaintext)
    document.pop("kind", None)
    return _written(document)


def other_kind(stored: Stored) -> Stored:
    kind = b"Secret" if stored.kind == b"Service" else b"Service"
    return Stored(b"v1", kind, stored.metadata_alone())


def removed_version(stored: Stored) -> Stored:
    _need(stored.kind == b"HorizontalPodAutoscaler", "it wants a HorizontalPodAutoscaler")
    return Stored(b"autoscaling/v2beta1", stored.kind, stored.metadata_alone())


def unknown_version(plaintext: bytes) -> bytes:
    document = _document(plaintext)
    return _written({**document, "apiVersion": f"{document['apiVersion'].partition('/')[0]}/v999"})


def other_name(plaintext: bytes) -> bytes:
    if plaintext.startswith(MAGIC):
        return taken_apart(plaintext).with_metadata(name=b"somebody-else").encoded
    document = _document(plaintext)
    return _written({**document, "metadata": {**document.get("metadata", {}), "name": "somebody-else"}})


def int_or_string(stored: Stored) -> Stored:
    """Give the Pod a container with a probe whose port is neither a number nor a text."""
    _need(stored.kind == b"Pod", "it wants a Pod")
    action = block(2, number(1, 7) + number(2, 80) + block(3, b""))
    container = block(1, b"main") + block(10, block(1, block(2, action)))
    return stored._replace(raw=stored.metadata_alone() + block(2, block(2, container)))
