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


@pytest.mark.parametrize(("theirs", "ours"), [("other", "uid"), ("uid", ""), ("", "uid"), ("", "")])
def test_another_cluster(theirs: str, ours: str) -> None:
    """Two clusters that nobody knows are not the same one."""
    (said,) = expecting(kube_system_uid=theirs).against(FOUND.stored, ClusterIdentity.by_uid(ours))
    assert (said.rule, said.hint) == (Rule.PLAN, f"make a new plan: {AGAIN}")


@pytest.mark.parametrize(
    "changes", [{"mod_revision": 0}, {"value_sha256": "sha256:00"}, {"value_sha256": ""}]
)
def test_another_value(changes: dict[str, Any]) -> None:
    (said,) = expecting(**changes).against(FOUND.stored, ClusterIdentity.by_uid("uid"))
    assert (said.rule, AGAIN in said.hint) == (Rule.EXPECTATION_DIFFERS, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "decode-failure"},
        {"cause": "value-truncated"},
        {"cause": ""},
        {"transformer": "aescbc/v1/other"},
        {"transformer": ""},
        {"kms_key_id_sha256": "sha256:00"},
    ],
)
def test_another_verdict(changes: dict[str, Any]) -> None:
    (said,) = expecting(**changes).against_verdict(FOUND)
    assert (said.rule, "now it is decrypt-failure (wrong-key)" in said.message) == (Rule.PLAN, True)
    readable = msgspec.structs.replace(FOUND.verdict, outcome=Outcome.READABLE, cause=None)
    assert [*EXPECTED.against_verdict(msgspec.structs.replace(FOUND, verdict=readable))]


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
