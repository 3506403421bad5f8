"""aescbc, aesgcm and secretbox, byte by byte, and the row that each provider has."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from etcdfix.encryption.candidates import body_offsets_of
from etcdfix.encryption.cipher import Cipher, Flip, turned
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.providers import aesgcm, cipher_of, local_provider, secretbox
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher
from etcdfix.encryption.providers.secretbox import SecretboxCipher
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.looking import ends_inside_its_envelope
from etcdfix.examine.verdicts.damage import MEANING_OF_NOISE
from etcdfix.examine.verdicts.whole_inside import is_sealed
from etcdfix.model.model import Attempt, FailureReason
from etcdfix.model.providers import ENCRYPTING, PROVIDERS, ProviderFacts, facts_of
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


def test_ciphers_do_not_print_their_keys() -> None:
    for cipher in (AESCBCCipher(KEY), AESGCMCipher(KEY), SecretboxCipher(KEY)):
        assert "\\x01\\x02" not in repr(cipher)


SIZES = (0, 1, 15, 16, 17, 100, 1000)


def gcm(plaintext: bytes) -> bytes:
    return encoders.aesgcm_body(plaintext, KEY, b"n" * 12, ETCD_KEY)


def box(plaintext: bytes) -> bytes:
    return encoders.secretbox_body(plaintext, KEY, b"n" * 24)


def text(size: int) -> bytes:
    return (b"some plaintext. " * (size // 16 + 1))[:size]


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


@pytest.mark.parametrize("cipher", [AESGCMCipher(KEY), SecretboxCipher(KEY)])
def test_a_large_value_takes_one_pass(cipher: Cipher) -> None:
    size = 1_500_000
    body = bytes(size)
    started = time.process_time()
    list(cipher.flips(body, ETCD_KEY))
    assert time.process_time() - started < 3  # 0.2 s on a quiet machine; a second way would take minutes


LOCAL = [facts for facts in PROVIDERS if facts.key_sizes]


def named(facts: ProviderFacts) -> str:
    return f"{facts.provider}-{facts.version}"


@pytest.mark.parametrize("facts", ENCRYPTING, ids=named)
def test_every_row_is_known_wherever_a_value_is_taken_apart(facts: ProviderFacts) -> None:
    value = facts.prefix + b"name:" + b"\xff" * 64
    envelope = parse_envelope(value)
    assert envelope is not None
    assert (envelope.known, envelope.facts, envelope.transformer) == (
        True,
        facts,
        named(facts).replace("-", "/") + "/name",
    )
    assert facts_of(envelope.transformer) is facts
    place = body_offsets_of(
        value[: envelope.body_offset + facts.least_size - 1], Transformers({}, frozenset())
    )
    assert place is not None
    assert place.too_short
    assert sum(part.length for part in envelope_layout(value)) == len(value)
    assert "unknown" not in {part.name for part in envelope_layout(value)[:4]}
    assert ends_inside_its_envelope(facts.prefix + b"na")
    assert is_sealed(value)
    assert facts.noise in MEANING_OF_NOISE


@pytest.mark.parametrize("facts", LOCAL, ids=named)
def test_a_cipher_does_what_its_row_says(facts: ProviderFacts) -> None:
    assert facts.provider is not None
    assert facts.no_key_error
    for size in facts.key_sizes:
        cipher = cipher_of(facts.provider, bytes(range(size)))
        assert (cipher.authenticated, cipher.bound) == (facts.authenticated, facts.bound)
        body = cipher.seal(b"", ETCD_KEY)
        assert len(body) == facts.least_size
        assert cipher.read(body, ETCD_KEY) == b""
        assert isinstance(cipher.read(body[:-1], ETCD_KEY), Attempt)
        assert isinstance(cipher.read(body, b"/other"), Attempt) == facts.bound
    parts = local_provider(facts.provider).PARTS
    assert [size for _, size in parts].count(0) == 1
