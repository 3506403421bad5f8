"""AES-CBC with PKCS#7 padding and no authentication.

Format:
    Body: ``IV(16) || AES-CBC(padded plaintext)``; no associated data
    (``k8s.io/apiserver/pkg/storage/value/encrypt/aes/aes.go``).

A wrong key passes the padding check once in about 256 values, so plaintext from here is proven only by
decoding it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB
from cryptography.hazmat.primitives.padding import PKCS7

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip
from etcdfix.encryption.known_starts import START_SIZE_CBC
from etcdfix.model.model import Attempt, FailureReason

BLOCK_SIZE = 16
PARTS = (("initialisation vector", BLOCK_SIZE), ("ciphertext", 0))
NOT_BLOCK_MULTIPLE_ERROR = "the stored data is not a multiple of the block size"
NOT_PADDED_ERROR = "invalid PKCS7 data (empty or not padded)"
PADDING_ERROR = "invalid padding on input"
# An API server does not return an error for a body that is only an IV: the request panics with this.
IV_ONLY_ERROR = "runtime error: index out of range [-1]"

_PADDING = tuple(bytes([size]) * size for size in range(256))


class AESCBCCipher:
    """Opens values under one key of 16, 24 or 32 bytes, or looks at them block by block.

    One decryptor serves every value. In CBC each plaintext block depends on two ciphertext blocks only,
    its own and the one before; so an IV fed to the decryptor as if it were ciphertext puts it into the
    right state, and the block that comes out for the IV is dropped. This is eight times faster than a
    decryptor per value. It holds as long as only whole blocks are fed: a part of a block would stay
    inside and shift everything after it. Not for use by several threads at once.
    """

    authenticated = False
    bound = False

    def __init__(self, key: bytes) -> None:
        self._aes = AES(key)
        self._update = Cipher(self._aes, CBC(bytes(BLOCK_SIZE))).decryptor().update
        self._decrypt = Cipher(self._aes, ECB()).decryptor().update  # noqa: S305 - the block cipher inside CBC

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:  # noqa: ARG002  one signature for all
        """Return the plaintext of ``body``, or why there is none."""
        size = len(body)
        if size < BLOCK_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        if size % BLOCK_SIZE:
            return Attempt(FailureReason.NOT_BLOCK_MULTIPLE, (NOT_BLOCK_MULTIPLE_ERROR,))
        if size == BLOCK_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (IV_ONLY_ERROR,))
        return without_padding(self._update(body)[BLOCK_SIZE:])

    def seal(self, plaintext: bytes, etcd_key: bytes) -> bytes:  # noqa: ARG002  one signature for all
        """Return a body under a random initialisation vector."""
        padder = PKCS7(BLOCK_SIZE * 8).padder()
        iv = secrets.token_bytes(BLOCK_SIZE)
        encryptor = Cipher(self._aes, CBC(iv)).encryptor()
        return iv + encryptor.update(padder.update(plaintext) + padder.finalize()) + encryptor.finalize()

    def start(self, body: bytes) -> bytes:
        """Return the first bytes of what would be decrypted."""
        return self.blocks(body[: BLOCK_SIZE + START_SIZE_CBC])

    def plaintext(self, body: bytes) -> bytes:
        """Return all of it up to the last whole block; the padding is left away where it is one."""
        opened = self.read(body, b"")
        return self.blocks(body) if isinstance(opened, Attempt) else opened

    def other_nonces(self, body: bytes) -> Iterator[tuple[Flip, bytes]]:  # noqa: ARG002  one signature for all
        """Yield nothing: a wrong bit of the initialisation vector is one wrong bit of the plaintext."""
        return iter(())

    def flips(self, body: bytes, etcd_key: bytes) -> Iterator[Flip]:  # noqa: ARG002  one signature for all
        """Yield nothing: without a tag nothing tells where a bit flipped."""
        return iter(())

    def decrypt_blocks(self, blocks: bytes) -> bytes:
        """Return what single blocks decrypt to, none added to the next."""
        return self._decrypt(blocks)

    def blocks(self, body: bytes) -> bytes:
        """Return what all whole blocks decrypt to, padding included."""
        return self._update(body[: len(body) // BLOCK_SIZE * BLOCK_SIZE])[BLOCK_SIZE:]


cipher = AESCBCCipher


def without_padding(padded: bytes) -> bytes | Attempt:
    """Return a plaintext without its padding, or why it has none; the rule is upstream's own.

    The padding length is bounded by the whole plaintext, not by the block size: 32 bytes of 0x20 at the end are padding
    to the API server.
    """
    padding = padded[-1]
    if padding == 0 or padding > len(padded):
        return Attempt(FailureReason.PADDING_INVALID, (NOT_PADDED_ERROR,))
    if not padded.endswith(_PADDING[padding]):
        return Attempt(FailureReason.PADDING_INVALID, (PADDING_ERROR,))
    return padded[: len(padded) - padding]
