"""Etcd keys that no object can have, as web UIs for etcd write them to mark directories, and all that looks like them.

Only what a LIST reads may go, and only where no object can be in it, whoever would read it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from etcdfix.model.rules import Rule
from etcdfix.text.safetext import key_word
from tests.support.attacks import (
    EVERY_FLAG,
    OTHER,
    TRUE,
    Attacked,
    config_map,
    every_flag_but,
    seal,
    secret,
)
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import IDENTITY, crd, namespace_object, provider, widget

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

MARK = b"etcdv3_dir_$2H#%gRe3*t"
NEWER = every_flag_but(Rule.NEWER_THAN_KNOWN)


@pytest.fixture
def cluster(registry: Attacked) -> Attacked:
    """A cluster with a healthy object of each kind that is marked, and a configuration for Secrets."""
    registry.keyed("aesgcm")
    registry.secrets("aesgcm", ["web"])
    registry.put("shop/settings", config_map("settings"), "configmaps")
    registry.put("shop", namespace_object("shop", "u-4"), "namespaces")
    registry.put("widgets.example.com", crd(), "apiextensions.k8s.io/customresourcedefinitions")
    registry.put(
        "gears.example.com",
        crd("gears", kind="Gear", scope="Cluster"),
        "apiextensions.k8s.io/customresourcedefinitions",
    )
    return registry


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        ("configmaps", "shop", MARK), ("configmaps", "shop/", b""), ("configmaps", "/settings", MARK),
        ("minions", "", MARK), ("example.com/widgets", "shop", MARK), ("secrets", "shop", b""),
    ],
)  # fmt: skip
def test_what_a_list_reads_and_no_object_can_have_goes_and_comes_back(
    cluster: Attacked, resource: str, name: str, value: bytes
) -> None:
    at = cluster.put(name, value, resource)
    reading = ["--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    explained = cluster.run("explain", key_word(at), "--endpoints", cluster.endpoints, *reading, "-o", "json")
    (way,) = json.loads(explained.out)["remedies"]
    ran = cluster.paste(way["command"].replace("--dry-run", "").replace("REASON", "test"))
    assert (ran.code, cluster.stored(at)) == (0, None), ran.err
    (backup,) = cluster.kept()
    assert backup.content.verdict.cause == "not-an-objects-key"
    assert cluster.undo(next(cluster.backups.glob("*.json"))).code == 0
    assert cluster.stored(at) == value


@pytest.mark.parametrize(("first", "name"), [("shop", "/shop"), ("shop/", "shop/")])
def test_one_key_goes_and_its_like_stay(
    cluster: Attacked, api: KubernetesAPI, tmp_path: Path, first: str, name: str
) -> None:
    """No API server can be asked for an object of such a key; its user may delete any of the resource."""
    marks = [cluster.put(mark, MARK, "configmaps") for mark in (first, "web", "default")]
    ran = cluster.delete(key_word(marks[0]).encode(), "--kubeconfig", str(api.kubeconfig(tmp_path)))
    assert (ran.code, cluster.stored(marks[0])) == (0, None), ran.err
    assert not [asked for asked in api.requests if asked.path.startswith("/api/v1/configmaps")]
    reviewed = [
        json.loads(asked.raw)["spec"] for asked in api.requests if asked.path.endswith("accessreviews")
    ]
    assert {review["resourceAttributes"].get("name", "") for review in reviewed} == {name}
    assert [cluster.stored(at) for at in marks[1:]] == [MARK, MARK]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("configmaps", config_map("settings")), ("services/specs", b""), ("example.com", MARK),
        ("example.com/widgets", MARK), ("ranges", b""), ("minions", config_map("settings")),
    ],
)  # fmt: skip
def test_a_directory_that_no_list_reads_stays(cluster: Attacked, path: str, value: bytes) -> None:
    at = f"{cluster.prefix}/{path}".encode()
    cluster.etcd.put(at, value)
    cluster.refuses([at], *EVERY_FLAG, rule="not-an-object", hint="etcdfix leaves it")


def values_that_may_be_objects(key: bytes) -> dict[str, bytes]:
    """Return what must not go because no object can have its etcd key."""
    sealed = bytearray(seal("aesgcm", secret("web"), key))
    sealed[4] ^= 1
    of_type = {b"configmaps": config_map("settings"), b"secrets": secret("web")}
    whole = of_type.get(key.rpartition(b"/shop")[0].rpartition(b"/")[2], widget()) if key else b""
    return {
        "readable": whole,
        "readable, base64": whole if b"example.com" in key else base64.b64encode(whole),
        "of a lost key": seal("aesgcm", secret("web"), key, OTHER, "key9"),
        "of a lost provider": seal("secretbox", secret("web"), key, OTHER),
        "of other bytes": seal("aesgcm", secret("web"), key, OTHER),
        "begins almost encrypted": bytes(sealed),
        "a word that begins almost encrypted": b"k8s:enb:aesgcm:v1:key1:abc",
    }


@pytest.mark.parametrize(
    "path", ["configmaps/shop", "secrets/shop", "secrets/shop/", "example.com/widgets/shop"]
)
def test_what_may_be_an_object_stays(cluster: Attacked, path: str) -> None:
    at = f"{cluster.prefix}/{path}".encode()
    for value in values_that_may_be_objects(at).values():
        cluster.etcd.put(at, value)
        cluster.refuses([key_word(at).encode()], *EVERY_FLAG)


@pytest.mark.parametrize("value", [b"\x9d\x01new encoding", b"two words", b"x" * 65, b"k9s\x00abc"])
def test_what_a_newer_server_may_read_is_no_mark(cluster: Attacked, value: bytes) -> None:
    cluster.refuses([cluster.put("shop", value, "configmaps")], *NEWER, rule="newer-than-known")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("namespaces", "shop2"),
        ("configmaps", "shop/settings/extra"),
        ("configmaps", "shop/settings/"),
        ("example.com/gears", "shop"),
    ],
)
def test_a_key_with_enough_parts_is_no_mark(cluster: Attacked, resource: str, name: str) -> None:
    at = cluster.put(name, MARK, resource)
    cluster.refuses([key_word(at).encode()], *NEWER, rule="newer-than-known")


@pytest.mark.parametrize(
    "path",
    ["gizmos", "gizmos/shop", "wardle.example.org/flunders/shop", "example.com/gizmos/shop", "example.org"],
)
def test_what_belongs_to_a_stranger_stays(cluster: Attacked, path: str) -> None:
    at = f"{cluster.prefix}/{path}".encode()
    cluster.etcd.put(at, MARK)
    cluster.refuses([at], *EVERY_FLAG, rule="undetermined")


def test_with_an_unreadable_definition_nothing_is_known(cluster: Attacked) -> None:
    at = cluster.put("shop", MARK, "example.com/widgets")
    cluster.put("widgets.example.com", b"{", "apiextensions.k8s.io/customresourcedefinitions")
    cluster.refuses([at], *EVERY_FLAG, rule="undetermined")


def test_in_a_rule_without_identity_it_is_a_mark_too(cluster: Attacked) -> None:
    cluster.rules(("secrets", (provider("aesgcm", key1=TRUE),)), ("configmaps", (IDENTITY,)))
    at = cluster.put("shop", MARK)
    ran = cluster.delete(at)
    assert (ran.code, cluster.stored(at)) == (0, None), ran.err
