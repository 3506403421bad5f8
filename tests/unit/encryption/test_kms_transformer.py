"""What becomes of a KMS value for every answer that a plugin can give."""

from __future__ import annotations

import pytest

from etcdfix.encryption.fault import FailureReason, Fault
from etcdfix.encryption.kms import WrappedKey, key_id_digest
from etcdfix.encryption.kms_transformer import KMSv1Transformer, KMSv2Transformer
from etcdfix.errors import KMSRefused, KMSUnreachable
from tests.support import encoders

DEK = bytes(range(32))
SEED = bytes(range(32, 64))
ETCD_KEY = b"/registry/secrets/default/s1"
NONCE, IV, INFO = b"n" * 12, b"i" * 16, b"f" * 32
DIGEST = key_id_digest("key-id-1")
NOT_AUTHENTIC = "cipher: message authentication failed"
SHORT = "the stored data was shorter than the required size"


class Plugin:
    """Gives one answer; an exception is raised."""

    def __init__(self, answer: bytes | Exception, *, write_key_id: str = "") -> None:
        self.answer = answer
        self.write_key_id = write_key_id
        self.asked = 0

    def unwrap(self, wrapped: WrappedKey) -> bytes:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def v1(data: bytes, plugin: Plugin | None) -> tuple[bytes, bool] | Fault:
    return KMSv1Transformer(plugin).read(encoders.kms_v1_body(b"wrapped", data), ETCD_KEY)


def v2(data: bytes, plugin: Plugin | None, source_type: int = 1) -> tuple[bytes, bool] | Fault:
    return KMSv2Transformer(plugin).read(encoders.kms_v2_body(data, source_type=source_type), ETCD_KEY)


GCM = encoders.aesgcm_body(b"plaintext", DEK, NONCE, ETCD_KEY)
CBC = encoders.aescbc_body(b"plaintext", DEK, IV)
SEEDED = encoders.kms_v2_seeded_data(b"plaintext", SEED, INFO, NONCE, ETCD_KEY)


def test_v1_opens_both_eras() -> None:
    assert v1(GCM, Plugin(DEK)) == (b"plaintext", False)
    assert v1(CBC, Plugin(DEK)) == (b"plaintext", True)


@pytest.mark.parametrize("size", [16, 24])
def test_v1_other_key_sizes(size: int) -> None:
    data = encoders.aesgcm_body(b"plaintext", DEK[:size], NONCE, ETCD_KEY)
    assert v1(data, Plugin(DEK[:size])) == (b"plaintext", False)


def test_v1_failures_of_both_ciphers_are_kept_apart() -> None:
    assert v1(GCM[:-1], Plugin(DEK)) == Fault(
        FailureReason.AUTHENTICATION_FAILED,
        (NOT_AUTHENTIC, "the stored data is not a multiple of the block size"),
    )
    assert v1(b"x", Plugin(DEK)) == Fault(FailureReason.TOO_SHORT, (SHORT, SHORT))


@pytest.mark.parametrize(("dek", "size"), [(b"", 0), (b"short", 5), (bytes(33), 33)])
def test_keys_of_a_wrong_size(dek: bytes, size: int) -> None:
    error = f"crypto/aes: invalid key size {size}"
    assert v1(GCM, Plugin(dek)) == Fault(FailureReason.KMS_KEY_INVALID, (error,))
    assert v2(GCM, Plugin(dek), 0) == Fault(FailureReason.KMS_KEY_INVALID, (error,), DIGEST)


def test_v2_opens_both_types() -> None:
    assert v2(SEEDED, Plugin(SEED)) == (b"plaintext", False)
    assert v2(GCM, Plugin(DEK), 0) == (b"plaintext", True)


def test_v2_seeds_longer_than_needed_are_used_whole() -> None:
    data = encoders.kms_v2_seeded_data(b"plaintext", SEED + b"more", INFO, NONCE, ETCD_KEY)
    assert v2(data, Plugin(SEED + b"more")) == (b"plaintext", False)
    assert isinstance(v2(data, Plugin(SEED)), Fault)


@pytest.mark.parametrize(("write_key_id", "stale"), [("", False), ("key-id-1", False), ("key-id-2", True)])
def test_v2_is_stale_once_the_plugin_writes_with_another_key(write_key_id: str, stale: bool) -> None:
    assert v2(SEEDED, Plugin(SEED, write_key_id=write_key_id)) == (b"plaintext", stale)


def test_v2_short_seed() -> None:
    error = "invalid seed length 31 used for key generation"
    assert v2(SEEDED, Plugin(SEED[:31])) == Fault(FailureReason.KMS_KEY_INVALID, (error,), DIGEST)


@pytest.mark.parametrize("size", [1, 31, 32, 43, 44, 59, 60])
def test_v2_seeded_lengths(size: int) -> None:
    expected = (
        Fault(FailureReason.TOO_SHORT, (SHORT,), DIGEST)
        if size < 44
        else Fault(FailureReason.AUTHENTICATION_FAILED, (NOT_AUTHENTIC,), DIGEST)
    )
    assert v2(bytes(size), Plugin(SEED)) == expected


def test_v2_moved_value() -> None:
    body = encoders.kms_v2_body(SEEDED, source_type=1)
    assert KMSv2Transformer(Plugin(SEED)).read(body, b"/elsewhere") == Fault(
        FailureReason.AUTHENTICATION_FAILED, (NOT_AUTHENTIC,), DIGEST
    )


UNAVAILABLE = "rpc error: code = Unavailable desc = connection refused"


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KMSUnreachable, FailureReason.KMS_UNREACHABLE), (KMSRefused, FailureReason.KMS_REFUSED)],
)
def test_what_plugins_say_is_passed_on(error: type[Exception], reason: FailureReason) -> None:
    assert v1(GCM, Plugin(error(UNAVAILABLE))) == Fault(reason, (UNAVAILABLE,))
    wrapped = f"failed to decrypt DEK, error: {UNAVAILABLE}"
    assert v2(SEEDED, Plugin(error(UNAVAILABLE))) == Fault(reason, (wrapped,), DIGEST)


def test_without_a_plugin_nothing_is_proven() -> None:
    assert v1(GCM, None) == Fault(FailureReason.KMS_UNREACHABLE, ())
    assert v2(SEEDED, None) == Fault(FailureReason.KMS_UNREACHABLE, (), DIGEST)


EMPTY = "encrypted data is empty"
LENGTH = "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data"


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [(None, FailureReason.KMS_UNREACHABLE), (Plugin(DEK), FailureReason.KMS_ENVELOPE_INVALID)],
)
def test_a_broken_envelope_is_known_before_the_plugin_is_asked(
    plugin: Plugin | None, reason: FailureReason
) -> None:
    assert KMSv1Transformer(plugin).read(b"\xff", ETCD_KEY) == Fault(reason, (LENGTH,))
    assert v2(b"", plugin) == Fault(reason, (EMPTY,), DIGEST)
    malformed = KMSv2Transformer(plugin).read(b"\x0a", ETCD_KEY)
    assert malformed == Fault(reason, ("proto: cannot parse invalid wire-format data",))
    assert plugin is None or plugin.asked == 0
