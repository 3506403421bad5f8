"""The blast radius of losing one key: who it was, what goes with it, who misses it, and how bad that is."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any, Final

import msgspec

from etcdfix.impact.contents import ContentReader
from etcdfix.impact.finalizers import LostFinalizer, inferred_finalizers, lost_finalizers
from etcdfix.impact.garbage import Action, Collection, collect
from etcdfix.impact.identity import ObjectRef
from etcdfix.impact.index import ImpactIndex
from etcdfix.impact.namespaces import contents_of
from etcdfix.impact.secretusers import SecretUsers, Stops, secret_users
from etcdfix.impact.uses import SECRETS, Role, Use
from etcdfix.model import Confidence
from etcdfix.pipeline import Examiner
from etcdfix.sources.base import Source
from etcdfix.verdicts.examination import Examination

_MOST_USERS: Final = 1000
_MANY: Final = 100


class Risk(StrEnum):
    """How bad the loss of an object is, from harmless to a broken cluster."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"
    CLUSTER_BREAKING = "cluster-breaking"


_ORDER: Final = list(Risk)


class RiskReason(msgspec.Struct, frozen=True):
    """One reason for a grade.

    Attributes:
        risk: The grade that it alone would give.
        code: A short constant name, for scripts.
        text: One sentence.
    """

    risk: Risk
    code: str
    text: str


class LastKnown(msgspec.Struct, frozen=True):
    """Who an object is, or last was.

    Attributes:
        uid: "" where nobody knows.
        confidence: Of the uid.
        basis: ``current``, ``history``, ``earlier-generation``, ``references``, or ``none``.
        revision: mod_revision of the value that told it, 0 for none.
        finalizers: As of then; None where no readable revision told them.
        labels: As of then.
        annotations: Names only, as of then: their values may be secret.
        conflicting_uids: Other uids that references state, with how many do.
        node: Of a Pod of the same generation, where it was bound to as of then; that never changes. "" for not known.
    """

    uid: str
    confidence: Confidence
    basis: str
    revision: int = 0
    finalizers: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    annotations: tuple[str, ...] = ()
    conflicting_uids: dict[str, int] = {}
    node: str = ""


class User(msgspec.Struct, frozen=True):
    """One object that refers to the lost one, by name or uid."""

    object: ObjectRef
    use: Use


class Assessment(msgspec.Struct, frozen=True):
    """What the loss of one object means.

    Attributes:
        object: The object.
        exists: Whether its key is there.
        readable: Whether it can be read.
        last_known: Who it was.
        collection: What the garbage collector does.
        secret: Its users, for a Secret.
        users: What else refers to it, the first thousand.
        user_count: How many there are.
        finalizers: Those that would be skipped and what leaks: known ones, or likely ones where they cannot be read.
        node: Of a Pod, where it runs; the kubelet there cleans up. "" where that is not known.
        consequences: What is special about its kind, a sentence each.
        risk: The worst of the reasons.
        reasons: Worst first.
        complete: Whether the index held everything.
        problems: Why not.
    """

    object: ObjectRef
    exists: bool
    readable: bool
    last_known: LastKnown
    collection: Collection
    secret: SecretUsers | None
    users: tuple[User, ...]
    user_count: int
    finalizers: tuple[LostFinalizer, ...]
    node: str
    consequences: tuple[str, ...]
    risk: Risk
    reasons: tuple[RiskReason, ...]
    complete: bool
    problems: tuple[str, ...]


# Resource -> grade and sentence. What the API servers, or every controller, cannot start without.
_KINDS: Final[dict[tuple[str, str], tuple[Risk, str, str]]] = {
    ("", "events"): (Risk.NONE, "event", "an Event: it would have expired by itself"),
    ("coordination.k8s.io", "leases"): (
        Risk.LOW,
        "lease",
        "a Lease: its holder makes a new one; leader election or a node's heartbeat may falter for a moment",
    ),
    ("", "endpoints"): (Risk.LOW, "re-created", "its controller makes it again"),
    ("discovery.k8s.io", "endpointslices"): (Risk.LOW, "re-created", "its controller makes it again"),
    ("apiregistration.k8s.io", "apiservices"): (
        Risk.HIGH,
        "api-service",
        "an APIService: that of a built-in group comes back by itself, an aggregated API stays away",
    ),
    ("", "persistentvolumes"): (
        Risk.HIGH,
        "volume",
        "a PersistentVolume: its claim becomes Lost, and nobody deletes the storage behind it",
    ),
    ("", "persistentvolumeclaims"): (
        Risk.HIGH,
        "claim",
        "a PersistentVolumeClaim: its volume becomes Released, and reclaim policy Delete then removes the data",
    ),
    ("", "services"): (
        Risk.HIGH,
        "service",
        "a Service: its cluster IP and node ports are given up, a cloud load balancer is left behind",
    ),
    ("", "nodes"): (
        Risk.HIGH,
        "node",
        "a Node: its pods are deleted after a while, unless the kubelet registers it again",
    ),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): (
        Risk.HIGH, "policy", "an admission webhook: what it refused is admitted from now on",
    ),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): (
        Risk.HIGH, "policy", "an admission webhook: what it changed stays unchanged from now on",
    ),
    ("networking.k8s.io", "networkpolicies"): (
        Risk.HIGH, "policy", "a NetworkPolicy: traffic that it refused may pass from now on",
    ),
}  # fmt: skip

_RBAC: Final = "rbac.authorization.k8s.io"
_SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", "default"})


def assess(
    index: ImpactIndex, source: Source, examiner: Examiner, key: bytes, *, reader: ContentReader | None = None
) -> Assessment | None:
    """Assess the loss of one object, readable or not.

    Args:
        index: Of the cluster, made with the same examiner.
        source: Where its history is.
        examiner: Judges the revisions of its history.
        key: Complete etcd key.
        reader: Looks into them; made when not given.

    Returns:
        None for a key that nobody has and nobody mentions.

    Raises:
        SourceError: The history cannot be read.
    """
    node = index.find(key)
    if node is None:
        return None
    known = last_known(index, source, examiner, node, reader=reader)
    ref = index.ref(node)
    collection = collect(index, node, uid=known.uid if known.confidence is not Confidence.POSSIBLE else "")
    secret = secret_users(index, node) if (ref.group, ref.resource) == ("", SECRETS) else None
    edges = list(index.users(node))
    users = sorted(
        (User(index.ref(e.source), e.use) for e in edges), key=lambda u: (u.object.key, u.use.path)
    )
    finalizers = (
        lost_finalizers(known.finalizers)
        if known.finalizers is not None
        else inferred_finalizers(index, node)
    )
    # What cannot be read refers to nothing; its history may still tell.
    runs_on = next(
        (index.place(e.target)[2] for e in index.uses(node) if e.use.role is Role.NODE), known.node
    )
    consequences = _consequences(index, node, ref, runs_on)
    reasons = sorted(
        [*_kind_reasons(index, ref), *_collection_reasons(collection), *_user_reasons(secret, users)]
        + [
            RiskReason(
                Risk.HIGH if f.leaks else Risk.LOW,
                "finalizer",
                f"finalizer {f.name} is skipped: {f.consequence}",
            )
            for f in finalizers
        ]
        + _doubts(index, node),
        key=lambda reason: -_ORDER.index(reason.risk),
    )
    return Assessment(
        object=ref,
        exists=index.exists(node),
        readable=index.exists(node) and not index.unreadable(node),
        last_known=known,
        collection=collection,
        secret=secret,
        users=tuple(users[:_MOST_USERS]),
        user_count=len(users),
        finalizers=finalizers,
        node=runs_on,
        consequences=consequences,
        risk=reasons[0].risk if reasons else Risk.NONE,
        reasons=tuple(reasons),
        complete=not index.problems,
        problems=tuple(index.problems),
    )


# -------------------------------------------------------------------------------------------------- who it was


def last_known(
    index: ImpactIndex,
    source: Source,
    examiner: Examiner,
    node: int,
    *,
    reader: ContentReader | None = None,
) -> LastKnown:
    """Return who an object is or was: by its newest readable revision, else by what others say of its uid.

    Args:
        index: Of the cluster.
        source: Where its history is.
        examiner: Judges the revisions.
        node: Of the object.
        reader: Looks into them; made when not given.

    Raises:
        SourceError: The history cannot be read.
    """
    reader = reader or ContentReader(examiner)
    found = _newest_readable(source, examiner, index.key(node))
    stated = _stated_uids(index, node)
    if found is not None:
        examination, current, same_generation = found
        decoded = examination.decoded
        uid = decoded.uid.decode("utf-8", "replace") if decoded is not None and decoded.uid else ""
        if uid and same_generation:
            basis = "current" if current else "history"
            told = _told(reader, examination, uid, Confidence.CERTAIN, basis, stated)
            return msgspec.structs.replace(told, node=_bound_to(reader, examination, index.ref(node)))
        if uid and (not stated or uid in stated):
            # The key was deleted and made again since; references to the old uid may be as old.
            confidence = Confidence.LIKELY if uid in stated else Confidence.POSSIBLE
            return _told(reader, examination, uid, confidence, "earlier-generation", stated)
    if not stated:
        return LastKnown("", Confidence.POSSIBLE, "none")
    ranked = sorted(stated.items(), key=lambda item: (-item[1], item[0]))
    uid = ranked[0][0]
    return LastKnown(
        uid,
        Confidence.LIKELY if len(ranked) == 1 else Confidence.POSSIBLE,
        "references",
        conflicting_uids=dict(ranked[1:]),
    )


def _newest_readable(source: Source, examiner: Examiner, key: bytes) -> tuple[Examination, bool, bool] | None:
    """Return the newest readable revision, whether it is the newest of all, and of its generation."""
    newest: Examination | None = None
    last = generation = 0
    for kept in source.history(key):
        if kept.stored is None:
            continue
        last, generation = kept.stored.mod_revision, kept.stored.create_revision
        examination = examiner.examine(kept.stored)
        if examination.decoded is not None and not examination.decoded.empty:
            newest = examination
    if newest is None:
        return None
    stored = newest.stored
    return newest, stored.mod_revision == last, stored.create_revision == generation


def _told(
    reader: ContentReader,
    examination: Examination,
    uid: str,
    confidence: Confidence,
    basis: str,
    stated: Counter[str],
) -> LastKnown:
    whole = reader.whole(examination) or {}
    metadata: Any = whole.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    finalizers, labels = metadata.get("finalizers"), metadata.get("labels")
    annotations = metadata.get("annotations")
    return LastKnown(
        uid,
        confidence,
        basis,
        examination.stored.mod_revision,
        tuple(str(f) for f in finalizers) if isinstance(finalizers, list) else (),
        {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
        tuple(sorted(map(str, annotations))) if isinstance(annotations, dict) else (),
        {other: count for other, count in stated.items() if other != uid},
    )


def _bound_to(reader: ContentReader, examination: Examination, ref: ObjectRef) -> str:
    if (ref.group, ref.resource) != ("", "pods"):
        return ""
    spec: Any = (reader.whole(examination) or {}).get("spec")
    name = spec.get("nodeName") if isinstance(spec, dict) else ""
    return name if isinstance(name, str) else ""


def _stated_uids(index: ImpactIndex, node: int) -> Counter[str]:
    """Count what others say its uid is: dependents, PersistentVolumes of claims, tokens of ServiceAccounts."""
    stated: Counter[str] = Counter()
    for dependent in index.dependents(node):
        stated.update({owner.uid for owner in index.owners(dependent) if owner.node == node and owner.uid})
    stated.update(edge.uid for edge in index.users(node) if edge.uid)
    return stated


# ------------------------------------------------------------------------------------------------- how bad it is


def _kind_reasons(index: ImpactIndex, ref: ObjectRef) -> list[RiskReason]:
    place = (ref.group, ref.resource)
    if place in _KINDS:
        return [RiskReason(*_KINDS[place])]
    if ref.resource == "customresourcedefinitions":
        count = sum(1 for _ in index.below(_crd_path(ref.name)))
        risk = Risk.CLUSTER_BREAKING if count else Risk.HIGH
        text = (
            f"a CustomResourceDefinition: its {count} custom resources stay in etcd, and no API serves them"
        )
        return [RiskReason(risk, "crd", text)]
    if place == ("", "namespaces"):
        count = len(contents_of(index, ref.name))
        if ref.name in _SYSTEM_NAMESPACES:
            return [
                RiskReason(
                    Risk.CLUSTER_BREAKING, "namespace", f"Namespace {ref.name} belongs to the cluster itself"
                )
            ]
        risk = Risk.HIGH if count else Risk.LOW
        text = f"a Namespace: its {count} objects are left behind, nothing cleans them up, and nothing new is admitted"
        return [RiskReason(risk, "namespace", text)]
    if ref.group == _RBAC:
        system = ref.name.startswith("system:") or ref.name == "cluster-admin"
        if system:
            return [
                RiskReason(
                    Risk.LOW, "rbac", "an API server re-creates system roles and bindings when it starts"
                )
            ]
        return [RiskReason(Risk.HIGH, "rbac", "whoever is authorized through it is refused from now on")]
    if place == ("", "configmaps") and ref.namespace == "kube-system":
        return [
            RiskReason(
                Risk.HIGH, "system", "a ConfigMap of kube-system: cluster components may read it unseen"
            )
        ]
    if place == ("", "serviceaccounts") and ref.name != "default":
        return [
            RiskReason(Risk.HIGH, "service-account", "a ServiceAccount: tokens bound to its uid stop working")
        ]
    if place == ("", SECRETS) and ref.namespace == "kube-system":
        return [
            RiskReason(Risk.HIGH, "system", "a Secret of kube-system: cluster components may read it unseen")
        ]
    return []


def _collection_reasons(collection: Collection) -> list[RiskReason]:
    deleted = collection.counts[Action.CASCADE_DELETED]
    reasons = []
    if deleted:
        what = ", ".join(f"{count} {resource}" for resource, count in collection.deleted_by_resource.items())
        basic = {"namespaces", "nodes", "customresourcedefinitions.apiextensions.k8s.io", "persistentvolumes"}
        breaking = bool(basic & collection.deleted_by_resource.keys()) or deleted >= _MANY
        risk = Risk.CLUSTER_BREAKING if breaking else Risk.HIGH
        reasons.append(
            RiskReason(risk, "cascade", f"the garbage collector deletes {deleted} dependents: {what}")
        )
    kept = collection.counts[Action.KEPT] + collection.counts[Action.REFERENCE_STRIPPED]
    if kept:
        reasons.append(RiskReason(Risk.LOW, "kept", f"{kept} dependents stay, since another owner is there"))
    frozen = collection.counts[Action.FROZEN]
    if frozen:
        reasons.append(
            RiskReason(
                Risk.LOW, "frozen", f"{frozen} dependents stay as long as another owner cannot be read"
            )
        )
    return reasons


def _user_reasons(secret: SecretUsers | None, users: list[User]) -> list[RiskReason]:
    if secret is not None:
        stopped = [user for user in secret.users if user.stops is Stops.YES]
        perhaps = [user for user in secret.users if user.stops is Stops.PERHAPS]
        reasons = []
        if stopped:
            objects = len({user.object for user in stopped})
            reasons.append(
                RiskReason(Risk.HIGH, "users-stop", f"{_objects(objects)} cannot start or work without it")
            )
        elif perhaps:
            objects = len({user.object for user in perhaps})
            reasons.append(RiskReason(Risk.LOW, "users-perhaps", f"{_objects(objects)} may miss it"))
        reasons += [RiskReason(Risk.LOW, "secret-note", note) for note in secret.notes]
        return reasons
    needed = {user.object for user in users if not user.use.optional and not user.use.heuristic}
    if needed:
        return [RiskReason(Risk.HIGH, "users", f"named as needed by {_objects(len(needed))}")]
    return [RiskReason(Risk.LOW, "users", f"{_objects(len(users))} may miss it")] if users else []


def _objects(count: int, which: str = "") -> str:
    return f"{count} {which}object{'s' if count != 1 else ''}"


def _doubts(index: ImpactIndex, node: int) -> list[RiskReason]:
    doubts = [
        RiskReason(Risk.LOW, "incomplete", f"not everything was seen: {text}") for text in index.problems[:3]
    ]
    broken = sum(index.unreadable_by_path().values()) - index.unreadable(node)
    if broken:
        text = (
            f"{_objects(broken, 'other ')} cannot be read: whether they use it, or depend on it, is not known"
        )
        doubts.append(RiskReason(Risk.LOW, "unreadable-others", text))
    return doubts


def _consequences(index: ImpactIndex, node: int, ref: ObjectRef, runs_on: str) -> tuple[str, ...]:
    place = (ref.group, ref.resource)
    if place == ("", "pods"):
        where = f"on node {runs_on}" if runs_on else "on its node, which is not known,"
        return (f"the kubelet {where} sees that the Pod is gone, stops its containers and cleans up",)
    if place == ("", "namespaces"):
        count = len(contents_of(index, ref.name))
        return (
            f"{count} objects stay in etcd under a namespace that does not exist",
            "re-create the Namespace under its name and delete it normally: then its controller cleans up",
        )
    if ref.resource == "customresourcedefinitions":
        count = sum(1 for _ in index.below(_crd_path(ref.name)))
        return (
            f"{count} custom resources stay in etcd, unseen",
            "re-create the same CustomResourceDefinition, and they are served again",
        )
    if place == ("", "persistentvolumes"):
        claims = [index.ref(e.source) for e in index.users(node) if e.use.role is Role.BOUND_VOLUME]
        return (
            *(f"{claim} becomes Lost" for claim in claims),
            "the storage behind it stays, and nobody deletes it",
        )
    if place == ("", "services"):
        return (
            "its cluster IP and node ports are free for others, clients that remember them go astray",
            "a cloud load balancer made for it is left behind",
        )
    return ()


def _crd_path(name: str) -> str:
    plural, _, group = name.partition(".")
    return f"{group}/{plural}"
