"""What an encrypted value may have been before one thing happened to it: stored bytes, nothing decrypted.

Nothing here is proven, though little is left to chance: whoever gets these bytes has to open them as any other value.
What is undone is one flipped bit, up to three of the ``k8s:enc:`` prefix, a wrapped data key that another value of the
same KMS provider still has whole, or CR LF for LF. Every way is tried, so that two of them can be told from one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from etcdfix.encryption.candidates import kms_candidates, recalled
from etcdfix.encryption.cipher import Cipher, Flip, difference, turned
from etcdfix.encryption.kms.envelopes import (
    KMSEnvelopeInvalid,
    parse_encrypted_object,
    split_encrypted_object,
    validate_encrypted_object,
)
from etcdfix.encryption.kms.transformer import (
    MOST_WITNESSES,
    KMSv1Reader,
    KMSv2Reader,
)
from etcdfix.encryption.providers.aescbc import BLOCK_SIZE, AESCBCCipher, without_padding
from etcdfix.encryption.transformer import ConfiguredKey, ResourceTransformers
from etcdfix.model.model import Attempt, RepairKind, Undone, UndoneDamage
from etcdfix.model.providers import ProviderType

MOST_PREFIX_BITS: Final = 3
"""So many flipped bits of a prefix are put back: a name that is another one differs in more, or is known as such."""
MOST_CBC_SIZE: Final = 32 << 10
"""Without a tag each bit is tried by itself, and each try decodes an object: a larger body would take minutes. Of one
that is larger, only the initialization vector is searched."""

# Tag and length of the data field of KMS v2: one byte and up to four.
_DATA_HEAD = 5
# What follows the data: key id, wrapped key, annotations, source type. Each bit is tried by itself.
_MOST_TAIL = 4 << 10
# ``k8s:enc:<provider>:<version>:`` stands before the name.
_PARTS_BEFORE_NAME = 4
_V1_LENGTH = 2
_BLOCK_BITS = 8 * BLOCK_SIZE


class Rewrite(NamedTuple):
    """Other bytes of a stored value.

    Attributes:
        words: Where, for people; nothing of the value.
    """

    value: bytes
    kind: RepairKind
    words: str

    def __repr__(self) -> str:
        return f"Rewrite({len(self.value)} bytes, {self.words!r})"


class _Near(NamedTuple):
    key: ConfiguredKey
    wrong: bytes
    bits: int

    @property
    def in_name(self) -> bool:
        """Whether the name differs: it may be the name of another key. The colon behind it is no part of it."""
        prefix = self.key.prefix
        return any(self.wrong[_name_start(prefix) : len(prefix) - 1])


def _near(data: bytes, own: ResourceTransformers) -> Iterator[_Near]:
    if data.startswith(
        own.prefixes
    ):  # it names a key that is there: what does not open then is no damaged prefix
        return
    for prefix, key in {key.prefix: key for key in own.keys if key.prefix}.items():
        if len(data) > len(prefix):
            wrong = difference(data[: len(prefix)], prefix)
            bits = int.from_bytes(wrong).bit_count()
            if bits <= MOST_PREFIX_BITS:
                yield _Near(key, wrong, bits)


def is_never_near(start: bytes, own: ResourceTransformers) -> bool:
    """Say whether :func:`prefix_rewrites` yields nothing for every value that begins so.

    ``start`` ends with the colon behind the name; no configured name goes on with it.
    """
    return start.startswith(own.prefixes) or all(
        int.from_bytes(difference(start[: len(prefix)], prefix[: len(start)])).bit_count() > MOST_PREFIX_BITS
        for prefix in own.prefixes
    )


def _name_start(prefix: bytes) -> int:
    return sum(len(part) + 1 for part in prefix.split(b":", _PARTS_BEFORE_NAME)[:_PARTS_BEFORE_NAME])


def prefix_rewrites(data: bytes, own: ResourceTransformers, *, plugins: bool) -> Iterator[Rewrite]:
    """Yield a value under each prefix of its rule from which its own differs in one to three bits.

    Nothing for a value that names a key of its rule: then its prefix is whole.
    """
    for near in _near(data, own):
        if near.key.facts.under_kms and not plugins:
            continue
        places = [f"{at}" for at, byte in enumerate(near.wrong) if byte]
        where = f"byte{'s' if len(places) > 1 else ''} {', '.join(places)}"
        which = "one bit" if near.bits == 1 else f"{near.bits} bits"
        prefix = near.key.prefix
        kind, part = RepairKind.PREFIX, "the prefix k8s:enc:…"
        if near.in_name:
            kind, part = RepairKind.NAME, "the key name in its prefix"
        words = f"{which} of {part} put back ({where} of the value)"
        yield Rewrite(prefix + data[len(prefix) :], kind, words)


def nearly_behind_plugin(data: bytes, own: ResourceTransformers) -> str:
    """Return the KMS provider (``kms/v2/prov``) whose prefix a value has but for a few bits before its name; or ""."""
    found = (n for n in _near(data, own) if n.key.facts.under_kms and not n.in_name)
    return next((near.key.transformer for near in found), "")


def misspelt_prefix(data: bytes, own: ResourceTransformers) -> bytes:
    """Return the prefix of a value, name included, that is one bit off that of a key of its rule; else b""."""
    return next((data[: len(near.wrong)] for near in _near(data, own) if near.bits == 1), b"")


def cbc_size(data: bytes, own: ResourceTransformers) -> int:
    """Return the size of a body that may be under AES-CBC, so that no tag tells where a bit flipped; 0 for none."""
    return max((len(data) - start for start, _ in _under_cbc(data, own)), default=0)


def rewrites(
    data: bytes, etcd_key: bytes, own: ResourceTransformers, undone: UndoneDamage | None
) -> Iterator[Rewrite]:
    """Yield what a value may have been, under the keys that it names in its resource's own rule.

    What is under AES-CBC is not searched here, since no tag tells where a bit flipped. A KMS value has been read with
    ``own`` before. ``undone`` is what a thorough look found.
    """
    yield from prefix_rewrites(data, own, plugins=True)
    if undone is not None and undone.what is Undone.TEXT_MODE:
        yield Rewrite(undone.value, RepairKind.TEXT_MODE, "every CR LF turned back into LF")
    elif undone is not None and undone.value:
        at = next(at for at, (one, other) in enumerate(zip(data, undone.value, strict=True)) if one != other)
        words = f"{undone.detail} turned back (byte {at} of the value)"
        yield Rewrite(undone.value, RepairKind.BIT, words)
    for reader in own.kms_readers:
        if not data.startswith(reader.prefix):
            continue
        if isinstance(reader, KMSv1Reader):
            yield from _other_sizes(data, len(reader.prefix), reader)
        else:
            yield from _other_envelopes(data, len(reader.prefix), reader, etcd_key)


def _other_sizes(data: bytes, start: int, opener: KMSv1Reader) -> Iterator[Rewrite]:
    body = data[start:]
    for size in opener.sizes:
        length = size.to_bytes(_V1_LENGTH)
        if len(body) >= _V1_LENGTH + size and body[:_V1_LENGTH] != length:
            words = f"the length of the wrapped data key is {size}, as in other values of this provider"
            yield Rewrite(data[:start] + length + body[_V1_LENGTH:], RepairKind.WRAPPED_KEY, words)


def _other_envelopes(data: bytes, start: int, opener: KMSv2Reader, etcd_key: bytes) -> Iterator[Rewrite]:
    begin, end = split_encrypted_object(data, start)
    if begin:
        for key, tail in opener.witness_tails:
            there = key.unchecked(data[begin:end])
            if tail and tail != data[end:] and there is not None and _opens(*there, etcd_key):
                words = (
                    "the wrapped data key of another value of this provider, and what belongs to it, put in"
                )
                yield Rewrite(data[:end] + tail, RepairKind.WRAPPED_KEY, words)
    places = [*range(start, start + _DATA_HEAD)]
    behind = range(end if begin else start, len(data))
    if len(behind) <= _MOST_TAIL:
        places += behind
    for at in dict.fromkeys(places):
        for bit in range(8 if at < len(data) else 0):
            other = turned(data, at, bit)
            if _opens_kms_v2(other[start:], opener, etcd_key):
                words = f"bit {bit} of byte {at} of the value turned back, in its KMS envelope"
                yield Rewrite(other, RepairKind.BIT, words)


def _opens_kms_v2(body: bytes, opener: KMSv2Reader, etcd_key: bytes) -> bool:
    try:
        encrypted = parse_encrypted_object(body)
        validate_encrypted_object(encrypted)
    except KMSEnvelopeInvalid:
        return False
    key = recalled(opener, encrypted)
    there = key.unchecked(encrypted.encrypted_data) if key is not None else None
    return there is not None and _opens(*there, etcd_key)


def _opens(cipher: Cipher, body: bytes, etcd_key: bytes) -> bool:
    return not isinstance(cipher.read(body, etcd_key), Attempt)


def cbc_rewrites(data: bytes, own: ResourceTransformers, fits: Callable[[bytes], bool]) -> Iterator[Rewrite]:
    """Yield a value under AES-CBC with each bit turned after which its padding is right and an object comes out.

    A KMS value has been read with ``own`` before.
    """
    for start, cipher in _under_cbc(data, own):
        yield from _cbc_bits(data, start, cipher, fits)


def _under_cbc(data: bytes, own: ResourceTransformers) -> Iterator[tuple[int, AESCBCCipher]]:
    for key in own.keys:
        if key.provider is ProviderType.AESCBC and key.material is not None and data.startswith(key.prefix):
            yield len(key.prefix), AESCBCCipher(key.material.expose())
    for reader in own.kms_readers:
        if data.startswith(reader.prefix):
            for candidate in kms_candidates(reader, "", data, len(reader.prefix)):
                if isinstance(candidate.cipher, AESCBCCipher):
                    yield candidate.begin, candidate.cipher


def unsearched(data: bytes, own: ResourceTransformers) -> str:
    """Return what a search for a repair leaves out since there is too much of it, for people; "" for nothing.

    A KMS value has been read with ``own`` before.
    """
    left = []
    if any(len(data) - start > MOST_CBC_SIZE for start, _ in _under_cbc(data, own)):
        left.append(f"single bits under AES-CBC behind the initialization vector, {_larger(MOST_CBC_SIZE)}")
    for reader in own.kms_readers:
        if data.startswith(reader.prefix) and isinstance(reader, KMSv2Reader):
            begin, end = split_encrypted_object(data, len(reader.prefix))
            if len(data) - (end if begin else len(reader.prefix)) > _MOST_TAIL:
                left.append(f"what follows the data in its KMS envelope, {_larger(_MOST_TAIL)}")
            if reader.dropped:
                left.append(
                    f"not all data keys of its KMS provider could be tried: more than {MOST_WITNESSES:,} opened others"
                )
    return "; ".join(left)


def _larger(size: int) -> str:
    return f"larger than {size >> 10} KiB"


def _cbc_bits(
    data: bytes, start: int, cipher: AESCBCCipher, fits: Callable[[bytes], bool]
) -> Iterator[Rewrite]:
    """Try each bit: one of a block turns one bit of the next, and makes noise of its own."""
    body = data[start:]
    if len(body) % BLOCK_SIZE or len(body) < 2 * BLOCK_SIZE:
        return
    whole = len(body) <= MOST_CBC_SIZE
    alone = "" if whole else f"; no bit behind it was searched: {_larger(MOST_CBC_SIZE)}"
    plain = cipher.blocks(body)
    for block in range(
        0, len(body) if whole else BLOCK_SIZE, BLOCK_SIZE
    ):  # the first one is the initialization vector
        own = body[block : block + BLOCK_SIZE]
        others = b"".join(turned(own, place // 8, place % 8) for place in range(_BLOCK_BITS))
        noise = cipher.decrypt_blocks(others) if block else b""
        before = body[block - BLOCK_SIZE : block]
        for place in range(_BLOCK_BITS):
            at, bit = block + place // 8, place % 8
            changed = bytearray(plain)
            if block:
                seen = noise[place * BLOCK_SIZE : (place + 1) * BLOCK_SIZE]
                changed[block - BLOCK_SIZE : block] = difference(seen, before)
            if at < len(changed):
                changed[at] ^= 1 << bit
            plaintext = without_padding(bytes(changed))
            if not isinstance(plaintext, Attempt) and fits(plaintext):
                where = "initialization vector" if not block else "ciphertext"
                flip = Flip(where, at - (BLOCK_SIZE if block else 0), bit)
                words = f"{flip.words} turned back (byte {start + at} of the value){alone}"
                yield Rewrite(turned(data, start + at, bit), RepairKind.BIT, words)
