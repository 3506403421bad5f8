"""What a person reads about one object, as text and as a page: everything that is worth a word has one."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from etcdfix.operations.look.impact import impact_report
from etcdfix.operations.look.index_cluster import ClusterIndexRequest, index_cluster
from etcdfix.reports.formats.of_graph import IMPACT_FORMATS
from tests.support.impact_objects import BROKEN, Cluster, owner
from tests.support.kep2639 import CASES, build
from tests.support.memory_source import MemorySource
from tests.support.pages import text_of

Read = Callable[..., str]


@pytest.fixture(params=["table", "html"])
def read(request: pytest.FixtureRequest) -> Read:
    """Return a function that gives the words of a report, without markup and with single spaces."""

    def words(
        cluster: Cluster, key: str, *, problems: tuple[str, ...] = (), policy: str | None = None
    ) -> str:
        source = MemorySource(cluster.values, problems=problems)
        found = index_cluster(
            source, ClusterIndexRequest(layout=cluster.layout), keep=lambda e: e.stored.key == key.encode()
        )
        report = impact_report(found, key.encode(), policy=policy)
        assert report is not None
        stream = io.BytesIO()
        IMPACT_FORMATS[request.param](report, stream, 100)
        written = stream.getvalue()
        text = text_of(written) if request.param == "html" else written.decode()
        return re.sub(r"\s+", " ", text)

    return words


def test_an_object_that_nobody_needs(read: Read) -> None:
    cluster = Cluster()
    text = read(cluster, cluster.add("v1", "ConfigMap", "lonely", "shop"))
    assert "o reference that etcdfix follows leads to it" in text
    assert "othing that can be read is owned by it" in text
    assert "othing that can be read refers to it" in text
    assert "It can be read, so nothing has to be done" in text


def test_an_object_that_is_gone(read: Read) -> None:
    cluster = Cluster()
    cluster.pod("web", spec={"volumes": [{"name": "v", "configMap": {"name": "gone"}}]})
    text = read(cluster, cluster.key("configmaps", "shop", "gone"))
    assert re.search("not in etcd: only others mention it", text, re.IGNORECASE)
    assert "required by 1 object" in text
    assert "put it back from a snapshot or backup" in text


def test_every_kind_of_decision(read: Read) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.add("apps/v1", "Deployment", "web", "shop"))
    web, other = owner("Deployment", "web"), owner("Deployment", "solid")
    cluster.add("apps/v1", "Deployment", "solid", "shop")
    cluster.break_(cluster.add("apps/v1", "Deployment", "sealed", "shop"))
    cluster.add("v1", "ConfigMap", "kept", "shop", owners=(web, other))
    cluster.add("v1", "ConfigMap", "frozen", "shop", owners=(web, owner("Deployment", "sealed")))
    cluster.add("v1", "ConfigMap", "going", "shop", owners=(web,), terminating=True, finalizers=("a/b",))
    text = read(cluster, key)
    assert "1 cascade-deleted, 1 kept, 1 frozen" in text
    assert "was being deleted already" in text
    assert "waits for finalizer a/b" in text
    assert "Deployment sealed: it cannot be read, so the API server answers with an error" in text


def test_uids_that_contradict_one_another(read: Read) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.add("apps/v1", "Deployment", "web", "shop"))
    for number, uid in enumerate(("uid-new", "uid-new", "uid-old")):
        cluster.add("v1", "ConfigMap", f"c-{number}", "shop", owners=(owner("Deployment", "web", uid=uid),))
    text = read(cluster, key)
    assert "uid-new (possible, as others refer to it)" in text
    assert re.search(r"1 reference says? uid-old|uid-old ×1", text)


@pytest.mark.parametrize(("name", "words"), [("opted out", "opted out"), ("with finalizers", "in use")])
def test_what_kep_2639_says(read: Read, name: str, words: str) -> None:
    cluster, key = build(CASES[name])
    text = read(cluster, key)
    assert f"KEP-2639 {words}" in text
    assert ("kubernetes.io/secret-protection" in text) is (name == "with finalizers")


def test_pods_behind_a_volume(read: Read) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("db"))
    csi = {
        "driver": "csi.example.com",
        "volumeHandle": "h",
        "nodeStageSecretRef": {"name": "db", "namespace": "shop"},
    }
    claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    cluster.add("v1", "PersistentVolume", "pv", spec={"csi": csi, "claimRef": claim})
    cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv"})
    for number in range(5):
        mounted = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
        cluster.pod(f"p-{number}", spec=mounted)
    text = read(cluster, key)
    assert re.search(r"STOPS\b.* the volume is not staged on a node", text)
    assert re.search(r"pods behind it: 5 \(shop/p-0, shop/p-1, shop/p-2, …\)|5 pods behind it", text)


def test_many_users(read: Read) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.key("configmaps", "shop", "settings"))
    for number in range(3):
        cluster.pod(f"p-{number}", spec={"volumes": [{"name": "v", "configMap": {"name": "settings"}}]})
    optional = {"volumes": [{"name": "v", "configMap": {"name": "settings", "optional": True}}]}
    cluster.pod("likes", spec=optional)
    text = read(cluster, key)
    assert "required by 3 objects" in text
    assert "optional" in text


def test_finalizers_and_what_is_special(read: Read) -> None:
    cluster = Cluster()
    key = cluster.add(
        "v1", "PersistentVolume", "pv", finalizers=("kubernetes.io/pv-protection", "example.com/disk")
    )
    text = read(cluster, key)
    assert "Finalizers that an unsafe deletion skips" not in text
    assert re.search("finalizer example.com/disk .*not known.* takes it off", text)
    assert re.search(
        "finalizer kubernetes.io/pv-protection .*kube-controller-manager.* until no claim is bound", text
    )


def test_finalizers_that_are_skipped(read: Read) -> None:
    cluster = Cluster()
    text = read(cluster, cluster.break_(cluster.key("persistentvolumes", "", "pv")))
    assert "Finalizers that an unsafe deletion skips" in text
    assert "a bound claim becomes Lost (kube-controller-manager)" in text
    assert "the storage behind it stays, and nobody deletes it" in text


def test_the_forecast_of_a_deletion(read: Read) -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "Deployment", "web", "shop")
    for number in range(5):
        blocks = (owner("Deployment", "web", blockOwnerDeletion=True),)
        cluster.add("v1", "ConfigMap", f"c{number}", "shop", owners=blocks, finalizers=("a/b",))
    cluster.add("v1", "ConfigMap", "d", "shop", owners=(owner("Deployment", "web"),), finalizers=("c/d",))
    text = read(cluster, key)
    assert (
        "Deletion through the API, Background: kubectl's default (see also --policy foreground, orphan)"
        in text
    )
    assert "it is gone at once" in text
    text = read(cluster, key, policy="foreground")
    assert "Deletion through the API, Foreground " in text
    assert "5 objects: configmaps shop/c0, configmaps shop/c1, configmaps shop/c2, …" in text
    assert "1 object: configmaps shop/d" in text
    assert "it stays Terminating while no kube-controller-manager runs" in text
    for finalizers, words in (
        (("foregroundDeletion",), "Foreground: under way"),
        (("x/y",), "the object itself"),
    ):
        cluster.add("apps/v1", "Deployment", "web", "shop", finalizers=finalizers, terminating=True)
        text = read(cluster, key)
        assert words in text
        assert "Terminating since 2026-03-01T10:00:00Z" in text


def test_doubts_are_said(read: Read) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("db"))
    cluster.break_(cluster.secret("other"))
    cluster.values[cluster.key("secrets", "shop", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    text = read(cluster, key, problems=("page 7 is damaged",))
    assert re.search(
        "incomplete: (this report did not see|not everything was seen) or could", text, re.IGNORECASE
    )
    assert "page 7 is damaged" in text
    assert (
        "Not counted: whatever refers to it from 1 other object that cannot be read and 1 that could not be judged."
        in text
    )
    assert cluster.values[key] == BROKEN


def test_the_namespace_is_going(read: Read) -> None:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True)
    assert "Terminating since 2026-03-01" in read(cluster, cluster.secret("db"))
