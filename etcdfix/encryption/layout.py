"""Where the parts of an encrypted value lie: lengths and names, and nothing of what is encrypted.

Formats: :mod:`etcdfix.encryption.envelope`, :mod:`etcdfix.encryption.kms.envelopes`, and ``providers/``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from etcdfix.encryption.envelope import ENCRYPTED_PREFIX, parse_envelope, percent_encode
from etcdfix.encryption.kms.envelopes import (
    DEKSourceType,
    KMSEnvelopeInvalid,
    fields,
    parse_encrypted_object,
    parse_v1_body,
)
from etcdfix.encryption.kms.transformer import INFO_SIZE
from etcdfix.encryption.providers import aescbc, aesgcm, secretbox
from etcdfix.model.model import Part, key_id_digest

_LONGEST_NAME: Final = 253
_FEW_ZEROES: Final = 8
"""So many zero bytes in a row are no accident of a cipher."""
_V2_FIELDS: Final = {
    1: "encrypted data",
    2: "key id",
    3: "wrapped data key",
    4: "annotation",
    5: "type of the data key",
}
_ENDS_EARLY: Final = "ends early"
_GCM_PARTS: Final = (("nonce", aesgcm.NONCE_SIZE),)


def envelope_layout(data: bytes, known_names: Collection[str] = ()) -> list[Part]:
    """Return the parts of an encrypted value in order, without gaps; empty for one that is not encrypted."""
    envelope = parse_envelope(data, known_names)
    if envelope is None:
        return []
    parts = [Part(0, len(ENCRYPTED_PREFIX), "prefix", "k8s:enc:")]
    if not envelope.known:
        what = "no envelope that is known begins so"
        return [*parts, _rest(data, len(ENCRYPTED_PREFIX), "unknown", what)]
    provider = len(ENCRYPTED_PREFIX)
    version = provider + len(envelope.provider) + 1
    name = version + len(envelope.version) + 1
    kms = envelope.provider == "kms"
    shown = percent_encode(envelope.name)
    detail = shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"
    if envelope.name_may_go_on:
        detail += " (it may be longer: text and another colon follow)"
    parts += [
        Part(provider, len(envelope.provider) + 1, "provider", envelope.provider),
        Part(version, len(envelope.version) + 1, "version", envelope.version),
        Part(name, envelope.body_offset - name, "provider name" if kms else "key name", detail),
    ]
    start = envelope.body_offset
    if kms:
        parts += _v1_parts(data, start) if envelope.version == "v1" else _v2_parts(data, start)
    elif envelope.provider == "aescbc":
        parts += _cbc_parts(data, start)
    elif envelope.provider == "aesgcm":
        parts += _sealed(data, start, len(data), _GCM_PARTS, aesgcm.TAG_SIZE)
    else:
        before = (("nonce", secretbox.NONCE_SIZE), ("tag", secretbox.TAG_SIZE))
        parts += _sealed(data, start, len(data), before, 0)
    return parts


def _part(data: bytes, offset: int, end: int, name: str, detail: str = "") -> Part:
    content = data[offset:end]
    if len(content) >= _FEW_ZEROES and not any(content):
        detail = f"{detail}, all zero" if detail else "all zero"
    return Part(offset, end - offset, name, detail)


def _rest(data: bytes, offset: int, name: str, detail: str) -> Part:
    return _part(data, offset, len(data), name, detail)


def _sealed(
    data: bytes, start: int, end: int, before: tuple[tuple[str, int], ...], tag_size: int
) -> Iterator[Part]:
    """Yield what a cipher with a tag makes: some parts of fixed size, the ciphertext, perhaps the tag behind it."""
    least = sum(size for _, size in before) + tag_size
    if end - start < least:
        yield _part(data, start, end, "body", f"{_ENDS_EARLY}: at least {least} bytes are needed")
        return
    for name, size in before:
        yield _part(data, start, start + size, name)
        start += size
    yield _part(data, start, end - tag_size, "ciphertext")
    if tag_size:
        yield _part(data, end - tag_size, end, "tag")


def _cbc_parts(data: bytes, start: int) -> Iterator[Part]:
    size = len(data) - start
    block = aescbc.BLOCK_SIZE
    if size < 2 * block:
        yield _rest(data, start, "body", f"{_ENDS_EARLY}: at least {2 * block} bytes are needed")
        return
    yield _part(data, start, start + block, "initialisation vector")
    over = size % block
    detail = f"{size // block - 1} blocks of {block} bytes"
    yield _rest(data, start + block, "ciphertext", f"{detail}, and {over} bytes more" if over else detail)


def _v1_parts(data: bytes, start: int) -> Iterator[Part]:
    try:
        wrapped, _ = parse_v1_body(data[start:])
    except KMSEnvelopeInvalid:
        yield _rest(data, start, "body", "the length of the wrapped data key runs past the end")
        return
    size = len(wrapped.ciphertext)
    yield Part(start, 2, "length", f"of the wrapped data key: {size}")
    yield _part(data, start + 2, start + 2 + size, "wrapped data key")
    # Until release 1.24 it was CBC, and nothing in the value says which.
    yield from _sealed(data, start + 2 + size, len(data), _GCM_PARTS, aesgcm.TAG_SIZE)


def _v2_parts(data: bytes, start: int) -> Iterator[Part]:
    try:
        seeded = parse_encrypted_object(data[start:]).seeded
    except KMSEnvelopeInvalid:
        seeded = False
    at = start
    with contextlib.suppress(KMSEnvelopeInvalid):
        for number, value, begin, content, end in fields(data, start):
            if begin > at:
                yield _part(data, at, begin, "unknown", "fields of another type")
            at, size = end, end - content
            name = _V2_FIELDS.get(number, f"field {number}")
            if isinstance(value, int):
                yield Part(
                    begin, end - begin, name, _SOURCE_TYPES.get(value, "not known") if number == 5 else ""
                )
            elif number == 1:
                yield Part(begin, content - begin, name, f"length: {size}")
                before = (("info", INFO_SIZE), *_GCM_PARTS) if seeded else _GCM_PARTS
                yield from _sealed(data, content, end, before, aesgcm.TAG_SIZE)
            elif number == 2:
                digest = key_id_digest(value.decode(errors="ignore"))
                yield Part(begin, end - begin, name, f"{size} bytes, {digest}")
            else:
                yield _part(data, begin, end, name, f"{size} bytes")
    if at < len(data):
        yield _rest(data, at, "unknown", "no whole field of the message begins here")


_SOURCE_TYPES: Final[dict[int, str]] = {
    DEKSourceType.AES_GCM_KEY: "0: it is the key itself",
    DEKSourceType.HKDF_SHA256_XNONCE_AES_GCM_SEED: "1: a seed, from which each value's key is derived",
}
