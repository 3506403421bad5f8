"""Counts and the cap of KEP-3926."""

from __future__ import annotations

import base64

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Outcome, ServerBehaviour
from etcdfix.report.finding import Statuses, finding_from, is_finding, status_cause
from etcdfix.report.model import Status, TransformerSummary, ValueKind
from etcdfix.report.render.machine import Encoder
from etcdfix.report.tally import MAX_NAMES, OTHERS, Tally
from etcdfix.text.commands import RunOptions
from tests.support.examinations import LAYOUT, SECRET_BYTES, examination, readable
from tests.support.memory_source import stored


def broken(count: int, resource: str = "secrets") -> list[Examination]:
    return [examination(f"/registry/{resource}/shop/web-{n:04}") for n in range(count)]


def tally_of(found: list[Examination]) -> Tally:
    tally = Tally()
    for one in found:
        tally.add(one)
    return tally


def statuses_of(found: list[Examination]) -> list[Status]:
    statuses = Statuses(LAYOUT)
    for one in found:
        statuses.add(one.directory, finding_from(one))
    return statuses.published()


def test_the_cap_is_counted_per_resource() -> None:
    statuses = statuses_of(broken(101, "pods") + broken(100))
    assert [(s.details.kind, len(s.details.causes)) for s in statuses] == [("pods", 101), ("secrets", 100)]


def test_only_what_the_server_calls_corrupt_is_in_a_status() -> None:
    found = [
        examination(outcome=outcome, cause=cause, apiserver=apiserver)
        for outcome, cause, apiserver in (
            (Outcome.INCONSISTENT, Cause.INVALID_UTF8, ServerBehaviour.SERVES),
            (Outcome.INCONSISTENT, Cause.RAW_JSON_INVALID, ServerBehaviour.BREAKS_LIST),
            (Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, ServerBehaviour.SERVES_EMPTY),
            (Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, ServerBehaviour.NOT_ASKED),
            (Outcome.READABLE, None, ServerBehaviour.SERVES),
        )
    ]
    assert statuses_of(found) == []


def everything() -> list[Examination]:
    """Return one of each, over two resources."""
    return [
        readable("compact_rev_key", outcome=Outcome.NOT_AN_OBJECT),
        readable("/registry/pods/shop/a", mod_revision=30),
        readable("/registry/pods/shop/b", stale=True, transformer="aescbc/v1/key1", mod_revision=20),
        readable("/registry/pods/shop/c", evidence=(Evidence("unknown fields", "ignored"),)),
        examination("/registry/pods/shop/d", mod_revision=25),
        examination(
            "/registry/secrets/shop/a", outcome=Outcome.DECODE_FAILURE, cause=Cause.ZEROED_VALUE,
            transformer="identity", opened=True, mod_revision=40,
        ),
        examination(
            "/registry/secrets/shop/b", outcome=Outcome.INCONSISTENT, cause=Cause.INVALID_UTF8,
            transformer="aescbc/v1/key1", opened=True, stale=True, mod_revision=10,
        ),
        examination(
            "/registry/secrets/shop/c", outcome=Outcome.UNDETERMINED, cause=Cause.OWNER_UNKNOWN,
            transformer="", mod_revision=5,
        ),
        readable("/registry/secrets/shop/d", cause=Cause.OWNER_UNKNOWN, mod_revision=50),
        examination(
            "/registry/secrets/shop/e", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE,
            transformer="kms/v2/prov", mod_revision=45,
        ),
    ]  # fmt: skip


def test_every_key_is_counted_once() -> None:
    summary = tally_of(everything()).summary()
    assert summary.keys == len(everything())
    assert summary.keys == (
        summary.readable + summary.decrypt_failures + summary.decode_failures + summary.inconsistent
        + summary.undetermined + summary.not_objects
    )  # fmt: skip
    assert (summary.readable, summary.stale, summary.not_objects) == (4, 1, 1)
    assert (summary.decrypt_failures, summary.decode_failures) == (1, 1)
    assert (summary.inconsistent, summary.undetermined) == (1, 2)


def test_one_line_for_each_rule_and_key() -> None:
    """One name in two rules, or twice in one, is two encryption keys."""
    found = [
        examination(rule="secrets,configmaps", key_fingerprints=("fp:1",)),
        examination(rule="secrets,configmaps", key_fingerprints=("fp:1",), cause=Cause.CIPHERTEXT_DAMAGED),
        examination(rule="pods", key_fingerprints=("fp:1", "fp:2"), mod_revision=9),
    ]
    assert tally_of(found).summary().by_transformer == [
        TransformerSummary("aescbc/v1/key2", ["secrets", "configmaps"], "fp:1", 2, 2, 1, 0, 0, 7, 7),
        TransformerSummary("aescbc/v1/key2", ["pods"], "fp:1", 1, 1, 0, 0, 0, 9, 9),
        TransformerSummary("aescbc/v1/key2", ["pods"], "fp:2", 1, 1, 0, 0, 0, 9, 9),
    ]


@pytest.mark.parametrize("damage", [Damage.LIKELY, Damage.POSSIBLE])
def test_what_is_only_likely_damaged_is_not_counted_as_damaged(damage: Damage) -> None:
    (entry,) = tally_of([examination(cause=Cause.NONCE_DAMAGED, damage=damage)]).summary().by_transformer
    assert (entry.failures, entry.damaged) == (1, 0)


def test_resources_by_name_end_somewhere() -> None:
    found = [
        examination(
            f"/registry/example.com/kind{n:05}/shop/web", outcome=Outcome.UNDETERMINED, transformer=""
        )
        for n in range(MAX_NAMES + 5)
    ]
    summary = tally_of(found).summary()
    assert len(summary.by_resource) == MAX_NAMES + 1
    (others,) = [r for r in summary.by_resource if r.resource == OTHERS]
    assert (others.group, others.keys, others.undetermined) == ("", 5, 5)
    assert summary.keys == summary.undetermined == MAX_NAMES + 5


def test_transformers_by_name_end_somewhere_and_known_ones_go_on() -> None:
    found = [examination(transformer=f"aescbc/v1/key{n}", mod_revision=n) for n in range(MAX_NAMES + 5)]
    found.append(examination(transformer="aescbc/v1/key0", mod_revision=9000))
    entries = {t.transformer: t for t in tally_of(found).summary().by_transformer}
    assert len(entries) == MAX_NAMES + 1
    assert entries["aescbc/v1/key0"].keys == 2
    assert entries[OTHERS] == TransformerSummary(OTHERS, [], None, 5, 5, 0, 0, 0, MAX_NAMES, MAX_NAMES + 4)


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("transformer", ["identity", "aesgcm/v1/key1"])
def test_plain_values_count_as_if_each_had_been_added(transformer: str, stale: bool) -> None:
    values = [
        msgspec.structs.replace(
            readable(f"/registry/secrets/shop/web-{revision}"),
            stored=stored(f"/registry/secrets/shop/web-{revision}", mod_revision=revision),
            transformer=transformer,
            rule="secrets",
            stale=stale,
            key_fingerprints=("fp:a",) if transformer.startswith("aes") else (),
        )
        for revision in (9, 3, 5)
    ]
    each, together = tally_of(values), Tally()
    one = values[0]
    for count_, first, last in ((2, 3, 9), (1, 5, 5)):
        together.add_plain(
            [
                PlainCount(
                    one.directory, one.rule, transformer, one.key_fingerprints, "", stale, count_, first, last
                )
            ]
        )
    assert together.summary() == each.summary()


@pytest.mark.parametrize(
    ("lease", "shown"),
    [(0, None), (1, "1"), (0x694D_7788_99AA_BBCC, "694d778899aabbcc"), (-1, "ffffffffffffffff")],
)
def test_lease_is_hex_of_64_bits(lease: int, shown: str | None) -> None:
    assert finding_from(examination(lease=lease)).lease == shown


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/secrets/shop/\xff",
        b"/registry/secrets/shop/a\x1b[2J",
        "/registry/secrets/shop/\u202e".encode(),
    ],
)
def test_odd_keys_carry_their_bytes(key: bytes) -> None:
    finding = finding_from(examination(key))
    assert finding.key_base64 is not None
    assert base64.b64decode(finding.key_base64) == key
    Encoder(RunOptions()).encode(finding)


def test_contents_never_reach_a_finding() -> None:
    encoded = Encoder(RunOptions()).encode(finding_from(examination()))
    assert b"never-to-be-shown" not in encoded
    assert base64.b64encode(SECRET_BYTES)[:40] not in encoded


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (examination(), True),
        (examination(outcome=Outcome.DECODE_FAILURE, cause=Cause.ZEROED_VALUE), True),
        (examination(outcome=Outcome.INCONSISTENT, cause=Cause.INVALID_UTF8), True),
        (examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE), True),
        (readable(), False),
        (readable(stale=True), False),
        (readable(cause=Cause.OWNER_UNKNOWN), True),
        (readable(evidence=(Evidence("unknown fields", "ignored"),)), True),
        (readable(readable_until="1.35"), True),
        (readable("compact_rev_key", outcome=Outcome.NOT_AN_OBJECT), False),
    ],
)
def test_is_finding(found: Examination, expected: bool) -> None:
    assert is_finding(found) is expected


def test_words_of_the_server_for_a_decoder_error() -> None:
    """Those for a transformer error stand with the Status."""
    found = examination(
        "/registry/pods/ns/a", outcome=Outcome.DECODE_FAILURE, cause=Cause.PROTOBUF_DAMAGED, mod_revision=4711,
        upstream_message="unexpected EOF",
    )  # fmt: skip
    cause = status_cause(finding_from(found))
    assert cause is not None
    assert cause.message == (
        "StorageError: corrupt object, Code: 7, Key: /registry/pods/ns/a, ResourceVersion: 0, "
        "AdditionalErrorMsg: object not decodable revision=4711: unexpected EOF"
    )


def test_a_kind_of_any_length_is_shown_in_part() -> None:
    gvk = GroupVersionKind("example.com", "v1", "K" * 200_000)
    decoded = DecodedObject(gvk, b"web", b"shop", None, "json")
    found = msgspec.structs.replace(readable(cause=Cause.OWNER_UNKNOWN), decoded=decoded)
    shown = finding_from(found).group_version_kind
    assert shown == ValueKind("example.com", "v1", "K" * 253 + "<199747 bytes withheld>")
