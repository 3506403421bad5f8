"""Finalizers that an unsafe deletion skips, and what is left undone.

Sources: the finalizers' owners; those outside Kubernetes' own repository are named as their projects document them.
"""

from __future__ import annotations

from typing import Final

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import LostFinalizer, ObjectRef
from etcdfix.graph.users import PROTECTION_FINALIZERS
from etcdfix.model import Confidence

_SNAPSHOTS: Final = "snapshot.storage.kubernetes.io/"
_PROVISIONER: Final = "provisioner.storage.kubernetes.io/"


_KNOWN: Final[dict[str, tuple[str, str, bool]]] = {
    "kubernetes": ("namespace controller", "its contents are left behind", True),
    "orphan": ("garbage collector", "its dependents are collected instead of orphaned", True),
    "foregroundDeletion": ("garbage collector", "it goes before its dependents", False),
    "kubernetes.io/pvc-protection": ("kube-controller-manager", "the volume may vanish under running pods", True),
    "kubernetes.io/pv-protection": ("kube-controller-manager", "a bound claim becomes Lost", True),
    "kubernetes.io/pv-controller": ("PersistentVolume controller", "the disk behind it leaks", True),
    "external-provisioner.volume.kubernetes.io/finalizer": (
        "external-provisioner", "the volume behind it leaks", True,
    ),
    "kubernetes.io/vac-protection": ("kube-controller-manager", "volumes may refer to a class that is gone", False),
    "batch.kubernetes.io/job-tracking": ("Job controller", "the pod is not counted, the Job may make it again", False),
    "service.kubernetes.io/load-balancer-cleanup": (
        "cloud service controller", "the load balancer leaks", True,
    ),
    "networking.k8s.io/service-cidr-finalizer": (
        "kube-controller-manager", "allocated addresses lie outside of any range", False,
    ),
    "resource.kubernetes.io/delete-protection": ("DRA controllers", "the allocation of devices leaks", True),
    "customresourcecleanup.apiextensions.k8s.io": (
        "apiextensions", "all its custom resources stay in etcd, unseen", True,
    ),
    f"{_PROVISIONER}cloning-protection": ("external-provisioner", "a clone that is being made may fail", False),
    f"{_PROVISIONER}volumesnapshot-as-source-protection": (
        "external-provisioner", "a volume that is being restored may fail", False,
    ),
    **dict.fromkeys(
        PROTECTION_FINALIZERS, ("nobody: KEP-2639 was abandoned", "users of the Secret are not protected", False)
    ),
}  # fmt: skip

# Group and resource -> finalizers that its objects usually have.
_USUAL: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "namespaces"): ("kubernetes",),
    ("", "persistentvolumeclaims"): ("kubernetes.io/pvc-protection",),
    ("", "persistentvolumes"): (
        "kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer",
    ),
    ("", "services"): ("service.kubernetes.io/load-balancer-cleanup",),
    ("apiextensions.k8s.io", "customresourcedefinitions"): ("customresourcecleanup.apiextensions.k8s.io",),
    ("networking.k8s.io", "servicecidrs"): ("networking.k8s.io/service-cidr-finalizer",),
    ("resource.k8s.io", "resourceclaims"): ("resource.kubernetes.io/delete-protection",),
    ("storage.k8s.io", "volumeattributesclasses"): ("kubernetes.io/vac-protection",),
    ("storage.k8s.io", "volumeattachments"): ("external-attacher/DRIVER",),
    ("snapshot.storage.k8s.io", "volumesnapshots"): (f"{_SNAPSHOTS}volumesnapshot-bound-protection",),
    ("snapshot.storage.k8s.io", "volumesnapshotcontents"): (
        f"{_SNAPSHOTS}volumesnapshotcontent-bound-protection",
    ),
}  # fmt: skip


def lost_finalizers(names: tuple[str, ...], confidence: Confidence) -> tuple[LostFinalizer, ...]:
    """Return what skipping finalizers means that an object has, or had: the confidence says which."""
    return tuple(_lost(name, confidence) for name in names)


def inferred_finalizers(index: ImpactIndex, node: int) -> tuple[LostFinalizer, ...]:
    """Return the finalizers that an unreadable object probably has: those usual for its kind.

    A claim that something refers to is in use, so its protection is more than likely.
    """
    ref = index.ref(node)
    used = next(index.users(node), None) is not None
    confidence = Confidence.LIKELY if used else Confidence.POSSIBLE
    usual = _USUAL.get((ref.group, ref.resource), ())
    if (ref.group, ref.resource) == ("", "pods") and _may_be_of_a_job(index, ref):
        usual = ("batch.kubernetes.io/job-tracking",)
    return tuple(_lost(name, confidence) for name in usual)


def _may_be_of_a_job(index: ImpactIndex, ref: ObjectRef) -> bool:
    """Say whether there is a Job after which the Pod may be called: JOB-suffix, or JOB-index-suffix."""
    job = ref.name.rpartition("-")[0]
    names = (job, job.rpartition("-")[0])
    return any(index.node(f"jobs/{ref.namespace}/{name}") is not None for name in names if name)


def _lost(name: str, confidence: Confidence) -> LostFinalizer:
    if name in _KNOWN:
        owner, consequence, leaks = _KNOWN[name]
    elif name.startswith(_SNAPSHOTS):
        owner, consequence, leaks = "external-snapshotter", "the snapshot behind it leaks", True
    elif name.startswith("external-attacher/"):
        owner, consequence, leaks = "external-attacher", "the volume stays attached", True
    else:
        owner, consequence, leaks = "", "what its controller guards or cleans up stays behind", True
    return LostFinalizer(name, owner, consequence, leaks, confidence)
