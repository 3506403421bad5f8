"""Which keys a value can be looked at with, and where in it what they would decrypt begins.

A name may hold colons, so where it ends is known only to the configuration that wrote the value. Each key of the
resource's own rule knows its own name; a key of another name takes the longest configured name that fits, or the first
colon, and every further colon to which the name may go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.kms.envelopes import (
    DEKSourceType,
    EncryptedObject,
    KMSEnvelopeInvalid,
    parse_encrypted_object,
    split_encrypted_object,
)
from etcdfix.encryption.kms.transformer import DataKey, KMSReader, KMSv1Reader, KMSv2Reader
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model.providers import ProviderFacts

_LONGEST_NAME = 1024
_MOST_BODIES = 8
_BLOCK_SIZE = 16


class Candidate(NamedTuple):
    """One key and what it would decrypt.

    Attributes:
        body: What it would decrypt.
        named: It is a key of the resource's own rule, under the provider and name that the value gives.
        key_fingerprint: Of the key, "" under KMS.
        begin: Offset of the body in the stored value; 0 where the value does not tell it.
    """

    cipher: Cipher
    body: bytes
    named: bool
    rule: str
    transformer: str
    key_fingerprint: str = ""
    begin: int = 0


class BodyOffsets(msgspec.Struct, frozen=True):
    """What a value's envelope says of where its body begins.

    Attributes:
        bodies: Offsets at which the body may begin, for a key of another name.
        too_short: Shorter than any value of this provider can be, counted from the first colon.
        name_may_go_on: Text without control characters and another colon follow the name.
    """

    facts: ProviderFacts
    bodies: tuple[int, ...]
    too_short: bool
    name_may_go_on: bool


def body_offsets_of(data: bytes, transformers: Transformers) -> BodyOffsets | None:
    """Return where the body of a value may begin; None where no API server is known to write its envelope."""
    envelope = parse_envelope(data, transformers.names)
    if envelope is None or not envelope.known:
        return None
    facts = envelope.facts
    first = data.index(b":", len(facts.prefix)) + 1
    # The end of a name that is not configured is a guess: any colon may be it.
    begin = at = envelope.body_offset if envelope.name in transformers.names else first
    bodies = [begin]
    while facts.name_may_hold_colons:
        end = data.find(b":", at, at + _LONGEST_NAME)
        if end < 0 or not _is_text(data[at:end]):
            break
        at = end + 1
        # Whole blocks further on the key of a shorter name comes into step again under CBC: none of those is left out.
        if len(bodies) < _MOST_BODIES or (at - begin) % _BLOCK_SIZE == 0:
            bodies.append(at)
        elif at - begin > _LONGEST_NAME:
            break
    too_short = len(data) - first < facts.least_size
    return BodyOffsets(facts, tuple(bodies), too_short, name_may_go_on=envelope.name_may_go_on)


def local_candidates(
    data: bytes, place: BodyOffsets, own: ResourceTransformers, transformers: Transformers
) -> Iterator[Candidate]:
    """Yield every local key to look at a value with: first those that it names, then all others, once each."""
    provider = place.facts.provider
    if provider is None or not place.facts.key_sizes:
        return
    tried: set[tuple[str, int]] = set()
    named = ((own, key, len(key.prefix), True) for key in own.keys if data.startswith(key.prefix))
    # Resources of one entry share a rule.
    others = (
        (rule, key, body, False)
        for rule in dict.fromkeys((own, *transformers.rules))
        for key in rule.keys
        for body in place.bodies
    )
    for rule, key, body, is_named in itertools.chain(named, others):
        material = key.material
        if material is None or (material.fingerprint, body) in tried:
            continue
        if material.size not in place.facts.key_sizes:
            continue
        tried.add((material.fingerprint, body))
        cipher = transformers.cipher(provider, material)
        yield Candidate(
            cipher, data[body:], is_named, rule.rule or "", key.transformer, key.key_fingerprint, body
        )


def kms_candidates(
    reader: KMSReader, rule: str, data: bytes, start: int, *, named: bool = True
) -> Iterator[Candidate]:
    """Yield what a KMS value can be looked at with, given the data key from memory; v1 has two ciphers.

    ``start`` is where its body begins.
    """
    found: list[tuple[Cipher, bytes, int]] = []
    if isinstance(reader, KMSv1Reader):
        known = reader.recall(data[start:])
        if known is not None:
            dek, sealed = known
            begin = len(data) - len(sealed)
            found = [(AESGCMCipher(dek), sealed, begin), (AESCBCCipher(dek), sealed, begin)]
    else:
        encrypted, begin = parsed_v2(data, start)
        key = reader.recall(encrypted)
        there = key.unchecked(encrypted.encrypted_data) if key is not None else None
        if there is not None:
            own_cipher, body = there
            begin += (len(encrypted.encrypted_data) - len(body)) if begin else 0
            found = [(own_cipher, body, begin)]
    for cipher, body, begin in found:
        yield Candidate(cipher, body, named, rule, reader.transformer, begin=begin)


def parsed_v2(data: bytes, start: int) -> tuple[EncryptedObject, int]:
    """Return a KMS v2 body taken apart, and where its encrypted data begins; 0 where it does not come first.

    Where the body is malformed, only its data is told.
    """
    begin, end = split_encrypted_object(data, start)
    try:
        found = parse_encrypted_object(data[start:])
    except KMSEnvelopeInvalid:
        return EncryptedObject(encrypted_data=data[begin:end]), begin
    return found, begin if data[begin:end] == found.encrypted_data else 0


def recalled(opener: KMSv2Reader, encrypted: EncryptedObject) -> DataKey | None:
    """Return what the plugin gave for a value, whatever the value says of its use; used as the value says."""
    for kind in (encrypted.encrypted_dek_source_type, *DEKSourceType):
        key = opener.recall(msgspec.structs.replace(encrypted, encrypted_dek_source_type=kind))
        if key is not None:
            return key.used_as(seeded=encrypted.seeded)
    return None


def _is_text(data: bytes) -> bool:
    """Say whether bytes may be part of a name: a configuration takes any text, also such as does not print."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
