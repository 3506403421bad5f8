"""Of many values that do not open, the same is said as of each alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.examine.two_passes import _Aside
from etcdfix.examine.verdicts import kinds
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Repair, RepairKind, RepairProof
from etcdfix.model.storagekey import StorageLayout
from tests.support import encoders
from tests.support.decoders import shared_decoder
from tests.support.memory_source import stored
from tests.support.objects import KEY_1, aesgcm, configuration, provider, secret

CONFIG = configuration(provider("aesgcm", key1=KEY_1), provider("aescbc", key2=KEY_1))


def examiner() -> Examiner:
    transformers = Transformers.from_configuration(CONFIG)
    return Examiner(StorageLayout(), transformers, shared_decoder(None))


def values() -> Iterator[tuple[str, bytes]]:
    source = random.Random(3)
    for number in range(60):
        noise = source.randbytes(200)
        key = f"secrets/ns{number % 3}/s{number}" if number % 7 else f"pods/ns/p{number}"
        for start in (
            b"k8s:enc:aesgcm:v1:key1:",
            b"k8s:enc:aesgcm:v1:key9:",
            b"k8s:enc:aesgcm:v1:lost:",
            b"k8s:enc:aescbc:v1:key2:",
            b"k8s:enc:secretbox:v1:key1:",
            b"k8s:enc:aesgcm:v1:key1:more:",
            b"k8s:enc:kms:v2:prov:",
            b"k8s:enc:new:v1:key1:",
            b"",
        ):
            yield key, start + noise
        yield key, b"k8s:enc:aesgcm:v1:key1:" + noise[:30]


def of_a_renamed_key() -> Iterator[tuple[str, bytes]]:
    source = random.Random(4)
    for number in range(40):
        name = f"r{number:02}"
        key = f"secrets/ns/{name}"
        path = f"/registry/{key}"
        plaintext = secret(name, "ns")
        for of_name in (b":old:", b":older:"):
            for value in (
                aesgcm(plaintext, path),
                b"k8s:enc:aescbc:v1:key1:" + encoders.aescbc_body(plaintext, KEY_1, source.randbytes(16)),
            ):
                value = value.replace(b":key1:", of_name, 1)
                at = source.randrange(20, len(value))
                yield key, value
                yield key, value[:at] + bytes([value[at] ^ 1 << number % 8]) + value[at + 1 :]
                yield key, value[:at]
                yield f"secrets/ns/moved{number}", value
                yield key, value[:60] + source.randbytes(len(value) - 60)
                yield key, value.replace(of_name, b":ola:", 1)
            other = secret(name, "ns").replace(b"Secret", b"Secreu")
            yield key, aesgcm(other, path).replace(b":key1:", of_name, 1)
            yield key, aesgcm(plaintext[:-4], path).replace(b":key1:", of_name, 1)


def test_a_first_look_says_of_each_what_it_says_of_it_alone() -> None:
    records = [stored(f"/registry/{key}", value) for key, value in (*values(), *of_a_renamed_key())]
    random.Random(5).shuffle(records)
    records.append(
        stored("/registry/secrets/ns/own", aesgcm(secret("own", "ns"), "/registry/secrets/ns/own"))
    )
    together, alone = examiner(), examiner()
    shared = 0
    for one in records:
        alone.start_over()
        ((_, expected),) = alone.examine_each((one,))
        ((_, found),) = together.examine_each((one,))
        assert found == expected
        assert isinstance(found, Examination)
        seen, expected_seen = together.observation(found), alone.observation(found)
        assert seen == expected_seen
        shared += any(
            found.verdict is other.found.verdict
            for of in together.closer.alike._known.values()
            for other in of
        )
    assert shared > 400


def test_a_name_that_is_learned_later_counts() -> None:
    looks = examiner()
    one = stored("/registry/secrets/ns/a", b"k8s:enc:aesgcm:v1:lost:er:" + b"\xff" * 100)
    for names, expected in (((), "aesgcm/v1/lost"), (("lost:er",), "aesgcm/v1/lost:er")):
        looks.know_names(names)
        ((_, found),) = looks.examine_each((one,))
        assert isinstance(found, Examination)
        assert found.transformer == expected


def test_what_is_put_aside_comes_back_as_it_was() -> None:
    looks = examiner()
    found: list[Examination] = []
    for key, value in values():
        ((_, one),) = looks.examine_each((stored(f"/registry/{key}", value),))
        assert isinstance(one, Examination)
        found.append(one)
    repair = Repair(RepairKind.PREFIX, "one bit", RepairProof.TAG)
    found.append(msgspec.structs.replace(found[0], repair=repair))
    kept = _Aside()
    for one in found:
        kept.append(one)
    for one in found:
        assert kept.peek() is kept.peek()
        assert kept.peek() == one
        kept.drop()
    assert kept.count == 0
    kept.close()


def test_kinds_that_are_too_many_are_put_aside_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MOST_KINDS", 1)
    looks = examiner()
    kept = _Aside()
    found: list[Examination] = []
    for name in ("one", "two", "one"):
        record = stored(f"/registry/secrets/ns/{name}", f"k8s:enc:aesgcm:v1:{name}:".encode() + b"\xff" * 99)
        ((_, one),) = looks.examine_each((record,))
        assert isinstance(one, Examination)
        found.append(one)
        kept.append(one)
    for one in found:
        assert kept.peek() == one
        kept.drop()
    kept.close()
