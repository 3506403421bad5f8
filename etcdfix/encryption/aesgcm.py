"""AES-GCM with a random 12-byte nonce, bound to the etcd key.

Format:
    Body: ``nonce(12) || ciphertext || tag(16)``; associated data is the complete etcd key
    (``k8s.io/apiserver/pkg/storage/value/encrypt/aes/aes.go``).
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.fault import TOO_SHORT_ERROR, FailureReason, Fault

NONCE_SIZE = 12
TAG_SIZE = 16
AUTHENTICATION_ERROR = "cipher: message authentication failed"


class AESGCMTransformer:
    """Opens values under one key. ``key`` is 16, 24 or 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._decrypt = AESGCM(key).decrypt

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Fault:
        """Return the plaintext of ``body``, or why there is none."""
        if len(body) < NONCE_SIZE:
            return Fault(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        try:
            return self._decrypt(body[:NONCE_SIZE], body[NONCE_SIZE:], etcd_key)
        except InvalidTag:  # also for a body too short for its tag, as upstream
            return Fault(FailureReason.AUTHENTICATION_FAILED, (AUTHENTICATION_ERROR,))

    def opener(self, skip: int) -> Callable[[bytes, bytes], bytes | None]:
        """Return a function from (value, etcd key) to plaintext or None, for bodies that start at ``skip``."""
        decrypt, start = self._decrypt, skip + NONCE_SIZE

        def open_value(data: bytes, etcd_key: bytes) -> bytes | None:
            if len(data) < start:
                return None
            try:
                return decrypt(data[skip:start], data[start:], etcd_key)
            except InvalidTag:
                return None

        return open_value
