"""``etcdfix fix --from object:FILE`` and ``key:ETCDKEY``: what is written, what is shown, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etcdfix.model.model import digest_of
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Captured, StartEtcd
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.object_files import json_secret, managed, saved
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    aescbc,
    aesgcm,
    config_map,
    crd,
    provider,
    secret,
)

pytestmark = pytest.mark.etcd

NO_SERVER = "--accept=no-api-server"
UNKNOWN_UID = "--accept=unknown-uid"


def from_object(
    registry: Registry, value: Any, *arguments: str, name: str = "shop/broken", resource: str = "secrets"
) -> Ran:
    path = value if isinstance(value, Path) else saved(registry.folder, value)
    return registry.put_back(registry.key(name, resource), f"object:{path}", *arguments)


def served(registry: Registry, name: str = "shop/broken") -> Any:
    key = name if "/" in name and name.count("/") > 1 else f"secrets/{name}"
    ran = registry.run(
        "get", f"{registry.prefix}/{key}", "--reveal", "-o", "json", "--endpoints", registry.endpoints,
        "--etcd-prefix", registry.prefix, "--encryption-config", str(registry.config),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_over_a_value_that_is_broken(registry: Registry, api: KubernetesAPI) -> None:
    key = registry.key("shop/broken")
    mod_revision = registry.mod_revision(key)
    value = json_secret(resource_version=mod_revision, managedFields=managed("2026-02-03T04:05:06Z"))
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    with registry.untouched():
        ran = from_object(registry, value, *asked, UNKNOWN_UID, "--dry-run")
    assert ran.code == 0, ran.err
    ran = from_object(registry, value, *asked, UNKNOWN_UID)
    assert ran.code == 0, ran.err
    assert "Written with  aescbc/v1/key1" in ran.err
    assert "never-to-be-shown" not in ran.err + ran.out
    now = served(registry)
    assert now["metadata"].pop("resourceVersion") == str(registry.mod_revision(key))
    del value["metadata"]["resourceVersion"]
    assert now == value
    stored = registry.stored(key)
    assert stored is not None
    assert stored.startswith(b"k8s:enc:aescbc:v1:key1:")
    intent = registry.records()[-2]
    assert (intent.accepted, intent.way) == (("--accept unknown-uid",), "seal")
    assert intent.detail.endswith(f"now {digest_of(stored)}")
    assert registry.undo(registry.kept()[-1].path).code == 0
    assert registry.stored(key) == BROKEN


def test_where_nothing_is(registry: Registry, api: KubernetesAPI) -> None:
    """etcd keeps the last revision of the object, so that its uid is known."""
    api.holds = False
    key = registry.key("shop/good-0")
    last = registry.mod_revision(key)
    registry.etcd.delete(key)
    ran = from_object(
        registry, json_secret("good-0", resource_version=last),
        "--kubeconfig", str(api.kubeconfig(registry.folder)), name="shop/good-0",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "it has the uid of the object at the key" in ran.err
    assert served(registry, "shop/good-0")["metadata"]["uid"] == json_secret()["metadata"]["uid"]


def test_a_resource_version_that_is_none(registry: Registry) -> None:
    with registry.untouched():
        ran = from_object(registry, json_secret(resource_version="-5"), NO_SERVER, UNKNOWN_UID)
    registry.refused(ran, "its resourceVersion is not a number", hint="this very object")


def test_a_cluster_without_encryption(
    start_etcd: StartEtcd, prefix: bytes, tmp_path: Path, capfd: Captured
) -> None:
    """Every value of the etcd is looked at; then no other object of the resource is needed."""
    registry = Registry(start_etcd(), prefix, tmp_path, capfd, furnished=False)
    key = registry.put("shop/settings", config_map()[:-3], "configmaps")
    value = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "settings", "namespace": "shop", "uid": "u-9"},
    }
    given = (key, f"object:{saved(tmp_path, value)}", UNKNOWN_UID, NO_SERVER, "--no-encryption")
    other = registry.put("shop/other", aescbc(secret("other")))
    with registry.untouched():
        ran = registry.put_back(*given, configured=False)
    registry.refused(ran, "there is encryption at rest", hint="--encryption-config FILE")
    registry.etcd.delete(other)
    ran = registry.put_back(*given, configured=False)
    assert ran.code == 0, ran.err
    assert "Write key" not in ran.err
    stored = registry.stored(key)
    assert stored is not None
    assert json.loads(stored) == value


WIDGET = {
    "kind": "Widget",
    "apiVersion": "example.com/v1",
    "metadata": {"name": "w", "namespace": "shop", "uid": "u-7", "resourceVersion": "5"},
    "spec": {"size": 1.5, "big": 9007199254740993, "none": None, "text": "\u00e9<&>"},
}


def test_a_custom_resource(registry: Registry) -> None:
    """What is stored is what is served: each number keeps its text."""
    registry.put("widgets.example.com", crd(), "apiextensions.k8s.io/customresourcedefinitions")
    newest = {**WIDGET, "metadata": {"name": "other", "namespace": "shop", "uid": "u-8"}}
    registry.put("shop/other", json.dumps(newest).encode(), "example.com/widgets")
    key = registry.key("shop/w", "example.com/widgets")
    file = saved(registry.folder, WIDGET)
    given = (key, f"object:{file}", UNKNOWN_UID, NO_SERVER)
    ran = registry.put_back(*given)
    assert ran.code == 0, ran.err
    stored = registry.stored(key)
    assert stored is not None
    expected = {**WIDGET, "metadata": {k: v for k, v in WIDGET["metadata"].items() if k != "resourceVersion"}}  # type: ignore[attr-defined]
    assert json.loads(stored) == expected
    assert b'"big":9007199254740993' in stored


def moved(registry: Registry) -> tuple[bytes, bytes]:
    registry.configure(provider("aesgcm", key1=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY)
    home, other = registry.key("shop/home"), registry.key("shop/other")
    registry.etcd.put(other, aesgcm(secret("home"), home.decode()))
    return home, other


def test_a_moved_value_goes_home(registry: Registry) -> None:
    home, other = moved(registry)
    source = f"key:{other.decode()}"
    with registry.untouched():
        ran = registry.put_back(home, source)
    registry.refused(ran, "nothing that etcd keeps, and no backup, shows", hint="--accept unknown-uid")
    ran = registry.put_back(home, source, UNKNOWN_UID)
    assert ran.code == 0, ran.err
    assert f"From  etcd key {other.decode()}" in ran.err
    assert registry.stored(home) == registry.stored(other) == aesgcm(secret("home"), home.decode())


def test_nothing_is_replaced_by_a_moved_value(registry: Registry) -> None:
    home, other = moved(registry)
    for value, words in (
        (b"k8s:enc:aesgcm:v1:key1:cut", "exists, and may be newer"),
        (aesgcm(secret("home"), home.decode()), "readable"),
    ):
        registry.etcd.put(home, value)
        with registry.untouched():
            ran = registry.put_back(home, f"key:{other.decode()}", UNKNOWN_UID)
        registry.refused(ran, words, hint=" ")


def test_what_does_not_go_home(registry: Registry) -> None:
    home, other = moved(registry)
    no_tag = "no tag shows that it was written for this key"
    for value, words in (
        (aesgcm(secret("home"), other.decode()), "etcd key"),
        (aescbc(secret("home")), no_tag),
        (secret("home"), no_tag),
        (None, "holds no copy"),
    ):
        registry.etcd.delete(other) if value is None else registry.etcd.put(other, value)
        with registry.untouched():
            ran = registry.put_back(home, f"key:{other.decode()}", UNKNOWN_UID)
        registry.refused(ran, words, hint=" ")
