"""Counts and the cap of KEP-3926."""

from __future__ import annotations

import json

import msgspec
import pytest

from etcdfix.model import Evidence, Outcome, ServerBehaviour
from etcdfix.report.counts import CauseSummary, ResourceSummary, TransformerSummary
from etcdfix.report.model import Status
from etcdfix.report.tally import CAP, MAX_NAMES, OTHERS, Tally
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.examination import Examination, PlainCount
from tests.support.examinations import examination, readable
from tests.support.memory_source import stored
from tests.support.reports import count, new_tally


def broken(count: int, resource: str = "secrets") -> list[Examination]:
    return [examination(f"/registry/{resource}/shop/web-{n:04}") for n in range(count)]


def tally_of(found: list[Examination], *, max_causes: int = CAP) -> Tally:
    tally = new_tally(max_causes=max_causes)
    for one in found:
        count(tally, one)
    return tally


def only_status(found: list[Examination], *, max_causes: int = CAP) -> Status:
    (status,) = tally_of(found, max_causes=max_causes).statuses()
    return status


def test_status_field_by_field() -> None:
    status = only_status([examination("/registry/secrets/ns/a", upstream_message="no matching prefix found")])
    assert json.loads(msgspec.json.encode(status)) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "failed to read one or more secrets from the storage",
        "reason": "StorageReadError",
        "details": {
            # The KEP promises the prefix that was listed; upstream's code writes "list" instead.
            "name": "/registry/secrets/",
            "kind": "secrets",
            "causes": [
                {
                    "reason": "UnexpectedServerResponse",
                    "message": (
                        "StorageError: corrupt object, Code: 7, Key: /registry/secrets/ns/a, ResourceVersion: 0, "
                        "AdditionalErrorMsg: data from the storage is not transformable revision=0: "
                        "no matching prefix found"
                    ),
                    "field": "/registry/secrets/ns/a",
                }
            ],
        },
        "code": 500,
    }


def test_status_fields_stand_in_kubernetes_order() -> None:
    encoded = json.loads(msgspec.json.encode(only_status(broken(101, "deployments"))))
    assert encoded["message"] == "failed to read one or more deployments.apps from the storage"
    assert list(encoded) == [
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "reason",
        "details",
        "code",
    ]
    assert list(encoded["details"]) == ["name", "group", "kind", "causes"]
    assert list(encoded["details"]["causes"][0]) == ["reason", "message", "field"]


@pytest.mark.parametrize(
    ("count", "cap", "shown", "truncated"),
    [
        (1, 100, 1, False),
        (100, 100, 100, False),
        (101, 100, 100, True),
        (6, 5, 5, True),
        (2, 1, 1, True),
    ],
)
def test_the_cap(count: int, cap: int, shown: int, truncated: bool) -> None:
    found = broken(count)
    causes = only_status(found, max_causes=cap).details.causes
    assert [c.field for c in causes[:shown]] == [f.stored.key.decode() for f in found[:shown]]
    assert [(c.reason, c.message) for c in causes[shown:]] == [
        ("FieldValueTooMany", "too many errors, the list is truncated")
    ] * truncated


@pytest.mark.parametrize("cap", [1, 100, 1000])
def test_counts_are_never_capped(cap: int) -> None:
    summary = tally_of(broken(250), max_causes=cap).summary()
    assert (summary.keys, summary.decrypt_failures) == (250, 250)
    assert summary.by_cause == [
        CauseSummary("key-name-missing", "decrypt-failure", 250, "/registry/secrets/shop/web-0000")
    ]
    assert summary.by_transformer[0].failures == 250


def test_a_cause_is_listed_only_when_its_turn_has_come() -> None:
    """What is counted is listed in the order of the etcd keys, which may come later."""
    tally = new_tally()
    tally.add(broken(1)[0])
    assert tally.statuses() == []
    assert tally.summary().decrypt_failures == 1


def test_the_cap_is_counted_per_resource() -> None:
    statuses = tally_of(broken(101, "pods") + broken(100)).statuses()
    assert [(s.details.kind, len(s.details.causes)) for s in statuses] == [("pods", 101), ("secrets", 100)]


def test_only_what_the_server_calls_corrupt_is_in_a_status() -> None:
    tally = tally_of(
        [
            examination(outcome=outcome, cause=cause, apiserver=apiserver)
            for outcome, cause, apiserver in (
                (Outcome.INCONSISTENT, Cause.INVALID_UTF8, ServerBehaviour.SERVES),
                (Outcome.INCONSISTENT, Cause.RAW_JSON_INVALID, ServerBehaviour.BREAKS_LIST),
                (Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, ServerBehaviour.SERVES_EMPTY),
                (Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, ServerBehaviour.NOT_ASKED),
                (Outcome.READABLE, None, ServerBehaviour.SERVES),
            )
        ]
    )
    assert tally.statuses() == []
    assert tally.summary().keys == 5


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


def test_summary_by_resource() -> None:
    assert tally_of(everything()).summary().by_resource == [
        ResourceSummary(group="", resource="pods", keys=4, readable=3, stale=1, decrypt_failures=1),
        ResourceSummary(
            group="",
            resource="secrets",
            keys=5,
            readable=1,
            decode_failures=1,
            inconsistent=1,
            undetermined=2,
        ),
    ]


def test_summary_by_transformer_counts_stale_failures_and_damage() -> None:
    assert tally_of(everything()).summary().by_transformer == [
        TransformerSummary("identity", [], None, 4, 1, 1, 0, 0, 7, 50),
        TransformerSummary("aescbc/v1/key1", [], None, 2, 0, 0, 0, 2, 10, 20),
        TransformerSummary("aescbc/v1/key2", [], None, 1, 1, 0, 0, 0, 25, 25),
        TransformerSummary("kms/v2/prov", [], None, 1, 0, 0, 1, 0, 45, 45),
    ]


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


def test_values_in_the_clear_have_no_rule() -> None:
    found = [readable(rule="secrets"), readable(rule="pods")]
    (entry,) = tally_of(found).summary().by_transformer
    assert (entry.transformer, entry.resources, entry.keys) == ("identity", [], 2)


def test_summary_by_cause_most_frequent_first() -> None:
    found = [*everything(), *broken(2)]
    assert tally_of(found).summary().by_cause == [
        CauseSummary("key-name-missing", "decrypt-failure", 3, "/registry/pods/shop/d"),
        CauseSummary("invalid-utf8", "inconsistent", 1, "/registry/secrets/shop/b"),
        CauseSummary("kms-unreachable", "undetermined", 1, "/registry/secrets/shop/e"),
        CauseSummary("owner-unknown", "readable", 1, "/registry/secrets/shop/d"),
        CauseSummary("owner-unknown", "undetermined", 1, "/registry/secrets/shop/c"),
        CauseSummary("zeroed-value", "decode-failure", 1, "/registry/secrets/shop/a"),
    ]


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
    each, together = tally_of(values), new_tally(max_causes=CAP)
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
