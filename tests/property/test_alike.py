"""What many values share is never more than what each says by itself: healthy ones, broken ones, near misses.

The same pass is made twice, once with all remembered that a first look remembers, and once with nothing. Whatever
a deletion rests on has to come out the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.alike import AlikeValues
from etcdfix.examine.all import examine_all, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.kinds import AlikeExaminations, CompactExamination
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.surroundings import SameKeyEvidence, look_at_all
from tests.support.attacks import LOCAL, config_map, seal, secret
from tests.support.decoders import shared_decoder
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import IDENTITY, configuration_of_rules, crd, json_object, provider
from tests.support.thorough import THOROUGH

SEEDS: Final = 300 if THOROUGH else 12
VALUES: Final = 100
TARGETS: Final = 8 if THOROUGH else 1
MATERIALS: Final = tuple(bytes([number]) * 32 for number in (1, 1, 1, 2, 3, 4))
"""The last one is in no configuration."""
NAMES: Final = (
    "key1", "key1", "key1", "key2", "key1:more", "lost", "lost:er", "2026-05-12T18:43:18Z", "kez1",
)  # fmt: skip
PREFIX: Final = "/registry/"
PLACES: Final = (
    *["secrets/shop/"] * 3,
    "configmaps/shop/",
    "example.com/widgets/shop/",
    "pods/shop/",
    "strange/",
)


def configured(drawn: random.Random) -> EncryptionConfiguration:
    def providers() -> tuple[dict[str, Any], ...]:
        found: list[dict[str, Any]] = []
        for kind in drawn.sample(LOCAL, drawn.randint(2, 3)):
            names = {"key1", *drawn.sample(NAMES[:6], 2)}
            found.append(provider(kind, **{name: drawn.choice(MATERIALS[:5]) for name in sorted(names)}))
        found.insert(drawn.randint(0, len(found)), IDENTITY)
        return tuple(found) if drawn.randrange(3) else tuple(one for one in found if one != IDENTITY)

    rules = [(("secrets",), providers()), (("configmaps", "widgets.example.com"), providers())]
    return parse_configuration(configuration_of_rules(*rules[: drawn.randint(1, 2)]), path="drawn")


def plaintext(place: str, name: str, drawn: random.Random) -> bytes:
    if place.startswith("example.com"):
        return json_object("example.com/v1", "Widget", name, spec={"size": drawn.choice(["a\nb", "c\r\nd"])})
    return secret(name, size=drawn.choice((0, 30, 80))) if place.startswith("secrets") else config_map(name)


def hurt(value: bytes, drawn: random.Random) -> bytes:
    at = 0
    body = len(value) if not value.startswith(b"k8s:enc:") else value.index(b":", 18) + 1
    match drawn.randrange(12):
        case 0:
            at = drawn.randrange(min(body, len(value)))  # the envelope
        case 1:
            at = min(body + drawn.randrange(12), len(value) - 1)  # the nonce
        case 6:
            at = drawn.randrange(len(value))
        case 2:
            return value[: drawn.randrange(len(value))]
        case 3:
            return value.replace(b"\n", b"\r\n")
        case 4:
            return (
                value[:body]
                + drawn.choice((b"more:", b"er:", b"\xc3:", b'{"kind":"', b"k8s\0\n"))
                + value[body:]
            )
        case 5:
            return value[:body] + drawn.randbytes(len(value) - body)
        case _:
            return value
    return value[:at] + bytes([value[at] ^ 1 << drawn.randrange(8)]) + value[at + 1 :]


def store(drawn: random.Random) -> MemorySource:
    records = [stored(PREFIX + "apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", crd())]
    written: list[bytes] = [b""]
    kinds, names = drawn.choices((*LOCAL, "aesgcm"), k=2), ("key1", *drawn.choices(NAMES, k=2))
    for number in range(VALUES):
        place, name = drawn.choice(PLACES), f"n-{number:02}"
        key = PREFIX + place + name
        home = name if drawn.randrange(8) else name + "-elsewhere"
        bound = PREFIX + place + home if drawn.randrange(8) else f"/tenant-7{PREFIX}{place}{home}"
        value = plaintext(place, home, drawn)
        if drawn.randrange(10):
            material, called = drawn.choice(MATERIALS), drawn.choice(names)
            value = seal(drawn.choice(kinds), value, bound, material, called, salt=drawn.randrange(2))
        value = hurt(value, drawn) if drawn.randrange(20) else drawn.choice(written)
        written.append(value)
        records.append(stored(key, value, mod_revision=drawn.randint(10, 500)))
    return MemorySource(records)


def examiner_of(configuration: EncryptionConfiguration, source: MemorySource) -> Examiner:
    transformers = Transformers.from_configuration(configuration)
    examiner = Examiner(StorageLayout(), transformers, shared_decoder(None))
    examiner.learn_custom_resources(source)
    return examiner


def everything(
    configuration: EncryptionConfiguration, source: MemorySource, target: bytes
) -> list[Examination]:
    found: list[Examination] = []
    examiner = examiner_of(configuration, source)
    examine_all(examiner, source.pages(b""), found.append, targets=(target,))
    return found


def around(configuration: EncryptionConfiguration, source: MemorySource, target: bytes) -> SameKeyEvidence:
    examiner = examiner_of(configuration, source)
    value = source.get(target)
    assert value is not None
    return look_at_all(source, examiner, examiner.examine(value), no_progress, see=lambda _found: None)


def said(seed: int) -> Iterator[object]:
    drawn = random.Random(seed)
    configuration, source = configured(drawn), store(drawn)
    yield everything(configuration, source, b"")
    for target in drawn.sample(list(source.keys(b"")), TARGETS):
        yield everything(configuration, source, target)
        yield around(configuration, source, target)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_said_of_a_value_because_of_others_that_look_like_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered = list(said(seed))
    monkeypatch.setattr(AlikeValues, "remember", lambda *_: None)
    monkeypatch.setattr(AlikeExaminations, "compact", lambda _, found: CompactExamination(None, whole=found))
    assert list(said(seed)) == remembered


def test_the_stores_hold_what_they_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many values are remembered, and of every envelope that is, healthy ones are among those that look the same."""
    shared = 0
    find = AlikeValues.find

    def counting(*arguments: Any) -> Any:
        nonlocal shared
        found = find(*arguments)
        shared += found is not None
        return found

    monkeypatch.setattr(AlikeValues, "find", counting)
    causes: set[str] = set()
    outcomes: set[Outcome] = set()
    for seed in range(12):
        drawn = random.Random(seed)
        found = everything(configured(drawn), store(drawn), b"")
        causes |= {one.verdict.cause or "" for one in found}
        outcomes |= {one.verdict.outcome for one in found}
    assert shared > 50
    assert outcomes > {
        Outcome.READABLE,
        Outcome.DECRYPT_FAILURE,
        Outcome.DECODE_FAILURE,
        Outcome.INCONSISTENT,
    }
    assert causes >= {
        "wrong-key", "key-renamed", "key-name-missing", "provider-missing", "nonce-damaged", "associated-data-unknown",
        "value-moved", "plaintext-not-allowed", "envelope-damaged", "resource-not-configured",
    }  # fmt: skip
