"""NaCl secretbox: XSalsa20 and Poly1305.

Format:
    Body: ``nonce(24) || tag(16) || ciphertext``; no associated data
    (``k8s.io/apiserver/pkg/storage/value/encrypt/secretbox/secretbox.go``).

PyNaCl is imported here, and by ``seal`` for writing, and nowhere else; this module is imported when a configuration
names the provider.
"""

from __future__ import annotations

from collections.abc import Callable

from nacl.bindings import crypto_secretbox_open
from nacl.exceptions import CryptoError

from etcdfix.encryption.fault import TOO_SHORT_ERROR, FailureReason, Fault

NONCE_SIZE = 24
TAG_SIZE = 16
# Upstream's words for a wrong key or changed data.
AUTHENTICATION_ERROR = "output array was not large enough for encryption"


class SecretboxTransformer:
    """Opens values under one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Fault:  # noqa: ARG002  one signature for all
        """Return the plaintext of ``body``, or why there is none."""
        if len(body) < NONCE_SIZE + TAG_SIZE:
            return Fault(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        try:
            return crypto_secretbox_open(body[NONCE_SIZE:], body[:NONCE_SIZE], self._key)
        except CryptoError:
            return Fault(FailureReason.AUTHENTICATION_FAILED, (AUTHENTICATION_ERROR,))

    def opener(self, skip: int) -> Callable[[bytes, bytes], bytes | None]:
        """Return a function from (value, etcd key) to plaintext or None, for bodies that start at ``skip``."""
        key, start = self._key, skip + NONCE_SIZE

        def open_value(data: bytes, etcd_key: bytes) -> bytes | None:  # noqa: ARG001  one signature for all
            if len(data) < start + TAG_SIZE:
                return None
            try:
                return crypto_secretbox_open(data[start:], data[skip:start], key)
            except CryptoError:
                return None

        return open_value
