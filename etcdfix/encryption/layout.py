"""Where the parts of an encrypted value lie: lengths and names, and nothing of what is encrypted.

Formats: :mod:`etcdfix.encryption.envelope`, :mod:`etcdfix.encryption.kms.envelopes`, and ``providers/``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from etcdfix.encryption.envelope import parse_envelope, percent_encode
from etcdfix.encryption.kms.envelopes import (
    DEKSourceType,
    KMSEnvelopeInvalid,
    fields,
    parse_encrypted_object,
    parse_v1_body,
)
from etcdfix.encryption.kms.transformer import INFO_SIZE
from etcdfix.encryption.providers import aesgcm, local_provider
from etcdfix.model.model import ValuePart, key_id_digest
from etcdfix.model.providers import ENCRYPTED_PREFIX

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
_GCM_SIZE: Final = aesgcm.NONCE_SIZE + aesgcm.TAG_SIZE


def envelope_layout(data: bytes, known_names: Collection[str] = ()) -> list[ValuePart]:
    """Return the parts of an encrypted value in order, without gaps; empty for one that is not encrypted."""
    envelope = parse_envelope(data, known_names)
    if envelope is None:
        return []
    parts = [ValuePart(0, len(ENCRYPTED_PREFIX), "prefix", "k8s:enc:")]
    if not envelope.known:
        what = "no envelope that is known begins so"
        return [*parts, _rest(data, len(ENCRYPTED_PREFIX), "unknown", what)]
    provider = len(ENCRYPTED_PREFIX)
    version = provider + len(envelope.provider) + 1
    name = version + len(envelope.version) + 1
    facts = envelope.facts
    shown = percent_encode(envelope.name)
    detail = shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…"
    if envelope.name_may_go_on:
        detail += " (it may be longer: text and another colon follow)"
    parts += [
        ValuePart(provider, len(envelope.provider) + 1, "provider", envelope.provider),
        ValuePart(version, len(envelope.version) + 1, "version", envelope.version),
        ValuePart(
            name, envelope.body_offset - name, "provider name" if facts.under_kms else "key name", detail
        ),
    ]
    start = envelope.body_offset
    if facts.under_kms:
        parts += _KMS_PARTS[facts.version](data, start)
    else:
        assert facts.provider is not None  # its envelope is known
        local = local_provider(facts.provider).PARTS
        parts += _sealed(data, start, len(data), local, facts.least_size)
    return parts


def _part(data: bytes, offset: int, end: int, name: str, detail: str = "") -> ValuePart:
    content = data[offset:end]
    if len(content) >= _FEW_ZEROES and not any(content):
        detail = f"{detail}, all zero" if detail else "all zero"
    return ValuePart(offset, end - offset, name, detail)


def _rest(data: bytes, offset: int, name: str, detail: str) -> ValuePart:
    return _part(data, offset, len(data), name, detail)


def _sealed(
    data: bytes, start: int, end: int, parts: tuple[tuple[str, int], ...], least: int = _GCM_SIZE
) -> Iterator[ValuePart]:
    """Yield what a cipher makes: parts of fixed size, and the one that takes the rest."""
    if end - start < least:
        yield _part(data, start, end, "body", f"{_ENDS_EARLY}: at least {least} bytes are needed")
        return
    rest = end - start - sum(size for _, size in parts)
    for name, size in parts:
        there = start + (size or rest)
        yield _part(data, start, there, name)
        start = there


def _v1_parts(data: bytes, start: int) -> Iterator[ValuePart]:
    try:
        wrapped, _ = parse_v1_body(data[start:])
    except KMSEnvelopeInvalid:
        yield _rest(data, start, "body", "the length of the wrapped data key runs past the end")
        return
    size = len(wrapped.ciphertext)
    yield ValuePart(start, 2, "length", f"of the wrapped data key: {size}")
    yield _part(data, start + 2, start + 2 + size, "wrapped data key")
    # Until release 1.24 it was CBC, and nothing in the value says which.
    yield from _sealed(data, start + 2 + size, len(data), aesgcm.PARTS)


def _v2_parts(data: bytes, start: int) -> Iterator[ValuePart]:
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
                yield ValuePart(
                    begin, end - begin, name, _SOURCE_TYPES.get(value, "not known") if number == 5 else ""
                )
            elif number == 1:
                yield ValuePart(begin, content - begin, name, f"length: {size}")
                info = (("info", INFO_SIZE),) if seeded else ()
                least = _GCM_SIZE + INFO_SIZE * seeded
                yield from _sealed(data, content, end, info + aesgcm.PARTS, least)
            elif number == 2:
                digest = key_id_digest(value.decode(errors="ignore"))
                yield ValuePart(begin, end - begin, name, f"{size} bytes, {digest}")
            else:
                yield _part(data, begin, end, name, f"{size} bytes")
    if at < len(data):
        yield _rest(data, at, "unknown", "no whole field of the message begins here")


_SOURCE_TYPES: Final[dict[int, str]] = {
    DEKSourceType.AES_GCM_KEY: "0: it is the key itself",
    DEKSourceType.HKDF_SHA256_XNONCE_AES_GCM_SEED: "1: a seed, from which each value's key is derived",
}
_KMS_PARTS: Final = {"v1": _v1_parts, "v2": _v2_parts}
