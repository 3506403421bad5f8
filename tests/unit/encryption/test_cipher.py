"""Each cipher without its tag: what it shows, and where one flipped bit lies; against encoders of another make."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from etcdfix.encryption.cipher import Cipher, Flip, turned
from etcdfix.encryption.providers import aesgcm, secretbox
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher
from etcdfix.encryption.providers.secretbox import SecretboxCipher
from etcdfix.model import Attempt
from tests.support import encoders

KEY = bytes(range(32))
ETCD_KEY = b"/registry/secrets/default/s1"
SIZES = (0, 1, 15, 16, 17, 100, 1000)


def gcm(plaintext: bytes) -> bytes:
    return encoders.aesgcm_body(plaintext, KEY, b"n" * 12, ETCD_KEY)


def box(plaintext: bytes) -> bytes:
    return encoders.secretbox_body(plaintext, KEY, b"n" * 24)


def text(size: int) -> bytes:
    return (b"some plaintext. " * (size // 16 + 1))[:size]


@pytest.mark.parametrize("cipher", [AESGCMCipher(KEY), SecretboxCipher(KEY), AESCBCCipher(KEY)])
@pytest.mark.parametrize("size", [0, 5, 12, 16, 20, 24])
def test_bodies_with_nothing_in_them(cipher: Cipher, size: int) -> None:
    body = bytes(size)
    assert cipher.plaintext(body) == b""
    assert list(cipher.flips(body, ETCD_KEY)) == []
    assert all(len(start) <= len(body) for _, start in cipher.other_nonces(body))


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(
    ("cipher", "seal", "start"), [(AESGCMCipher(KEY), gcm, 12), (SecretboxCipher(KEY), box, 40)]
)
def test_every_flip_is_found(cipher: Cipher, seal: Callable[[bytes], bytes], start: int, size: int) -> None:
    body = seal(text(size))
    for byte in {0, size // 2, size - 1}:
        for bit in range(8):
            damaged = turned(body, start + byte, bit)
            assert isinstance(cipher.read(damaged, ETCD_KEY), Attempt)
            (found,) = cipher.flips(damaged, ETCD_KEY)
            assert found == Flip("ciphertext", byte, bit, start)
            assert found.turned(damaged) == body
            assert found.words == f"bit {bit} of byte {byte} of the ciphertext"


def test_flips_of_the_tag() -> None:
    for cipher, body, start in (
        (AESGCMCipher(KEY), gcm(text(40)), 52),
        (SecretboxCipher(KEY), box(text(40)), 24),
    ):
        for place in range(128):
            damaged = turned(body, start + place // 8, place % 8)
            found = next(cipher.flips(damaged, ETCD_KEY))
            assert found == Flip("tag", place // 8, place % 8, start)
            assert found.turned(damaged) == body


@pytest.mark.parametrize("cipher", [AESGCMCipher(KEY), SecretboxCipher(KEY)])
def test_what_no_single_bit_explains(cipher: Cipher) -> None:
    body = gcm(text(40)) if cipher.bound else box(text(40))
    damaged = turned(turned(body, 45, 1), 50, 1)
    assert list(cipher.flips(damaged, ETCD_KEY)) == []


def test_nonces_one_bit_off() -> None:
    plaintext = text(100)
    for cipher, body, size in (
        (AESGCMCipher(KEY), gcm(plaintext), 12),
        (SecretboxCipher(KEY), box(plaintext), 24),
    ):
        damaged = turned(body, 7, 5)
        starts = list(cipher.other_nonces(damaged))
        assert len(starts) == size * 8
        assert [flip for flip, start in starts if start == plaintext[:64]] == [Flip("nonce", 7, 5)]
    assert list(AESCBCCipher(KEY).other_nonces(bytes(64))) == []


def test_a_bit_behind_the_end_explains_nothing() -> None:
    # The difference that a flip in the last block would make, at a place where the ciphertext has ended.
    hash_key = bytes(15) + b"\x01"
    assert list(aesgcm.flipped_bits(bytes(16), bytes(15) + b"\x01", 4)) == []
    shown = [aesgcm.flipped_bits(hash_key, (1 << n).to_bytes(16), 4) for n in range(128)]
    assert all(byte < 4 for found in shown for byte, _ in found)
    body = box(text(4))
    empty = zeroes = bytes(16)
    assert list(secretbox.flipped_bits(empty, zeroes, body[40:], body[24:40])) == []
    r = 1 << 2  # clamped; a short block, and sums that differ by 2^100 * r
    zeroes = ((1 << 64) * r).to_bytes(16, "little")
    total = (int.from_bytes(b"abcd\x01", "little") * r) % ((1 << 130) - 5)
    near = ((total + (1 << 100) * r) % (1 << 128)).to_bytes(16, "little")
    assert list(secretbox.flipped_bits(empty, zeroes, b"abcd", near)) == []
    within = ((total + (1 << 9) * r) % (1 << 128)).to_bytes(16, "little")
    assert list(secretbox.flipped_bits(empty, zeroes, b"abcd", within)) == [(1, 1)]


def test_tags_that_are_not_of_one_key() -> None:
    assert list(secretbox.flipped_bits(bytes(16), b"\xff" * 16, b"abcd", bytes(16))) == []


@pytest.mark.parametrize("cipher", [AESGCMCipher(KEY), SecretboxCipher(KEY)])
def test_a_large_value_takes_one_pass(cipher: Cipher) -> None:
    size = 1_500_000
    body = bytes(size)
    started = time.process_time()
    list(cipher.flips(body, ETCD_KEY))
    assert time.process_time() - started < 3  # 0.2 s on a quiet machine; a second way would take minutes
