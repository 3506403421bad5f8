"""Users of Secrets: the cases of KEP-2639, and what the KEP left out."""

from __future__ import annotations

import pytest

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import SecretState, Stops
from etcdfix.graph.users import by_role, secret_state, users_of
from etcdfix.graph.uses import Role
from tests.support.impact_objects import Cluster, node_of
from tests.support.kep2639 import CASES, build


def state_of(index: ImpactIndex, key: str) -> SecretState:
    node = node_of(index, key)
    state = secret_state(index, node)
    assert state is not None
    return state


@pytest.mark.parametrize("broken", [False, True], ids=["readable", "unreadable"])
@pytest.mark.parametrize("name", CASES)
def test_cases_of_the_kep(name: str, broken: bool) -> None:
    case = CASES[name]
    cluster, key = build(case)
    if broken:
        cluster.break_(key)
    index = cluster.index()
    users = users_of(index, node_of(index, key))
    state = state_of(index, key)
    if case.role:
        wanted = [u for u in by_role(users)[Role(case.role)] if u.object.name == case.user]
        assert wanted[0].stops is Stops.YES
        assert {u.role for u in users} == {case.role}
    else:
        assert users == ()
    if not broken:
        assert state.protected is case.protected
        assert state.opted_out is (name == "opted out")
        assert state.type == "Opaque"
    else:
        assert not state.opted_out


def test_the_decoy_has_no_users() -> None:
    for case in CASES.values():
        cluster, _ = build(case)
        index = cluster.index()
        assert users_of(index, node_of(index, "/registry/secrets/shop/decoy")) == ()


def test_a_finished_pod_is_not_stopped_and_does_not_protect() -> None:
    cluster = Cluster()
    cluster.secret("s")
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
    cluster.pod("p", spec=spec, status={"phase": "Succeeded"})
    index = cluster.index()
    found = users_of(index, node_of(index, "/registry/secrets/shop/s"))
    assert [u.stops for u in found] == [Stops.NO]
    assert not state_of(index, "/registry/secrets/shop/s").protected


@pytest.mark.parametrize(
    ("name", "namespace", "settings", "word"),
    [
        ("bootstrap-token-abc", "kube-system", {"type": "bootstrap.kubernetes.io/token"}, "nodes join"),
        ("t", "shop", {"type": "bootstrap.kubernetes.io/token"}, "outside kube-system"),
        ("sh.helm.release.v1.web.v3", "shop", {"type": "helm.sh/release.v1"}, "Helm"),
        (
            "token",
            "shop",
            {
                "type": "kubernetes.io/service-account-token",
                "annotations": {"kubernetes.io/service-account.name": "robot"},
            },
            "ServiceAccount robot",
        ),
    ],
)
def test_warnings_of_users_that_no_reference_shows(
    name: str, namespace: str, settings: dict[str, object], word: str
) -> None:
    cluster = Cluster()
    key = cluster.secret(name, namespace, **settings)
    index = cluster.index()
    (warning,) = state_of(index, key).warnings
    assert word in warning
