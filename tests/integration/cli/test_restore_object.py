"""``etcdfix restore --from-object`` and ``--from-key``: what is written, what is shown, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.remediation.backup.file import digest
from etcdfix.testing.servers import EtcdServer
from tests.support.attacks import TRUE, seal
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.golden import needs_golden
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.object_files import json_secret, managed, saved
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    aescbc,
    aesgcm,
    config_map,
    configuration_yaml,
    crd,
    namespace_object,
    provider,
    secret,
)
from tests.support.sample_objects import samples

pytestmark = pytest.mark.etcd

NO_SERVER = "--accept=no-api-server"
UNLISTED = "--accept=unlisted-source"
UNKNOWN_UID = "--accept=unknown-uid"


def from_object(
    registry: Registry, value: Any, *arguments: str, name: str = "shop/broken", resource: str = "secrets"
) -> Ran:
    """Put an object over the value that is there, with what any such restore needs."""
    key = registry.key(name, resource)
    there = registry.stored(key) is not None
    replace = ("--replace-mod-revision", str(registry.mod_revision(key))) if there else ()
    path = value if isinstance(value, Path) else saved(registry.folder, value)
    return registry.restore("--from-object", str(path), key.decode(), *replace, UNLISTED, *arguments)


def served(registry: Registry, name: str = "shop/broken") -> Any:
    """Return what an API server would serve of a Secret."""
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
    for words in (
        "Written with  aescbc/v1/key1, as JSON",
        f"API servers write so too: {registry.key('shop/good-0').decode()} is stored under it",
        f"its resourceVersion is the key's mod_revision {mod_revision}, yet nothing shows that it has the uid",
        "perhaps of ANOTHER OBJECT",
        "value-truncated; backed up first",
    ):
        assert words in ran.err, (words, ran.err)
    assert "never-to-be-shown" not in ran.err + ran.out
    now = served(registry)
    assert now["metadata"].pop("resourceVersion") == str(registry.mod_revision(key))
    del value["metadata"]["resourceVersion"]
    assert now == value
    stored = registry.stored(key)
    assert stored is not None
    assert stored.startswith(b"k8s:enc:aescbc:v1:key1:")
    intent = registry.events()[-2].annotations
    assert json.loads(intent.accepted) == ["--accept unlisted-source", "--accept unknown-uid"]
    assert intent.detail == f"from object in {registry.folder / 'object.json'}, {digest(stored)}"


def test_it_has_an_undo(registry: Registry) -> None:
    key = registry.key("shop/broken")
    assert from_object(registry, json_secret(), NO_SERVER, UNKNOWN_UID).code == 0
    backup = registry.kept()[-1]
    ran = registry.restore(str(backup.path), "--replace-mod-revision", str(registry.mod_revision(key)))
    assert ran.code == 0, ran.err
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
    assert (
        f"nothing newer is overwritten, as far as can be told: its resourceVersion is the key's mod_revision {last}"
        in ran.err
    )
    assert "it is of the object that is at the key, or was there last" in ran.err
    assert served(registry, "shop/good-0")["metadata"]["uid"] == json_secret()["metadata"]["uid"]
    assert json.loads(registry.events()[-2].annotations.accepted) == ["--accept unlisted-source"]


@pytest.mark.parametrize(
    ("resource_version", "words"),
    [
        (3, "the key was WRITTEN AFTER the object was saved (its resourceVersion 3, the key's mod_revision"),
        (1 << 40, "the object was saved LATER than the key was written"),
        (
            "resourceVersionValue",
            "nothing tells whether the object was written after it was saved: it has no",
        ),
        ("-5", "nothing tells whether the object was written after it was saved: it has no"),
    ],
)
def test_what_is_newer(registry: Registry, resource_version: int | str, words: str) -> None:
    with registry.untouched():
        ran = from_object(
            registry, json_secret(resource_version=resource_version), NO_SERVER, UNKNOWN_UID, "--dry-run"
        )
    assert ran.code == 0, ran.err
    assert words in ran.err


def test_a_revision_that_is_kept_and_later(registry: Registry) -> None:
    """Of the same resourceVersion: the file was edited, or is of a clone."""
    key = registry.key("shop/good-0")
    later = json_secret("good-0", managedFields=managed("2026-05-05T05:05:05Z"))
    registry.etcd.put(key, aescbc(json.dumps(later).encode() + b"\n"))
    there = registry.mod_revision(key)
    registry.etcd.put(key, BROKEN)
    registry.etcd.put(registry.key("shop/good-1"), aescbc(secret("good-1")))
    older = json_secret(
        "good-0", resource_version=registry.mod_revision(key), managedFields=managed("2026-04-04T04:04:04Z")
    )
    ran = from_object(registry, older, NO_SERVER, "--dry-run", name="shop/good-0")
    assert ran.code == 0, ran.err
    assert f"yet mod_revision {there} still reads, and that one is LATER than the file" in ran.err
    older["metadata"] |= {"managedFields": managed("2026-06-06T06:06:06Z"), "resourceVersion": "2"}
    ran = from_object(registry, older, NO_SERVER, "--dry-run", name="shop/good-0")
    assert "WRITTEN AFTER" in ran.err
    assert f"mod_revision {there} still reads, and the file is later" in ran.err


def test_without_encryption(registry: Registry) -> None:
    """Nothing in this etcd is encrypted, and so is what is written."""
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("secrets",))
    key = registry.put("shop/settings", config_map()[:-3], "configmaps")
    registry.put("shop/other", config_map("other"), "configmaps")
    value = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "settings", "namespace": "shop", "uid": "u-9"},
        "data": {"a": "<b> & c"},
    }
    ran = from_object(registry, value, NO_SERVER, UNKNOWN_UID, name="shop/settings", resource="configmaps")
    assert ran.code == 0, ran.err
    assert "Written with  no encryption, as JSON" in ran.err
    stored = registry.stored(key)
    assert stored is not None
    assert json.loads(stored) == value
    assert stored.endswith(b"}\n")
    assert b" " not in stored.replace(b"\\u003cb\\u003e \\u0026 c", b"")


def test_a_cluster_without_encryption(
    start_etcd: Callable[..., EtcdServer], prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every value of the etcd is looked at; then no other object of the resource is needed."""
    registry = Registry(start_etcd(), prefix, tmp_path, capfd, furnished=False)
    key = registry.put("shop/settings", config_map()[:-3], "configmaps")
    value = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "settings", "namespace": "shop", "uid": "u-9"},
    }
    given = (
        "--from-object", str(saved(tmp_path, value)), key.decode(), UNLISTED, UNKNOWN_UID, NO_SERVER,
        "--replace-mod-revision", str(registry.mod_revision(key)), "--no-encryption",
    )  # fmt: skip
    other = registry.put("shop/other", aescbc(secret("other")))
    with registry.untouched():
        ran = registry.restore(*given, configured=False)
    registry.refused(ran, "there is encryption at rest", hint="--encryption-config FILE")
    registry.etcd.delete(other)
    ran = registry.restore(*given, configured=False)
    assert ran.code == 0, ran.err
    stored = registry.stored(key)
    assert stored is not None
    assert json.loads(stored) == value


def test_a_lease_is_kept(registry: Registry) -> None:
    key = registry.key("shop/broken")
    lease = registry.grant(key, BROKEN)
    registry.etcd.put(registry.key("shop/good-1"), aescbc(secret("good-1")))
    assert from_object(registry, json_secret(), NO_SERVER, UNKNOWN_UID).code == 0
    assert registry.lease(key) == int(lease, 16)


_SAMPLED = (
    "apps.v1.Deployment", "apps.v1.StatefulSet", "autoscaling.v1.HorizontalPodAutoscaler", "batch.v1.Job",
    "core.v1.Pod", "core.v1.Service", "networking.k8s.io.v1.Ingress", "policy.v1.PodDisruptionBudget",
)  # fmt: skip


@needs_golden
def test_samples_of_many_kinds(registry: Registry) -> None:
    """What an API server gives of them is what etcdfix gives of them afterwards."""
    registry.config.write_bytes(configuration_yaml(provider("aesgcm", key1=TRUE), resources=("*.*",)))
    registry.put("kube-system", namespace_object("kube-system"), resource="namespaces")
    done = set()
    for sample in samples("v1.36.0"):
        if sample.name not in _SAMPLED:
            continue
        done.add(sample.name)
        newest = sample.key(registry.prefix) + b"-newest"
        value = json.loads(json.dumps(sample.value))
        value["metadata"]["name"] += "-newest"
        del value["metadata"]["resourceVersion"]
        registry.etcd.put(newest, seal("aesgcm", json.dumps(value).encode(), newest, TRUE))
        key = sample.key(registry.prefix).decode()
        file = saved(registry.folder, sample.value)
        ran = registry.restore("--from-object", str(file), key, UNLISTED, UNKNOWN_UID, NO_SERVER)
        assert ran.code == 0, (sample.name, ran.err)
        now = served(registry, key.removeprefix(f"{registry.prefix}/"))
        now["metadata"]["resourceVersion"] = sample.value["metadata"]["resourceVersion"]
        assert now == sample.value, sample.name
    assert done == set(_SAMPLED)


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
    given = ("--from-object", str(file), key.decode(), UNLISTED, UNKNOWN_UID, NO_SERVER)
    ran = registry.restore(*given)
    assert ran.code == 0, ran.err
    stored = registry.stored(key)
    assert stored is not None
    expected = {**WIDGET, "metadata": {k: v for k, v in WIDGET["metadata"].items() if k != "resourceVersion"}}  # type: ignore[attr-defined]
    assert json.loads(stored) == expected
    assert b'"big":9007199254740993' in stored
    registry.etcd.delete(key)
    registry.etcd.delete(
        registry.key("widgets.example.com", "apiextensions.k8s.io/customresourcedefinitions")
    )
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(
        ran, "holds no object of a type that API servers of this cluster are known", hint="CustomResource"
    )


def test_a_definition(registry: Registry) -> None:
    registry.put("gadgets.example.com", crd("gadgets"), "apiextensions.k8s.io/customresourcedefinitions")
    key = registry.key("widgets.example.com", "apiextensions.k8s.io/customresourcedefinitions")
    value = json.loads(crd())
    value["metadata"]["uid"] = "u-9"
    given = (
        "--from-object",
        str(saved(registry.folder, value)),
        key.decode(),
        UNLISTED,
        UNKNOWN_UID,
        NO_SERVER,
    )
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, "a file that may have been edited", hint="--accept cluster-breaking")
    ran = registry.restore(*given, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    stored = registry.stored(key)
    assert stored is not None
    assert json.loads(stored) == value


# From another key.


def moved(registry: Registry) -> tuple[bytes, bytes]:
    """Let a value lie under a key that it was not written for; return its own key, and where it lies."""
    registry.configure(provider("aesgcm", key1=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY)
    home, other = registry.key("shop/home"), registry.key("shop/other")
    registry.etcd.put(other, aesgcm(secret("home"), home.decode()))
    return home, other


def test_a_moved_value_goes_home(registry: Registry) -> None:
    home, other = moved(registry)
    given = ("--from-key", other.decode(), home.decode())
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, f"the etcd key {other.decode()} is no backup", hint="--accept unlisted-source")
    with registry.untouched():
        ran = registry.restore(*given, UNLISTED)
    registry.refused(ran, "nothing that etcd keeps, and no backup, shows", hint="--accept unknown-uid")
    ran = registry.restore(*given, UNLISTED, UNKNOWN_UID)
    assert ran.code == 0, ran.err
    assert f"{other.decode()} is left as it is" in ran.err
    assert registry.stored(home) == registry.stored(other) == aesgcm(secret("home"), home.decode())


def test_nothing_is_replaced_by_a_moved_value_that_reads(registry: Registry) -> None:
    home, other = moved(registry)
    registry.etcd.put(home, aesgcm(secret("home"), home.decode()))
    given = ("--from-key", other.decode(), home.decode(), UNLISTED)
    with registry.untouched():
        for replace in ((), ("--replace-mod-revision", str(registry.mod_revision(home)))):
            ran = registry.restore(*given, *replace)
            registry.refused(ran, "--from-key puts bytes only where nothing is", hint="--from-revision")


@pytest.mark.parametrize("case", ["itself", "gone", "not its own", "no tag", "not encrypted"])
def test_what_does_not_go_home(registry: Registry, case: str) -> None:
    home, other = moved(registry)
    accepted = (UNLISTED, UNKNOWN_UID)
    words, hint = {
        "itself": ("itself", "name the key that holds it"),
        "gone": ("does not exist in the etcd now", "look into an older one"),
        "not its own": ("is decrypt-failure at", "etcdfix explain"),
        "no tag": ("under aescbc/v1/key1, which has no tag", "--from-revision"),
        "not encrypted": ("under identity, which has no tag", "--from-revision"),
    }[case]
    if case == "itself":
        other = home
    elif case == "gone":
        registry.etcd.delete(other)
    elif case == "not its own":
        registry.etcd.put(other, aesgcm(secret("home"), other.decode()))
    elif case == "no tag":
        registry.etcd.put(other, aescbc(secret("home")))
    else:
        registry.etcd.put(other, secret("home"))
    with registry.untouched():
        ran = registry.restore("--from-key", other.decode(), home.decode(), *accepted)
    registry.refused(ran, words, hint=hint)
