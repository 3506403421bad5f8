"""``fix --from memory`` against stand-ins of API servers and a real etcd: what it does, and what it tells."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from etcdfix.remediation.saved_objects import RescueStore
from tests.support.change_runs import Ran
from tests.support.healing import NEW, OLD, LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


def test_one_object(cluster: LostKeyCluster) -> None:
    key = cluster.key("shop/one")
    before = cluster.stored_value(key)
    ran = cluster.fix("one")
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    after = cluster.stored_value(key)
    assert f"{key.decode()} at revision {after.mod_revision}" in ran.out
    assert "Undo" not in ran.out
    assert after.value.startswith(b"k8s:enc:aescbc:v1:key2:")
    assert (after.create_revision, after.version) == (before.create_revision, before.version + 1)
    (patch,) = cluster.patches()
    assert set(patch["metadata"]) == {"uid", "resourceVersion", "annotations"}
    assert patch["metadata"]["resourceVersion"] == str(before.mod_revision)
    assert list(patch["metadata"]["annotations"]) == ["etcdfix.io/fixed-at"]
    assert [event.verb for event in cluster.records()] == ["fix", "fix"]
    assert cluster.outcomes() == ["fixed"]
    (backup,) = cluster.kept()
    assert backup.content.stored.value == before.value


@pytest.fixture
def ended(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key(()) as cluster:
        RescueStore.open(cluster.saved).close()
        yield cluster


@pytest.mark.parametrize("kept_in", ["etcd", "backup"])
def test_the_uid_is_said_by_what_is_still_kept(ended: LostKeyCluster, kept_in: str) -> None:
    first = ended.written_twice("one")
    uid, origin = ended.uid("one"), f"mod_revision {first.mod_revision} in etcd"
    if kept_in == "backup":
        origin = f"backup {ended.back_up(first)}"
        ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    shown = ended.fix("one", "--dry-run", yes=False)
    assert (shown.code, ended.patches()) == (0, []), shown
    assert f" as {origin} says" in shown.err
    assert ended.told("one")["result"] == "fixed"
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [uid]


def test_several_kinds(lose_key: LoseKey) -> None:
    with lose_key() as cluster:
        p1 = cluster.p1
        p1.reload(OLD)
        names = {"kind": "Widget", "plural": "widgets", "listKind": "WidgetList", "singular": "widget"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        p1.create(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com",
            spec={"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
        )  # fmt: skip
        p1.wait()
        p1.create("example.com/v1", "Widget", "w1", "shop", spec={"size": 4})
        p1.create("v1", "ConfigMap", "settings", "shop", data={"a": "b"})
        p1.wait()
        p1.reload(NEW)
        cluster.rescue()
        cluster.rescue("settings", resource="configmaps")
        widget = cluster.key("shop/w1", "example.com/widgets").decode()
        assert cluster.told(widget, code=4)["refusal"]["rule"] == "not-rescued"
        cluster.rescue("w1", resource="widgets", group="example.com")
        keys = ["one", cluster.key("shop/settings", "configmaps").decode(), widget]
        done = [cluster.told(key) for key in keys]
        assert [(one["result"], "changed besides" in one["detail"]) for one in done] == [("fixed", False)] * 3


def test_from_scan_to_scan_as_it_is_printed(cluster: LostKeyCluster) -> None:
    """Each command is pasted from the one before; FILE, DIR and REASON are filled in, and nothing is refused."""
    cluster.saved = cluster.folder / "made-by-rescue"
    filled = {"FILE": str(cluster.kubeconfig), "DIR": str(cluster.saved), "REASON": "drill"}
    places = ["--audit-log", str(cluster.log)]
    backups = ["--backup-dir", str(cluster.backups)]

    def paste(line: str, *more: str) -> Ran:
        words = [filled.get(word, word) for word in shlex.split(line)]
        assert words[0] == "etcdfix"
        ran = cluster.run(*words[1:], *more)
        cluster.shows_nothing(ran)
        return ran

    reading = ["--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    scan = ["scan", *cluster.where, *reading, "-o", "json"]
    first = json.loads(cluster.run(*scan).out)["summary"]["next"]["command"]
    assert first.startswith("etcdfix rescue secrets ")
    ran = paste(first, *places, "-o", "json")
    assert ran.code == 0, ran.err
    (step,) = json.loads(ran.out)["next"]
    for key in cluster.keys:
        line = step["command"].replace(cluster.keys[0].decode(), key.decode())
        assert paste(line, *backups).code == 0
        ran = paste(line.replace(" --dry-run", ""), *backups, "--yes")
        assert ran.code == 0, ran.err
    assert cluster.run(*scan).code == 0
    assert len(cluster.patches()) == 2
