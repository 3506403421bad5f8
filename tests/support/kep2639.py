"""The cases of KEP-2639's test plan, each a small cluster with one Secret, ``shop/target``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.impact_objects import SNAPSHOTS, Cluster

CSI = "csi.storage.k8s.io"
TARGET = {"name": "target", "namespace": "shop"}


class Case(NamedTuple):
    """One case.

    Attributes:
        field: A part of the path of the field that uses the Secret, "" for none.
        protected: Whether the KEP's controller would hold a deletion back.
    """

    build: Callable[[Cluster], object]
    field: str
    user: str = ""
    protected: bool = True


def _unused(cluster: Cluster) -> None:
    cluster.pod("web")


def _pod(cluster: Cluster) -> None:
    cluster.pod("web", spec={"volumes": [{"name": "v", "secret": {"secretName": "target"}}]})


def _volume(field: str) -> Callable[[Cluster], object]:
    def build(cluster: Cluster) -> None:
        claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
        csi = {"driver": "csi.example.com", "volumeHandle": "h", f"{field}SecretRef": TARGET}
        cluster.add("v1", "PersistentVolume", "pv-1", spec={"csi": csi, "claimRef": claim})

    return build


def _class(cluster: Cluster, name: str, namespace: str) -> None:
    parameters = {f"{CSI}/provisioner-secret-name": name, f"{CSI}/provisioner-secret-namespace": namespace}
    cluster.add(
        "storage.k8s.io/v1", "StorageClass", "fast", provisioner="csi.example.com", parameters=parameters
    )


def _claimed(cluster: Cluster, **settings: Any) -> None:
    csi = {"driver": "csi.example.com", "volumeHandle": "h"}
    claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    spec = {"csi": csi, "claimRef": claim, "storageClassName": "fast"}
    cluster.add("v1", "PersistentVolume", "pv-1", spec=spec)
    spec = {"volumeName": "pv-1", "storageClassName": "fast"}
    cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec=spec, **settings)


def _provisioner(cluster: Cluster) -> None:
    _class(cluster, "target", "shop")
    _claimed(cluster)


def _provisioner_template(cluster: Cluster) -> None:
    _class(cluster, "${pvc.annotations['team/secret']}", "${pvc.namespace}")
    _claimed(cluster, annotations={"team/secret": "target"})


def _snapshots(cluster: Cluster, name: str, namespace: str, snapshot: str) -> None:
    for kind, scope in (
        ("VolumeSnapshot", "Namespaced"),
        ("VolumeSnapshotClass", "Cluster"),
        ("VolumeSnapshotContent", "Cluster"),
    ):
        cluster.define(SNAPSHOTS, kind, scope)
    parameters = {f"{CSI}/snapshotter-secret-name": name, f"{CSI}/snapshotter-secret-namespace": namespace}
    cluster.add(f"{SNAPSHOTS}/v1", "VolumeSnapshotClass", "snap", parameters=parameters)
    source = {"persistentVolumeClaimName": "data"}
    spec = {"volumeSnapshotClassName": "snap", "source": source}
    cluster.add(f"{SNAPSHOTS}/v1", "VolumeSnapshot", snapshot, "shop", spec=spec)


def _snapshot(cluster: Cluster) -> None:
    _snapshots(cluster, "target", "shop", "nightly")


def _snapshot_template(cluster: Cluster) -> None:
    _snapshots(cluster, "${volumesnapshot.name}", "${volumesnapshot.namespace}", "target")


def _opted_out(cluster: Cluster) -> None:
    _pod(cluster)
    cluster.secret("target", annotations={"secret.kubernetes.io/skip-secret-protection": "yes"})


def _finalizer(cluster: Cluster) -> None:
    _pod(cluster)
    cluster.secret("target", finalizers=("kubernetes.io/secret-protection", "example.com/other"))


CASES: dict[str, Case] = {
    "unused": Case(_unused, "", protected=False),
    "pod": Case(_pod, "volumes[].secret", "web"),
    "controllerPublish": Case(_volume("controllerPublish"), "controllerPublishSecretRef", "pv-1"),
    "nodeStage": Case(_volume("nodeStage"), "nodeStageSecretRef", "pv-1"),
    "nodePublish": Case(_volume("nodePublish"), "nodePublishSecretRef", "pv-1"),
    "controllerExpand": Case(_volume("controllerExpand"), "controllerExpandSecretRef", "pv-1"),
    "nodeExpand": Case(_volume("nodeExpand"), "nodeExpandSecretRef", "pv-1"),
    "provisioner": Case(_provisioner, "provisioner", "pv-1"),
    "provisioner by template": Case(_provisioner_template, "provisioner", "data"),
    "snapshotter": Case(_snapshot, "snapshotter", "nightly"),
    "snapshotter by template": Case(_snapshot_template, "snapshotter", "target"),
    "opted out": Case(_opted_out, "volumes[].secret", "web", protected=False),
    "with finalizers": Case(_finalizer, "volumes[].secret", "web"),
}


def build(case: Case, prefix: str = "/registry") -> tuple[Cluster, str]:
    """Return a case's cluster and the key of its Secret."""
    cluster = Cluster(prefix)
    cluster.namespace("shop")
    key = cluster.secret("target")
    cluster.secret("decoy")
    case.build(cluster)
    return cluster, key
