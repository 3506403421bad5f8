"""What the garbage collector would do once an object is gone.

Unsafe deletion removes a key and nothing else: no finalizer runs, nothing is orphaned. The collector then sees that an
owner is absent, and decides for every dependent anew; what it deletes is absent in its turn. That is played through
here, until nothing changes any more.

An owner whose kind no built-in and no readable CRD has may be served all the same: a running API server keeps a CRD in
memory that cannot be read any more, and whoever restores a CRD brings its objects back. Until then the collector
cannot ask for such an owner and waits; from then on the answer is 404. So its dependents count as deleted, too.

Source: Kubernetes ``pkg/controller/garbagecollector/garbagecollector.go`` (``classifyReferences``,
``attemptToDeleteItem``, ``attemptToOrphan``) and ``graph_builder.go``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.impact.identity import ObjectRef
from etcdfix.impact.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Guess, ImpactIndex, Owner
from etcdfix.impact.tables import FOREGROUND, OPAQUE, ORPHANS, TERMINATING

_EVENTS = "events"

_CRD_UNREADABLE: Final = (
    "as soon as the CRD of its owner is served: it cannot be read, but a running API server may still hold it"
)
_OWNER_NOT_SERVED: Final = "as soon as the kind of its owner is served: no built-in and no CRD in etcd has it"
_BY_NAME: Final = "; that this is its owner is told by API group and name alone"
_NOT_SERVED: Final = "as soon as its own kind is served: no readable CRD has it"


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


class OwnerFinding(msgspec.Struct, frozen=True):
    """One owner reference, and what becomes of it.

    Attributes:
        owner: The object that it points at; None where its kind cannot own the dependent, or is not known and
            neither uid nor name tell the object.
        api_version: As the reference states it.
        kind: As the reference states it.
        name: As the reference states it.
        uid: As the reference states it.
        state: What the collector finds.
        reason: Why, in a clause; "" for a solid owner.
        removed: It is the removed object, or one that goes with it.
        stripped: The collector takes the reference off the dependent.
    """

    owner: ObjectRef | None
    api_version: str
    kind: str
    name: str
    uid: str
    state: OwnerState
    reason: str
    removed: bool
    stripped: bool


class Decision(msgspec.Struct, frozen=True):
    """What the garbage collector does to one dependent.

    Attributes:
        object: The dependent.
        action: What happens.
        propagation: How it is deleted; None unless it is.
        owners: Each of its owner references.
        after_finalizers: Finalizers that must be done before it is really gone; what it owns waits as long.
        already_terminating: It was being deleted before.
        uncertain: Why it may come later or not at all; "" for nothing: objects of its type that cannot be read
            keep the collector from seeing it after a restart, or ``when_served``.
        when_served: It happens no sooner than an API serves a kind that none is known to serve: that of the object,
            of its owner or of an owner above. Says which; "" for at once.
        dependents: What happens to what it owns.
    """

    object: ObjectRef
    action: Action
    propagation: Propagation | None
    owners: tuple[OwnerFinding, ...]
    after_finalizers: tuple[str, ...] = ()
    already_terminating: bool = False
    uncertain: str = ""
    when_served: str = ""
    dependents: tuple[Decision, ...] = ()


class Collection(msgspec.Struct, frozen=True):
    """Everything that a removal sets off.

    Attributes:
        removed: The object that is removed.
        tree: Its dependents, each with its own below it. An object with several owners in the tree stands below
            the first; counts are right all the same.
        counts: Number of objects by action.
        deleted_by_resource: Number of cascade-deleted objects by ``resource.group``.
        complete: Whether the index held everything; if not, dependents may be missing.
        when_served: How many of the cascade-deleted go no sooner than an API serves a kind that none is known to
            serve, see :attr:`Decision.when_served`.
    """

    removed: ObjectRef
    tree: tuple[Decision, ...]
    counts: dict[Action, int]
    deleted_by_resource: dict[str, int]
    complete: bool
    when_served: int = 0


def collect(index: ImpactIndex, removed: int, *, uid: str = "") -> Collection:
    """Play through the removal of an object.

    Args:
        index: Of the cluster as it is.
        removed: Node of the object that is deleted in etcd, or unsafely.
        uid: Its uid, where it is known from elsewhere: references with another uid were dangling before. Where no
            CRD tells its kind, it finds those that state it.
    """
    return _Collector(index, removed, uid or index.uid(removed)).run()


def decide(index: ImpactIndex, dependent: int, *, absent: Iterable[int] = ()) -> Decision:
    """Return what the collector does to one object, given that others are gone.

    Args:
        index: Of the cluster as it is.
        dependent: Node of the object.
        absent: Nodes that count as deleted.
    """
    gone = dict.fromkeys(absent, Propagation.BACKGROUND)
    return _decide(index, dependent, index.owners(dependent), gone, {}, index.unreadable_by_path())


class _Collector:
    """Spreads a removal over the owner references."""

    def __init__(self, index: ImpactIndex, removed: int, uid: str) -> None:
        self._index = index
        self._removed = removed
        self._uid = uid
        # How each object that goes was deleted; the removed one orphans nothing, whatever it said.
        self._gone = {removed: Propagation.BACKGROUND}
        self._kind_known = bool(index.place(removed)[0].kind)
        # Of those that go: what must be served first, see Decision.when_served.
        self._when_served: dict[int, str] = {}
        self._decisions: dict[int, Decision] = {}
        self._parents: dict[int, int] = {}
        self._unreadable_types = index.unreadable_by_path()

    def run(self) -> Collection:
        waiting = deque([self._removed])
        while waiting:
            owner = waiting.popleft()
            uid = self._uid if owner == self._removed and not self._kind_known else ""
            for dependent in self._index.dependents(owner, uid):
                if dependent in self._gone:
                    continue
                owners = self._owners(dependent)
                if not self._concerns(owner, owners):
                    continue
                self._parents.setdefault(dependent, owner)
                decision = _decide(
                    self._index, dependent, owners, self._gone, self._when_served, self._unreadable_types
                )
                self._decisions[dependent] = decision
                if decision.action is Action.CASCADE_DELETED:
                    assert decision.propagation is not None
                    self._gone[dependent] = decision.propagation
                    if decision.when_served:
                        self._when_served[dependent] = decision.when_served
                    waiting.append(dependent)
        counts = dict.fromkeys(Action, 0)
        by_resource: dict[str, int] = {}
        for decision in self._decisions.values():
            counts[decision.action] += 1
            if decision.action is Action.CASCADE_DELETED:
                ref = decision.object
                resource = f"{ref.resource}.{ref.group}" if ref.group else ref.resource
                by_resource[resource] = by_resource.get(resource, 0) + 1
        return Collection(
            self._index.ref(self._removed),
            self._tree(),
            counts,
            dict(sorted(by_resource.items())),
            not self._index.problems,
            len(self._when_served),
        )

    def _owners(self, dependent: int) -> list[Owner]:
        """Return the owner references; those of unknown kind that state the removed object's uid point at it."""
        owners = self._index.owners(dependent)
        if self._kind_known or not self._uid:
            return owners
        return [
            owner._replace(node=self._removed, guess=Guess.UID)
            if owner.uid == self._uid
            and not owner.wrong_scope
            and (owner.guess or owner.node < 0)
            and self._index.may_own(self._removed, dependent, owner.name)
            else owner
            for owner in owners
        ]

    def _concerns(self, owner: int, owners: list[Owner]) -> bool:
        """Leave out dependents of an earlier object of the same name, where the uid shows it."""
        if owner != self._removed or not self._uid:
            return True
        return any(o.node == owner and o.uid in {"", self._uid} for o in owners)

    def _tree(self) -> tuple[Decision, ...]:
        """Hang every decision below its first owner; chains can be long, so this does not recurse."""
        below: dict[int, list[Decision]] = {}
        # A dependent was found after its owner: from the last one up, everything below is finished.
        for dependent in reversed(list(self._parents)):
            inner = tuple(reversed(below.pop(dependent, [])))
            decision = msgspec.structs.replace(self._decisions[dependent], dependents=inner)
            below.setdefault(self._parents[dependent], []).append(decision)
        return tuple(reversed(below.get(self._removed, [])))


def _decide(
    index: ImpactIndex,
    dependent: int,
    owners: list[Owner],
    gone: Mapping[int, Propagation],
    when_served: Mapping[int, str],
    unreadable_types: Mapping[str, int],
) -> Decision:
    """Decide as ``attemptToDeleteItem`` does, see the module's docstring."""
    findings = [_look_up(index, owner, gone) for owner in owners]
    states = {finding.state for finding in findings}
    directory, _, _ = index.place(dependent)
    finalizers = index.finalizers(dependent)
    flags = index.flags(dependent)
    propagation: Propagation | None = None
    # Owners that are deleted with Orphan let go of their dependents before they are gone.
    let_go = [f for f, o in zip(findings, owners, strict=True) if _orphans(gone, o)]
    if let_go:
        findings = [f for f in findings if f not in let_go]
        states = {finding.state for finding in findings}
    if directory.resource == _EVENTS or not (findings or let_go) or OwnerState.INVALID in states:
        action = Action.NEVER_COLLECTED
    elif OwnerState.UNKNOWN in states:
        action = Action.FROZEN
    elif OwnerState.SOLID in states:
        action = Action.REFERENCE_STRIPPED if let_go else Action.KEPT
    elif not findings:
        action = Action.ORPHANED
    else:
        action = Action.CASCADE_DELETED
        waits = OwnerState.WAITING in states and bool(index.dependents(dependent))
        propagation = _propagation(flags, foreground=waits)
    strips = action in {Action.KEPT, Action.REFERENCE_STRIPPED}
    dangling = {OwnerState.ABSENT, OwnerState.WAITING}
    shown = [
        msgspec.structs.replace(finding, stripped=True) if strips and finding.state in dangling else finding
        for finding in findings
    ] + [msgspec.structs.replace(finding, stripped=True, reason="its owner orphans it") for finding in let_go]
    own = {ORPHAN_FINALIZER, FOREGROUND_FINALIZER}
    deleted = action is Action.CASCADE_DELETED
    later = ""
    if action not in {Action.NEVER_COLLECTED, Action.FROZEN}:
        waits_for = (_when_served(index, owner, when_served) for owner in owners if owner.node in gone)
        later = next(filter(None, waits_for), "" if directory.kind else _NOT_SERVED)
    broken = unreadable_types.get(directory.path, 0)
    unseen = f"{broken} of its type cannot be read: the collector may not see it" if broken else ""
    return Decision(
        object=index.ref(dependent),
        action=action,
        propagation=propagation,
        owners=tuple(shown),
        after_finalizers=tuple(f for f in finalizers if f not in own) if deleted else (),
        already_terminating=bool(flags & TERMINATING),
        uncertain="; ".join(filter(None, (later, unseen))),
        when_served=later,
    )


def _when_served(index: ImpactIndex, owner: Owner, when_served: Mapping[int, str]) -> str:
    """Return what must be served before the collector sees that an owner is gone; "" for nothing."""
    if not owner.guess:
        return when_served.get(owner.node, "")
    directory = index.place(owner.node)[0]
    unreadable = (directory.group, directory.resource) in index.unreadable_crds
    text = _CRD_UNREADABLE if unreadable else _OWNER_NOT_SERVED
    return text + _BY_NAME if owner.guess is Guess.NAME else text


def _orphans(gone: Mapping[int, Propagation], owner: Owner) -> bool:
    return gone.get(owner.node) is Propagation.ORPHAN


def _propagation(flags: int, *, foreground: bool) -> Propagation:
    if foreground:
        return Propagation.FOREGROUND
    if flags & ORPHANS:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if flags & FOREGROUND else Propagation.BACKGROUND


def _look_up(index: ImpactIndex, owner: Owner, gone: Mapping[int, Propagation]) -> OwnerFinding:
    state, reason = _state(index, owner, gone)
    return OwnerFinding(
        index.ref(owner.node) if owner.node >= 0 else None,
        owner.api_version,
        owner.kind,
        owner.name,
        owner.uid,
        state,
        reason,
        owner.node in gone,
        stripped=False,
    )


def _state(index: ImpactIndex, owner: Owner, gone: Mapping[int, Propagation]) -> tuple[OwnerState, str]:
    """Classify one reference; what the collector cannot find out is never absence."""
    node = owner.node
    if owner.wrong_scope:
        return OwnerState.INVALID, "a cluster-scoped object cannot be owned by a namespaced one"
    if node in gone:
        return (
            OwnerState.ABSENT,
            "deleted, which shows as soon as its kind is served" if owner.guess else "deleted",
        )
    if node < 0 or owner.guess:
        return OwnerState.UNKNOWN, "its kind is not known: no built-in and no readable CRD has it"
    if not index.exists(node):
        return _missing(index, owner)
    if index.serves_empty(node):
        return OwnerState.ABSENT, "the API server shows an empty object of that name, without a uid"
    if index.unreadable(node):
        return OwnerState.UNKNOWN, "it cannot be read, so the API server answers with an error"
    uid = index.uid(node)
    if uid != owner.uid:
        return OwnerState.ABSENT, f"the object of that name has another uid ({uid or 'none'})"
    if index.flags(node) & OPAQUE:
        return OwnerState.SOLID, ""
    if index.flags(node) & TERMINATING and index.flags(node) & FOREGROUND:
        return OwnerState.WAITING, "it is being deleted in the foreground"
    return OwnerState.SOLID, ""


def _missing(index: ImpactIndex, owner: Owner) -> tuple[OwnerState, str]:
    if index.problems:
        return OwnerState.UNKNOWN, "it was not found, but not everything could be looked at"
    directory, namespace, _ = index.place(owner.node)
    for other in index.by_uid(owner.uid):
        place = index.place(other)
        if place[0].path == directory.path and place[1] != namespace:
            return OwnerState.ABSENT, f"it is in namespace {place[1]} (OwnerRefInvalidNamespace)"
    return OwnerState.ABSENT, "it does not exist"
