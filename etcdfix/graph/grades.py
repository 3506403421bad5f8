"""How bad the loss of an object is: reasons, each with the grade that it alone would give.

What is protected, no analysis makes safe to delete. What is known of finalizers comes from their owners; those outside
Kubernetes' own repository are named as their projects document them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from etcdfix.examine.verdicts.deletability import protected_reason
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.kinds import crd_path
from etcdfix.graph.model import (
    Action,
    Collection,
    LostFinalizer,
    ObjectRef,
    Risk,
    RiskReason,
    User,
)
from etcdfix.graph.uses import SECRETS
from etcdfix.model.model import Confidence, GroupResource
from etcdfix.model.storagekey import StorageCodec
from etcdfix.text.words import counted

_MANY: Final = 100
_REMADE: Final = "its controller makes it again"
_POLICY: Final = "a policy: what it refused or limited is allowed from now on"
_CLASS: Final = "objects name it as their class: new ones are refused, or nobody serves them"
_WORKLOAD: Final = "a workload: nothing keeps it going until somebody applies it again"

# What the loss of a kind means by itself; what is not here does some work of its own, too.
_HARMLESS: Final = {"events": "an Event: it would have expired by itself"}
_LOW: Final = {
    "leases.coordination.k8s.io": "a Lease: its holder makes a new one; a leader or a node's heartbeat may falter",
    "pods": "a Pod: its containers stop; only a controller creates a new Pod",
    "replicasets.apps": "a ReplicaSet: its Deployment makes it again, one without a Deployment stays away",
    "endpoints": _REMADE,
    "endpointslices.discovery.k8s.io": _REMADE,
    "csinodes.storage.k8s.io": _REMADE,
}
_HIGH: Final = {
    "deployments.apps": _WORKLOAD,
    "statefulsets.apps": _WORKLOAD,
    "daemonsets.apps": _WORKLOAD,
    "replicationcontrollers": _WORKLOAD,
    "cronjobs.batch": _WORKLOAD,
    "ingresses.networking.k8s.io": "an Ingress: traffic through it stops",
    "apiservices.apiregistration.k8s.io": "an APIService: a built-in one comes back, an aggregated one does not",
    "persistentvolumes": "a PersistentVolume: its claim becomes Lost; only the API cleans up the storage behind it",
    "persistentvolumeclaims": (
        "a PersistentVolumeClaim: its volume becomes Released, and reclaim policy Delete then removes the data"
    ),
    "services": "a Service: its cluster IP and node ports are given up; only the API removes its load balancer",
    "nodes": "a Node: its pods are deleted after a while, unless the kubelet registers it again",
    "csidrivers.storage.k8s.io": "a CSIDriver: its volumes may no longer be mounted",
    "networkpolicies.networking.k8s.io": "a NetworkPolicy: traffic that it refused may pass from now on",
    "resourcequotas": _POLICY,
    "limitranges": _POLICY,
    "poddisruptionbudgets.policy": _POLICY,
    "storageclasses.storage.k8s.io": _CLASS,
    "volumeattributesclasses.storage.k8s.io": _CLASS,
    "ingressclasses.networking.k8s.io": _CLASS,
    "runtimeclasses.node.k8s.io": _CLASS,
    "priorityclasses.scheduling.k8s.io": _CLASS,
    "deviceclasses.resource.k8s.io": _CLASS,
    "serviceaccounts": "a ServiceAccount: tokens bound to its uid stop working",
}
_ADMISSION: Final = "admissionregistration.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", "default"})
_BASIC: Final = frozenset(
    {"namespaces", "nodes", "customresourcedefinitions.apiextensions.k8s.io", "persistentvolumes"}
)


def reasons_for(
    index: ImpactIndex,
    node: int,
    collection: Collection,
    users: Sequence[User],
    finalizers: Sequence[LostFinalizer],
    *,
    by_api: bool = False,
) -> list[RiskReason]:
    """Return why the loss of an object is as bad as it is; what depends on it before what its kind says."""
    ref = index.ref(node)
    protected = protected_reason(GroupResource(ref.group, ref.resource), ref.namespace)
    kind = _kind_reason(index, node, ref, by_api=by_api)
    reasons = [RiskReason(Risk.CLUSTER_BREAKING, "protected", protected)] if protected else []
    reasons += _collection_reasons(collection)
    reasons += _user_reasons(users)
    reasons += [RiskReason(kind[0], "kind", kind[1])] if kind is not None else []
    for finalizer in () if by_api else finalizers:
        text = f"finalizer {finalizer.name} is skipped: {finalizer.consequence}"
        reasons.append(RiskReason(Risk.HIGH if finalizer.leaks else Risk.LOW, "finalizer", text))
    return reasons


def warnings_about(index: ImpactIndex, node: int) -> list[RiskReason]:
    """Return what was not seen, or cannot be read, and could depend on an object or use it."""
    if _has_no_objects_key(index, node):
        return []
    broken = len(index.unreadable_nodes) - index.unreadable(node)
    warnings = [("incomplete", f"not everything was seen: {text}") for text in index.problems[:3]]
    for code, count, what, text in (
        ("unreadable-others", broken, "other object", "cannot be read"),
        ("not-looked-into", index.opaque, "object", "cannot be looked into"),
    ):
        if count:
            unknown = f"{counted(count, what)} {text}: whether they use it, or depend on it, is not known"
            warnings.append((code, unknown))
    if index.truncated:
        text = f"{counted(index.truncated, 'object')} with more references than are followed may use it too"
        warnings.append(("not-looked-into", text))
    return [RiskReason(Risk.LOW, code, text) for code, text in warnings]


def _has_no_objects_key(index: ImpactIndex, node: int) -> bool:
    """Say whether namespace or name is missing in a key: no object can have it, and nothing refers to one."""
    directory, namespace, name = index.place(node)
    return directory.namespaced is not None and not (name and (namespace or not directory.namespaced))


def _kind_reason(index: ImpactIndex, node: int, ref: ObjectRef, *, by_api: bool) -> tuple[Risk, str] | None:
    """Return what the loss of an object of this kind means by itself; what the API deletes is cleaned up after."""
    if _has_no_objects_key(index, node):
        return None
    resource, name = ref.full_resource, ref.name
    if resource == "customresourcedefinitions.apiextensions.k8s.io":
        count = len(index.below(crd_path(name)))
        then = "are deleted with it" if by_api else "stay in etcd, unserved, with what they own"
        text = f"a CustomResourceDefinition: its {count} custom resources {then}"
        return Risk.CLUSTER_BREAKING if count else Risk.HIGH, text
    if resource == "namespaces":
        if name in _SYSTEM_NAMESPACES:
            return Risk.CLUSTER_BREAKING, f"Namespace {name} belongs to the cluster itself"
        count = len(index.inside(name))
        left = "are left behind, nothing cleans them up, and nothing new is admitted"
        then = "in it are deleted with it" if by_api else left
        return Risk.HIGH if count else Risk.LOW, f"a Namespace: the {count} objects {then}"
    if (resource, name) in {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}:
        return Risk.LOW, _REMADE
    if resource in {"configmaps", SECRETS}:
        system = ref.namespace == "kube-system"
        if (resource, ref.namespace, name) == ("configmaps", "kube-public", "cluster-info"):
            return Risk.LOW, "kubeadm join reads it: no new node joins without it"
        return (
            (Risk.HIGH, f"a {ref.kind} of kube-system: cluster components may read it unseen")
            if system
            else None
        )
    for risk, texts in ((Risk.NONE, _HARMLESS), (Risk.LOW, _LOW), (Risk.HIGH, _HIGH)):
        if resource in texts:
            return risk, texts[resource]
    if ref.group == _ADMISSION:
        return Risk.HIGH, _POLICY
    if ref.group == _RBAC:
        if name.startswith("system:") or name == "cluster-admin":
            return Risk.LOW, "an API server re-creates system roles and bindings when it starts"
        return Risk.HIGH, "whoever is authorized through it is refused from now on"
    if index.place(node)[0].codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
        return Risk.HIGH, "an unknown controller may delete what the object stands for"
    return Risk.LOW, "what it does ends with it, and nobody is known to make it again"


def _collection_reasons(collection: Collection) -> Iterator[RiskReason]:
    counts = collection.counts
    if deleted := counts[Action.CASCADE_DELETED]:
        what = ", ".join(f"{count} {resource}" for resource, count in collection.deleted_by_resource.items())
        breaking = bool(_BASIC & collection.deleted_by_resource.keys()) or deleted >= _MANY
        text = f"the garbage collector deletes {counted(deleted, 'dependent')}: {what}"
        yield RiskReason(Risk.CLUSTER_BREAKING if breaking else Risk.HIGH, "cascade", text)
    later = sum(bool(decision.later) for decision in collection.tree)
    if later:
        text = (
            f"the garbage collector deletes {counted(later, 'dependent')} later, once an owner is really gone"
        )
        yield RiskReason(Risk.HIGH, "cascade-later", text)
    roots = [decision for decision in collection.caught_up if decision.depth == 1]
    if catches_up := sum(decision.action is Action.CASCADE_DELETED for decision in roots):
        count = counted(catches_up, "object")
        text = f"the garbage collector then also deletes {count} that it could not act upon before"
        yield RiskReason(Risk.HIGH, "catches-up", text)
    kept = counts[Action.KEPT] + counts[Action.REFERENCE_STRIPPED] - later
    for number, code, why in (
        (kept, "kept", ", since another owner is there"),
        (counts[Action.ORPHANED], "orphaned", ", without an owner"),
        (counts[Action.FROZEN], "frozen", ": the collector cannot look up one of the owners"),
    ):
        if number:
            yield RiskReason(Risk.LOW, code, f"{counted(number, 'dependent')} would stay{why}")


def _user_reasons(users: Sequence[User]) -> Iterator[RiskReason]:
    needed = {user.object for user in users if not user.optional and not user.heuristic}
    if needed:
        yield RiskReason(Risk.HIGH, "users", f"required by {counted(len(needed), 'object')}")
    elif users:
        perhaps = {user.object for user in users}
        yield RiskReason(Risk.LOW, "users", f"{counted(len(perhaps), 'object')} may miss it")


class _Finalizer(NamedTuple):
    """What is left undone without a finalizer, whether that leaks, and of which resource it is usual."""

    consequence: str
    leaks: bool = True
    usual: str = ""


_SNAPSHOTS: Final = "snapshot.storage.k8s.io"
_SNAPSHOT_LEAKS: Final = "the snapshot behind it leaks"
_ATTACHED: Final = "the volume stays attached"
_JOB: Final = "batch.kubernetes.io/job-tracking"
# By name; one that ends in "/" stands for all that begin so.
_FINALIZERS: Final = {
    "kubernetes": _Finalizer("its contents are left behind", usual="namespaces"),
    "orphan": _Finalizer("its dependents are collected instead of orphaned"),
    "foregroundDeletion": _Finalizer("it goes before its dependents", leaks=False),
    "kubernetes.io/pvc-protection": _Finalizer(
        "the volume may vanish under running pods", usual="persistentvolumeclaims"
    ),
    "kubernetes.io/pv-protection": _Finalizer("a bound claim becomes Lost", usual="persistentvolumes"),
    "external-provisioner.volume.kubernetes.io/finalizer": _Finalizer(
        "the volume behind it leaks", usual="persistentvolumes"
    ),
    "kubernetes.io/vac-protection": _Finalizer(
        "volumes may refer to a class that is gone", False, "volumeattributesclasses.storage.k8s.io"
    ),
    _JOB: _Finalizer("the pod is not counted, the Job may make it again", leaks=False),
    "service.kubernetes.io/load-balancer-cleanup": _Finalizer("the load balancer leaks", usual="services"),
    "networking.k8s.io/service-cidr-finalizer": _Finalizer(
        "allocated addresses lie outside of any range", False, "servicecidrs.networking.k8s.io"
    ),
    "resource.kubernetes.io/delete-protection": _Finalizer(
        "the allocation of devices leaks", usual="resourceclaims.resource.k8s.io"
    ),
    "customresourcecleanup.apiextensions.k8s.io": _Finalizer(
        "all its custom resources stay in etcd, unseen",
        usual="customresourcedefinitions.apiextensions.k8s.io",
    ),
    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection": _Finalizer(
        _SNAPSHOT_LEAKS, usual=f"volumesnapshots.{_SNAPSHOTS}"
    ),
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection": _Finalizer(
        _SNAPSHOT_LEAKS, usual=f"volumesnapshotcontents.{_SNAPSHOTS}"
    ),
    "external-attacher/DRIVER": _Finalizer(_ATTACHED, usual="volumeattachments.storage.k8s.io"),
    "external-attacher/": _Finalizer(_ATTACHED),
    **dict.fromkeys(
        ("kubernetes.io/secret-protection", "snapshot.storage.kubernetes.io/secret-protection"),
        _Finalizer("users of the Secret are not protected", leaks=False),
    ),
}
_FOREIGN: Final = _Finalizer("the finalizer's cleanup will not run")


def lost_finalizers(names: Sequence[str], confidence: Confidence) -> tuple[LostFinalizer, ...]:
    """Return what skipping finalizers means that an object has, or had: the confidence says which."""
    found = []
    for name in names:
        known = _FINALIZERS.get(name) or _FINALIZERS.get(f"{name.partition('/')[0]}/", _FOREIGN)
        found.append(LostFinalizer(name, known.consequence, known.leaks, confidence))
    return tuple(found)


def inferred_finalizers(index: ImpactIndex, node: int) -> tuple[LostFinalizer, ...]:
    """Return the finalizers that an unreadable object probably has: those usual for its kind.

    A claim that something refers to is in use, so its protection is more than likely.
    """
    if _has_no_objects_key(index, node):
        return ()
    ref = index.ref(node)
    usual = [name for name, finalizer in _FINALIZERS.items() if finalizer.usual == ref.full_resource]
    if ref.full_resource == "pods":
        # A Pod of a Job is called JOB-suffix, or JOB-index-suffix.
        job = ref.name.rpartition("-")[0]
        names = filter(None, (job, job.rpartition("-")[0]))
        usual = (
            [_JOB] if any(index.node(f"jobs/{ref.namespace}/{name}") is not None for name in names) else []
        )
    return lost_finalizers(usual, Confidence.LIKELY if any(index.users(node)) else Confidence.POSSIBLE)
