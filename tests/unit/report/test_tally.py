"""Counts and the cap of KEP-3926."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.model.model import Evidence, Outcome, ServerBehaviour
from etcdfix.report.finding import Statuses, finding_from
from etcdfix.report.model import Status, TransformerSummary
from etcdfix.report.tally import MAX_NAMES, OTHERS, Tally
from tests.support.examinations import LAYOUT, examination, readable
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
