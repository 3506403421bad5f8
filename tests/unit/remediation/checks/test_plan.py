from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import ClusterIdentity, KnownBy, Outcome, digest_of
from etcdfix.model.rules import Rule
from etcdfix.remediation.checks.plan import Expectation
from tests.support.examinations import examination

KEY = b"/registry/secrets/shop/web"
AGAIN = "etcdfix plan --from-report scan.json"
FOUND = examination(KEY, outcome=Outcome.DECRYPT_FAILURE, cause=Cause.WRONG_KEY)
EXPECTED = Expectation(
    kube_system_uid="uid",
    mod_revision=FOUND.stored.mod_revision,
    value_sha256=digest_of(FOUND.stored.value),
    outcome="decrypt-failure",
    cause="wrong-key",
    transformer=FOUND.transformer,
    kms_key_id_sha256=FOUND.kms_key_id_sha256,
    again=AGAIN,
)


def expecting(**changes: Any) -> Expectation:
    return msgspec.structs.replace(EXPECTED, **changes)


def test_what_is_as_the_plan_says_is_not_refused() -> None:
    assert not [*EXPECTED.against(FOUND.stored, ClusterIdentity.by_uid("uid"))]
    assert not [*EXPECTED.against_verdict(FOUND)]


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ("other", "uid", "the plan is of the cluster other, this one is uid"),
        ("uid", "", "the plan is of the cluster uid, this one is unknown"),
        ("", "uid", "the plan is of the cluster unknown, this one is uid"),
        ("", "", "the plan is of the cluster unknown, this one is unknown"),
    ],
)
def test_another_cluster(theirs: str, ours: str, words: str) -> None:
    """Two clusters that nobody knows are not the same one."""
    (said,) = expecting(kube_system_uid=theirs).against(FOUND.stored, ClusterIdentity.by_uid(ours))
    assert (said.rule, said.message) == (Rule.PLAN, words)
    assert said.hint == f"make a new plan: {AGAIN}"


@pytest.mark.parametrize(
    "changes",
    [
        {"mod_revision": FOUND.stored.mod_revision + 1},
        {"mod_revision": 0},
        {"value_sha256": "sha256:00"},
        {"value_sha256": ""},
    ],
)
def test_another_value(changes: dict[str, Any]) -> None:
    (said,) = expecting(**changes).against(FOUND.stored, ClusterIdentity.by_uid("uid"))
    assert said.rule == Rule.EXPECTATION_DIFFERS
    assert "stands at mod_revision" in said.message
    assert said.hint == f"scan again, and make a new plan: {AGAIN}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "decode-failure"}, "the plan has it as decode-failure"),
        ({"outcome": "undetermined"}, "the plan has it as undetermined"),
        ({"cause": "value-truncated"}, "the plan has it as decrypt-failure (value-truncated)"),
        ({"cause": ""}, "the plan has it as decrypt-failure ()"),
        ({"transformer": "aescbc/v1/other"}, "under aescbc/v1/other, and now"),
        ({"transformer": ""}, "under no known envelope, and now"),
        ({"kms_key_id_sha256": "sha256:00"}, "/sha256:00, and now"),
    ],
)
def test_another_verdict(changes: dict[str, Any], words: str) -> None:
    (said,) = expecting(**changes).against_verdict(FOUND)
    assert said.rule == Rule.PLAN
    assert words in said.message
    assert "now it is decrypt-failure (wrong-key)" in said.message


def test_a_verdict_without_cause_is_another_one() -> None:
    readable = msgspec.structs.replace(
        FOUND, verdict=msgspec.structs.replace(FOUND.verdict, outcome=Outcome.READABLE, cause=None)
    )
    (said,) = EXPECTED.against_verdict(readable)
    assert "now it is readable" in said.message


@pytest.mark.parametrize(
    ("known_by", "uid"),
    [(KnownBy.CREATE_REVISION, ""), (KnownBy.BACKUP, "uid"), (KnownBy.KEPT_REVISION, "uid")],
)
def test_a_plan_that_could_not_read_the_uid_either(known_by: KnownBy, uid: str) -> None:
    """Its etcd was compared by cluster id; a plan that names a uid is held against it all the same."""
    here = ClusterIdentity(uid=uid, known_by=known_by, created=4, cluster_id="1")
    assert not [*expecting(kube_system_uid="").against(FOUND.stored, here)]
    (said,) = expecting(kube_system_uid="other").against(FOUND.stored, here)
    assert "the plan is of the cluster other" in said.message
