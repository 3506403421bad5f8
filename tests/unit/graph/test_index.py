"""The index: owners of kinds that nobody knows, and what is served as an empty object."""

from __future__ import annotations

import itertools
import signal
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from etcdfix.commands.explaining.impact import impact_of
from etcdfix.commands.namespace import concerns_namespace, namespace_report
from etcdfix.commands.orphans import orphans_report
from etcdfix.examine.one import Reading
from etcdfix.graph import cluster as cluster_module
from etcdfix.graph import index as index_module
from etcdfix.graph.cluster import ClusterIndex, index_cluster
from etcdfix.graph.index import (
    FINISHED,
    FOREGROUND,
    OPAQUE,
    ORPHANS,
    SEEN,
    SERVES_EMPTY,
    TERMINATING,
    UNDETERMINED,
    UNREADABLE,
    ImpactIndex,
)
from etcdfix.graph.kinds import Kinds, Served
from etcdfix.model.errors import SourceError
from etcdfix.model.storagekey import StorageLayout, builtin_directories
from tests.support.breaking_in import Heard, heard
from tests.support.impact_objects import NOW, Cluster, node_of, owner
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import json_object

WIDGET = owner("Widget", "w", api_version="example.com/v1")


def the_guess(index: ImpactIndex, dependent: str) -> tuple[str, bool]:
    """Return the key that the only owner reference of an object was linked to, and whether by a guess."""
    (found,) = index.owners(node_of(index, dependent))
    return (index.ref(found.node).key if found.node >= 0 else ""), found.guess


def test_the_namespace_of_each_dependent_counts(cluster: Cluster) -> None:
    known = cluster.add("v1", "ConfigMap", "w", "any")
    key = cluster.add("example.com/v1", "Widget", "w", "one")
    pods = {namespace: cluster.pod("p", namespace, owners=(WIDGET,)) for namespace in ("any", "one", "zoo")}
    index = cluster.index()
    assert the_guess(index, pods["one"]) == (key, True)
    assert the_guess(index, pods["any"]) == the_guess(index, pods["zoo"]) == ("", False)
    assert index.dependents(node_of(index, known), "uid-w") == []  # of a known kind


def test_a_uid_from_elsewhere_finds_those_that_state_it(cluster: Cluster) -> None:
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


def test_a_cluster_scoped_owner_of_unknown_kind(cluster: Cluster) -> None:
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


def test_a_resource_is_called_after_its_kind(cluster: Cluster) -> None:
    places = {"Policy": "policies", "Cluster": "clusters", "ClusterClass": "clusterclasses"}
    for kind, plural in places.items():
        cluster.break_(f"/registry/example.com/{plural}/shop/w")
        cluster.pod(kind.lower(), owners=(owner(kind, "w", api_version="example.com/v1"),))
    index = cluster.index()
    for kind, plural in places.items():
        expected = (f"/registry/example.com/{plural}/shop/w", True)
        assert the_guess(index, f"/registry/pods/shop/{kind.lower()}") == expected


def test_by_name_goes_only_what_has_no_uid_of_its_own(cluster: Cluster) -> None:
    broken = cluster.break_("/registry/example.com/widgets/w")
    key = cluster.add("example.com/v1", "Widget", "w", "shop")
    pod = cluster.pod("p", owners=(WIDGET,))
    assert the_guess(cluster.index(), pod) == (key, True)
    cluster.add("example.com/v1", "Widget", "w", "shop", uid="new")
    assert the_guess(cluster.index(), pod) == (broken, True)
    del cluster.values[broken]
    assert the_guess(cluster.index(), pod) == ("", False)


@pytest.mark.parametrize("name", ["other/w", "../shop/w", "", "\ud800"])
def test_a_name_does_not_lead_into_another_namespace(cluster: Cluster, name: str) -> None:
    cluster.define("example.net", "Gizmo")
    cluster.break_("/registry/example.com/widgets/other/w")
    reference = owner("Widget", name, api_version="example.com/v1")
    dependent = cluster.add("example.net/v1", "Gizmo", "p", "shop", owners=(reference,))
    assert the_guess(cluster.index(), dependent) == ("", False)


def test_nobody_is_found_in_the_core_group_among_readable_kinds_or_under_another_uid(
    cluster: Cluster,
) -> None:
    cluster.define("example.com", "Widget")
    cluster.add("v1", "ConfigMap", "c", "shop", uid="uid-of-another")
    for path in ("example.com/widgets", "example.com/gizmos", "things"):
        cluster.break_(f"/registry/{path}/shop/w")
    references = (
        ("Gadget", "example.com/v1", "u"),
        ("Thing", "v1", "u"),
        ("Gizmo", "example.com/v1", "uid-of-another"),
    )
    pods = [
        cluster.pod(kind.lower(), owners=(owner(kind, "w", api_version=version, uid=uid),))
        for kind, version, uid in references
    ]
    index = cluster.index()
    assert {the_guess(index, pod) for pod in pods} == {("", False)}


def test_guessing_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_MOST_HOLDERS_OF_A_UID", 2)
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


def test_flags() -> None:
    cluster = Cluster()
    expected = {
        cluster.pod("plain"): SEEN,
        cluster.pod("done", status={"phase": "Failed"}): SEEN | FINISHED,
        cluster.pod("going", terminating=True, finalizers=("foregroundDeletion",)): SEEN
        | TERMINATING
        | FOREGROUND,
        cluster.pod("orphaning", finalizers=("orphan",)): SEEN | ORPHANS,
        cluster.break_("/registry/pods/shop/broken"): SEEN | UNREADABLE,
    }
    cluster.values["/registry/secrets/shop/locked"] = b"k8s:enc:aescbc:v1:key1:xxxx"
    cluster.values["/registry/strange.example.com/things/x"] = (
        b"k8s\x00" + b"\n\x0b\n\x04x/v1\x12\x03Foo\x12\x00"
    )
    for name, value in (("no-bytes", b""), ("no-fields", b"{}")):
        expected[cluster.pod(name)] = SEEN | UNREADABLE | SERVES_EMPTY
        cluster.values[f"/registry/pods/shop/{name}"] = value
    index = cluster.index()
    assert {key: index.flags[node_of(index, key)] for key in expected} == expected
    assert index.flags[node_of(index, "/registry/secrets/shop/locked")] == SEEN | UNDETERMINED
    assert index.flags[node_of(index, "/registry/strange.example.com/things/x")] == SEEN | OPAQUE
    going = node_of(index, "/registry/pods/shop/going")
    assert index.terminating_since(going) == NOW
    assert index.finalizers(going) == ("foregroundDeletion",)
    assert index.sizes[going] == len(cluster.values["/registry/pods/shop/going"])


def test_an_object_with_too_many_references_is_counted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_MOST_EDGES_OF_AN_OBJECT", 3)
    volumes = [{"name": f"v{n}", "secret": {"secretName": f"s{n}"}} for n in range(5)]
    pod = cluster.pod("p", spec={"volumes": volumes})
    owned = cluster.pod("q", owners=tuple(owner("ReplicaSet", f"r{n}") for n in range(5)))
    index = cluster.index()
    assert index.truncated == 2
    assert len(list(index.uses(node_of(index, pod)))) == 3
    assert len(index.owners(node_of(index, owned))) == 3


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": "x", "finalizers": {"a": 1}, "deletionTimestamp": 7},
        {"ownerReferences": [7, {"kind": 3}], "finalizers": [7], "annotations": [1]},
    ],
)
def test_json_of_the_wrong_types_is_survived(metadata: dict[str, Any]) -> None:
    import json

    cluster = Cluster()
    cluster.define("example.com", "Widget")
    base = {"name": "w", "namespace": "shop", "uid": "u", **metadata}
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": base,
        "spec": {
            "secretRef": 7,
            "x": [1, [2], {"secretName": 3}],
            "imagePullSecrets": [7, {"name": 8}, {"name": "p"}],
        },
    }
    cluster.values["/registry/example.com/widgets/shop/w"] = json.dumps(document).encode()
    index = cluster.index()
    node = node_of(index, "/registry/example.com/widgets/shop/w")
    assert index.finalizers(node) == ()
    assert [index.keys[e.target] for e in index.uses(node)] == [b"secrets/shop/p"]


LAYOUT = StorageLayout("/registry")
SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)


def look(source: MemorySource, **settings: Any) -> ClusterIndex:
    settings.setdefault("keep", lambda _found: False)
    return index_cluster(source, Reading(layout=LAYOUT), **settings)


def test_what_matters_more_takes_the_place_of_what_matters_less() -> None:
    values = {f"/registry/secrets/shop/s-{n:04}": SEALED for n in range(1100)}
    values |= {f"/registry/services/specs/shop/{n}": SEALED for n in range(3)}
    weights = {"secrets": 1, "services": 2}
    found = look(MemorySource(values), keep=lambda e: weights[e.directory.resource])
    assert len(found.kept) == 1000
    assert sum(key.startswith(b"/registry/services/") for key in found.kept) == 3
    assert b"/registry/secrets/shop/s-0000" in found.kept
    # What comes too late and matters no more does not.
    found = look(MemorySource(values), keep=lambda e: 3 - weights[e.directory.resource])
    assert not any(key.startswith(b"/registry/services/") for key in found.kept)


def test_groups_of_aggregated_apis_are_known_by_their_service_and_supposed_where_it_cannot_be_read() -> None:
    cluster = Cluster()
    services: list[tuple[str, object]] = [
        ("v1.wardle.example.com", {"name": "wardle", "namespace": "wardle"}),
        ("v1.apps", None),
        ("v1.example.com", None),
    ]
    for name, service in services:
        spec = {"group": name.partition(".")[2], "version": "v1", "service": service}
        key = cluster.key("apiregistration.k8s.io/apiservices", "", name)
        cluster.values[key] = json_object("apiregistration.k8s.io/v1", "APIService", name, "", spec=spec)
    cluster.break_(cluster.key("apiregistration.k8s.io/apiservices", "", "v1.broken.example.com"))
    assert look(cluster.source()).aggregated == {"wardle.example.com", "broken.example.com"}


def test_a_source_that_gives_nothing_is_an_error_and_one_that_breaks_off_a_problem() -> None:
    records = [stored("/registry/pods/shop/a"), stored("/registry/pods/shop/b")]
    with pytest.raises(SourceError):
        look(MemorySource(records, fails_after=0))
    found = look(MemorySource(records, fails_after=1, problems=["a page is damaged"]))
    assert found.incomplete_reasons(0) == [
        "a page is damaged",
        "the source was lost midway: the connection was lost",
    ]


def owned_by_each_other() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True)
    cluster.define("example.com", "Widget")
    for n in range(4):
        cluster.secret(f"s{n}")
        cluster.pod(f"p{n}", owners=(owner("ReplicaSet", "r1"),))
        cluster.add("example.com/v1", "Widget", f"w{n}", "shop", owners=(owner("Pod", f"p{n}"),))
    cluster.break_(cluster.secret("broken"))
    return cluster


@pytest.mark.thorough
def test_after_a_signal_at_any_moment_every_report_comes_out() -> None:
    """It is heard when a function of the index begins, or has come back from C; each 31st of these moments is tried."""
    cluster, layout = owned_by_each_other(), StorageLayout()
    request, keys = Reading(layout=layout, configuration=None), list(cluster.values)
    left, ended = 0, Counter[bool]()

    def at_its_moment(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and "/graph/" in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGTERM)

    for moment in itertools.count(1, 31):
        left, found = moment, None
        with heard():
            sys.setprofile(at_its_moment)
            try:
                found = index_cluster(cluster.source(), request, keep=concerns_namespace(layout, "shop"))
            except Heard:
                pass  # after the pass
            finally:
                sys.setprofile(None)
        if found is not None:
            ended[found.ended is not None] += 1
            namespace_report(found, "shop")
            orphans_report(found)
            for key in keys:
                impact_of(found, key.encode(), found.kept.get(key.encode()))
        if left > 0:
            break
    assert ended[True] > 50


@pytest.mark.parametrize(
    ("api_version", "kind", "served"),
    [
        ("apps/v1", "Deployment", Served.YES),
        ("apps/v1beta1", "Deployment", Served.NO),
        ("apps/v9", "Deployment", Served.NO),
        ("autoscaling/v2", "HorizontalPodAutoscaler", Served.YES),
        ("policy/v1beta1", "PodDisruptionBudget", Served.PERHAPS),
        ("extensions/v1beta1", "Ingress", Served.PERHAPS),
        ("extensions/v1beta1", "Deployment", Served.NO),
    ],
)
def test_versions(api_version: str, kind: str, served: Served) -> None:
    assert Kinds({}).of_owner(api_version, kind)[1] is served


def test_what_is_stored_today_is_served() -> None:
    for directory in builtin_directories():
        group = f"{directory.group}/" if directory.group else ""
        told = Kinds({}).of_owner(f"{group}{directory.version}", directory.kind)[1]
        early = "alpha" in directory.version or "beta" in directory.version
        assert told is (Served.PERHAPS if early else Served.YES), directory
