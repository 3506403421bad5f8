"""The index: owners of kinds that nobody knows, and what is served as an empty object."""

from __future__ import annotations

import pytest

from etcdfix.graph import builder
from etcdfix.graph.index import ImpactIndex
from etcdfix.storagekey import StorageLayout
from tests.support.impact_objects import Cluster, node_of, owner

WIDGET = owner("Widget", "w", api_version="example.com/v1")


def the_guess(index: ImpactIndex, dependent: str) -> tuple[str, bool]:
    """Return the key that the only owner reference of an object was linked to, and whether by a guess."""
    (found,) = index.owners(node_of(index, dependent))
    return (index.ref(found.node).key if found.node >= 0 else ""), found.guess


def test_the_namespace_of_each_dependent_counts() -> None:
    cluster = Cluster()
    key = cluster.add("example.com/v1", "Widget", "w", "one")
    pods = {namespace: cluster.pod("p", namespace, owners=(WIDGET,)) for namespace in ("any", "one", "zoo")}
    index = cluster.index()
    assert the_guess(index, pods["one"]) == (key, True)
    assert the_guess(index, pods["any"]) == the_guess(index, pods["zoo"]) == ("", False)


def test_an_object_of_a_known_kind_is_not_taken_for_one_of_an_unknown_kind() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "w", "shop")
    pod = cluster.pod("p", owners=(WIDGET,))
    index = cluster.index()
    assert the_guess(index, pod) == ("", False)
    assert index.dependents(node_of(index, key), "uid-w") == []


def test_a_uid_from_elsewhere_finds_those_that_state_it() -> None:
    cluster = Cluster()
    key = cluster.break_("/registry/widgets/shop/w")
    for number in range(9):
        cluster.pod(f"p{number}", owners=({**WIDGET, "uid": f"uid-{number % 3}"},))
    cluster.pod("q", owners=(owner("Widget", "x", api_version="example.com/v1", uid="uid-1"),))
    index = cluster.index()
    node = node_of(index, key)
    for number in range(3):
        found = [index.ref(dependent).name for dependent in index.dependents(node, f"uid-{number}")]
        assert found == [f"p{n}" for n in range(number, 9, 3)]
    assert index.dependents(node) == index.dependents(node, "uid-3") == []


def test_a_cluster_scoped_owner_of_unknown_kind() -> None:
    cluster = Cluster()
    key = cluster.add("example.com/v1", "Widget", "w")
    dependents = [
        cluster.pod("p", owners=(WIDGET,)),
        cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "c", owners=(WIDGET,)),
    ]
    index = cluster.index()
    assert {the_guess(index, dependent) for dependent in dependents} == {(key, True)}
    cluster.break_(key)
    index = cluster.index()
    assert {the_guess(index, dependent) for dependent in dependents} == {(key, True)}


def test_a_resource_is_called_after_its_kind() -> None:
    cluster = Cluster()
    places = {"Policy": "policies", "Cluster": "clusters", "ClusterClass": "clusterclasses"}
    for kind, plural in places.items():
        cluster.break_(f"/registry/example.com/{plural}/shop/w")
        cluster.pod(kind.lower(), owners=(owner(kind, "w", api_version="example.com/v1"),))
    index = cluster.index()
    for kind, plural in places.items():
        expected = (f"/registry/example.com/{plural}/shop/w", True)
        assert the_guess(index, f"/registry/pods/shop/{kind.lower()}") == expected


def test_by_name_goes_only_what_has_no_uid_of_its_own() -> None:
    cluster = Cluster()
    broken = cluster.break_("/registry/example.com/widgets/w")
    key = cluster.add("example.com/v1", "Widget", "w", "shop")
    pod = cluster.pod("p", owners=(WIDGET,))
    assert the_guess(cluster.index(), pod) == (key, True)
    cluster.add("example.com/v1", "Widget", "w", "shop", uid="new")
    assert the_guess(cluster.index(), pod) == (broken, True)
    del cluster.values[broken]
    assert the_guess(cluster.index(), pod) == ("", False)


def test_a_uid_that_belongs_to_something_else_rules_a_name_out() -> None:
    cluster = Cluster()
    cluster.break_("/registry/example.com/widgets/shop/w")
    cluster.add("v1", "ConfigMap", "c", "shop", uid="uid-w")
    pod = cluster.pod("p", owners=(WIDGET,))
    assert the_guess(cluster.index(), pod) == ("", False)


@pytest.mark.parametrize("name", ["other/w", "../shop/w", "", "\ud800"])
def test_a_name_does_not_lead_into_another_namespace(name: str) -> None:
    cluster = Cluster()
    cluster.define("example.net", "Gizmo")
    cluster.break_("/registry/example.com/widgets/other/w")
    reference = owner("Widget", name, api_version="example.com/v1")
    dependent = cluster.add("example.net/v1", "Gizmo", "p", "shop", owners=(reference,))
    assert the_guess(cluster.index(), dependent) == ("", False)


def test_nobody_is_found_in_the_core_group_or_among_readable_kinds() -> None:
    cluster = Cluster()
    cluster.define("example.com", "Widget")
    cluster.break_("/registry/example.com/widgets/shop/w")
    cluster.break_("/registry/things/shop/w")
    pods = [
        cluster.pod("p", owners=(owner("Gadget", "w", api_version="example.com/v1"),)),
        cluster.pod("q", owners=(owner("Thing", "w", api_version="v1"),)),
    ]
    index = cluster.index()
    assert {the_guess(index, pod) for pod in pods} == {("", False)}


def test_guessing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_MOST_HOLDERS_OF_A_UID", 2)
    cluster = Cluster()
    for name in ("a", "b", "w"):
        cluster.add("example.org/v1", "Widget", name, "shop", uid="same")
    cluster.pod("q", owners=(owner("Widget", "w", api_version="example.org/v1", uid="same"),))
    assert the_guess(cluster.index(), "/registry/pods/shop/q") == ("", False)


def test_a_withheld_key_lies_in_no_directory_of_its_neighbours() -> None:
    index = Cluster().index()
    index.layout = StorageLayout("/")
    assert index.ref_of(b"/secrets/bootstrap/a").resource == "secrets"
    withheld = index.ref_of(b"/secrets/bootstrap/0123456789ab")
    assert (withheld.resource, withheld.name) == ("", "/secrets/bootstrap/<withheld>")
