"""Users of Secrets: the cases of KEP-2639, and what the KEP left out."""

from __future__ import annotations

import pytest

from etcdfix.graph.secretusers import Stops, secret_users
from etcdfix.graph.uses import Role
from tests.support.impact_objects import Cluster, node_of
from tests.support.kep2639 import CASES, build


@pytest.mark.parametrize("broken", [False, True], ids=["readable", "unreadable"])
@pytest.mark.parametrize("name", CASES)
def test_cases_of_the_kep(name: str, broken: bool) -> None:
    case = CASES[name]
    cluster, key = build(case)
    if broken:
        cluster.break_(key)
    index = cluster.index()
    users = secret_users(index, node_of(index, key))
    assert users.exists
    assert users.readable is not broken
    assert users.complete
    if case.role:
        wanted = [u for u in users.groups[Role(case.role)] if u.object.name == case.user]
        assert [u.template for u in wanted] == [case.template]
        assert wanted[0].stops is Stops.YES
        assert {u.role for u in users.users} == {case.role}
    else:
        assert users.users == ()
    if not broken:
        assert users.protected is case.protected
        assert users.opted_out is (name == "opted out")
        finalizers = name == "with finalizers"
        assert users.protection_finalizers == (("kubernetes.io/secret-protection",) if finalizers else ())
        assert users.other_finalizers == (("example.com/other",) if finalizers else ())
        assert users.type == "Opaque"
    else:
        assert not users.opted_out
        assert users.protection_finalizers == ()


def test_the_decoy_has_no_users() -> None:
    for case in CASES.values():
        cluster, _ = build(case)
        index = cluster.index()
        assert secret_users(index, node_of(index, "/registry/secrets/shop/decoy")).users == ()


def test_optional_uses_do_not_stop() -> None:
    cluster = Cluster()
    cluster.secret("s")
    reference = {"name": "s", "optional": True}
    cluster.pod("p", spec={"containers": [{"name": "c", "envFrom": [{"secretRef": reference}]}]})
    cluster.pod("q", spec={"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]})
    index = cluster.index()
    found = secret_users(index, node_of(index, "/registry/secrets/shop/s"))
    assert {u.object.name: (u.optional, u.stops) for u in found.users} == {
        "p": (True, Stops.NO),
        "q": (False, Stops.YES),
    }


def test_a_finished_pod_is_not_stopped_and_does_not_protect() -> None:
    cluster = Cluster()
    cluster.secret("s")
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
    cluster.pod("p", spec=spec, status={"phase": "Succeeded"})
    index = cluster.index()
    found = secret_users(index, node_of(index, "/registry/secrets/shop/s"))
    assert [(u.finished, u.stops) for u in found.users] == [(True, Stops.NO)]
    assert not found.protected


def test_pods_behind_a_volume_are_named() -> None:
    cluster = Cluster()
    cluster.secret("s")
    reference = {"name": "s", "namespace": "shop"}
    claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    csi = {"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": reference}
    cluster.add("v1", "PersistentVolume", "pv-1", spec={"csi": csi, "claimRef": claim})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    cluster.pod("one", spec={"volumes": [volume]})
    cluster.pod("two", spec={"volumes": [volume]})
    index = cluster.index()
    (user,) = secret_users(index, node_of(index, "/registry/secrets/shop/s")).users
    assert user.object.name == "pv-1"
    assert [pod.name for pod in user.behind] == ["one", "two"]
    assert user.behind_count == 2


def test_a_secret_that_does_not_exist_has_users() -> None:
    cluster = Cluster()
    cluster.pod("p", spec={"imagePullSecrets": [{"name": "gone"}]})
    index = cluster.index()
    found = secret_users(index, node_of(index, "/registry/secrets/shop/gone"))
    assert not found.exists
    assert not found.readable
    assert [(u.role, u.stops) for u in found.users] == [(Role.IMAGE_PULL, Stops.PERHAPS)]


def test_only_secrets_have_secret_users() -> None:
    cluster = Cluster()
    key = cluster.pod("p")
    index = cluster.index()
    with pytest.raises(ValueError, match="is no Secret"):
        secret_users(index, node_of(index, key))


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
def test_notes_on_users_that_no_reference_shows(
    name: str, namespace: str, settings: dict[str, object], word: str
) -> None:
    cluster = Cluster()
    key = cluster.secret(name, namespace, **settings)
    index = cluster.index()
    (note,) = secret_users(index, node_of(index, key)).notes
    assert word in note


def test_custom_resources_are_guesses() -> None:
    cluster = Cluster()
    cluster.secret("s")
    cluster.define("example.com", "Widget")
    cluster.add("example.com/v1", "Widget", "w", "shop", spec={"auth": {"secretRef": {"name": "s"}}})
    index = cluster.index()
    (user,) = secret_users(index, node_of(index, "/registry/secrets/shop/s")).users
    assert user.heuristic
    assert user.stops is Stops.PERHAPS
    assert user.path == "spec.auth.secretRef"


def test_unreadable_others_are_counted() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("s"))
    cluster.break_("/registry/pods/shop/p")
    index = cluster.index()
    assert secret_users(index, node_of(index, key)).unreadable_elsewhere == 1
