"""NaCl secretbox: XSalsa20 and Poly1305.

Format:
    Body: ``nonce(24) || tag(16) || ciphertext``; no associated data
    (``k8s.io/apiserver/pkg/storage/value/encrypt/secretbox/secretbox.go``).

PyNaCl is imported here, and by ``seal`` for writing, and nowhere else; this module is imported when a configuration
names the provider.
"""

from __future__ import annotations

from collections.abc import Iterator

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip, difference, single_bit, turned
from etcdfix.encryption.known_starts import START_SIZE
from etcdfix.encryption.providers import poly1305
from etcdfix.model import Attempt, FailureReason

NONCE_SIZE = 24
TAG_SIZE = 16
_BODY = NONCE_SIZE + TAG_SIZE
# As much as a start needs that is recognised by its text.
_TRIED_SIZE = 64
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
        stream = self._sealed(bytes(poly1305.ZEROES_SIZE), nonce)[TAG_SIZE:]
        zeroes_tag = self._sealed(stream, nonce)[:TAG_SIZE]
        for byte, bit in poly1305.flipped_bits(empty_tag, zeroes_tag, ciphertext, tag):
            yield Flip("ciphertext", byte, bit, _BODY)

    def _decrypted(self, body: bytes) -> bytes:
        return self._sealed(body[_BODY:], body[:NONCE_SIZE])[TAG_SIZE:] if len(body) > _BODY else b""

    def _sealed(self, plaintext: bytes, nonce: bytes) -> bytes:
        return crypto_secretbox(plaintext, nonce, self._key)
