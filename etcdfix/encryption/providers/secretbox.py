"""NaCl secretbox: XSalsa20 and Poly1305.

Format:
    Body: ``nonce(24) || tag(16) || ciphertext``; no associated data
    (``k8s.io/apiserver/pkg/storage/value/encrypt/secretbox/secretbox.go``).

PyNaCl is imported here and nowhere else; this module is imported when a configuration names the provider.

Where one flipped bit in a ciphertext lies shows in what it did to the tag, which is
``(sum of block[i] * r^(n - i) mod p) + s mod 2^128``. The two halves of the one-time key are told by tags that anybody
with the key can make: that of an empty message is s, that of eight bytes of zero is ``2^64 * r mod p + s``. A tag tells
its sum modulo 2^128 only, so four r would give it, 2^64 apart; but bits 64 and 65 of r are always 0. A flipped bit
changes the sum by ``±2^bit * r^(n - i)``, so the difference of the sums is divided by r again and again until a power
of two is left. Source: RFC 8439, section 2.5; as in NaCl's secretbox, the ciphertext alone is authenticated.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip, difference, single_bit, turned
from etcdfix.encryption.known_starts import START_SIZE
from etcdfix.model.model import Attempt, FailureReason

NONCE_SIZE = 24
TAG_SIZE = 16
PARTS = (("nonce", NONCE_SIZE), ("tag", TAG_SIZE), ("ciphertext", 0))
_BODY = NONCE_SIZE + TAG_SIZE
# As much as a start needs that is recognised by its text.
_TRIED_SIZE = 64
_BLOCK_SIZE = 16
_ZEROES_SIZE = 8
_P = (1 << 130) - 5
_TAG = 1 << 128
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
# A sum is below p, its tag tells it modulo 2^128: so many sums have one tag.
_SUMS = 4
_BITS = {value: bit for bit in range(128) for value in (1 << bit, _P - (1 << bit))}
# Upstream's words for a wrong key or changed data.
AUTHENTICATION_ERROR = "output array was not large enough for encryption"
_FAILED = Attempt(FailureReason.AUTHENTICATION_FAILED, (AUTHENTICATION_ERROR,))


class SecretboxCipher:
    """Opens values under one key of 32 bytes, or looks at them without their tag.

    What is added to a plaintext is a stream that key and nonce alone make. So encrypting a ciphertext once more, under
    its own nonce, gives the plaintext, and a tag that means nothing.
    """

    authenticated = True
    bound = False

    def __init__(self, key: bytes) -> None:
        self._key = key

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:  # noqa: ARG002  one signature for all
        """Return the plaintext of ``body``, or why there is none."""
        if len(body) < NONCE_SIZE + TAG_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        try:
            return crypto_secretbox_open(body[NONCE_SIZE:], body[:NONCE_SIZE], self._key)
        except CryptoError:
            return _FAILED

    def seal(self, plaintext: bytes, etcd_key: bytes) -> bytes:  # noqa: ARG002  one signature for all
        """Return a body under a random nonce."""
        nonce = secrets.token_bytes(NONCE_SIZE)
        return nonce + self._sealed(plaintext, nonce)

    def start(self, body: bytes) -> bytes:
        """Return the first bytes of what would be decrypted."""
        return self._decrypted(body[: _BODY + START_SIZE])

    def plaintext(self, body: bytes) -> bytes:
        """Return all of it."""
        return self._decrypted(body)

    def other_nonces(self, body: bytes) -> Iterator[tuple[Flip, bytes]]:
        """Yield, for each bit of the nonce, what the plaintext would start with if it were turned."""
        seen = body[: _BODY + _TRIED_SIZE]
        if len(seen) < _BODY:
            return
        for byte in range(NONCE_SIZE):
            for bit in range(8):
                yield Flip("nonce", byte, bit), self._decrypted(turned(seen, byte, bit))

    def flips(self, body: bytes, etcd_key: bytes) -> Iterator[Flip]:  # noqa: ARG002  one signature for all
        """Yield the bit of the tag or of the ciphertext that explains the tag, if one does."""
        if len(body) < _BODY:
            return
        nonce, tag, ciphertext = body[:NONCE_SIZE], body[NONCE_SIZE:_BODY], body[_BODY:]
        computed = self._sealed(self.plaintext(body), nonce)[:TAG_SIZE]
        in_tag = single_bit(difference(tag, computed))
        if in_tag is not None:
            yield Flip("tag", *in_tag, NONCE_SIZE)
        empty_tag = self._sealed(b"", nonce)
        stream = self._sealed(bytes(_ZEROES_SIZE), nonce)[TAG_SIZE:]
        zeroes_tag = self._sealed(stream, nonce)[:TAG_SIZE]
        for byte, bit in flipped_bits(empty_tag, zeroes_tag, ciphertext, tag):
            yield Flip("ciphertext", byte, bit, _BODY)

    def _decrypted(self, body: bytes) -> bytes:
        return self._sealed(body[_BODY:], body[:NONCE_SIZE])[TAG_SIZE:] if len(body) > _BODY else b""

    def _sealed(self, plaintext: bytes, nonce: bytes) -> bytes:
        return crypto_secretbox(plaintext, nonce, self._key)


cipher = SecretboxCipher


def flipped_bits(
    empty_tag: bytes, zeroes_tag: bytes, ciphertext: bytes, tag: bytes
) -> Iterator[tuple[int, int]]:
    """Yield the byte and bit at which one flip in the ciphertext explains its tag; mostly one or none.

    Two steps for each block: 0.2 s for 1.5 MB.

    The first two tags are those of the empty message and of eight zeroes under the same one-time key.
    """
    s = int.from_bytes(empty_tag, "little")
    r = _multiplier((int.from_bytes(zeroes_tag, "little") - s) % _TAG)
    if not r:
        return
    size = len(ciphertext)
    total = 0
    for start in range(0, size, _BLOCK_SIZE):
        block = ciphertext[start : start + _BLOCK_SIZE]
        total = (total + int.from_bytes(block + b"\x01", "little")) * r % _P
    # The difference of the sums is one of four: value + n * step.
    value, step = ((int.from_bytes(tag, "little") - s) % _TAG - total) % _P, _TAG
    inverse = pow(r, -1, _P)
    for start in range((size - 1) // _BLOCK_SIZE * _BLOCK_SIZE, -1, -_BLOCK_SIZE):
        value, step = value * inverse % _P, step * inverse % _P
        second, third, fourth = (value + step) % _P, (value + 2 * step) % _P, (value + 3 * step) % _P
        if value in _BITS or second in _BITS or third in _BITS or fourth in _BITS:
            for found in (value, second, third, fourth):
                bit = _BITS.get(found)
                if bit is not None and start + bit // 8 < size:
                    yield start + bit // 8, bit % 8


def _multiplier(zeroes_sum: int) -> int:
    """Return r, 0 where the tags are not those of one key."""
    inverse = pow(1 << 8 * _ZEROES_SIZE, -1, _P)
    for more in range(_SUMS):
        r = (zeroes_sum + _TAG * more) * inverse % _P
        if r & ~_CLAMP == 0:
            return r
    return 0
