"""``etcdfix explain --impact``: words, trees, users, exit codes, and every form of the report."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_index_runs import HOSTILE, Ran, Runner, assert_harmless
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import BROKEN, Cluster, owner
from tests.support.kms_plugin import KMSPlugin
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import IDENTITY, configuration_yaml

SECRET_WORD = "never-to-be-shown"


Impact = Callable[..., Ran]


@pytest.fixture
def impact(monkeypatch: Patch, capfd: Captured) -> Impact:
    runner = Runner("explain", monkeypatch, capfd)
    return lambda cluster, *words: runner(cluster, "--impact", *words)


def told(ran: Ran) -> Any:
    """Return the impact in a JSON report."""
    return ran.document["impact"]


def web(*, pods: int = 2) -> tuple[Cluster, str]:
    """Return a cluster with a Deployment that cannot be read, its ReplicaSet, and pods."""
    cluster = Cluster()
    key = cluster.add("apps/v1", "Deployment", "web", "shop")
    cluster.break_(key)
    cluster.add("apps/v1", "ReplicaSet", "web-1", "shop", owners=(owner("Deployment", "web"),))
    for number in range(pods):
        cluster.pod(f"web-1-{number}", owners=(owner("ReplicaSet", "web-1"),))
    return cluster, key


def test_a_long_chain_of_owners_is_no_deep_document(impact: Impact) -> None:
    cluster, key = web(pods=0)
    for number in range(1, 1500):
        before = owner("ReplicaSet", f"web-{number}")
        cluster.add("apps/v1", "ReplicaSet", f"web-{number + 1}", "shop", owners=(before,))
    ran = impact(cluster, key, "-o", "json")
    assert (ran.code, "web-100" in ran.out) == (1, True)


def test_a_source_that_breaks_off(impact: Impact) -> None:
    cluster, key = web()
    records = [stored(k, v) for k, v in cluster.values.items()]
    ran = impact(MemorySource(records, fails_after=2), key)
    assert ran.code == 3
    assert "the source was lost midway: the connection was lost" in ran.err
    assert impact(MemorySource(records, fails_after=0), key).code == 5
    ran = impact(MemorySource(records, problems=["page 7 is damaged"]), key)
    assert ran.code == 3
    assert "incomplete: page 7 is damaged" in ran.err
    ran = impact(MemorySource(records, problems=["page 7 is damaged"]), "/registry/pods/shop/nobody")
    assert ran.code == 5


@pytest.mark.parametrize(
    ("policy", "action", "result", "risk"),
    [
        ([], "cascade-deleted", "gone", "high"),
        (["--policy", "background"], "cascade-deleted", "gone", "high"),
        (["--policy", "foreground"], "cascade-deleted", "terminating", "high"),
        (["--policy", "orphan"], "orphaned", "gone", "low"),
    ],
)
def test_an_ordinary_deletion_is_forecast(
    impact: Impact, policy: list[str], action: str, result: str, risk: str
) -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    blocks = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("v1", "ConfigMap", "below", "shop", owners=blocks, finalizers=("example.com/hold",))
    ran = impact(cluster, key, *policy, "-o", "json")
    deletion = told(ran)["deletion"]
    assert ran.code == 0
    assert (deletion["possible"], deletion["by_default"], deletion["result"]) == (True, not policy, result)
    assert [d["action"] for d in told(ran)["dependents"]["tree"]] == [action]
    assert told(ran)["risk"] == risk
    (below,) = told(ran)["dependents"]["tree"]
    assert ("example.com/hold" in below.get("stays", "")) == (action != "orphaned")
    cascade = f" --cascade={policy[1]}" if policy else ""
    command = f"kubectl delete configmaps top -n shop{cascade} --dry-run=server"
    assert [remedy["command"] for remedy in ran.document["remedies"]] == [command]


@pytest.mark.parametrize("named", ["ReplicaSet", "Deployment"], ids=["in another namespace", "gone"])
def test_what_the_collector_is_about_to_delete(impact: Impact, named: str) -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "ReplicaSet", "r", "pay")
    uid = "uid-r" if named == "ReplicaSet" else "uid-gone"
    key = cluster.pod("p", owners=(owner(named, "r", uid=uid),))
    ran = impact(cluster, key)
    first = " ".join(line.strip() for line in ran.out.splitlines()[1:7])
    assert first.startswith("Next: The garbage collector deletes it as soon as it sees it: ")
    assert ("the uid is that of replicasets.apps pay/r" in first) is (named == "ReplicaSet")
    assert f'/ownerReferences/0/uid","value":"{uid}"' in first
    (warning,) = told(impact(cluster, key, "-o", "json"))["warnings"]
    assert "deletes it as soon as it sees it" in warning
    cluster.pod("p", owners=(owner(named, "r", uid=uid),), terminating=True)
    assert "nothing has to be done" in impact(cluster, key).out


def test_what_the_api_cannot_delete(impact: Impact) -> None:
    cluster, key = web()

    def deletion(of: str, *options: str) -> tuple[bool | None, str]:
        found = told(impact(cluster, of, *options, "-o", "json"))["deletion"]
        return found["possible"], found["result"]

    orphan = ("--policy", "orphan")
    assert deletion(key, *orphan) == (False, "refused")
    assert told(impact(cluster, key, "-o", "json"))["deletion"] is None
    gone = cluster.key("configmaps", "shop", "gone")
    cluster.pod("p", spec={"volumes": [{"name": "v", "configMap": {"name": "gone"}}]})
    assert deletion(gone, *orphan) == (False, "refused")
    sealed = cluster.key("secrets", "shop", "sealed")
    cluster.values[sealed] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    assert deletion(sealed, "--policy", "foreground") == (None, "cannot-be-told")
    empty = cluster.key("secrets", "shop", "empty")
    cluster.values[empty] = b""
    assert deletion(empty, *orphan)[0] is None
    unserved = cluster.add("example.com/v1", "Widget", "w", "shop")
    assert deletion(unserved) == (False, "refused")
    cluster.values["/registry/apiregistration.k8s.io/apiservices/v1.example.com"] = BROKEN
    assert deletion(unserved) == (None, "cannot-be-told")
    system = cluster.namespace("kube-system")
    assert deletion(system) == (False, "refused")
    assert "kubectl delete" not in impact(cluster, system, "-o", "wide").out
    lease = cluster.key("masterleases", "", "10.0.0.1")
    cluster.values[lease] = cluster.values[system]
    assert deletion(lease, "--policy", "background") == (False, "refused")
    ran = impact(MemorySource(cluster.values, problems=["page 7 is damaged"]), gone, *orphan, "-o", "json")
    assert told(ran)["deletion"]["possible"] is None


@pytest.mark.parametrize("form", ["wide", "html", "json"])
def test_hostile_names_in_a_forecast(impact: Impact, form: str) -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop", finalizers=(HOSTILE,), terminating=True)
    blocks = owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True)
    cluster.add("v1", "ConfigMap", HOSTILE, "shop", owners=(blocks,), finalizers=(HOSTILE, "a\nb"))
    cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", HOSTILE, owners=(blocks,))
    cluster.pod("p" + HOSTILE, owners=(blocks,), spec={"nodeName": HOSTILE, "containers": []})
    for policy in ("background", "foreground", "orphan"):
        ran = impact(cluster, key, "--policy", policy, "-o", form)
        assert ran.code == 0
        assert_harmless(ran.out + ran.err)


def hostile() -> tuple[Cluster, str]:
    cluster = Cluster()
    key = cluster.break_(cluster.key("secrets", "shop", HOSTILE))
    reference = {"volumes": [{"name": "v", "secret": {"secretName": HOSTILE}}]}
    cluster.pod(HOSTILE, spec=reference)
    me = {"apiVersion": "v1", "kind": "Secret", "name": HOSTILE, "uid": HOSTILE}
    cluster.add("v1", "ConfigMap", HOSTILE, "shop", owners=(me,), finalizers=(HOSTILE,))
    return cluster, key


@pytest.mark.parametrize("form", ["wide", "html", "json"])
def test_hostile_names_act_upon_nothing(impact: Impact, form: str) -> None:
    cluster, key = hostile()
    ran = impact(cluster, f"base64:{base64.b64encode(key.encode()).decode()}", "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)
    if form == "json":
        assert told(ran)["object"]["name"] == HOSTILE
        assert base64.b64decode(told(ran)["object"]["key_base64"]) == key.encode()
        assert told(ran)["dependents"]["tree"][0]["object"]["name"] == HOSTILE


def test_no_contents_in_any_form(impact: Impact) -> None:
    cluster = Cluster()
    key = cluster.add(
        "v1",
        "ConfigMap",
        "settings",
        "shop",
        annotations={"note": SECRET_WORD},
        data={"password": SECRET_WORD},
    )
    for form in ("wide", "html", "json"):
        ran = impact(cluster, key, "-o", form)
        assert ran.code == 0
        assert SECRET_WORD not in ran.out + ran.err


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as running:
        yield running


def test_values_that_wait_for_a_plugin_are_looked_into(
    impact: Impact, plugin: KMSPlugin, tmp_path: Path
) -> None:
    cluster, key = web()
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}}
    config = tmp_path / "config.yaml"
    config.write_bytes(configuration_yaml(kms, IDENTITY, resources=("pods", "secrets")))
    sealed = cluster.pod("sealed", owners=(owner("ReplicaSet", "web-1"),))
    cluster.values[sealed] = plugin.stored_v2(cluster.values[sealed], sealed.encode())
    ran = impact(cluster, key, "--encryption-config", str(config), "-o", "json")
    assert ran.code == 1
    assert "sealed" in {d["object"]["name"] for d in told(ran)["dependents"]["tree"]}
    # The object itself may wait too, and so may its history.
    ran = impact(cluster, sealed, "--encryption-config", str(config), "-o", "json")
    assert ran.code == 0
    assert told(ran)["last_known"]["uid"] == "uid-sealed"
    ran = impact(cluster, key, "--encryption-config", str(config), "--no-kms")
    assert ran.code == 3


@pytest.mark.parametrize("name", ["--all", "a\nb", "\x1b[2J"])
def test_no_command_for_a_name_that_would_not_survive_a_shell(impact: Impact, name: str) -> None:
    cluster = Cluster()
    key = base64.b64encode(cluster.secret(name).encode()).decode()
    ran = impact(cluster, f"base64:{key}", "-o", "json")
    assert ran.code == 0
    assert [remedy["command"] for remedy in ran.document["remedies"]] == [""]


def test_a_crd_that_is_gone_while_its_objects_are_stored(impact: Impact) -> None:
    cluster = Cluster()
    definition = cluster.define("example.com", "Widget")
    cluster.add("example.com/v1", "Widget", "w", "shop")
    del cluster.values[definition]
    ran = impact(cluster, definition)
    assert ran.code == 1
    assert ran.out.startswith("RISK CLUSTER-BREAKING: losing customresourcedefinitions")
    assert "etcdfix scan --orphans" in ran.out
    instance = cluster.key("example.com/widgets", "shop", "w")

    def commands() -> list[str]:
        return [step["command"] for step in impact(cluster, instance, "-o", "json").document["remedies"]]

    assert commands() == ["kubectl apply -f FILE"]
    cluster.define("example.com", "Widget")
    assert commands() == ["kubectl delete widgets.example.com w -n shop --dry-run=server"]
    cluster.break_(definition)  # a server that runs serves it
    assert commands() == ["kubectl delete widgets.example.com w -n shop --dry-run=server"]
    del cluster.values[definition]
    cluster.values = {key: value for key, value in cluster.values.items() if "/widgets/" not in key}
    cluster.pod("p")
    assert impact(cluster, definition).code == 5  # nothing of it is stored
