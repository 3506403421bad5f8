"""A whole object under a tag that does not fit: damaged where its etcd key is shown to be its associated data."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.examine.all import examine_all
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of, risks_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Confidence, KeptRevision, Revision, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.testing import objects as stored_objects
from tests.support.encoders import aesgcm_body
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, aescbc, config_map, configuration, provider, secret
from tests.support.thorough import some

GCM = configuration(provider("aesgcm", key1=KEY_1), IDENTITY, resources=("secrets", "configmaps"))
ENVELOPE = b"k8s:enc:aesgcm:v1:key1:"
NONCE, HEADER, TAG = 12, 64, 16
MIRRORED = (Cause.ASSOCIATED_DATA_UNKNOWN, Deletability.CURABLE)


def key_of(name: str, resource: str = "secrets") -> bytes:
    return f"/registry/{resource}/shop/{name}".encode()


def large(name: str) -> bytes:
    data = {"password": random.Random(name).randbytes(2100 + len(name))}
    return stored_objects.secret(name, "shop", data, uid="11111111-2222-3333-4444-555555555555")


def sealed(plaintext: bytes, bound: bytes, nonce: object = "") -> bytes:
    return ENVELOPE + aesgcm_body(
        plaintext, KEY_1, random.Random(f"{bound!r}{nonce}").randbytes(NONCE), bound
    )


def record(key: bytes, value: bytes, at: int, *, version: int = 1) -> StoredValue:
    return StoredValue(key, value, at, at if version == 1 else 1, version, 0)


class Kept(MemorySource):
    """A source that keeps earlier revisions."""

    def __init__(self, now: Iterable[StoredValue], earlier: Mapping[bytes, list[StoredValue]]) -> None:
        super().__init__(now)
        self._earlier = earlier

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        for one in self._earlier.get(key, ()):
            yield KeptRevision(Revision(one.mod_revision, 0), one)
        yield from super().history(key)


def look(
    source: MemorySource | Iterable[StoredValue], config: EncryptionConfiguration = GCM, **how: Any
) -> dict[str, Examination]:
    holds = source if isinstance(source, MemorySource) else MemorySource(source)
    examiner = Examiner.of_cluster(holds, Reading(layout=StorageLayout(), configuration=config))
    found: dict[str, Examination] = {}

    def take(one: Examination) -> None:
        if not one.opened:
            found[one.name] = one

    examine_all(examiner, holds.pages(b"/registry/"), take, **how)
    return found


def native(names: Iterable[str], first: int, *, resource: str = "secrets") -> list[StoredValue]:
    made = []
    for at, name in enumerate(names, start=first):
        key = key_of(name, resource)
        plaintext = secret(name) if resource == "secrets" else config_map(name)
        made.append(record(key, sealed(plaintext, key), at))
    return made


def foreign(
    names: Iterable[str], first: int, bound: Callable[[bytes], bytes], *, resource: str = "secrets"
) -> list[StoredValue]:
    made = []
    for at, name in enumerate(names, start=first):
        key = key_of(name, resource)
        plaintext = secret(name) if resource == "secrets" else config_map(name)
        made.append(record(key, sealed(plaintext, bound(key)), at))
    return made


def standing(found: Examination) -> tuple[Cause | None, Deletability]:
    return found.verdict.cause, deletability_of(found)


# Damage.


def place(value: bytes, size: int, chance: random.Random) -> int:
    return chance.randrange(len(ENVELOPE) + NONCE + HEADER, len(value) - TAG - size)


def written_over(value: bytes, at: int, by: bytes) -> bytes:
    return value[:at] + by + value[at + len(by) :]


def two_bytes(value: bytes, chance: random.Random) -> bytes:
    at = place(value, 2, chance)
    return written_over(value, at, bytes(byte ^ chance.randrange(1, 256) for byte in value[at : at + 2]))


def sector(value: bytes, chance: random.Random) -> bytes:
    return written_over(value, place(value, 512, chance), bytes(512))


def other_tag(value: bytes, chance: random.Random) -> bytes:
    return value[:-TAG] + chance.randbytes(TAG)


DAMAGES = [two_bytes, *some([sector, other_tag], of=2)]
NAMES = [f"s{number:02}" for number in range(60)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_no_unknown_etcd_key_where_an_earlier_revision_opens(damage: Callable[..., bytes]) -> None:
    """Sixty at once, the oldest among them, and as many as open."""
    now, earlier = native((f"c{number}" for number in range(70)), 10, resource="configmaps"), {}
    for at, name in enumerate(NAMES, start=200):
        key = key_of(name)
        earlier[key] = [record(key, sealed(large(name), key, "earlier"), at - 199)]
        value = damage(sealed(large(name), key), random.Random(name))
        now.append(record(key, value, at, version=2))
    found = look(Kept(now, earlier))
    assert set(found) == set(NAMES)
    for one in found.values():
        assert standing(one) == (Cause.CIPHERTEXT_DAMAGED, Deletability.DELETABLE)
        assert set(risks_of(one)) <= {Rule.UNPROVEN_DAMAGE}
        assert one.verdict.damage is Damage.PROVEN or one.verdict.shown_by_itself


# What no API server can have written.


def with_name(name: bytes, namespace: bytes = b"shop") -> bytes:
    plain = secret("web", "shop")
    return plain.replace(b"\x0a\x03web", b"\x0a\x03" + name).replace(b"\x1a\x04shop", b"\x1a\x04" + namespace)


@pytest.mark.parametrize(
    ("plaintext", "confidence"),
    [
        (with_name(b"w\x00b"), Confidence.CERTAIN),
        (with_name(b"w\xffb"), Confidence.CERTAIN),
        (with_name(b"w/b"), Confidence.CERTAIN),
        (with_name(b"wEb"), Confidence.CERTAIN),
        (with_name(b"web", b"sh_p"), Confidence.CERTAIN),
        (secret("web").replace(b"password", b"passw\xffrd"), Confidence.LIKELY),
        # Well-formed, and not of the etcd key: it may belong elsewhere.
        (with_name(b"wab"), None),
        (with_name(b"web", b"shap"), None),
    ],
)
def test_an_object_that_no_api_server_can_have_written(
    plaintext: bytes, confidence: Confidence | None
) -> None:
    """It counts only where another value under the key opens with its own etcd key."""
    odd = record(key_of("web"), sealed(plaintext, b"/elsewhere/web"), 5)
    (alone,) = look([odd]).values()
    assert standing(alone) == MIRRORED
    (among,) = look([odd, *native(["later"], 9, resource="configmaps")]).values()
    if confidence is None:
        assert standing(among) == MIRRORED
        return
    assert (among.verdict.cause, among.verdict.confidence) == (Cause.CIPHERTEXT_DAMAGED, confidence)
    assert among.verdict.damage is (Damage.PROVEN if confidence is Confidence.CERTAIN else Damage.LIKELY)
    assert deletability_of(among) is Deletability.DELETABLE


# Healthy values that were written elsewhere.


def under_prefix(key: bytes) -> bytes:
    return key.replace(b"/registry/", b"/clusters/blue/")


def behind_proxy(key: bytes) -> bytes:
    return b"tenant-7" + key


ELSEWHERE = [under_prefix, behind_proxy]
FOREIGN = [f"f{number:03}" for number in range(200)]


@pytest.mark.parametrize(("bound", "seed"), some([*product(ELSEWHERE, range(3))], of=4))
def test_values_that_a_mirror_still_copies_are_never_damaged(
    bound: Callable[[bytes], bytes], seed: int
) -> None:
    """It began before anything was written here, and went on: copies stand between values that open."""
    chance = random.Random(seed)
    at = chance.sample(range(20, 900), 250)
    holds = foreign(["first"], 10, bound)
    for number, revision in enumerate(at):
        holds += (
            foreign([FOREIGN[number]], revision, bound) if number < 200 else native([f"n{number}"], revision)
        )
    found = look(holds)
    assert Counter(map(standing, found.values())) == {MIRRORED: 201}


@pytest.mark.parametrize("seed", some(range(3), of=3))
def test_one_value_that_opens_elsewhere_speaks_for_all(seed: int) -> None:
    """Under a prefix that distributions use, it is found; then the others may have been written elsewhere too."""
    at = random.Random(seed).sample(range(100, 400), 3)
    holds = native((f"n{number}" for number in range(50)), 10)
    holds += foreign(["known"], at[0], lambda key: key.replace(b"/registry/", b"/kubernetes.io/"))
    holds += foreign(["a-unknown", "z-unknown"], at[1], behind_proxy)
    found = look(holds)
    assert found["known"].verdict.cause is Cause.STORAGE_PREFIX_CHANGED
    assert standing(found["a-unknown"]) == standing(found["z-unknown"]) == MIRRORED


def unfitting(at: int = 50, name: str = "web") -> StoredValue:
    return record(key_of(name), sealed(secret(name), behind_proxy(key_of(name))), at)


# Earlier revisions.


@pytest.mark.parametrize(
    ("earlier", "damaged"),
    [
        (sealed(secret(), key_of("web"), "earlier"), True),
        # Written elsewhere too.
        (sealed(secret(), behind_proxy(key_of("web")), "earlier"), False),
        # What is not bound to an etcd key says nothing of it.
        (secret(), False),
        (aescbc(secret()), False),
        (b"noise", False),
    ],
)
def test_only_an_earlier_revision_that_is_bound_counts(earlier: bytes, damaged: bool) -> None:
    every = configuration(
        provider("aesgcm", key1=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY, resources=("secrets",)
    )
    now = StoredValue(key_of("web"), unfitting().value, 50, 5, 3, 0)
    kept = {now.key: [StoredValue(now.key, earlier, 5, 5, 1, 0), StoredValue(now.key, b"noise", 9, 5, 2, 0)]}
    (found,) = look(Kept([now], kept), every).values()
    expected = (Cause.CIPHERTEXT_DAMAGED, Deletability.DELETABLE) if damaged else MIRRORED
    assert standing(found) == expected
    if damaged:
        assert found.verdict.damage is Damage.LIKELY
        assert found.verdict.shown_by_itself


def test_earlier_revisions_are_looked_at_within_bounds_and_of_the_target_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("etcdfix.examine.readable_revision._HISTORIES", 2)
    monkeypatch.setattr("etcdfix.examine.readable_revision._MOST_STEPS_FOR_OPENING", 3)
    names = [f"w{number}" for number in range(6)]
    now, kept = [], {}
    for at, name in enumerate(names, start=20):
        key = key_of(name)
        now.append(StoredValue(key, unfitting(at, name).value, at, 5, 2, 0))
        kept[key] = [StoredValue(key, sealed(secret(name), key, "earlier"), 5, 5, 1, 0)]
    damaged = [
        one.name for one in look(Kept(now, kept)).values() if one.verdict.cause is Cause.CIPHERTEXT_DAMAGED
    ]
    assert damaged == names[: len(damaged)]
    assert 0 < len(damaged) < len(names)
    last = look(Kept(now, kept), targets=(key_of("w5"),))["w5"]
    assert last.verdict.cause is Cause.CIPHERTEXT_DAMAGED
