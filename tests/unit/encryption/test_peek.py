"""What a look without tag and padding shows: under every provider, for every kind of damage, and for wrong keys."""

from __future__ import annotations

import base64
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from etcdfix.encryption.cipher import turned
from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.kms.envelopes import Failure, WrappedKey
from etcdfix.encryption.peek import peek
from etcdfix.encryption.same_look import SameLook
from etcdfix.encryption.transformer import Transformers, TransformFailed
from etcdfix.model.model import Look, Peek, PeekState, Undone, UndoneDamage
from tests.support import encoders
from tests.support.fixtures import Patch
from tests.support.peeking import (
    ETCD_KEY,
    INFO,
    LOCAL,
    NONCE12,
    NONCE16,
    ONE,
    PLAIN,
    SECRETS,
    STRUCTURES,
    THREE,
    TWO,
    every,
    first_version,
    keyed,
    look,
    peeked,
    rule,
    sealed,
    secret,
    seeded,
    transformers,
)
from tests.support.played_plugins import OneAnswer

OTHER_PREFIX = b"/other/secrets/shop/web"


RIGHT = every(key1=ONE)


def offset(provider: str) -> int:
    start = len(f"k8s:enc:{provider}:v1:key1:")
    return start + {"aescbc": 16, "aesgcm": 12, "secretbox": 40}[provider]


def right(found: Peek) -> Peek:
    assert found.state is PeekState.RIGHT_KEY
    assert found.odds_bits >= 60
    assert found.look is not None
    return found


def undone(found: UndoneDamage | None) -> tuple[Undone, str, bytes]:
    assert found is not None
    return found[:3]


@pytest.mark.parametrize("provider", LOCAL)
def test_too_little_to_see(provider: str) -> None:
    data = sealed(provider)
    start = offset(provider)
    assert peeked(RIGHT, data[: start + 14]).state is PeekState.NOT_POSSIBLE
    assert peeked(RIGHT, data[: start - 5]).state is PeekState.NOT_POSSIBLE
    assert peeked(RIGHT, data[: start - 5]).too_short
    assert peeked(RIGHT, data[: start + 20 + 12]).state is PeekState.RIGHT_KEY


@pytest.mark.parametrize("provider", LOCAL)
@pytest.mark.parametrize("thorough", [False, True])
def test_a_key_that_was_renamed(provider: str, thorough: bool) -> None:
    found = right(peeked(every(key2=ONE, key3=TWO), sealed(provider), thorough=thorough))
    assert (found.named, found.opens, found.undone) == (False, True, None)
    assert found.transformer.endswith("/v1/key2")
    assert found.look == look(PLAIN)


def named(name: str, key: bytes = ONE) -> bytes:
    body = encoders.aesgcm_body(PLAIN, key, NONCE12, ETCD_KEY)
    return f"k8s:enc:aesgcm:v1:{name}:".encode() + body


def test_a_name_may_go_on() -> None:
    found = peeked(every(key=TWO), named("key:b"))
    assert (found.state, found.name_may_go_on) == (PeekState.NOISE, True)
    found = right(peeked(every(key=ONE), named("key:b")))
    assert (found.named, found.opens, found.name_may_go_on) == (False, True, True)
    assert not peeked(every(key=TWO), b"k8s:enc:aesgcm:v1:key:\xff\xfe:" + bytes(60)).name_may_go_on
    assert not peeked(every(key=TWO), b"k8s:enc:aesgcm:v1:key:\x01\x02:" + bytes(60)).name_may_go_on
    endless = peeked(every(key=TWO), named("key:" + "a:" * 5000))
    assert endless.name_may_go_on
    assert endless.candidates < 200


@pytest.mark.parametrize(
    "rest",
    [
        "f" * 15, "f" * 31, "f" * 47, "g" * 4, "a:b:c:d:e:f:gxx", "a:b:c:d:e:f:g:h", ":" * 31, ":" * 1023,
        "\u00a0a\u200b012345678",
    ],
)  # fmt: skip
def test_a_name_that_goes_on_for_whole_blocks_is_no_damage(rest: str) -> None:
    # In CBC the same key bytes come into step again after a block: it looks like a first block that is damaged.
    value = f"k8s:enc:aescbc:v1:key:{rest}:".encode() + encoders.aescbc_body(PLAIN, ONE, NONCE16)
    found = right(peeked(every(key=ONE), value))
    assert (found.named, found.opens, found.name_may_go_on) == (False, True, True)
    assert found.look == look(PLAIN)
    one = base64.b64encode(ONE).decode()
    listed = f'{{name: "key:{rest}", secret: {one}}}, {{name: key, secret: {one}}}'
    found = right(peeked(transformers(rule("secrets", aescbc=listed)), value))
    assert (found.transformer, found.named, found.opens) == (
        f"aescbc/v1/key:{quote(rest, safe=':')}", True, True,
    )  # fmt: skip


class Plugin(OneAnswer):
    """Knows some wrapped keys and refuses the others."""

    def __init__(self, **known: bytes) -> None:
        super().__init__(b"", write_key_id="key-id-1")
        self.known = {name.encode(): key for name, key in known.items()}

    def key_of(self, wrapped: WrappedKey) -> bytes | Failure:
        if wrapped.ciphertext not in self.known:
            return Failure("INVALID_ARGUMENT", "no")
        return self.known[wrapped.ciphertext]


def kms(plugin: OneAnswer | None, version: str = "v2") -> Transformers:
    stanza = f"{{kms: {{apiVersion: {version}, name: prov, endpoint: 'unix:///x'}}}}"
    return transformers(f"- {{resources: [secrets], providers: [{stanza}]}}\n", plugin)


def kms_peek(
    found: Transformers, data: bytes, plugin: OneAnswer | None = None, *, thorough: bool = True
) -> Peek:
    with contextlib.suppress(TransformFailed):
        found.for_resource(SECRETS).from_storage(data, ETCD_KEY)
    asked = plugin.asked if plugin is not None else 0
    result = peeked(found, data, other_keys=(OTHER_PREFIX,), thorough=thorough)
    assert plugin is None or plugin.asked == asked
    return result


V1_GCM = first_version(encoders.aesgcm_body(PLAIN, ONE, NONCE12, ETCD_KEY))
V1_CBC = first_version(encoders.aescbc_body(PLAIN, ONE, NONCE16))
BODIES = {
    "v1-gcm": ("v1", V1_GCM), "v1-cbc": ("v1", V1_CBC), "v2-key": ("v2", keyed()),
    "v2-seed": ("v2", seeded()),
}  # fmt: skip


def data_at(data: bytes, byte: int) -> int:
    sealed_at = data.index(NONCE16 if NONCE16 in data else NONCE12)
    return sealed_at + (16 if NONCE16 in data else 12) + byte


@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize(
    "plugin", [None, OneAnswer(Failure("UNAVAILABLE", "later")), Plugin(), OneAnswer(b"short")]
)
def test_kms_without_a_data_key(form: str, plugin: OneAnswer | None) -> None:
    version, data = BODIES[form]
    for cut in (data, data[:-1], data[: len(data) // 2]):
        assert kms_peek(kms(plugin, version), cut, plugin).state is PeekState.NOT_POSSIBLE


def test_one_bit_of_info_and_of_the_nonce() -> None:
    plugin = Plugin(wrapped=ONE)
    found = kms(plugin)
    info = seeded().index(INFO)
    for byte in (0, 13, 31):
        result = right(kms_peek(found, turned(seeded(), info + byte, 7), plugin))
        assert undone(result.undone) == (Undone.INFO_BIT, f"bit 7 of byte {byte} of the info", b"")
        assert result.look == look(PLAIN)
    result = right(kms_peek(found, turned(seeded(), info + 32 + 4, 1), plugin))
    assert undone(result.undone) == (Undone.NONCE_BIT, "bit 1 of byte 4 of the nonce", b"")
    both = turned(turned(seeded(), info, 1), data_at(seeded(), 90), 1)
    assert kms_peek(found, both, plugin).state is PeekState.NOISE


def test_the_data_key_of_a_neighbour() -> None:
    plugin = Plugin(wrapped=ONE, other=TWO)
    found = kms(plugin)
    refused = seeded(source=b"damaged")
    assert kms_peek(found, refused, plugin).state is PeekState.NOT_POSSIBLE
    assert kms_peek(found, seeded(seed=TWO), plugin).state is PeekState.NOISE
    found.for_resource(SECRETS).from_storage(seeded(seed=TWO, source=b"other"), ETCD_KEY)
    assert kms_peek(found, refused, plugin).state is PeekState.NOT_POSSIBLE
    found.for_resource(SECRETS).from_storage(seeded(), ETCD_KEY)
    assert kms_peek(found, refused, plugin, thorough=False).state is PeekState.NOT_POSSIBLE
    result = right(kms_peek(found, refused, plugin))
    assert undone(result.undone) == (Undone.DATA_KEY, "the data key of another value of this provider", b"")
    assert (result.named, result.opens, result.look) == (True, False, look(PLAIN))
    # The plugin gives a key, but the wrong one; and a body whose end is no protobuf any more.
    assert right(kms_peek(found, seeded(source=b"other"), plugin)).undone is not None
    broken = seeded(source=b"damaged")
    broken = broken[: broken.index(b"key-id-1") - 1] + b"\xff" + broken[broken.index(b"key-id-1") :]
    assert right(kms_peek(found, broken, plugin)).undone is not None
    # What is damaged beyond that stays what it was.
    assert kms_peek(found, turned(refused, data_at(refused, 50), 1), plugin).state is PeekState.NOT_POSSIBLE


def test_which_witnesses_are_kept_and_how_many_are_tried_does_not_depend_on_their_order(
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr("etcdfix.encryption.kms.transformer.MOST_WITNESSES", 16)
    plugin = Plugin(**{f"w{n}": bytes([n]) * 32 for n in range(20)})
    orders = [list(range(20)), list(reversed(range(20))), random.Random(3).choices(range(20), k=200)]
    seen: list[list[Peek]] = []
    for order in orders:
        found = kms(plugin)
        for n in order:
            found.for_resource(SECRETS).from_storage(
                seeded(seed=bytes([n]) * 32, source=f"w{n}".encode()), ETCD_KEY
            )
        seen.append([kms_peek(found, seeded(seed=bytes([n]) * 32, source=b"?"), plugin) for n in range(20)])
    assert seen[0] == seen[1] == seen[2]
    states = Counter(one.state for one in seen[0])
    assert states == {PeekState.RIGHT_KEY: 16, PeekState.NOT_POSSIBLE: 4}


def test_a_look_that_is_too_likely_by_chance_is_none(monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.encryption.peek.LEAST_ODDS_BITS", 500)
    assert peeked(RIGHT, sealed("aesgcm")[:-1]).state is PeekState.NOISE


def test_nothing_prints_what_was_seen() -> None:
    seen: list[bytes] = []

    def spy(plaintext: bytes) -> Look:
        seen.append(plaintext)
        return look(plaintext)

    data = turned(sealed("aesgcm"), offset("aesgcm") + 100, 1)
    found = peek(RIGHT, SECRETS, data, ETCD_KEY, STRUCTURES, spy, thorough=True)
    assert len(seen) == 1
    for text in (repr(found), str(found)):
        assert "never" not in text
        assert "nshown" not in text
        assert ONE.hex() not in text


NAMES = ("key1", "key1:of", "2026-05-12T18:43:18Z")
STARTS = (b"k8s:enc:aesgcm:v1:", b"k8s:enc:aescbc:v1:", b"k8s:enc:secretbox:v1:")


def same(data: bytes, found: Transformers, *, key: bytes = ETCD_KEY) -> SameLook | None:
    envelope = parse_envelope(data, found.names)
    body = envelope.body_offset if envelope else 0
    first = peeked(found, data, key=key, thorough=False)
    return SameLook.of(data, key, body, SECRETS, found, STRUCTURES, first)


def holds(one: SameLook, data: bytes) -> bool:
    return one.of_another(data, ETCD_KEY, look) is not None


def bodies(source: random.Random) -> list[bytes]:
    noise = source.randbytes(source.choice((0, 20, 63, 64, 65, 300, 1200)))
    return [
        noise, b"more:" + noise, b"of:" + noise, "é".encode() + noise, b"\xc3:" + noise,
        source.randbytes(3) + b":" + noise, b"18:43:18Z:" + noise,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [every(key1=TWO, key2=THREE), every(lost=TWO), every(**{"key1": TWO, "key1:of": THREE})],
    ids=["named", "missing", "longer"],
)
def test_what_is_said_of_one_is_said_of_the_others(found: Transformers) -> None:
    source = random.Random(5)
    held = 0
    for start in STARTS:
        for name in (*NAMES, "2026-05-12T18"):
            data = start + name.encode() + b":\xff" + source.randbytes(300)
            first = peeked(found, data, thorough=False)
            noise = same(data, found)
            if noise is None:
                assert name == "key1:of"  # of a key that is not configured: it could end elsewhere
                assert name not in found.names
                continue
            assert first.state is PeekState.NOISE
            for _ in range(30):
                for body in bodies(source):
                    for other in (start + name.encode() + b":" + body, start + body):
                        if holds(noise, other):
                            held += 1
                            assert peeked(found, other, thorough=False) == first
    assert held > 500


def test_nothing_is_said_where_the_envelope_alone_does_not_decide() -> None:
    found = every(key1=TWO)
    assert same(b"no envelope" + b"\xff" * 200, found) is None
    assert same(seeded(), found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:more:" + b"\xff" * 200, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 63, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 64, found) is not None


def renamed(provider: str, plaintext: bytes = PLAIN, *, etcd_key: bytes = ETCD_KEY) -> bytes:
    """A value under the first key, whose name was another one when it was written."""
    return sealed(provider, plaintext, etcd_key=etcd_key).replace(b":key1:", b":old:", 1)


def damaged_in_every_byte(value: bytes) -> Iterator[bytes]:
    start = value.index(b":old:") + 5
    for at in range(start, len(value)):
        yield value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]
    for end in range(start, len(value)):
        yield value[:end]
    yield value + b"\0"
    yield value + bytes(16)


@pytest.mark.parametrize("provider", ["aesgcm", "aescbc", "secretbox"])
def test_of_a_key_that_has_another_name_only_whole_values_look_the_same(provider: str) -> None:
    found = every(key2=TWO, new=ONE, key3=THREE)
    value = renamed(provider)
    first = peeked(found, value, thorough=False)
    assert first.state is PeekState.RIGHT_KEY
    assert not first.named
    one = same(value, found)
    assert one is not None
    assert one.of_another(value, ETCD_KEY, look) == first
    for other in damaged_in_every_byte(value):
        assert one.of_another(other, ETCD_KEY, look) is None or (
            peeked(found, other, thorough=False) == first and other != value
        )


def test_the_etcd_key_that_a_value_belongs_to_is_its_own() -> None:
    found = every(new=ONE)
    one = same(renamed("aescbc"), found)
    assert one is not None
    assert one.of_another(renamed("aescbc"), b"/registry/secrets/shop/other", look) is None
    elsewhere = b"/registry/secrets/shop/db"

    def look_elsewhere(plaintext: bytes) -> Look:
        return look(plaintext)._replace(belongs=(elsewhere,))

    seen = one.of_another(renamed("aescbc"), elsewhere, look_elsewhere)
    assert seen is not None
    assert seen.look is not None
    assert seen.look.belongs == (elsewhere,)


def test_nothing_is_said_of_others_where_the_first_is_not_whole() -> None:
    found = every(new=ONE)
    for provider in ("aesgcm", "aescbc", "secretbox"):
        value = renamed(provider)
        assert same(value, found) is not None
        assert same(value, found, key=b"/registry/secrets/shop/other") is None
        for broken in (
            renamed(provider, PLAIN[:-4]),
            renamed(provider, secret(60)),
            renamed(provider, PLAIN.replace(b"shop", b"shoq")),
            *([value[:-1] + bytes([value[-1] ^ 1])] if provider == "aesgcm" else []),
        ):
            assert peeked(found, broken, thorough=False).state is PeekState.RIGHT_KEY
            assert same(broken, found) is None
