"""What an encrypted value may have been: bytes that are not opened yet."""

from __future__ import annotations

import pytest

from etcdfix.encryption.repairs import (
    MOST_CBC_SIZE,
    Rewrite,
    cbc_rewrites,
    is_never_near,
    nearly_behind_plugin,
    prefix_rewrites,
    rewrites,
    unsearched,
)
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model.model import RepairKind
from tests.support.fixtures import Patch
from tests.support.peeking import (
    ETCD_KEY,
    PLAIN,
    SECRETS,
    first_version,
    peeked,
    sealed,
    seeded,
    transformers,
)
from tests.support.played_plugins import OneAnswer

KEYS = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
SEED = bytes(range(32))


def own(provider: str, name: str = "key1") -> ResourceTransformers:
    keyed = f"{{{provider}: {{keys: [{{name: '{name}', secret: {KEYS}}}]}}}}"
    found = transformers(f"- resources: [secrets]\n  providers: [{keyed}, {{identity: {{}}}}]")
    return found.for_resource(SECRETS)


def behind(version: str, plugin: OneAnswer) -> ResourceTransformers:
    kms = f"{{kms: {{apiVersion: {version}, name: prov, endpoint: 'unix:///run/kms.sock'}}}}"
    return transformers(f"- resources: [secrets]\n  providers: [{kms}]", plugin).for_resource(SECRETS)


def flipped(value: bytes, *bits: int) -> bytes:
    data = bytearray(value)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def found(value: bytes, under: ResourceTransformers) -> list[Rewrite]:
    undone = peeked(Transformers({SECRETS: under}, frozenset()), value).undone
    return list(rewrites(value, ETCD_KEY, under, undone))


def prefixes(value: bytes, under: ResourceTransformers, *, plugins: bool = True) -> list[Rewrite]:
    return list(prefix_rewrites(value, under, plugins=plugins))


def test_a_prefix() -> None:
    value, under = sealed("aesgcm"), own("aesgcm")
    colon = len("k8s:enc:aesgcm:v1:key1") * 8
    for bits in ((1,), (9, 70), (9, 70, 100), (colon, 17 * 8 + 1)):
        (rewritten,) = prefixes(flipped(value, *bits), under)
        assert (rewritten.value, rewritten.kind) == (value, RepairKind.PREFIX)
        assert all(str(bit // 8) in rewritten.words for bit in bits)
    assert not prefixes(flipped(value, 9, 70, 100, 130), under)
    assert not prefixes(value, under)
    assert not prefixes(value[:10], under)


@pytest.mark.parametrize("bits", [(18 * 8,), (21 * 8 + 1,), (9, 70, 21 * 8 + 1)])
def test_a_name_is_told_apart(bits: tuple[int, ...]) -> None:
    value = sealed("aesgcm")
    (rewritten,) = prefixes(flipped(value, *bits), own("aesgcm"))
    assert (rewritten.value, rewritten.kind) == (value, RepairKind.NAME)
    assert "key name" in rewritten.words


@pytest.mark.parametrize("start", [b"k8s:enc:aesgcm:v1:", b"k8s:enc:aescbc:v1:", b"k8s:enc:aesgcm:v9:"])
@pytest.mark.parametrize("name", [b"key1:", b"key3:", b"k:", b"other:", b"key1234:"])
def test_what_is_never_near_has_no_prefix_put_back(start: bytes, name: bytes) -> None:
    under = own("aesgcm")
    if is_never_near(start + name, under):
        for body in (b"key1:", b"ey1:", b"\xff" * 30):
            assert prefixes(start + name + body + b"\xff" * 30, under) == []
    else:
        assert (start, name) not in {(b"k8s:enc:aesgcm:v1:", b"key1:"), (b"k8s:enc:aescbc:v1:", b"other:")}


def test_a_prefix_of_a_plugin_waits() -> None:
    under, value = behind("v2", OneAnswer(SEED)), seeded()
    for bit, near in ((9, "kms/v2/prov"), (14 * 8 + 1, "kms/v2/prov"), (16 * 8, "")):
        damaged = flipped(value, bit)
        assert [r.value for r in prefixes(damaged, under)] == [value]
        assert not prefixes(damaged, under, plugins=False)
        assert nearly_behind_plugin(damaged, under) == near
    assert nearly_behind_plugin(flipped(sealed("aesgcm"), 9), own("aesgcm")) == ""


def test_kms_v1_is_cut_as_its_neighbours_are() -> None:
    plugin = OneAnswer(SEED)
    under = behind("v1", plugin)
    body = sealed("aesgcm")[len("k8s:enc:aesgcm:v1:key1:") :]
    value = first_version(body)
    under.from_storage(value, ETCD_KEY)
    start = len("k8s:enc:kms:v1:prov:")
    rewritten = found(flipped(value, (start + 1) * 8 + 1), under)
    assert [r.value for r in rewritten] == [value]
    assert rewritten[0].kind is RepairKind.WRAPPED_KEY
    assert not [r for r in found(value[: start + 1], under) if r.kind is RepairKind.WRAPPED_KEY]
    assert [r.value for r in found(flipped(value, (start + 60) * 8), under)] == [value]


def test_kms_v2_in_its_envelope() -> None:
    plugin = OneAnswer(SEED)
    under = behind("v2", plugin)
    value = seeded()
    under.from_storage(value, ETCD_KEY)
    start = len("k8s:enc:kms:v2:prov:")
    for at in (
        start,
        start + 1,
        start + 2,
        start + 5,
        start + 40,
        start + 90,
        len(value) - 1,
        len(value) - 4,
    ):
        assert value in [r.value for r in found(flipped(value, at * 8), under)], at
    assert not unsearched(value, under)
    # Too long a tail is not tried bit by bit.
    (cut,) = found(value + bytes(5000), under)
    assert (cut.value, cut.kind) == (value, RepairKind.WRAPPED_KEY)
    assert "larger than 4 KiB" in unsearched(value + bytes(5000), under)
    assert not found(b"k8s:enc:kms:v2:prov:" + b"\x08" + bytes(5000), under)
    # Without a data key there is nothing to try.
    assert not found(flipped(value, (start + 60) * 8), behind("v2", OneAnswer(SEED)))


def test_another_layout_of_kms_v2_gives_no_wrapped_key() -> None:
    """A field before the data is no layout of an API server: what follows is not known to be alike."""
    under = behind("v2", OneAnswer(SEED))
    value = seeded()
    start = len("k8s:enc:kms:v2:prov:")
    under.from_storage(value[:start] + b"\x30\x01" + value[start:], ETCD_KEY)
    (reader,) = under.kms_readers
    assert [tail for _key, tail in reader.witness_tails] == [b""]  # type: ignore[union-attr]
    assert not [r for r in found(value[:-30], under) if r.kind is RepairKind.WRAPPED_KEY]


def fits(plaintext: bytes) -> bool:
    return plaintext == PLAIN


def test_cbc_is_searched_bit_by_bit() -> None:
    value, under = sealed("aescbc"), own("aescbc")
    start = len("k8s:enc:aescbc:v1:key1:")
    for at in (start, start + 15, start + 16, start + 100, len(value) - 20, len(value) - 1):
        rewritten = list(cbc_rewrites(flipped(value, at * 8 + 2), under, fits))
        assert [r.value for r in rewritten] == [value], at
        assert f"byte {at} of the value" in rewritten[0].words
    assert not found(flipped(value, 600), under)
    for other in (value[:-1], value[: start + 16], value + bytes(16)):
        assert not list(cbc_rewrites(other, under, fits))
        assert not unsearched(other, under)


def test_the_initialization_vector_is_searched_at_any_size() -> None:
    large = PLAIN + bytes(MOST_CBC_SIZE)
    value, under = sealed("aescbc", large), own("aescbc")
    start = len("k8s:enc:aescbc:v1:key1:")
    for at in (start, start + 15):
        (rewritten,) = cbc_rewrites(flipped(value, at * 8 + 2), under, lambda plaintext: plaintext == large)
        assert rewritten.value == value
        assert "no bit behind it was searched: larger than 32 KiB" in rewritten.words
    later = flipped(value, (start + 16) * 8)
    assert not list(cbc_rewrites(later, under, lambda plaintext: plaintext == large))
    assert "larger than 32 KiB" in unsearched(later, under)


def test_a_trial_leaves_nothing_behind() -> None:
    for version, value in (
        ("v2", seeded()),
        ("v1", first_version(sealed("aesgcm")[len("k8s:enc:aesgcm:v1:key1:") :])),
    ):
        plugin = OneAnswer(SEED)
        under = behind(version, plugin)
        with under.learning_nothing():
            under.from_storage(value, ETCD_KEY)
        assert (plugin.opened.total(), plugin.controls) == (0, [])
        assert not under.has_dropped_data_keys(value)
        assert not [r for r in found(value[:-30], under) if r.kind is RepairKind.WRAPPED_KEY]
        under.from_storage(value, ETCD_KEY)
        assert plugin.opened.total() == 1
        with under.learning_nothing():
            under.from_storage(value, ETCD_KEY)
        assert plugin.opened.total() == 1


def test_data_keys_that_were_dropped_are_told(monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.encryption.kms.transformer.MOST_WITNESSES", 1)
    plugin = OneAnswer(SEED)
    under = behind("v2", plugin)
    value = seeded()
    under.from_storage(value, ETCD_KEY)
    assert not under.has_dropped_data_keys(value)
    plugin.answer = bytes(range(1, 33))
    under.from_storage(seeded(seed=bytes(range(1, 33)), source=b"other"), ETCD_KEY)
    assert under.has_dropped_data_keys(value)
    assert not under.has_dropped_data_keys(b"k8s:enc:kms:v2:other:")
    assert "not all data keys" in unsearched(value, under)
    assert not unsearched(b"k8s:enc:kms:v2:other:", under)
