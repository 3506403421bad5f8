"""aescbc, aesgcm and secretbox, byte by byte."""

from __future__ import annotations

import pytest

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher
from etcdfix.encryption.providers.secretbox import SecretboxCipher
from etcdfix.model import Attempt, FailureReason
from tests.support import encoders

KEY = bytes(range(32))
ETCD_KEY = b"/registry/secrets/default/s1"
NONCE12, NONCE16, NONCE24 = b"n" * 12, b"n" * 16, b"n" * 24

SHORT = "the stored data was shorter than the required size"
NOT_AUTHENTIC = "cipher: message authentication failed"
NO_BOX = "output array was not large enough for encryption"


def read(cipher: Cipher, body: bytes, etcd_key: bytes = ETCD_KEY) -> bytes | Attempt:
    return cipher.read(body, etcd_key)


def fault(reason: FailureReason, error: str) -> Attempt:
    return Attempt(reason, (error,))


def test_only_aesgcm_is_bound_to_the_etcd_key() -> None:
    plaintext, elsewhere = b"plaintext", ETCD_KEY + b"x"
    assert read(AESCBCCipher(KEY), encoders.aescbc_body(plaintext, KEY, NONCE16), elsewhere) == plaintext
    assert (
        read(SecretboxCipher(KEY), encoders.secretbox_body(plaintext, KEY, NONCE24), elsewhere) == plaintext
    )
    gcm = encoders.aesgcm_body(plaintext, KEY, NONCE12, ETCD_KEY)
    expected = fault(FailureReason.AUTHENTICATION_FAILED, NOT_AUTHENTIC)
    for other in (elsewhere, ETCD_KEY.removeprefix(b"/"), ETCD_KEY.removeprefix(b"/registry"), b""):
        assert read(AESGCMCipher(KEY), gcm, other) == expected


@pytest.mark.parametrize(
    ("size", "reason", "error"),
    [
        (0, FailureReason.TOO_SHORT, SHORT),
        (15, FailureReason.TOO_SHORT, SHORT),
        # A real API server panics here; etcdfix calls it a failure and gives the panic's text.
        (16, FailureReason.TOO_SHORT, "runtime error: index out of range [-1]"),
        (17, FailureReason.NOT_BLOCK_MULTIPLE, "the stored data is not a multiple of the block size"),
        (31, FailureReason.NOT_BLOCK_MULTIPLE, "the stored data is not a multiple of the block size"),
        (33, FailureReason.NOT_BLOCK_MULTIPLE, "the stored data is not a multiple of the block size"),
    ],
)
def test_aescbc_lengths(size: int, reason: FailureReason, error: str) -> None:
    assert read(AESCBCCipher(KEY), bytes(size)) == fault(reason, error)


NOT_PADDED = fault(FailureReason.PADDING_INVALID, "invalid PKCS7 data (empty or not padded)")
BAD_PADDING = fault(FailureReason.PADDING_INVALID, "invalid padding on input")


@pytest.mark.parametrize(
    ("padded", "result"),
    [
        (b"x" * 15 + b"\x00", NOT_PADDED),
        (b"x" * 15 + b"\x11", NOT_PADDED),  # 17 of 16
        (b"\x10" * 16, b""),
        (b"x" * 15 + b"\x01", b"x" * 15),
        (b"x" * 14 + b"\x01\x02", BAD_PADDING),
        (b"x" * 13 + b"\x03\x02\x03", BAD_PADDING),
        # Padding is bounded by the plaintext, not by the block.
        (b"x" * 16 + b"\x20" * 32, b"x" * 16),
        (b"\x20" * 32, b""),
        (b"x" * 16 + b"\x20" * 16, BAD_PADDING),
        (b"x" * 16 + b"\x21" * 16, NOT_PADDED),
        (b"\xff" * 256, b"\xff"),
        (b"\xff" * 240, NOT_PADDED),
    ],
)
def test_aescbc_padding_is_upstreams(padded: bytes, result: bytes | Attempt) -> None:
    body = NONCE16 + encoders.cbc_blocks(padded, KEY, NONCE16)
    assert read(AESCBCCipher(KEY), body) == result


def test_aescbc_padding_does_not_reach_into_the_iv() -> None:
    # The block that comes out for the IV depends on the value before; it must not pass for padding.
    transformer = AESCBCCipher(KEY)
    body = NONCE16 + encoders.cbc_blocks(b"\x11" * 16, KEY, NONCE16)
    for previous in range(3):
        read(transformer, bytes([previous]) * 48)
        assert read(transformer, body) == NOT_PADDED


@pytest.mark.parametrize("size", [0, 23, 24, 39, 40, 41, 100])
def test_secretbox_lengths(size: int) -> None:
    expected = (
        fault(FailureReason.TOO_SHORT, SHORT)
        if size < 40
        else fault(FailureReason.AUTHENTICATION_FAILED, NO_BOX)
    )
    assert read(SecretboxCipher(KEY), bytes(size)) == expected


def test_authenticated_ciphers_notice_every_changed_byte() -> None:
    gcm = encoders.aesgcm_body(b"plaintext", KEY, NONCE12, ETCD_KEY)
    box = encoders.secretbox_body(b"plaintext", KEY, NONCE24)
    for body, cipher, error in ((gcm, AESGCMCipher(KEY), NOT_AUTHENTIC), (box, SecretboxCipher(KEY), NO_BOX)):
        for at in range(len(body)):
            changed = body[:at] + bytes([body[at] ^ 0x80]) + body[at + 1 :]
            assert read(cipher, changed) == fault(FailureReason.AUTHENTICATION_FAILED, error)


def test_ciphers_do_not_print_their_keys() -> None:
    for cipher in (AESCBCCipher(KEY), AESGCMCipher(KEY), SecretboxCipher(KEY)):
        assert "\\x01\\x02" not in repr(cipher)


@pytest.mark.parametrize("provider", [ProviderType.KMS, ProviderType.IDENTITY])
def test_no_provider_is_taken_for_another(provider: ProviderType) -> None:
    with pytest.raises(ValueError, match="has no key of its own"):
        cipher_of(provider, bytes(32))
