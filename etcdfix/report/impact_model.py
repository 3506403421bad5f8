"""The published shape of the reports on consequences (``etcdfix/v1``), field by field and in order.

What they hold is :mod:`etcdfix.graph.model`: never what an object holds, no data, no values of labels or annotations.
"""

from __future__ import annotations

import msgspec

from etcdfix.graph.deletion_model import DeletionForecast
from etcdfix.graph.model import (
    Action,
    Blocker,
    Condition,
    CyclicWait,
    Decision,
    DeletionStage,
    LostFinalizer,
    ObjectRef,
    OrphanGroup,
    ResourceContent,
    Risk,
    RiskReason,
    SecretState,
    User,
    WebhookHold,
)
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence
from etcdfix.report.model import Finding, Remedy, SourcedReport


class _HeadedReport(SourcedReport, frozen=True, kw_only=True):
    """``at_stake``, ``do_not_restart`` and ``next`` stand at its head, as in the summary of a scan."""

    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None = None


# -------------------------------------------------------------------------------------------------------- impact


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the object is or last was.

    ``basis``: ``current``, ``history``, ``earlier-generation``, ``references`` or ``none``. ``finalizers`` is null
    where no readable revision told them. ``labels`` and ``annotations`` are names only.
    """

    uid: str
    confidence: Confidence
    basis: str
    mod_revision: int
    finalizers: tuple[str, ...] | None
    labels: list[str]
    annotations: tuple[str, ...]
    conflicting_uids: dict[str, int]


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a removal sets off: the tree, depth first.

    ``caught_up``: what the garbage collector does beside that, since types can be listed again (``listable``).
    ``unlistable``: the types that cannot even then, with how many objects are the reason. ``namespaces``: those that
    are being deleted, and that finish once it is gone.
    """

    counts: dict[Action, int]
    deleted_by_resource: dict[str, int]
    tree: tuple[Decision, ...]
    caught_up: tuple[Decision, ...]
    listable: tuple[str, ...]
    unlistable: dict[str, int]
    namespaces: list[str]
    warnings: list[str] = []


class UserGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Users that use it in the same way."""

    role: Role
    count: int
    users: tuple[User, ...]


class ImpactReport(_HeadedReport, frozen=True, kw_only=True):
    """What losing one object would set off.

    ``exists`` is null where its key was not seen in a source that could not be read whole. ``may_be_worse`` says that
    something was not seen that could depend on it: ``risk`` is the least then. ``finding`` says what is stored, null
    where nothing is. ``user_count`` counts references: one user may have several. ``namespace_terminating`` is when its
    namespace was marked for deletion ("" for not known), null where it was not. ``deletion`` is the forecast of an
    ordinary deletion through the API, of an object that can be read or where a policy was asked for, else null;
    where that is ``possible``, the grade and ``dependents`` are those of that deletion, else of a removal from etcd.
    """

    kind: str = "ImpactReport"
    object: ObjectRef
    exists: bool | None
    readable: bool
    risk: Risk
    may_be_worse: bool
    reasons: tuple[RiskReason, ...]
    finding: Finding | None
    last_known: Identity
    namespace_terminating: str | None
    dependents: Dependents
    secret: SecretState | None
    users: list[UserGroup]
    user_count: int
    finalizers: tuple[LostFinalizer, ...]
    node: str
    consequences: tuple[str, ...]
    unreadable_elsewhere: int
    undetermined_elsewhere: int
    remedies: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]
    deletion: DeletionForecast | None


# ----------------------------------------------------------------------------------------------------- namespace


class MissingAPI(msgspec.Struct, frozen=True, kw_only=True):
    """An API that does not answer, or that nobody serves."""

    api: str
    reason: str


class NamespaceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what to do, the command to paste ("" for none), what to know first, and the key that it is about."""

    number: int
    action: str
    command: str
    note: str
    key: str | None


class NamespaceReport(_HeadedReport, frozen=True, kw_only=True):
    """Why a namespace cannot finish deleting.

    ``state``: ``active``, ``active-with-blockers``, ``terminating``, ``stuck``, ``unreadable``, ``missing``, and
    ``unknown`` where its object was not seen and not everything was: ``exists`` is null then. ``frozen``: its object
    fails the LIST of all namespaces, so none of the cluster is processed. ``elsewhere``: objects outside of it that
    cannot be read or judged, and hold every namespace of the cluster, the first hundred of ``elsewhere_count``.
    ``left_behind``: how many objects in it stay stored although it finishes. ``unavailable_apis``: how many of
    ``missing_apis`` hold every namespace of the cluster; ``unknown_apis``: how many of those behind them may.
    ``judged``: its object can be read or is proven broken. ``certain``: false where all that holds it could not be
    judged, so that an API server may well read it. ``webhooks``: while it is being deleted, the webhooks that hold it,
    or may, since nobody answers for their Service.
    """

    kind: str = "NamespaceReport"
    name: str
    object: ObjectRef
    state: str
    exists: bool | None
    readable: bool
    terminating: bool
    terminating_since: str | None
    phase: str
    conditions: tuple[Condition, ...]
    spec_finalizers: tuple[str, ...]
    finalizers: tuple[str, ...]
    contents: tuple[ResourceContent, ...]
    stages: list[DeletionStage]
    order_lost: bool
    frozen: bool
    cycles: tuple[CyclicWait, ...]
    missing_apis: list[MissingAPI]
    plan: list[NamespaceStep]
    complete: bool
    incomplete_reasons: list[str]
    elsewhere: list[Blocker]
    elsewhere_count: int
    left_behind: int
    unavailable_apis: int
    unknown_apis: int
    judged: bool
    certain: bool
    webhooks: tuple[WebhookHold, ...]


# ------------------------------------------------------------------------------------------------------- orphans


class OrphansReport(SourcedReport, frozen=True, kw_only=True):
    """Keys that belong to nobody; a key can stand in several groups, ``count`` and ``size`` count it once.

    In no group stand ``undecided``, whose Namespace or CRD was not seen where not everything was, and ``aggregated``,
    by API group: no CRD accounts for them, and an aggregated API serves their group, so they may be its own.
    """

    kind: str = "OrphansReport"
    groups: tuple[OrphanGroup, ...]
    count: int
    size: int
    undetermined: int
    undecided: int
    aggregated: dict[str, int]
    complete: bool
    incomplete_reasons: list[str]
