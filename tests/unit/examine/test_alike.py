"""Of many values that do not open, the same is said as of each alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.examine.two_passes import _Aside
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Repair, RepairKind, RepairProof
from etcdfix.model.storagekey import StorageLayout
from tests.support.decoders import shared_decoder
from tests.support.memory_source import stored
from tests.support.objects import KEY_1, configuration, provider

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
