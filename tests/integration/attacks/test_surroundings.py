"""Attacks with what surrounds a value: its place, the release, the definitions, the cluster. Nothing healthy may go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from etcdfix.model.rules import Rule
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.attacks import (
    EVERY_FLAG,
    UID,
    WRONG,
    Attacked,
    config_map,
    declared,
    every_flag_but,
    node,
    seal,
    secret,
    without,
)
from tests.support.change_runs import ACKNOWLEDGED
from tests.support.etcd_proxy import EtcdProxy
from tests.support.fixtures import StartEtcd
from tests.support.lossy_etcd import TXN
from tests.support.objects import KUBE_SYSTEM_UID, crd, json_object, namespace_object, widget

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.mark.parametrize("prefix_then", ["/registry", "/registry/old"])
def test_storage_prefix_that_was_another_one(registry: Attacked, prefix_then: str) -> None:
    """All of it was copied to where it is now; under the prefix of then every value opens."""
    keys = []
    for name in ("web", "db", "mail"):
        at = registry.key(f"shop/{name}")
        registry.etcd.put(at, seal("aesgcm", secret(name), f"{prefix_then}/secrets/shop/{name}"))
        keys.append(at)
    cause = "storage-prefix-changed" if prefix_then != "/registry/old" else "associated-data-unknown"
    registry.refuses(keys, *EVERY_FLAG, cause=cause)
    registry.refuses(keys[:1], *declared("aesgcm/v1/key1"), rule="declaration")


def test_all_behind_a_proxy_with_a_namespace(registry: Attacked) -> None:
    """All values peek right and decode whole; nobody can guess what they are bound to."""
    names = [f"db-{number}" for number in range(5)]
    keys = {name: registry.key(f"shop/{name}") for name in names}
    registry.etcd.put_all((at, seal("aesgcm", secret(name), b"tenant-7" + at)) for name, at in keys.items())
    registry.refuses([keys["db-0"], keys["db-4"]], *EVERY_FLAG, cause="associated-data-unknown")
    registry.refuses([keys["db-0"]], *declared("aesgcm/v1/key1"), rule="declaration")


def test_one_that_was_written_through_a_proxy_for_a_while(registry: Attacked) -> None:
    """Three others open under their own keys, one of them older, and the object is this key's: likely, no more."""
    registry.secrets("aesgcm", ["before"])
    at = registry.key("shop/between")
    registry.etcd.put(at, seal("aesgcm", secret("between"), b"tenant-7" + at))
    registry.secrets("aesgcm", ["later"])
    registry.refuses([at], *EVERY_FLAG, cause="associated-data-unknown")
    registry.secrets("aesgcm", ["latest"])
    registry.refuses([at], *every_flag_but(Rule.UNPROVEN_DAMAGE), accept="unproven-damage")


def moved(registry: Attacked, *, uid: bytes = UID) -> tuple[bytes, bytes]:
    registry.secrets("aesgcm", ["bystander"])
    home, copy = registry.key("shop/home"), registry.key("shop/copy")
    registry.etcd.put(copy, seal("aesgcm", secret("home").replace(UID, uid), home))
    return home, copy


@pytest.mark.parametrize(
    "there",
    [
        None,
        lambda home: seal("aesgcm", secret("home"), home, WRONG),
        lambda home: seal("aesgcm", secret("home"), home)[:-40],
        lambda home: seal("aesgcm", secret("home").replace(UID, UID[::-1]), home),
        lambda home: seal("aesgcm", secret("other"), home),
    ],
    ids=["absent", "another-key", "cut", "another-uid", "another-name"],
)
def test_moved_value_whose_home_does_not_hold_it(
    registry: Attacked, there: Callable[[bytes], bytes] | None
) -> None:
    home, copy = moved(registry)
    if there is not None:
        registry.etcd.put(home, there(home))
    registry.refuses([copy], *EVERY_FLAG, rule="value-moved")


def test_moved_value_whose_home_is_older(registry: Attacked) -> None:
    """Of the same uid, with other content, and written before: what is here may be the newer state."""
    home = registry.key("shop/home")
    registry.etcd.put(home, seal("aesgcm", secret("home", size=9), home))
    _, copy = moved(registry)
    registry.refuses([copy], *EVERY_FLAG, rule="value-moved")


def test_moved_value_whose_home_is_newer(registry: Attacked) -> None:
    home, copy = moved(registry)
    registry.etcd.put(home, seal("aesgcm", secret("home", size=9), home))
    registry.refuses([copy], *every_flag_but(Rule.ONLY_COPY), accept="only-copy")
    assert registry.delete(copy, "--accept", "only-copy", "--dry-run").code == 0


def test_moved_value_whose_home_holds_it(registry: Attacked) -> None:
    home, copy = moved(registry)
    registry.etcd.put(home, seal("aesgcm", secret("home"), home, salt="another nonce"))
    registry.refuses([home], *EVERY_FLAG, rule="readable")
    ran = registry.delete(copy)
    assert ran.code == 0, ran.err
    assert registry.stored(copy) is None
    assert registry.stored(home) is not None


@pytest.mark.parametrize("change", ["rewritten", "deleted", "created-again"])
def test_home_of_a_moved_value_changes_before_the_transaction(registry: Attacked, change: str) -> None:
    home, copy = moved(registry)
    registry.etcd.put(home, seal("aesgcm", secret("home"), home))
    changed: list[int] = []

    def before(path: str, _request: bytes) -> None:
        if path == TXN and not changed:
            changed.append(1)
            if change != "rewritten":
                registry.etcd.delete(home)
            if change != "deleted":
                registry.etcd.put(home, seal("aesgcm", secret("home", size=9), home))

    with EtcdProxy(registry.etcd.endpoint, before=before) as proxy:
        registry.endpoints = proxy.endpoint
        ran = registry.delete(copy)
    assert changed
    registry.refused(ran, hint="again")
    assert registry.stored(copy) is not None


def claim(version: str) -> bytes:
    meta = block(1, object_meta(b"gpu", b"shop", UID))
    return unknown(f"resource.k8s.io/{version}".encode(), b"ResourceClaim", meta + block(2, b""))


def test_release_in_the_environment(registry: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    at = registry.put("shop/gpu", claim("v1alpha2"), resource="resourceclaims")
    for name in ("KUBERNETES_VERSION", "ACCEPT_RISK", "DECLARE_KEY_LOST", "YES"):
        monkeypatch.setenv(f"ETCDFIX_{name}", "1.34")
    registry.refuses([at], *EVERY_FLAG, rule="readable")


@pytest.mark.parametrize(
    ("kubelet", "named"), [("v1.36.1", "1.34"), ("v1.32.9", "1.36"), ("v1.36.0-rc.1", "1.35")]
)
def test_release_that_the_nodes_contradict(registry: Attacked, kubelet: str, named: str) -> None:
    registry.put("node-0", node("node-0", "v1.31.4"), resource="minions")
    registry.put("node-1", node("node-1", kubelet), resource="minions")
    at = registry.put("shop/gpu", claim("v1alpha2"), resource="resourceclaims")
    registry.refuses([at], *EVERY_FLAG, "--kubernetes-version", named, rule="release")


def test_release_that_no_node_bears_out(registry: Attacked) -> None:
    registry.put("node-0", node("node-0", "v1.34.1")[:-9], resource="minions")
    at = registry.put("shop/gpu", claim("v1alpha2"), resource="resourceclaims")
    flags = without(EVERY_FLAG, "unknown-release")
    registry.refuses([at], *flags, "--kubernetes-version", "1.34", accept="unknown-release")
    # Accepted, but not proven: the value may still be newer than the release that was named.
    others = every_flag_but(Rule.NEWER_THAN_KNOWN)
    registry.refuses([at], *others, "--kubernetes-version", "1.34", accept="newer-than-known")


def test_release_that_the_nodes_bear_out(registry: Attacked) -> None:
    registry.put("node-0", node("node-0", "v1.34.1"), resource="minions")
    at = registry.put("shop/gpu", claim("v1alpha2"), resource="resourceclaims")
    ran = registry.delete(at, "--kubernetes-version", "1.34", "--dry-run")
    assert (ran.code, ran.err.count("version-removed")) == (0, 1), ran.err


@pytest.mark.parametrize("nodes", [["v1.36.0", "v1.30.2"], []])
def test_release_of_a_manifest_that_the_main_etcd_does_not_bear_out(
    registry: Attacked, start_etcd: StartEtcd, nodes: list[str]
) -> None:
    """API servers keep Nodes in the main etcd: one beside the key itself is left from elsewhere, and shows nothing."""
    own = start_etcd()
    for number, kubelet in enumerate(nodes):
        registry.put(f"n-{number}", node(f"n-{number}", kubelet), resource="minions")
    at = registry.key("shop/gpu", "resourceclaims")
    own.put_all([(at, claim("v1alpha2")), (registry.key("left", "minions"), node("left", "v1.34.1"))])
    overrides = f"resource.k8s.io/resourceclaims#{own.endpoint}"
    flags = [f"--etcd-servers={registry.endpoints}", f"--etcd-servers-overrides={overrides}"]
    container = {"image": "kube-apiserver:v1.34.1", "command": ["kube-apiserver", *flags]}
    manifest = registry.folder / "manifest.json"
    manifest.write_text(json.dumps({"spec": {"containers": [container]}}))
    given = ["--manifest", str(manifest), *registry.common()[2:]]
    # Once accepted it is not proven: a server of another release may read it.
    for accepted, rule in (
        (tuple(without(EVERY_FLAG, "unknown-release")), "release" if nodes else "unknown-release"),
        (every_flag_but(Rule.NEWER_THAN_KNOWN), "release" if nodes else "newer-than-known"),
    ):
        with registry.nothing_changes():
            ran = registry.run("delete", at.decode(), ACKNOWLEDGED, "--yes", *accepted, *given, "-o", "json")
        assert (ran.code, json.loads(ran.out)["refusal"]["rule"]) == (4, rule), ran
    assert own.etcdctl("get", at.decode(), "--keys-only")


NEWER: dict[str, tuple[str, Callable[[Attacked, int], bytes]]] = {
    "kms-v3": ("secrets", lambda _, n: b"k8s:enc:kms:v3:prov:" + bytes(40) + b"%d" % n),
    "nothing-but-the-start": ("secrets", lambda _, n: b"k8s:enc:" + b"x" * n),
    "kind": ("secrets", lambda _, n: json_object("v1", "Sekret", f"new-{n}")),
    "version": ("deployments", lambda _, n: json_object("apps/v3", "Deployment", f"new-{n}")),
    "encoding": (
        "secrets",
        lambda _, n: b"\x28\xb5\x2f\xfd\x04\x00compressed-%d-" % n + bytes(range(60, 90)),
    ),
    "magic": ("secrets", lambda _, n: b"k8s\x01" + bytes(range(n, n + 90))),
    "cbor": ("secrets", lambda _, n: b"\xd9\xd9\xf7\xbf" + b"\xff" * 3 + b"%d" % n),
}


@pytest.mark.parametrize("case", NEWER)
def test_cluster_that_is_newer(registry: Attacked, case: str) -> None:
    """One needs a word, several that are alike and none that reads: no flag lifts it."""
    resource, value = NEWER[case]
    registry.keyed("aesgcm")
    at = registry.put("shop/new-0", value(registry, 0), resource=resource)
    registry.refuses([at], *every_flag_but(Rule.NEWER_THAN_KNOWN), accept="newer-than-known")
    assert registry.delete(at, "--accept", "newer-than-known", "--dry-run").code == 0
    keys = [at, *(registry.put(f"shop/new-{n}", value(registry, n), resource=resource) for n in range(1, 12))]
    for flags in ((), EVERY_FLAG):
        registry.refuses(keys[:2], *flags, rule="fails-like-others")


def test_kind_of_another_key_that_may_have_moved_there(registry: Attacked) -> None:
    """A resource that a newer release stores elsewhere looks like a kind under the wrong key."""
    keys = [registry.put(f"shop/s-{n}", config_map(f"s-{n}"), resource="leases") for n in range(2)]
    registry.refuses(keys, *EVERY_FLAG, rule="fails-like-others")


def api_service(group: str, *, service: bool = True) -> bytes:
    spec: dict[str, Any] = {
        "group": group,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    if service:
        spec["service"] = {"name": "metrics", "namespace": "shop", "port": 443}
    return json_object("apiregistration.k8s.io/v1", "APIService", f"v1.{group}", "", spec=spec)


CRDS, SERVICES = "apiextensions.k8s.io/customresourcedefinitions", "apiregistration.k8s.io/apiservices"


@pytest.mark.parametrize(
    "case", ["aggregated", "unreadable-service", "no-definition", "unreadable-definition"]
)
def test_owner_that_nobody_knows(registry: Attacked, case: str) -> None:
    """A definition that was left behind says nothing of what an aggregated server stores."""
    if case != "no-definition":
        definition = crd("widgets", "example.com")
        if case == "unreadable-definition":
            definition = definition[:-30]
        registry.put("widgets.example.com", definition, resource=CRDS)
    if case == "aggregated":
        registry.put("v1.example.com", api_service("example.com"), resource=SERVICES)
    elif case == "unreadable-service":
        registry.put("v1.example.com", api_service("example.com")[:-9], resource=SERVICES)
    keys = [
        registry.put(f"shop/w-{number}", value, resource="example.com/widgets")
        for number, value in enumerate(
            (b"\x01\x02 no json", widget()[:-5], b"{}", b"k8s\0\x0a\xff", b"k8s:enc:x:v9:")
        )
    ]
    for ran in registry.refuses(keys, *EVERY_FLAG):
        assert json.loads(ran.out)["refusal"]["rule"] in {"undetermined", "readable"}


def test_owner_that_is_known(registry: Attacked) -> None:
    """The same with a definition and a service of no other server: the control of the test above."""
    registry.put("widgets.example.com", crd("widgets", "example.com"), resource=CRDS)
    registry.put("v1.example.com", api_service("example.com", service=False), resource=SERVICES)
    at = registry.put("shop/w-0", widget()[:-5], resource="example.com/widgets")
    assert registry.delete(at, "--dry-run").code == 0


def test_version_that_the_definition_lost(registry: Attacked) -> None:
    registry.put("widgets.example.com", crd("widgets", "example.com"), resource=CRDS)
    old = widget().replace(b"example.com/v1", b"example.com/v0")
    at = registry.put("shop/w-0", old, resource="example.com/widgets")
    registry.refuses([at], *EVERY_FLAG, cause="crd-version-missing")


def test_prefix_of_something_else(registry: Attacked) -> None:
    """Under another prefix of the same etcd there is no kube-system; keys of the true one look like strangers."""
    registry.keyed("aesgcm", WRONG)
    (at,) = registry.secrets("aesgcm", ["web"])
    above = registry.prefix.rpartition("/")[0]
    for named in (above, registry.prefix + "/secrets", "/nowhere"):
        true, registry.prefix = registry.prefix, named
        registry.refuses([at], *EVERY_FLAG)
        registry.prefix = true


def test_kube_system_that_is_not_there(registry: Attacked) -> None:
    at = registry.put("shop/cut", secret("cut")[:-9])
    registry.put("shop", namespace_object("shop"), resource="namespaces")
    registry.etcd.delete(registry.key("kube-system", "namespaces"))
    flags = without(EVERY_FLAG, "unknown-cluster")
    registry.refuses([at], *flags, accept="unknown-cluster")
    # No Namespace at all: that is no cluster, whatever is accepted.
    registry.etcd.delete(registry.key("shop", "namespaces"))
    registry.refuses([at], *EVERY_FLAG, rule="unknown-cluster", hint="--etcd-prefix")


@pytest.mark.parametrize(
    "value", [namespace_object("kube-system")[:-3], b"k8s:enc:aesgcm:v1:gone:" + bytes(60)]
)
def test_kube_system_that_was_made_again_and_cannot_be_read(registry: Attacked, value: bytes) -> None:
    """What the one before was called, which etcd still keeps, is not the name of this one."""
    at = registry.put("shop/cut", secret("cut")[:-9])
    registry.etcd.delete(registry.key("kube-system", "namespaces"))
    registry.put("kube-system", value, resource="namespaces")
    ran = registry.delete(at, "--dry-run")
    assert ran.code == 0, ran.err
    assert KUBE_SYSTEM_UID not in ran.err
