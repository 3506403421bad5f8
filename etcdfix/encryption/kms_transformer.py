"""Opens KMS values, given a plugin; without one, says that nobody was asked.

Sources: ``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/envelope.go`` (v1),
``…/envelope/kmsv2/envelope.go`` (v2), ``…/encrypt/aes/aes_extended_nonce.go`` (key derivation) and
``…/server/options/encryptionconfig/config.go`` (v1 tries GCM, then CBC).
"""

from __future__ import annotations

import hmac

from etcdfix.encryption.aescbc import AESCBCTransformer
from etcdfix.encryption.aesgcm import AESGCMTransformer
from etcdfix.encryption.fault import TOO_SHORT_ERROR, FailureReason, Fault
from etcdfix.encryption.kms import (
    DEKSourceType,
    KMSEnvelopeInvalid,
    KMSPlugin,
    WrappedKey,
    key_id_digest,
    parse_encrypted_object,
    parse_v1_body,
    validate_encrypted_object,
)
from etcdfix.errors import KMSRefused, KMSUnreachable

_AES_KEY_SIZES = frozenset({16, 24, 32})
_INFO_SIZE = 32
_MIN_SEED_SIZE = 32

Opened = tuple[bytes, bool]
"""Plaintext, and whether it is stale for a reason within the value."""


class KMSv1Transformer:
    """Opens values of one KMS v1 provider."""

    def __init__(self, plugin: KMSPlugin | None) -> None:
        self._plugin = plugin

    def read(self, body: bytes, etcd_key: bytes) -> Opened | Fault:
        """Return the plaintext of ``body``, or why there is none.

        Without a plugin every reason is ``kms-unreachable``; a fault of the envelope is then in ``errors``.
        """
        try:
            wrapped, data = parse_v1_body(body)
        except KMSEnvelopeInvalid as error:
            return _envelope_fault(error, self._plugin)
        dek = _unwrap(self._plugin, wrapped, "")
        if isinstance(dek, Fault):
            return dek
        if len(dek) not in _AES_KEY_SIZES:
            return _key_size_fault(dek, "")
        plaintext = AESGCMTransformer(dek).read(data, etcd_key)
        if not isinstance(plaintext, Fault):
            return plaintext, False
        # API servers up to 1.24 wrote CBC, and nothing in the value says which.
        fallback = AESCBCTransformer(dek).read(data, etcd_key)
        if not isinstance(fallback, Fault):
            return fallback, True
        return Fault(plaintext.reason, plaintext.errors + fallback.errors)


class KMSv2Transformer:
    """Opens values of one KMS v2 provider."""

    def __init__(self, plugin: KMSPlugin | None) -> None:
        self._plugin = plugin

    def read(self, body: bytes, etcd_key: bytes) -> Opened | Fault:
        """Return the plaintext of ``body``, or why there is none; faults name the key id where it is known.

        Without a plugin every reason is ``kms-unreachable``; a fault of the envelope is then in ``errors``.
        """
        digest = ""
        try:
            encrypted = parse_encrypted_object(body)
            digest = key_id_digest(encrypted.key_id)
            validate_encrypted_object(encrypted)
        except KMSEnvelopeInvalid as error:
            return _envelope_fault(error, self._plugin, digest)
        source = _unwrap(self._plugin, encrypted.wrapped_key, digest)
        if isinstance(source, Fault):
            return source
        assert self._plugin is not None  # else _unwrap would have returned a fault
        seeded = encrypted.encrypted_dek_source_type == DEKSourceType.HKDF_SHA256_XNONCE_AES_GCM_SEED
        read = _read_with_seed if seeded else _read_with_key
        plaintext = read(source, encrypted.encrypted_data, etcd_key)
        if isinstance(plaintext, Fault):
            return plaintext._replace(kms_key_id_sha256=digest)
        # Servers write type 1 since 1.29, with the key id that Status tells.
        rotated = self._plugin.write_key_id not in {"", encrypted.key_id}
        return plaintext, rotated or not seeded


def derive_key(seed: bytes, info: bytes) -> bytes:
    """Return the AES-256 key of one value: HKDF-Expand with SHA-256, 32 bytes, so a single HMAC block."""
    return hmac.digest(seed, info + b"\x01", "sha256")


def _read_with_seed(seed: bytes, data: bytes, etcd_key: bytes) -> bytes | Fault:
    if len(seed) < _MIN_SEED_SIZE:
        error = f"invalid seed length {len(seed)} used for key generation"
        return Fault(FailureReason.KMS_KEY_INVALID, (error,))
    if len(data) < _INFO_SIZE:
        return Fault(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
    key = derive_key(seed, data[:_INFO_SIZE])
    return AESGCMTransformer(key).read(data[_INFO_SIZE:], etcd_key)


def _read_with_key(key: bytes, data: bytes, etcd_key: bytes) -> bytes | Fault:
    return (
        AESGCMTransformer(key).read(data, etcd_key)
        if len(key) in _AES_KEY_SIZES
        else _key_size_fault(key, "")
    )


def _unwrap(plugin: KMSPlugin | None, wrapped: WrappedKey, digest: str) -> bytes | Fault:
    if plugin is None:
        return Fault(FailureReason.KMS_UNREACHABLE, (), digest)
    # v2 says whose error it is; v1 passes the gRPC status on as it is.
    prefix = "failed to decrypt DEK, error: " if wrapped.api_version == "v2" else ""
    try:
        return plugin.unwrap(wrapped)
    except KMSUnreachable as error:
        return Fault(FailureReason.KMS_UNREACHABLE, (f"{prefix}{error.message}",), digest)
    except KMSRefused as error:
        return Fault(FailureReason.KMS_REFUSED, (f"{prefix}{error.message}",), digest)


def _envelope_fault(error: KMSEnvelopeInvalid, plugin: KMSPlugin | None, digest: str = "") -> Fault:
    # Proof, in fact; but without a plugin all values of a KMS provider are undetermined, by contract.
    reason = FailureReason.KMS_UNREACHABLE if plugin is None else FailureReason.KMS_ENVELOPE_INVALID
    return Fault(reason, (error.message,), digest)


def _key_size_fault(key: bytes, digest: str) -> Fault:
    return Fault(FailureReason.KMS_KEY_INVALID, (f"crypto/aes: invalid key size {len(key)}",), digest)
