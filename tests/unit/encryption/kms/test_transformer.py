"""What becomes of a KMS value for every answer that a plugin can give."""

from __future__ import annotations

import pytest

from etcdfix.encryption.kms.envelopes import Failure, KMSPending, WrappedKey
from etcdfix.encryption.kms.transformer import KMSv1Reader, KMSv2Reader, _OpenedV1
from etcdfix.model.model import Attempt, FailureReason, Plaintext, PluginRecord
from tests.support import encoders
from tests.support.fixtures import Patch
from tests.support.played_plugins import OneAnswer

DEK = bytes(range(32))
SEED = bytes(range(32, 64))
ETCD_KEY = b"/registry/secrets/default/s1"
NONCE, IV, INFO = b"n" * 12, b"i" * 16, b"f" * 32
KEY_ID = "key-id-1"
ALONE = PluginRecord(healthy=True, same_key=0, any_key=0)
NOT_AUTHENTIC = "cipher: message authentication failed"
SHORT = "the stored data was shorter than the required size"


def opened(data: bytes, stale: bool = False, key_id: str = "", *, authenticated: bool = True) -> Plaintext:
    return Plaintext(data, "", stale, key_id, authenticated=authenticated)


def v1(data: bytes, plugin: OneAnswer | None) -> Plaintext | Attempt:
    return KMSv1Reader(plugin).read(encoders.kms_v1_body(b"wrapped", data), ETCD_KEY)


def v2(data: bytes, plugin: OneAnswer | None, source_type: int = 1) -> Plaintext | Attempt:
    return KMSv2Reader(plugin).read(encoders.kms_v2_body(data, source_type=source_type), ETCD_KEY)


GCM = encoders.aesgcm_body(b"plaintext", DEK, NONCE, ETCD_KEY)
CBC = encoders.aescbc_body(b"plaintext", DEK, IV)
SEEDED = encoders.kms_v2_seeded_data(b"plaintext", SEED, INFO, NONCE, ETCD_KEY)


def test_v1_lucky_padding_is_no_plaintext_until_the_plugin_has_shown_that_it_is_right() -> None:
    plugin = OneAnswer(DEK)
    doubtful = Attempt(FailureReason.PADDING_INVALID, (), plugin=ALONE)
    assert v1(CBC, plugin) == doubtful  # noise under a wrong DEK passes for padding once in 256 times
    assert plugin.opened[""] == 0
    v1(GCM, plugin)
    assert v1(CBC, plugin) == opened(b"plaintext", stale=True, authenticated=False)
    plugin.healthy = False
    assert isinstance(v1(CBC, plugin), Attempt)


def test_what_opens_vouches_for_the_plugin() -> None:
    plugin = OneAnswer(DEK)
    v1(CBC, plugin)
    assert plugin.controls == []
    v1(GCM, plugin)
    assert plugin.controls == [(WrappedKey("v1", b"wrapped"), DEK)]
    plugin = OneAnswer(SEED)
    v2(SEEDED, plugin)
    ((wrapped, seed),) = plugin.controls
    assert (wrapped.key_id, seed) == (KEY_ID, SEED)


def test_v1_failures_of_both_ciphers_are_kept_apart() -> None:
    assert v1(GCM[:-1], OneAnswer(DEK)) == Attempt(
        FailureReason.AUTHENTICATION_FAILED,
        (NOT_AUTHENTIC, "the stored data is not a multiple of the block size"),
        plugin=ALONE,
    )
    assert v1(b"x", OneAnswer(DEK)) == Attempt(FailureReason.TOO_SHORT, (SHORT, SHORT), plugin=ALONE)


def test_v1_a_damaged_length_is_proven_by_the_one_that_opens() -> None:
    class Strict(OneAnswer):
        def key_of(self, wrapped: WrappedKey) -> bytes | Failure:
            if wrapped.ciphertext != b"wrapped":
                return Failure("NOT_FOUND", "no such key")
            return DEK

    plugin = Strict(DEK)
    transformer = KMSv1Reader(plugin)
    whole = encoders.kms_v1_body(b"wrapped", GCM)
    damaged = bytes([whole[0], whole[1] ^ 1]) + whole[2:]
    refused = Attempt(FailureReason.KMS_REFUSED, ("no such key",), "NOT_FOUND", ALONE)
    assert transformer.read(damaged, ETCD_KEY) == refused  # nothing to compare with yet
    assert transformer.read(whole, ETCD_KEY) == opened(b"plaintext", stale=False)
    assert transformer.read(damaged, ETCD_KEY) == Attempt(
        FailureReason.KMS_SIZE_DAMAGED, ("no such key",), plugin=PluginRecord(True, 1, 1)
    )
    noise = encoders.kms_v1_body(b"wrapped", encoders.aescbc_body(b"noise", DEK, IV))
    lucky = transformer.read(bytes([noise[0], noise[1] ^ 1]) + noise[2:], ETCD_KEY)
    assert isinstance(lucky, Attempt)
    assert lucky.reason is FailureReason.KMS_REFUSED  # padding alone proves no length either
    other = encoders.kms_v1_body(b"another key", GCM)
    failed = transformer.read(other, ETCD_KEY)  # the known size does not open it either
    assert isinstance(failed, Attempt)
    assert (failed.reason, failed.kms_status) == (FailureReason.KMS_REFUSED, "NOT_FOUND")
    assert plugin.opened == {"": 1}


def read(transformer: KMSv2Reader, body: bytes) -> Plaintext | Attempt:
    known = transformer.read_known(b"header" + body, len(b"header"), ETCD_KEY)
    return opened(*known) if known is not None else transformer.read(body, ETCD_KEY)


def value(text: bytes, seed: bytes = SEED, source: bytes = b"wrapped") -> bytes:
    data = encoders.kms_v2_seeded_data(text, seed, INFO, NONCE, ETCD_KEY)
    return encoders.kms_v2_body(data, source_type=1, dek_source=source)


def test_v2_asks_once_for_all_that_share_a_seed() -> None:
    plugin = OneAnswer(SEED)
    transformer = KMSv2Reader(plugin)
    texts = [f"plaintext {number}".encode() for number in range(5)]
    assert [read(transformer, value(text)) for text in texts] == [
        opened(text, False, KEY_ID) for text in texts
    ]
    assert (plugin.asked, plugin.opened) == (1, {KEY_ID: 5})
    read(transformer, value(b"x", source=b"another"))
    assert plugin.asked == 2


def test_v2_seeds_go_from_one_to_another_and_are_never_shown() -> None:
    one, other = KMSv2Reader(OneAnswer(SEED)), KMSv2Reader(OneAnswer(KMSPending()))
    assert one.known_seeds == []
    read(one, value(b"x"))
    (known,) = one.known_seeds
    other.remember(known)
    assert read(other, value(b"y")) == opened(b"y", False, KEY_ID)
    assert repr(known) == f"KnownSeed({len(known.tail)} bytes)"


def parts(text: bytes) -> tuple[bytes, bytes]:
    tail = encoders.kms_v2_body(b"", source_type=1, dek_source=b"wrapped")
    whole = value(text)
    return whole.removesuffix(tail), tail


def test_v2_data_that_comes_again_behind_a_known_tail_is_not_taken_for_the_first() -> None:
    transformer = KMSv2Reader(OneAnswer(SEED))
    (first, tail), (second, _) = parts(b"first"), parts(b"second")
    for _ in range(2):  # field 1 twice: the last one wins, as in Go
        assert read(transformer, first + tail + second) == opened(b"second", False, KEY_ID)
        assert read(transformer, second + tail + second) == opened(b"second", False, KEY_ID)
        assert read(transformer, first + tail) == opened(b"first", False, KEY_ID)


@pytest.mark.parametrize("size", [1, 127, 128, 400, 16_383, 16_384, 70_000])
def test_v2_quick_and_exact_ways_agree_whatever_the_size(size: int) -> None:
    transformer = KMSv2Reader(OneAnswer(SEED, write_key_id="key-id-2"))
    body = value(b"x" * size)
    exact = transformer.read(body, ETCD_KEY)
    assert exact == opened(b"x" * size, True, KEY_ID)
    assert transformer.read_known(body, 0, ETCD_KEY) == (b"x" * size, True, KEY_ID)
    for damaged in (body[:-1], body[: size // 2], body[:2], body[:1], b"", bytes([body[0] ^ 8]) + body[1:]):
        assert transformer.read_known(damaged, 0, ETCD_KEY) is None
    flipped = body[:80] + bytes([body[80] ^ 1]) + body[81:]
    assert transformer.read_known(flipped, 0, ETCD_KEY) is None
    assert transformer.read_known(body, 0, b"/elsewhere") is None
    tail = encoders.kms_v2_body(b"", source_type=1, dek_source=b"wrapped")
    assert transformer.read_known(b"\x0a\x2b" + bytes(43) + tail, 0, ETCD_KEY) is None


def test_v2_remembers_only_so_many_seeds(monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.encryption.kms.transformer._MOST_KNOWN_TAILS", 2)
    plugin = OneAnswer(SEED)
    transformer = KMSv2Reader(plugin)
    for source in (b"one", b"two", b"three", b"three", b"one"):
        assert read(transformer, value(b"x", source=source)) == opened(b"x", False, KEY_ID)
    assert plugin.asked == 4  # once more for the first, which had made room


def test_an_answer_that_is_not_there_yet_goes_on_up() -> None:
    for read in (v1, v2):
        with pytest.raises(KMSPending):
            read(SEEDED, OneAnswer(KMSPending()))
    with pytest.raises(KMSPending):
        v2(b"", OneAnswer(SEED, well=KMSPending()))


def test_without_a_plugin_nothing_is_proven() -> None:
    assert v1(GCM, None) == Attempt(FailureReason.KMS_UNREACHABLE, ())
    assert v2(SEEDED, None) == Attempt(FailureReason.KMS_UNREACHABLE, ())


def test_an_envelope_that_a_newer_server_may_accept_is_not_called_broken() -> None:
    body = encoders.kms_v2_body(b"data", source_type=2)
    for plugin, reason in (
        (OneAnswer(DEK), FailureReason.KMS_ENVELOPE_UNKNOWN),
        (None, FailureReason.KMS_UNREACHABLE),
    ):
        found = KMSv2Reader(plugin).read(body, ETCD_KEY)
        assert found == Attempt(reason, ("unknown encryptedDEKSourceType: 2",))


EMPTY = "encrypted data is empty"
LENGTH = "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data"


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (None, FailureReason.KMS_UNREACHABLE),
        (OneAnswer(DEK), FailureReason.KMS_ENVELOPE_INVALID),
        (OneAnswer(DEK, well=False), FailureReason.KMS_UNREACHABLE),
    ],
)
def test_a_broken_envelope_is_known_before_the_plugin_is_asked(
    plugin: OneAnswer | None, reason: FailureReason
) -> None:
    assert KMSv1Reader(plugin).read(b"\xff", ETCD_KEY) == Attempt(reason, (LENGTH,))
    assert v2(b"", plugin) == Attempt(reason, (EMPTY,))
    malformed = KMSv2Reader(plugin).read(b"\x0a", ETCD_KEY)
    assert malformed == Attempt(reason, ("proto: cannot parse invalid wire-format data",))
    assert plugin is None or plugin.asked == 0


def test_what_is_open_is_not_shown() -> None:
    assert (
        repr(Plaintext(b"Sekret", "kms/v1/prov", stale=True))
        == "Plaintext(6 bytes, 'kms/v1/prov', stale=True)"
    )
    assert repr(_OpenedV1(b"Sekret", False, b"DEK")) == "_OpenedV1(6 bytes, stale=False)"


def test_a_reader_that_starts_over_has_opened_nothing() -> None:
    old = KMSv1Reader(OneAnswer(DEK))
    old.read(encoders.kms_v1_body(b"wrapped", GCM), ETCD_KEY)
    assert old.sizes
    old.start_over()
    assert old.sizes == []
    new = KMSv2Reader(OneAnswer(SEED))
    body = encoders.kms_v2_body(SEEDED, source_type=1)
    new.read(body, ETCD_KEY)
    assert len(new.witnesses) == 1
    new.dropped = True
    new.start_over()
    assert (new.witnesses, new.known_seeds, new.dropped) == ([], [], False)
    new.read(body, ETCD_KEY)
    assert len(new.witnesses) == 1
