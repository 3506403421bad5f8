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
    SecretState,
    Stops,
    User,
)
from etcdfix.graph.users import PROTECTION_FINALIZERS
from etcdfix.graph.uses import SECRETS, SNAPSHOT_GROUP, Role
from etcdfix.model.model import Confidence, GroupResource
from etcdfix.model.storagekey import StorageCodec
from etcdfix.text.words import counted

_MANY: Final = 100


_ADMISSION: Final = "admissionregistration.k8s.io"
_RECREATED: Final = (Risk.LOW, "re-created", "its controller makes it again")
_Kinds = dict[tuple[str, str], tuple[Risk, str, str]]


def _alike(risk: Risk, code: str, text: str, *places: tuple[str, str]) -> _Kinds:
    return dict.fromkeys(places, (risk, code, text))


# Resource -> grade, code and sentence. What is not here does some work of its own, too: see _kind_reasons.
_KINDS: Final[_Kinds] = {
    ("", "events"): (Risk.NONE, "event", "an Event: it would have expired by itself"),
    ("coordination.k8s.io", "leases"): (
        Risk.LOW,
        "lease",
        "a Lease: its holder makes a new one; leader election or a node's heartbeat may falter for a moment",
    ),
    **_alike(
        *_RECREATED,
        ("", "endpoints"), ("discovery.k8s.io", "endpointslices"), ("storage.k8s.io", "csinodes"),
    ),
    ("", "pods"): (Risk.LOW, "pod", "a Pod: what runs in it stops, and only a controller makes another"),
    ("apps", "replicasets"): (
        Risk.LOW, "workload", "a ReplicaSet: its Deployment makes it again, one without a Deployment stays away",
    ),
    **_alike(
        Risk.HIGH, "workload", "a workload: nothing keeps it going until somebody applies it again",
        ("apps", "deployments"), ("apps", "statefulsets"), ("apps", "daemonsets"), ("", "replicationcontrollers"),
    ),
    ("batch", "cronjobs"): (Risk.HIGH, "workload", "a CronJob: it runs no more until somebody applies it again"),
    ("networking.k8s.io", "ingresses"): (Risk.HIGH, "ingress", "an Ingress: traffic through it stops"),
    ("apiregistration.k8s.io", "apiservices"): (
        Risk.HIGH,
        "api-service",
        "an APIService: that of a built-in group comes back by itself, an aggregated API stays away",
    ),
    ("", "persistentvolumes"): (
        Risk.HIGH,
        "volume",
        "a PersistentVolume: its claim becomes Lost; only the API cleans up the storage behind it",
    ),
    ("", "persistentvolumeclaims"): (
        Risk.HIGH,
        "claim",
        "a PersistentVolumeClaim: its volume becomes Released, and reclaim policy Delete then removes the data",
    ),
    ("", "services"): (
        Risk.HIGH,
        "service",
        "a Service: its cluster IP and node ports are given up; only the API removes its load balancer",
    ),
    ("", "nodes"): (
        Risk.HIGH,
        "node",
        "a Node: its pods are deleted after a while, unless the kubelet registers it again",
    ),
    ("storage.k8s.io", "csidrivers"): (Risk.HIGH, "driver", "a CSIDriver: its volumes may no longer be mounted"),
    (_ADMISSION, "validatingwebhookconfigurations"): (
        Risk.HIGH, "policy", "an admission webhook: what it refused is admitted from now on",
    ),
    (_ADMISSION, "mutatingwebhookconfigurations"): (
        Risk.HIGH, "policy", "an admission webhook: what it changed stays unchanged from now on",
    ),
    **_alike(
        Risk.HIGH, "policy", "a policy: what it refused or limited is allowed from now on",
        (_ADMISSION, "validatingadmissionpolicies"), (_ADMISSION, "validatingadmissionpolicybindings"),
        (_ADMISSION, "mutatingadmissionpolicies"), (_ADMISSION, "mutatingadmissionpolicybindings"),
        ("", "resourcequotas"), ("", "limitranges"), ("policy", "poddisruptionbudgets"),
    ),
    ("networking.k8s.io", "networkpolicies"): (
        Risk.HIGH, "policy", "a NetworkPolicy: traffic that it refused may pass from now on",
    ),
    **_alike(
        Risk.HIGH, "class", "objects name it as their class: new ones are refused, or nobody serves them",
        ("storage.k8s.io", "storageclasses"), ("storage.k8s.io", "volumeattributesclasses"),
        ("networking.k8s.io", "ingressclasses"), ("node.k8s.io", "runtimeclasses"),
        ("scheduling.k8s.io", "priorityclasses"), ("resource.k8s.io", "deviceclasses"),
    ),
}  # fmt: skip

_RBAC: Final = "rbac.authorization.k8s.io"
_SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", "default"})
_BASIC: Final = frozenset(
    {"namespaces", "nodes", "customresourcedefinitions.apiextensions.k8s.io", "persistentvolumes"}
)
# What a Secret is for whose absence is felt by others than the object that names it.
_FELT: Final = {
    Role.INGRESS_TLS: ("certificate", "would serve without the certificate"),
    Role.IMAGE_PULL: ("image-pull", "could not pull images of private registries any more"),
}


def reasons_for(
    index: ImpactIndex,
    node: int,
    collection: Collection,
    secret: SecretState | None,
    users: Sequence[User],
    finalizers: Sequence[LostFinalizer],
    *,
    by_api: bool = False,
) -> list[RiskReason]:
    """Return why the loss of an object is as bad as it is; what depends on it before what its kind says."""
    ref = index.ref(node)
    protected = protected_reason(GroupResource(ref.group, ref.resource), ref.namespace)
    kind = _kind_reason(index, node, ref, by_api=by_api)
    return [
        *([RiskReason(Risk.CLUSTER_BREAKING, "protected", protected)] if protected else []),
        *_collection_reasons(collection),
        *(_user_reasons(users) if secret is None else _secret_reasons(secret, users)),
        *([RiskReason(*kind)] if kind is not None else []),
        *(
            RiskReason(
                Risk.HIGH if f.leaks else Risk.LOW,
                "finalizer",
                f"finalizer {f.name} is skipped: {f.consequence}",
            )
            for f in (() if by_api else finalizers)
        ),
    ]


def warnings_about(index: ImpactIndex, node: int) -> list[RiskReason]:
    """Return what was not seen, or cannot be read, and could depend on an object or use it."""
    broken = sum(index.unreadable_by_path.values()) - index.unreadable(node)
    warnings = [("incomplete", f"not everything was seen: {text}") for text in index.problems[:3]]
    if broken:
        text = f"{counted(broken, 'other object')} cannot be read: whether they use it, or depend on it, is not known"
        warnings.append(("unreadable-others", text))
    for count, text in (
        (index.opaque, "cannot be looked into: whether they use it, or depend on it, is not known"),
        (index.truncated, "with more references than are followed may use it too"),
    ):
        if count:
            warnings.append(("not-looked-into", f"{counted(count, 'object')} {text}"))
    return [RiskReason(Risk.LOW, code, text) for code, text in warnings]


def _kind_reason(
    index: ImpactIndex, node: int, ref: ObjectRef, *, by_api: bool
) -> tuple[Risk, str, str] | None:
    """Return what the loss of an object of this kind means by itself; what the API deletes is cleaned up after."""
    place = (ref.group, ref.resource)
    if ref.resource == "customresourcedefinitions":
        count = index.count_below(crd_path(ref.name))
        then = "are deleted with it" if by_api else "stay in etcd, unserved, with what they own"
        text = f"a CustomResourceDefinition: its {count} custom resources {then}"
        return Risk.CLUSTER_BREAKING if count else Risk.HIGH, "crd", text
    if place == ("", "namespaces"):
        if ref.name in _SYSTEM_NAMESPACES:
            return Risk.CLUSTER_BREAKING, "namespace", f"Namespace {ref.name} belongs to the cluster itself"
        count = index.count_in(ref.name)
        left = "are left behind, nothing cleans them up, and nothing new is admitted"
        then = "in it are deleted with it" if by_api else left
        return Risk.HIGH if count else Risk.LOW, "namespace", f"a Namespace: the {count} objects {then}"
    if place in _KINDS:
        return _KINDS[place]
    if ref.group == _RBAC:
        if ref.name.startswith("system:") or ref.name == "cluster-admin":
            return Risk.LOW, "rbac", "an API server re-creates system roles and bindings when it starts"
        return Risk.HIGH, "rbac", "whoever is authorized through it is refused from now on"
    if place == ("", "serviceaccounts"):
        if ref.name == "default":
            return _RECREATED
        return Risk.HIGH, "service-account", "a ServiceAccount: tokens bound to its uid stop working"
    if place in {("", "configmaps"), ("", SECRETS)}:
        return _data_reason(ref)
    if index.place(node)[0].codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
        text = "its controller, which nobody here knows, may take down whatever it stands for"
        return Risk.HIGH, "custom-resource", text
    return Risk.LOW, "kind", "what it does ends with it, and nobody is known to make it again"


def _data_reason(ref: ObjectRef) -> tuple[Risk, str, str] | None:
    """Return what a ConfigMap or Secret is for that no reference shows; by itself it does nothing."""
    if ref.namespace == "kube-system":
        kind = "Secret" if ref.resource == SECRETS else "ConfigMap"
        return Risk.HIGH, "system", f"a {kind} of kube-system: cluster components may read it unseen"
    if (ref.resource, ref.namespace, ref.name) == ("configmaps", "kube-public", "cluster-info"):
        return Risk.LOW, "system", "kubeadm join reads it: no new node joins without it"
    return _RECREATED if (ref.resource, ref.name) == ("configmaps", "kube-root-ca.crt") else None


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


def _secret_reasons(secret: SecretState, users: Sequence[User]) -> Iterator[RiskReason]:
    stopped = {user.object for user in users if user.stops is Stops.YES}
    perhaps = [user for user in users if user.stops is Stops.PERHAPS]
    if stopped:
        text = f"{counted(len(stopped), 'object')} cannot start or work without it"
        yield RiskReason(Risk.HIGH, "users-stop", text)
    for role, (code, what) in _FELT.items():
        felt = {user.object for user in perhaps if user.role is role and not user.heuristic}
        if felt:
            yield RiskReason(Risk.HIGH, code, f"{counted(len(felt), 'object')} {what}")
    rest = {user.object for user in perhaps if user.heuristic or user.role not in _FELT} - stopped
    if rest:
        yield RiskReason(Risk.LOW, "users-perhaps", f"{counted(len(rest), 'object')} may miss it")
    yield from (RiskReason(Risk.LOW, "secret-warning", warning) for warning in secret.warnings)


def _user_reasons(users: Sequence[User]) -> list[RiskReason]:
    needed = {user.object for user in users if not user.optional and not user.heuristic}
    if needed:
        return [RiskReason(Risk.HIGH, "users", f"required by {counted(len(needed), 'object')}")]
    perhaps = {user.object for user in users}
    return [RiskReason(Risk.LOW, "users", f"{counted(len(perhaps), 'object')} may miss it")] if users else []


_SNAPSHOTS: Final = "snapshot.storage.kubernetes.io/"
_PROVISIONER: Final = "provisioner.storage.kubernetes.io/"
_JOB: Final = "batch.kubernetes.io/job-tracking"
_MANAGER: Final = "kube-controller-manager"


class _Finalizer(NamedTuple):
    """Who works on a finalizer, what is left undone without it, whether that leaks, and of which kind it is usual."""

    owner: str
    consequence: str
    leaks: bool
    usual: tuple[str, str] | None = None


# By name; one that ends in "/" stands for all that begin so.
_FINALIZERS: Final = {
    "kubernetes": _Finalizer("namespace controller", "its contents are left behind", True, ("", "namespaces")),
    "orphan": _Finalizer("garbage collector", "its dependents are collected instead of orphaned", True),
    "foregroundDeletion": _Finalizer("garbage collector", "it goes before its dependents", False),
    "kubernetes.io/pvc-protection": _Finalizer(
        _MANAGER, "the volume may vanish under running pods", True, ("", "persistentvolumeclaims"),
    ),
    "kubernetes.io/pv-protection": _Finalizer(
        _MANAGER, "a bound claim becomes Lost", True, ("", "persistentvolumes"),
    ),
    "kubernetes.io/pv-controller": _Finalizer("PersistentVolume controller", "the disk behind it leaks", True),
    "external-provisioner.volume.kubernetes.io/finalizer": _Finalizer(
        "external-provisioner", "the volume behind it leaks", True, ("", "persistentvolumes"),
    ),
    "kubernetes.io/vac-protection": _Finalizer(
        _MANAGER, "volumes may refer to a class that is gone", False, ("storage.k8s.io", "volumeattributesclasses"),
    ),
    _JOB: _Finalizer("Job controller", "the pod is not counted, the Job may make it again", False),
    "service.kubernetes.io/load-balancer-cleanup": _Finalizer(
        "cloud service controller", "the load balancer leaks", True, ("", "services"),
    ),
    "networking.k8s.io/service-cidr-finalizer": _Finalizer(
        _MANAGER, "allocated addresses lie outside of any range", False, ("networking.k8s.io", "servicecidrs"),
    ),
    "resource.kubernetes.io/delete-protection": _Finalizer(
        "DRA controllers", "the allocation of devices leaks", True, ("resource.k8s.io", "resourceclaims"),
    ),
    "customresourcecleanup.apiextensions.k8s.io": _Finalizer(
        "apiextensions", "all its custom resources stay in etcd, unseen", True,
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ),
    f"{_PROVISIONER}cloning-protection": _Finalizer(
        "external-provisioner", "a clone that is being made may fail", False,
    ),
    f"{_PROVISIONER}volumesnapshot-as-source-protection": _Finalizer(
        "external-provisioner", "a volume that is being restored may fail", False,
    ),
    **{
        f"{_SNAPSHOTS}{name}": _Finalizer("external-snapshotter", "the snapshot behind it leaks", True, usual)
        for name, usual in (
            ("volumesnapshot-bound-protection", (SNAPSHOT_GROUP, "volumesnapshots")),
            ("volumesnapshotcontent-bound-protection", (SNAPSHOT_GROUP, "volumesnapshotcontents")),
            ("", None),
        )
    },
    "external-attacher/DRIVER": _Finalizer(
        "external-attacher", "the volume stays attached", True, ("storage.k8s.io", "volumeattachments"),
    ),
    "external-attacher/": _Finalizer("external-attacher", "the volume stays attached", True),
    **dict.fromkeys(
        PROTECTION_FINALIZERS,
        _Finalizer("nobody: KEP-2639 was abandoned", "users of the Secret are not protected", False),
    ),
}  # fmt: skip
_FOREIGN: Final = _Finalizer("", "what its controller guards or cleans up stays behind", True)


def lost_finalizers(names: tuple[str, ...], confidence: Confidence) -> tuple[LostFinalizer, ...]:
    """Return what skipping finalizers means that an object has, or had: the confidence says which."""
    return tuple(_lost(name, confidence) for name in names)


def inferred_finalizers(index: ImpactIndex, node: int) -> tuple[LostFinalizer, ...]:
    """Return the finalizers that an unreadable object probably has: those usual for its kind.

    A claim that something refers to is in use, so its protection is more than likely.
    """
    ref = index.ref(node)
    confidence = Confidence.LIKELY if any(index.users(node)) else Confidence.POSSIBLE
    place = (ref.group, ref.resource)
    usual = [name for name, finalizer in _FINALIZERS.items() if finalizer.usual == place]
    if place == ("", "pods") and _may_be_of_a_job(index, ref):
        usual = [_JOB]
    return tuple(_lost(name, confidence) for name in usual)


def _may_be_of_a_job(index: ImpactIndex, ref: ObjectRef) -> bool:
    """Say whether there is a Job after which the Pod may be called: JOB-suffix, or JOB-index-suffix."""
    job = ref.name.rpartition("-")[0]
    names = (job, job.rpartition("-")[0])
    return any(index.node(f"jobs/{ref.namespace}/{name}") is not None for name in names if name)


def _lost(name: str, confidence: Confidence) -> LostFinalizer:
    known = _FINALIZERS.get(name) or _FINALIZERS.get(f"{name.partition('/')[0]}/", _FOREIGN)
    return LostFinalizer(name, *known[:3], confidence)
