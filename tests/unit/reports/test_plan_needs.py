from __future__ import annotations

import shlex

import pytest

from etcdfix.reports.plan_model import PlanGroup
from etcdfix.reports.plan_needs import Needs, declaration
from tests.support.plan_entries import entry

LOST = "aescbc/v1/lost"


def group(
    advice: str, transformer: str = LOST, key_id: str = "", cause: str = "key-name-missing"
) -> PlanGroup:
    return PlanGroup("decrypt-failure", cause, transformer, key_id, 1, 0, pattern=True, advice=advice)


def test_a_declaration_names_the_key_id_of_kms() -> None:
    assert declaration(LOST, "") == f"--declare-key-lost {LOST}"
    assert declaration("kms/v2/prov", "sha256:ab") == "--declare-key-lost kms/v2/prov/sha256:ab"
    assert shlex.split(declaration("aescbc/v1/a b;c", "")) == ["--declare-key-lost", "aescbc/v1/a b;c"]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (group(f"only if it is gone for ever: --declare-key-lost {LOST}"), [f"--declare-key-lost {LOST}"]),
        (group(""), []),
        (group(f"--declare-key-lost {LOST}", cause="wrong-key"), []),
        (group("find out why", transformer=LOST), []),
    ],
)
def test_only_what_its_group_has_to_declare(one: PlanGroup, expected: list[str]) -> None:
    assert Needs([one]).of(entry()) == expected


@pytest.mark.parametrize("change", [{"risk": "cluster-breaking"}, {"floor": "kube-system"}])
def test_what_the_cluster_may_stand_on(change: dict[str, str]) -> None:
    assert Needs([]).of(entry(**change)) == ["--accept-risk cluster-breaking"]
    assert Needs([]).of(entry()) == []
