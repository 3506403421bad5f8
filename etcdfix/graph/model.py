"""What the graph finds, as it is published: reports write these values as they are (``etcdfix/v1``).

Names, kinds, uids, finalizers and the fields that refer to something; never what an object holds. Fields stand in the
order in which a report has them.
"""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import NamedTuple

import msgspec

from etcdfix.model.model import Confidence, ReadableRevision


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One object, whether it exists or is only mentioned. Every part is display text, not safe for a terminal.

    Attributes:
        key: Complete etcd key.
        key_base64: Present where the key is not plain text, and authoritative then.
        resource: Plural resource; "" where the key belongs to no resource that is known.
        kind: "" where only a CRD could tell and none is readable.
    """

    key: str
    key_base64: str | None = None
    group: str
    resource: str
    kind: str
    namespace: str
    name: str

    @property
    def full_resource(self) -> str:
        """Its resource with the API group, as kubectl takes it."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def raw_key(self) -> bytes:
        """Its etcd key."""
        return base64.b64decode(self.key_base64) if self.key_base64 is not None else self.key.encode()

    def __str__(self) -> str:
        if not self.resource:
            return self.key
        return (
            f"{self.full_resource} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.full_resource} {self.name}"
        )


class Risk(StrEnum):
    """How bad the loss of an object is, from harmless to a broken cluster."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"
    CLUSTER_BREAKING = "cluster-breaking"


class RiskReason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reason for a grade: the grade that it alone would give, a constant name for scripts, and a sentence."""

    risk: Risk
    code: str
    text: str


class OwnerState(StrEnum):
    """What the collector finds when it looks for an owner."""

    SOLID = "solid"
    WAITING = "waiting"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    INVALID = "invalid"


class Action(StrEnum):
    """What happens to a dependent."""

    CASCADE_DELETED = "cascade-deleted"
    KEPT = "kept"
    REFERENCE_STRIPPED = "reference-stripped"
    ORPHANED = "orphaned"
    FROZEN = "frozen"
    NEVER_COLLECTED = "never-collected"


class Propagation(StrEnum):
    """How the collector deletes a dependent."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class JudgedOwner(msgspec.Struct, frozen=True):
    """One owner reference of a dependent, as it states it, and what becomes of it.

    ``reason`` is a clause, "" for a solid owner.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    state: OwnerState
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the garbage collector does to one dependent.

    Attributes:
        depth: 1 for what the removed object itself owns.
        below: Key of the first owner that goes, "" for none.
        uncertain: Why it may come later or not at all, "" for nothing.
        stays: It is deleted, but only becomes Terminating: what it waits for. "" for gone at once.
        later: It is kept for now, and deleted once an owner that only becomes Terminating is really gone: says which.
        ran_before: Why a controller manager that ran before objects became unreadable does not do it at once; "".
        started_after: Why one that was started since then does not; "".
    """

    depth: int = 1
    below: str = ""
    object: ObjectRef
    action: Action
    owners: tuple[JudgedOwner, ...]
    uncertain: str = ""
    stays: str = ""
    later: str = ""
    ran_before: str = ""
    started_after: str = ""


class Collection(msgspec.Struct, frozen=True):
    """Everything that a removal sets off.

    Attributes:
        tree: Its dependents and theirs, depth first.
        deleted_by_resource: Number of cascade-deleted objects by ``resource.group``.
        stays: The removed object itself only becomes Terminating: what it waits for. Never so in etcd.
        uncertain: Where the removed object is deleted through the API: why it may only become Terminating.
        listable: Directories that can be listed again once it is gone.
        unlistable: Directories that cannot even then, each with how many objects are the reason.
        caught_up: What the collector then does that is no dependent of the removed object: it could not see these
            before, or could not see that their owners were gone. Depth first.
        unseen: Where it is deleted through the API: how many objects that cannot be read may depend on it.
    """

    tree: tuple[Decision, ...]
    counts: dict[Action, int]
    deleted_by_resource: dict[str, int]
    stays: str = ""
    uncertain: str = ""
    listable: tuple[str, ...] = ()
    unlistable: dict[str, int] = {}
    caught_up: tuple[Decision, ...] = ()
    unseen: int = 0


class DeletionResult(StrEnum):
    """What becomes of the object itself."""

    GONE = "gone"
    TERMINATING = "terminating"
    NOT_TOLD = "cannot-be-told"
    REFUSED = "refused"


class DeletionForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What an ordinary deletion through the API does to one object.

    Attributes:
        policy: ``propagationPolicy`` of the deletion.
        by_default: Nobody asked for a policy: it is that of a deletion under way, else the one that kubectl sends.
        possible: Whether an API server would do it; null where that is not known.
        result: ``gone``, where nothing but the collector's own work is waited for; ``terminating``;
            ``cannot-be-told``; ``refused``.
        text: What happens to the object, in a sentence.
        notes: What else to know, a sentence each.
    """

    policy: Propagation
    by_default: bool
    possible: bool | None
    result: DeletionResult
    text: str
    notes: tuple[str, ...]


class User(msgspec.Struct, frozen=True):
    """One object that refers to another by name or uid, in one way.

    The fields of the path, and what they say, are those of :class:`~etcdfix.graph.uses.Use`; absence is tolerated by a
    Pod that has finished, and by a list of tokens, too.
    """

    object: ObjectRef
    path: str
    optional: bool = False
    heuristic: bool = False


class SecretState(msgspec.Struct, frozen=True):
    """What KEP-2639 asks of a Secret: it would hold back a deletion where something uses it and nobody opted out."""

    protected: bool = False
    opted_out: bool = False


class LostFinalizer(msgspec.Struct, frozen=True):
    """One finalizer that an unsafe deletion would skip.

    ``leaks``: something outside the cluster, or data, is left behind or lost. ``confidence``: ``certain`` for one that
    was read, else it is usual for the kind.
    """

    name: str
    consequence: str
    leaks: bool
    confidence: Confidence


class OwnerReference(NamedTuple):
    """One entry of ``metadata.ownerReferences``; there is no namespace in it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool
    block_owner_deletion: bool


class LastKnown(msgspec.Struct, frozen=True):
    """Who an object is, or last was: never what labels or annotations hold.

    Attributes:
        uid: "" where nobody knows.
        basis: ``current``, ``history``, ``references``, or ``none``.
        revision: mod_revision of the value that told it, 0 for none.
        finalizers: None where no readable revision told them.
        marks: Labels and annotations with which makers mark their objects, and the id of each maker.
        conflicting_uids: Other uids that references state, with how many do.
        readable: That value of the same object, where it is an earlier one and still reads; None for none.
        node: Of a Pod of the same generation, where it was bound to; that never changes. "" for not known.
        type: Of a Secret; "" where it says none.
        owners: The managing one first.
        token_of: The ServiceAccount of a token.
    """

    uid: str
    confidence: Confidence
    basis: str
    revision: int = 0
    finalizers: tuple[str, ...] | None = None
    marks: dict[str, str] = {}
    conflicting_uids: dict[str, int] = {}
    readable: ReadableRevision | None = None
    node: str = ""
    type: str = ""
    owners: tuple[OwnerReference, ...] = ()
    token_of: str = ""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What the loss of one object means.

    Attributes:
        exists: None where its key was not seen, and not everything was.
        users: What refers to it, by key and field; one object may have several references.
        finalizers: Those that would be skipped and what leaks: known ones, or likely ones where they cannot be read.
        node: Of a Pod, where it runs; the kubelet there cleans up. "" where that is not known.
        risk: The worst of the reasons, which stand worst first.
        may_be_worse: Something was not seen, or cannot be read, that could depend on it: the grade is the least.
    """

    object: ObjectRef
    exists: bool | None
    readable: bool
    risk: Risk
    may_be_worse: bool
    reasons: tuple[RiskReason, ...]
    last_known: LastKnown
    dependents: Collection
    secret: SecretState | None
    users: tuple[User, ...]
    finalizers: tuple[LostFinalizer, ...]
    node: str


class Condition(msgspec.Struct, frozen=True):
    """One entry of a Namespace's ``status.conditions``, and whether it reports a problem; texts are cut at 4,096."""

    type: str
    status: str
    reason: str
    message: str
    problem: bool


class Stays(StrEnum):
    """Why the objects of a resource are still there when the namespace controller has done what it can."""

    NOT_LISTED = "cannot-be-listed"
    PODS_FIRST = "pods-first"
    WEBHOOK = "held-by-webhook"
    NOT_SERVED = "not-served"
    CRD_UNREADABLE = "crd-unreadable"
    NOT_PROCESSED = "not-processed"


class ResourceContent(msgspec.Struct, frozen=True):
    """What a namespace holds of one resource.

    Attributes:
        stays: Why its objects are still there when the namespace controller has done what it can; None for those that
            go, but for what waits for finalizers.
    """

    group: str
    resource: str
    count: int
    stays: Stays | None = None


class Blocker(msgspec.Struct, frozen=True):
    """One object that keeps its namespace from being deleted.

    Attributes:
        reason: ``unreadable``: it fails every LIST of its type; ``serves-empty``: broken too, but LISTs show an empty
            object without a name, so whatever deletes by name cannot delete it; ``undetermined``; ``node``: a pod whose
            kubelet does not end it, or has not ended it in time; ``finalizers``.
        cause: Of the first three; so is ``message``.
        finalizers: What it waits for, where that is known.
        terminating_since: When it was marked for deletion, or, for a pod, when its grace period ends; None for not yet.
        node_state: Of the Node object: ``absent``, so that the pod garbage collector forces the pod away,
            ``not-ready``, ``ready``, ``unknown`` where it cannot be read or was not seen.
        past_grace: A pod's grace period is over.
    """

    object: ObjectRef
    reason: str
    cause: str | None = None
    message: str = ""
    finalizers: tuple[str, ...] = ()
    terminating_since: str | None = None
    node: str | None = None
    node_state: str | None = None
    past_grace: bool = False


class WebhookHold(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook that keeps a namespace from being deleted, or may, since nobody answers for its Service.

    Attributes:
        webhook: Name of the admission webhook; "" for the conversion of a CustomResourceDefinition.
        position: Of the admission webhook in its configuration, from 0.
        problem: ``missing``: the Service is not stored; ``not-ready``: no endpoint of it is known to be ready;
            ``terminating``: its namespace is being deleted, and its pods go first; ``no-certificate``: the caBundle of
            the definition has none, so that API servers do not call it, and answer no request for its objects.
        certain: The conditions of the Namespace say that it holds the namespace.
        resources: What in this namespace it may be asked about, ``resource.group``.
        count: How many objects these are.
    """

    configuration: ObjectRef
    webhook: str
    position: int
    service: ObjectRef
    problem: str
    certain: bool
    resources: tuple[str, ...]
    count: int


class DeletionStage(msgspec.Struct, frozen=True):
    """One stage of the deletion, in the order of KEP-5080.

    Attributes:
        name: ``elsewhere`` and ``unreadable``: what must be removed first, outside of the namespace and in it;
            ``pods``; ``rest``.
        blockers: What keeps it from ending, the first hundred: pods past their grace period, other pods, then what is
            proven broken, then by key.
        blocker_count: How many there are.
    """

    name: str
    blockers: tuple[Blocker, ...]
    blocker_count: int


class OrphanReason(StrEnum):
    """Why keys belong to nobody."""

    OWNER_ELSEWHERE = "owner-elsewhere"
    OWNER_GONE = "owner-gone"
    CRD_GONE = "crd-gone"
    NAMESPACE_GONE = "namespace-gone"
    UNCLAIMED = "unclaimed"


class OrphanGroup(msgspec.Struct, frozen=True):
    """Keys of one directory that are left over for one reason.

    Attributes:
        prefix: What the keys start with; with ``namespace-gone`` the directory and namespace.
        namespace: The missing namespace; "" for other reasons.
        size: Bytes of their values.
        confidence: ``likely`` where an aggregated API server may own them, or where not everything was seen.
    """

    reason: OrphanReason
    prefix: str
    namespace: str
    count: int
    size: int
    examples: tuple[str, ...]
    confidence: Confidence
