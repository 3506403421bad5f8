"""What an encrypted value may have been: bytes that are not opened yet."""

from __future__ import annotations

import pytest

from etcdfix.encryption.repairs import MOST_CBC_SIZE, Rewrite, cbc_rewrites, prefix_rewrites, rewrites
from etcdfix.encryption.transformer import ResourceTransformers
from etcdfix.model import RepairKind
from tests.support.peeking import (
    ETCD_KEY,
    PLAIN,
    SECRETS,
    STRUCTURES,
    first_version,
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
    return list(rewrites(value, ETCD_KEY, under, STRUCTURES))


@pytest.mark.parametrize("provider", ["aesgcm", "secretbox"])
def test_a_bit_of_each_part(provider: str) -> None:
    value, under = sealed(provider), own(provider)
    for bit in (28 * 8, 60 * 8 + 3, len(value) * 8 - 5, len(value) * 8 - 250):
        rewritten = found(flipped(value, bit), under)
        assert [r.value for r in rewritten] == [value]
        assert rewritten[0].kind is RepairKind.BIT
        assert f"byte {bit // 8} of the value" in rewritten[0].words
        assert "never" not in repr(rewritten[0])


def test_a_prefix() -> None:
    value, under = sealed("aesgcm"), own("aesgcm")
    for bits in ((1,), (9, 70), (9, 70, 100)):
        (rewritten,) = prefix_rewrites(flipped(value, *bits), under)
        assert (rewritten.value, rewritten.kind) == (value, RepairKind.PREFIX)
        assert ", ".join(str(bit // 8) for bit in bits) in rewritten.words
    assert not list(prefix_rewrites(flipped(value, 9, 70, 100, 130), under))
    assert not list(prefix_rewrites(value, under))
    assert not list(prefix_rewrites(value[:10], under))


def test_what_is_too_short_or_of_another_provider_is_nothing() -> None:
    assert not found(sealed("aesgcm")[:30], own("aesgcm"))
    assert not found(sealed("aesgcm"), own("secretbox"))
    assert not found(b"k8s:enc:aesgcm:v1:key1:", own("aesgcm"))


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
    # Too long a tail is not tried bit by bit.
    (cut,) = found(value + bytes(5000), under)
    assert (cut.value, cut.kind) == (value, RepairKind.WRAPPED_KEY)
    # Without a data key there is nothing to try.
    assert not found(flipped(value, (start + 60) * 8), behind("v2", OneAnswer(SEED)))


def test_another_layout_of_kms_v2_gives_no_wrapped_key() -> None:
    """A field before the data is no layout of an API server: what follows is not known to be alike."""
    under = behind("v2", OneAnswer(SEED))
    value = seeded()
    start = len("k8s:enc:kms:v2:prov:")
    under.from_storage(value[:start] + b"\x30\x01" + value[start:], ETCD_KEY)
    (reader,) = under.kms_readers
    assert [tail for _key, tail in reader.opener.witness_tails] == [b""]  # type: ignore[union-attr]
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
    for other in (value[:-1], value[: start + 16], value + bytes(MOST_CBC_SIZE // 16 * 16)):
        assert not list(cbc_rewrites(other, under, fits))


def test_cbc_behind_a_plugin() -> None:
    under = behind("v1", OneAnswer(SEED))
    body = sealed("aescbc")[len("k8s:enc:aescbc:v1:key1:") :]
    value = first_version(body)
    damaged = flipped(value, len(value) * 8 - 300)
    assert not list(cbc_rewrites(damaged, under, fits))  # the plugin was not asked
    under.from_storage(value, ETCD_KEY)
    assert [r.value for r in cbc_rewrites(damaged, under, fits)] == [value]
    assert not list(cbc_rewrites(damaged, behind("v2", OneAnswer(SEED)), fits))
