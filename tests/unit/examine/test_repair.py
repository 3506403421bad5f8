"""A repair gives back the bytes that were written, or there is none."""

from __future__ import annotations

import random

import pytest

from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import examine_all
from etcdfix.examine.one import Examiner
from etcdfix.examine.repair import RepairSearch, without_doubtful_prefix
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import risks_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.pages import paged
from tests.exam.repairs import TAGGED, TAGLESS, Written, flipped, write
from tests.support.decoders import shared_decoder
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration,
    json_object,
    provider,
    secret,
    widget,
)

KEY = "/registry/secrets/shop/web"
GCM = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
CBC = configuration(provider("aescbc", key1=KEY_1), IDENTITY)


def examiner(config: EncryptionConfiguration | None) -> Examiner:
    transformers = Transformers.from_configuration(config) if config is not None else None
    found = Examiner(StorageLayout(), transformers, shared_decoder(None))
    found.learn_custom_resources(MemorySource({}))
    return found


def search(
    value: bytes, config: EncryptionConfiguration | None = GCM, key: str = KEY
) -> tuple[Examination, RepairSearch]:
    made = examiner(config)
    found = made.examine(stored(key, value))
    return found, made.closer.search_repair(found)


@pytest.fixture(scope="module")
def written() -> dict[str, Written]:
    return {name: write(random.Random(5), name, 700) for name in (*TAGGED, *TAGLESS)}


@pytest.mark.parametrize("name", TAGGED)
def test_a_value_of_another_etcd_key_is_not_put_right_here(written: dict[str, Written], name: str) -> None:
    one = written[name]
    at = (one.sealed.body().start + 60) * 8
    _, repair, found = one.search(flipped(one.sealed.value, at), etcd_key=b"/registry/secrets/shop/copy")
    assert (repair, found.repair) == (None, None)
    if name == "secretbox":  # which binds no etcd key: it opens, and its name is another one
        assert "inconsistent" in found.why_not


@pytest.mark.parametrize("bits", [(5,), (3, 40), (9, 22, 61), (85, 122)])
@pytest.mark.parametrize("name", ["aesgcm", "secretbox"])
def test_a_prefix_is_put_back_at_the_first_look(
    written: dict[str, Written], name: str, bits: tuple[int, ...]
) -> None:
    one = written[name]
    found = one.examiner.examine(StoredValue(one.etcd_key, flipped(one.sealed.value, *bits), 100, 5, 2, 0))
    assert found.verdict.outcome is not Outcome.READABLE
    assert found.repair is not None
    assert (found.repair.kind, found.repair.proof) == (RepairKind.PREFIX, RepairProof.TAG)
    assert one.examiner.closer.search_repair(found).value == one.sealed.value


@pytest.mark.parametrize("name", TAGGED)
def test_a_name_is_put_back_for_who_asks_and_nothing_proves_it(
    written: dict[str, Written], name: str
) -> None:
    one = written[name]
    value = one.sealed.value
    start = value.index(b"prov" if name.startswith("kms") else b"key1")
    for bits in ((start * 8,), (9, start * 8 + 25)):
        damaged = flipped(value, *bits)
        _, repair, found = one.search(damaged)
        assert repair is None
        assert found.value == value
        assert found.repair is not None
        assert (found.repair.kind, found.repair.proof) == (RepairKind.NAME, RepairProof.NONE)
        assert found_by_a_pass(one.examiner, StoredValue(one.etcd_key, damaged, 100, 5, 2, 0)) is None
        told = without_doubtful_prefix(found, None)
        assert (told.repair, told.value) == (None, b"")
        assert "a key that had that name looks the same" in told.why_not


def test_no_prefix_is_told_where_the_configuration_may_be_what_differs() -> None:
    found = search(flipped(aesgcm(secret(), KEY), 5))[1]
    assert without_doubtful_prefix(found, Cause.UNKNOWN_ENVELOPE) == found
    told = without_doubtful_prefix(found, Cause.PROVIDER_MISSING)
    assert told.repair is None
    assert "the configuration may be what is wrong" in told.why_not


def test_a_value_that_names_a_configured_key_has_a_whole_prefix() -> None:
    """``key1`` was renamed to ``key3``, and another key is called ``key1`` now: that is for the configuration."""
    config = configuration(provider("aesgcm", key1=KEY_2, key3=KEY_1), IDENTITY)
    found, result = search(aesgcm(secret(), KEY, KEY_1, "key1"), config)
    assert found.verdict.cause is Cause.KEY_RENAMED
    assert (found.repair, result.repair) == (None, None)


@pytest.mark.parametrize("name", ["aesgcm", "secretbox", "kms v1, GCM", "kms v2, seed"])
def test_every_one_of_many_cr_lf_values_is_put_right(name: str) -> None:
    for seed in range(2):
        one = write(random.Random(seed), name, 700)
        value = one.sealed.value.replace(b"\n", b"\r\n")
        if value == one.sealed.value:
            continue
        _, repair, found = one.search(value)
        assert found.value == one.sealed.value, found.why_not
        assert repair is not None
        assert repair.kind is RepairKind.TEXT_MODE


@pytest.mark.parametrize("name", ["kms v2, key", "kms v2, seed"])
def test_a_neighbours_wrapped_key_is_put_in(written: dict[str, Written], name: str) -> None:
    one = written[name]
    value, wrapped = one.sealed.value, one.sealed.parts["wrapped"]
    for hurt in (
        value[: wrapped.start] + bytes(len(range(wrapped.start, wrapped.end))) + value[wrapped.end :],
        value[: wrapped.start + 10],
    ):
        _, repair, found = one.search(hurt)
        assert found.value == value, found.why_not
        assert repair is not None
        assert (repair.kind, repair.proof) == (RepairKind.WRAPPED_KEY, RepairProof.TAG)


def test_without_a_neighbour_there_is_no_wrapped_key() -> None:
    one = write(random.Random(5), "kms v2, seed", 700, alone=True)
    wrapped = one.sealed.parts["wrapped"]
    _, repair, found = one.search(flipped(one.sealed.value, wrapped.start * 8))
    assert (repair, found.repair) == (None, None)


def test_a_prefix_or_cr_lf_above_aescbc_is_not_proven() -> None:
    value = aescbc(secret())
    for other in (flipped(value, 5), value.replace(b"\n", b"\r\n")):
        found = search(other, CBC)[1].repair
        if other != value:
            assert found is not None
            assert found.proof is RepairProof.NONE


# --- unencrypted ----------------------------------------------------------------------------------------------------

PLAIN = secret()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"k9s\x00" + PLAIN[4:], RepairKind.MAGIC),
        (b"\xff\x00\xff\x17" + PLAIN[4:], RepairKind.MAGIC),
        (PLAIN.replace(b"\n", b"\r\n"), RepairKind.TEXT_MODE),
        (PLAIN + b"left over", RepairKind.TRAILING_BYTES),
        (PLAIN + PLAIN, RepairKind.TRAILING_BYTES),
    ],
)
@pytest.mark.parametrize("config", [None, configuration(IDENTITY)])
def test_the_fixed_undos_of_an_unencrypted_value(
    value: bytes, kind: RepairKind, config: EncryptionConfiguration | None
) -> None:
    found, result = search(value, config)
    assert result.value == PLAIN, result.why_not
    assert found.repair == result.repair
    assert found.repair is not None
    assert (found.repair.kind, found.repair.proof) == (kind, RepairProof.DECODES)


NEWER = PLAIN.replace(b"never-to-be-shown", b"the-newer-content")


@pytest.mark.parametrize(
    "rest",
    [
        NEWER,
        NEWER[:40],
        bytes(512) + NEWER,
        PLAIN + NEWER,
        aesgcm(NEWER, KEY),
        json_object("v1", "Secret", "web", "shop"),
        b"\n---\napiVersion: v1\nkind: Secret\n",
        *(
            between + json_object("v1", "Secret", "web", "shop")
            for between in (b"\0", b",", b"]}", b"\xef\xbb\xbf")
        ),
        b'web"}}\n{ "data":{},' + json_object("v1", "Secret", "web", "shop")[1:],
    ],
)
@pytest.mark.parametrize("config", [None, configuration(IDENTITY)])
def test_of_two_objects_one_behind_the_other_none_is_cut_off(
    rest: bytes, config: EncryptionConfiguration | None
) -> None:
    """Nothing says which is right; and a deletion takes both, which has to be accepted."""
    found, result = search(PLAIN + rest, config)
    assert (result.repair, result.value, found.repair) == (None, b"", None)
    assert found.verdict.cause is Cause.TRAILING_BYTES
    assert Rule.ONLY_COPY in risks_of(found)


def test_no_bit_is_searched_in_an_unencrypted_value() -> None:
    undone = {RepairKind.MAGIC, RepairKind.TEXT_MODE, RepairKind.TRAILING_BYTES}
    for bit in random.Random(11).sample(range(len(PLAIN) * 8), 20):
        result = search(flipped(PLAIN, bit), None)[1]
        if result.repair is not None:
            assert result.repair.kind in undone
            assert bit < 32, "only the magic is known"


@pytest.mark.parametrize(
    "key", ["/registry/secrets/shop/other", "/registry/secrets/other/web", "/registry/configmaps/shop/web"]
)
def test_an_unencrypted_value_of_another_etcd_key_is_not_put_right(key: str) -> None:
    found, result = search(PLAIN + b"left over", None, key)
    assert (found.repair, result.repair) == (None, None)


def test_a_value_of_an_unknown_owner_is_not_put_right() -> None:
    text = widget().replace(b"{", b"{\n", 1).replace(b"\n", b"\r\n")
    assert search(text, None, "/registry/example.com/widgets/shop/w-0")[1].repair is None


def test_two_ways_are_no_way() -> None:
    """A value under one of two keys whose names and bytes are so that either prefix opens it."""
    config = configuration(provider("aesgcm", key0=KEY_1, key1=KEY_1), IDENTITY)
    value = aesgcm(secret(), KEY, KEY_1, "key3")  # one bit from key1, two from key0
    found, result = search(value, config)
    assert found.repair is None
    assert result.ambiguous
    assert "2 different repairs" in result.why_not


def test_nothing_of_the_plaintext_or_a_key_is_said(written: dict[str, Written]) -> None:
    for name in TAGGED:
        one = written[name]
        _, _, found = one.search(flipped(one.sealed.value, one.sealed.body().end * 8 - 300))
        assert found.repair is not None
        said = repr(found) + repr(found.repair) + found.why_not
        assert "CERTIFICATE" not in said
        assert "tls.crt" not in said


def found_by_a_pass(examiner: Examiner, record: StoredValue) -> Repair | None:
    seen: list[Examination] = []
    examine_all(examiner, paged([record]), seen.append)
    return seen[0].repair


@pytest.mark.parametrize("name", TAGGED)
def test_a_pass_over_everything_finds_it(written: dict[str, Written], name: str) -> None:
    """Also where the first look is certain of the damage, in the start of the object."""
    one = written[name]
    start = one.sealed.parts["ciphertext"].start
    for at in (start + 22, start + 200):
        record = StoredValue(one.etcd_key, flipped(one.sealed.value, at * 8 + 1), 100, 5, 2, 0)
        repair = found_by_a_pass(one.examiner, record)
        assert repair is not None, at
        assert repair.proof is RepairProof.TAG


def test_the_search_counts_nothing_as_a_value_of_the_run(written: dict[str, Written]) -> None:
    one = written["aesgcm"]
    one.examiner.start_over()
    one.search(flipped(one.sealed.value, one.sealed.body().end * 8 - 300))
    assert not one.examiner.readers.opened.opened(
        one.examiner.examine(
            StoredValue(one.etcd_key, flipped(one.sealed.value, 1000), 100, 5, 2, 0)
        ).encryption_keys
    )
