"""AES-GCM with a random 12-byte nonce, bound to the etcd key.

Format:
    Body: ``nonce(12) || ciphertext || tag(16)``; associated data is the complete etcd key
    (``k8s.io/apiserver/pkg/storage/value/encrypt/aes/aes.go``).

Where one flipped bit in a ciphertext lies shows in what it did to the tag. GHASH is linear: of ``n`` blocks, a bit that
flipped in block ``i`` (from 0) changes the tag by ``e(bit) * H^(n - i + 1)`` in GF(2^128), the last power being that of
the block of lengths. So the difference of the two tags is divided by H again and again until a single bit is left.
Source: NIST SP 800-38D, sections 6.3 and 6.4. Bit 0 of a block, the coefficient of x^0, is the highest bit of its first
byte.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip, difference, single_bit
from etcdfix.encryption.known_starts import START_SIZE
from etcdfix.model.model import Attempt, FailureReason

NONCE_SIZE = 12
TAG_SIZE = 16
PARTS = (("nonce", NONCE_SIZE), ("ciphertext", 0), ("tag", TAG_SIZE))
_BLOCK_SIZE = 16
# Counter 1 is the tag's.
_FIRST_COUNTER = 2
_COUNTER_SIZE = 4
_COUNTERS = tuple(
    (_FIRST_COUNTER + block).to_bytes(_COUNTER_SIZE) for block in range(START_SIZE // _BLOCK_SIZE)
)
# As many blocks as a start needs that is recognised by its text.
_TRIED_BLOCKS = 4
AUTHENTICATION_ERROR = "cipher: message authentication failed"
_REDUCTION = 0xE1 << 120
_TOP = 127
# x^128 + x^7 + x^2 + x + 1, reflected.
_MODULUS = 1 << 128 | 0x87
_FAILED = Attempt(FailureReason.AUTHENTICATION_FAILED, (AUTHENTICATION_ERROR,))


class AESGCMCipher:
    """Opens values under one key of 16, 24 or 32 bytes, or looks at them without their tag: AES in counter mode.

    Format:
        NIST SP 800-38D, section 7: with a nonce of 96 bits the first counter block is ``nonce || 1``, and that is the
        tag's.
    """

    authenticated = True
    bound = True

    def __init__(self, key: bytes) -> None:
        self._aes = AES(key)
        self._aead = AESGCM(key)

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:
        """Return the plaintext of ``body``, or why there is none."""
        if len(body) < NONCE_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        try:
            return self._aead.decrypt(body[:NONCE_SIZE], body[NONCE_SIZE:], etcd_key)
        except InvalidTag:  # also for a body too short for its tag, as upstream
            return _FAILED

    def seal(self, plaintext: bytes, etcd_key: bytes) -> bytes:
        """Return a body: 96 random bits are enough for a nonce as long as no key sees more than 2^32 values."""
        nonce = secrets.token_bytes(NONCE_SIZE)
        return nonce + self._aead.encrypt(nonce, plaintext, etcd_key)

    def start(self, body: bytes) -> bytes:
        """Return the first bytes of what would be decrypted; in a value that was cut the last bytes are no tag."""
        nonce, seen = body[:NONCE_SIZE], body[NONCE_SIZE : NONCE_SIZE + START_SIZE]
        return difference(seen, self._stream([nonce], len(seen))[: len(seen)]) if seen else b""

    def plaintext(self, body: bytes) -> bytes:
        """Return all but what lies where a whole value has its tag."""
        return self._decrypted(body, max(len(body) - TAG_SIZE, 0))

    def other_nonces(self, body: bytes) -> Iterator[tuple[Flip, bytes]]:
        """Yield, for each bit of the nonce, what the plaintext would start with if it were turned."""
        nonce, seen = body[:NONCE_SIZE], body[NONCE_SIZE : NONCE_SIZE + _TRIED_BLOCKS * _BLOCK_SIZE]
        if len(nonce) < NONCE_SIZE:
            return
        flips = [Flip("nonce", byte, bit) for byte in range(NONCE_SIZE) for bit in range(8)]
        streams = self._stream([flip.turned(nonce) for flip in flips], len(seen))
        step = len(streams) // len(flips)
        for index, flip in enumerate(flips):
            yield flip, difference(seen, streams[index * step : index * step + len(seen)])

    def flips(self, body: bytes, etcd_key: bytes) -> Iterator[Flip]:
        """Yield the bit of the tag or of the ciphertext that explains the tag, if one does."""
        plaintext, tag = self.plaintext(body), body[-TAG_SIZE:]
        if len(body) < NONCE_SIZE + TAG_SIZE:
            return
        computed = self._aead.encrypt(body[:NONCE_SIZE], plaintext, etcd_key)[-TAG_SIZE:]
        wrong = difference(tag, computed)
        in_tag = single_bit(wrong)
        if in_tag is not None:
            yield Flip("tag", *in_tag, len(body) - TAG_SIZE)
        hash_key = self._encrypt_blocks(bytes(_BLOCK_SIZE))  # H is defined so
        for byte, bit in flipped_bits(hash_key, wrong, len(plaintext)):
            yield Flip("ciphertext", byte, bit, NONCE_SIZE)

    @cached_property
    def _encrypt_blocks(self) -> Callable[[bytes], bytes]:
        return Cipher(self._aes, ECB()).encryptor().update  # noqa: S305 - the blocks of counter mode

    def _stream(self, nonces: Iterable[bytes], size: int) -> bytes:
        """Return what plaintext is added to under each nonce, ``size`` bytes rounded up to whole blocks for each."""
        counters = _COUNTERS[: -(-size // _BLOCK_SIZE)]
        return self._encrypt_blocks(b"".join([nonce + counter for nonce in nonces for counter in counters]))

    def _decrypted(self, body: bytes, end: int) -> bytes:
        nonce = body[:NONCE_SIZE]
        if len(nonce) < NONCE_SIZE:
            return b""
        counter = nonce + _FIRST_COUNTER.to_bytes(_COUNTER_SIZE)
        return Cipher(self._aes, CTR(counter)).decryptor().update(body[NONCE_SIZE:end])


cipher = AESGCMCipher


def flipped_bits(hash_key: bytes, difference: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield the byte and bit at which one flip in the ciphertext explains a difference of tags; mostly one or none.

    One step for each block: 0.2 s for 1.5 MB.

    ``hash_key`` is H, the encryption of a block of zeroes; ``difference`` is stored tag XOR computed tag.
    """
    inverse = _inverse(int.from_bytes(hash_key))
    value = int.from_bytes(difference)
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15 = _tables(inverse)
    # The block of lengths comes last, and no bit of it is stored.
    for block in range(-(-size // _BLOCK_SIZE), -1, -1):
        a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q = value.to_bytes(_BLOCK_SIZE)
        value = (
            t0[a] ^ t1[b] ^ t2[c] ^ t3[d] ^ t4[e] ^ t5[f] ^ t6[g] ^ t7[h]
            ^ t8[i] ^ t9[j] ^ t10[k] ^ t11[m] ^ t12[n] ^ t13[o] ^ t14[p] ^ t15[q]
        )  # fmt: skip
        if not value & (value - 1) and value:
            place = _TOP + 1 - value.bit_length()
            byte = block * _BLOCK_SIZE + place // 8
            if byte < size:
                yield byte, 7 - place % 8


def _tables(factor: int) -> list[list[int]]:
    """Return, for each byte of a block and each value of it, its product with ``factor``."""
    tables = []
    for _ in range(_BLOCK_SIZE):
        # The highest bit of a byte comes first.
        products = [0] * 256
        for bit in (0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1):
            products[bit] = factor
            factor = _times_x(factor)
        for value in range(256):
            rest = value & (value - 1)
            products[value] = products[rest] ^ products[value ^ rest]
        tables.append(products)
    return tables


def _times_x(value: int) -> int:
    return value >> 1 ^ _REDUCTION if value & 1 else value >> 1


def _inverse(value: int) -> int:
    """Return 1 / value, by Euclid's algorithm for polynomials; 0 for 0."""
    if not value:
        return 0
    one, other = _reflected(value), _MODULUS
    factor, other_factor = 1, 0
    while one != 1:
        shift = one.bit_length() - other.bit_length()
        if shift < 0:
            one, other, factor, other_factor = other, one, other_factor, factor
            shift = -shift
        one ^= other << shift
        factor ^= other_factor << shift
    return _reflected(factor)


def _reflected(value: int) -> int:
    """Return the bits in the other order: there the lowest one is the coefficient of x^0."""
    return int(f"{value:0128b}"[::-1], 2)
