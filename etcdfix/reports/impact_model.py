"""The published shape of the reports on consequences (``etcdfix/v1alpha1``), field by field and in order.

Names, kinds, uids, finalizers and the fields that refer to something; never what an object holds: no data, no values of
labels or annotations.
"""

from __future__ import annotations

import msgspec

from etcdfix.reports.model import (
    API_VERSION,
    Finding,
    Remedy,
    ReportConfiguration,
    ReportSource,
    Tool,
)


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object, whether it exists or is only mentioned.

    ``key_base64`` is present when the key is known not to be plain text, and is authoritative then. ``kind`` is
    empty where only a CRD could tell and none is readable.
    """

    key: str
    key_base64: str | None = None
    group: str
    resource: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        if not resource:
            return self.key
        return f"{resource} {self.namespace}/{self.name}" if self.namespace else f"{resource} {self.name}"


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str
    tool: Tool
    generated_at: str
    source: ReportSource
    encryption_config: ReportConfiguration | None


# -------------------------------------------------------------------------------------------------------- impact


class RiskEntry(msgspec.Struct, frozen=True):
    """One reason for the grade: the grade that it alone would give, a constant name, and a sentence."""

    risk: str
    code: str
    text: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the object is or last was.

    ``basis``: ``current``, ``history``, ``earlier-generation``, ``references`` or ``none``. ``finalizers`` is null
    where no readable revision told them. ``labels`` and ``annotations`` are names only.
    """

    uid: str
    confidence: str
    basis: str
    mod_revision: int
    finalizers: list[str] | None
    labels: list[str]
    annotations: list[str]
    conflicting_uids: dict[str, int]


class OwnerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One owner reference of a dependent, and what the garbage collector finds there."""

    api_version: str
    kind: str
    name: str
    uid: str
    state: str
    reason: str
    removed: bool
    stripped: bool


class DependentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One dependent and what the garbage collector does to it.

    ``depth`` is 1 for what the object itself owns; ``below`` is the key of the owner that it hangs under here ("" for
    what hangs under none). ``stays``: it is deleted, but only becomes Terminating, and why. ``later``: it is deleted
    only once this owner is really gone. ``ran_before``, ``started_after``: why a controller manager that ran before
    objects became unreadable, or that was started since then, does not act at once; "" where it does.
    """

    depth: int
    below: str
    object: ObjectEntry
    action: str
    propagation: str | None
    owners: list[OwnerEntry]
    after_finalizers: list[str]
    already_terminating: bool
    uncertain: str
    stays: str = ""
    later: str = ""
    ran_before: str = ""
    started_after: str = ""


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a removal sets off: the tree, written depth first as one flat list.

    ``caught_up``: what the garbage collector does beside that, since types can be listed again (``listable``).
    ``unlistable``: the types that cannot even then, with how many objects are the reason. ``namespaces``: those that
    are being deleted, and that finish once it is gone.
    """

    counts: dict[str, int]
    deleted_by_resource: dict[str, int]
    tree: list[DependentEntry]
    caught_up: list[DependentEntry] = []
    listable: list[str] = []
    unlistable: dict[str, int] = {}
    namespaces: list[str] = []
    notes: list[str] = []


class UserEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object that refers to the lost one, and the field that says so.

    ``stops`` is ``yes``, ``no`` or ``perhaps`` for users of a Secret, null for others.
    """

    object: ObjectEntry
    role: str
    path: str
    optional: bool
    template: bool
    heuristic: bool
    carried: bool
    finished: bool
    stops: str | None
    consequence: str
    behind: list[ObjectEntry]
    behind_count: int


class UserGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Users that use it in the same way."""

    role: str
    count: int
    users: list[UserEntry]


class SecretEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What KEP-2639 asks of a Secret."""

    type: str
    protected: bool
    opted_out: bool
    protection_finalizers: list[str]
    other_finalizers: list[str]
    notes: list[str]


class FinalizerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A finalizer that would be skipped, and what is left undone."""

    name: str
    owner: str
    consequence: str
    leaks: bool
    confidence: str


class ImpactReport(_Report, frozen=True, kw_only=True):
    """What losing one object would set off.

    ``exists`` is null where its key was not seen in a source that could not be read whole. ``may_be_worse`` says that
    something was not seen that could depend on it: ``risk`` is the least then. ``finding`` says what is stored, null
    where nothing is. ``user_count`` counts references: one user may have several. ``namespace_terminating`` is when its
    namespace was told to go ("" for not known), null where it was not.
    """

    kind: str = "ImpactReport"
    object: ObjectEntry
    exists: bool | None
    readable: bool
    risk: str
    may_be_worse: bool
    reasons: list[RiskEntry]
    finding: Finding | None
    last_known: Identity
    namespace_terminating: str | None
    dependents: Dependents
    secret: SecretEntry | None
    users: list[UserGroup]
    user_count: int
    finalizers: list[FinalizerEntry]
    node: str
    consequences: list[str]
    unreadable_elsewhere: int
    undetermined_elsewhere: int
    remedies: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]


# ----------------------------------------------------------------------------------------------------- namespace


class ConditionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the Namespace; ``problem`` where it reports one."""

    type: str
    status: str
    reason: str
    message: str
    last_transition: str
    problem: bool


class ContentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the namespace holds of one resource.

    ``served`` is null where its CRD was not seen, and not everything was. ``aggregated``: an aggregated API serves its
    group, and keeps its objects here or elsewhere. ``stays``: why its objects are still there when the namespace
    controller has done what it can: ``cannot-be-listed``, ``pods-first``, ``not-served``, ``crd-unreadable`` or
    ``not-processed``; "" for those that go, but for what finalizers hold.
    """

    group: str
    resource: str
    count: int
    unreadable: int
    with_finalizers: int
    served: bool | None
    aggregated: bool
    stays: str = ""


class BlockerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One object that blocks: ``unreadable``, ``serves-empty``, ``undetermined``, ``finalizers`` or ``node``.

    The first three have a cause. ``unreadable`` fails every LIST of its type; ``serves-empty`` is broken too, but
    listed as an empty object. ``node``: a pod that its kubelet does not end. ``node_state`` is ``absent`` where there
    is no Node object, so that the pod garbage collector forces the pod away, ``not-ready``, ``ready`` or ``unknown``.
    ``past_grace``: its grace period is over. ``terminating_since`` of a pod is when that period ends.
    """

    object: ObjectEntry
    reason: str
    cause: str | None
    message: str
    finalizers: list[str]
    terminating_since: str | None
    node: str | None = None
    node_state: str | None = None
    past_grace: bool = False


class StageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of the deletion in KEP-5080's order; ``blocker_count`` counts those beyond the first hundred too."""

    number: int
    name: str
    resources: list[ContentEntry]
    blockers: list[BlockerEntry]
    blocker_count: int


class WaitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """``waiter`` goes only after ``waits_for``."""

    waiter: ObjectEntry
    waits_for: ObjectEntry
    reason: str


class CycleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that wait for one another; the last step leads back to the first."""

    steps: list[WaitEntry]
    confidence: str
    way_out: str


class MissingAPI(msgspec.Struct, frozen=True, kw_only=True):
    """An API that does not answer, or that nobody serves."""

    api: str
    reason: str


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what to do, the command to paste ("" for none), what to know first, and the key that it is about."""

    number: int
    action: str
    command: str
    note: str
    key: str | None


class NamespaceReport(_Report, frozen=True, kw_only=True):
    """Why a namespace cannot finish deleting.

    ``state``: ``active``, ``active-with-blockers``, ``terminating``, ``stuck``, ``unreadable``, ``missing``, and
    ``unknown`` where its object was not seen and not everything was: ``exists`` is null then. ``frozen``: its object
    fails the LIST of all namespaces, so none of the cluster is processed. ``elsewhere``: objects outside of it that
    cannot be read or judged, and hold every namespace of the cluster, the first hundred of ``elsewhere_count``.
    ``left_behind``: how many objects in it stay stored although it finishes. ``unavailable_apis``: how many of
    ``missing_apis`` hold every namespace of the cluster; ``unknown_apis``: how many of those behind them may.
    ``judged``: its object can be read or is proven broken. ``certain``: false where all that holds it could not be
    judged, so that an API server may well read it.
    """

    kind: str = "NamespaceReport"
    name: str
    object: ObjectEntry
    state: str
    exists: bool | None
    readable: bool
    terminating: bool
    terminating_since: str | None
    phase: str
    conditions: list[ConditionEntry]
    spec_finalizers: list[str]
    finalizers: list[str]
    contents: list[ContentEntry]
    stages: list[StageEntry]
    order_lost: bool
    frozen: bool
    cycles: list[CycleEntry]
    missing_apis: list[MissingAPI]
    plan: list[PlanStep]
    complete: bool
    incomplete_reasons: list[str]
    elsewhere: list[BlockerEntry] = []
    elsewhere_count: int = 0
    left_behind: int = 0
    unavailable_apis: int = 0
    unknown_apis: int = 0
    judged: bool = True
    certain: bool = True


# ------------------------------------------------------------------------------------------------------- orphans


class OrphanEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of one directory that are left over for one reason; ``size`` in bytes of their values."""

    reason: str
    prefix: str
    group: str
    resource: str
    namespace: str
    count: int
    size: int
    examples: list[str]
    confidence: str
    note: str


class OrphansReport(_Report, frozen=True, kw_only=True):
    """Keys that belong to nobody; a key can stand in several groups, ``count`` and ``size`` count it once.

    In no group stand ``undecided``, whose Namespace or CRD was not seen where not everything was, and ``aggregated``,
    by API group: no CRD accounts for them, and an aggregated API serves their group, so they may be its own.
    """

    kind: str = "OrphansReport"
    groups: list[OrphanEntry]
    count: int
    size: int
    undetermined: int
    undecided: int
    aggregated: dict[str, int]
    complete: bool
    incomplete_reasons: list[str]
