"""What the garbage collector would do once an object is gone.

Unsafe deletion removes a key and nothing else: no finalizer runs, nothing is orphaned. The collector then sees that an
owner is absent, and decides for every dependent anew; what it deletes is absent in its turn. That is played through
here, until nothing changes any more.

An owner whose kind no built-in and no readable CRD has may be served all the same: a running API server keeps a CRD in
memory that cannot be read any more, and whoever restores a CRD brings its objects back. Until then the collector
cannot ask for such an owner and waits; from then on the answer is 404. So its dependents count as deleted, too.

Where the CustomResourceDefinition itself is taken from etcd, its objects stay stored and no API serves them: the
collector neither sees them nor can look them up as owners (recorded). Only a deletion through the API deletes them.

One object that cannot be read fails the LIST of its type, and the collector watches by type. What it does then depends
on when its controller manager started. One that ran before the damage knows the objects of that time, but hears of no
change to the type: it does not notice that an owner of the type is gone. One that started since then does not know any
object of the type, and leaves them alone, whatever becomes of their owners. Both catch up once the type can be listed.

Source: as for :mod:`etcdfix.graph.owners`, and recorded runs of a kube-controller-manager 1.36.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import msgspec

from etcdfix.graph.foreground import ForegroundWaits
from etcdfix.graph.index import ImpactIndex, Owner
from etcdfix.graph.kinds import Served, crd_path
from etcdfix.graph.model import Action, Collection, Decision, OwnerState, Propagation
from etcdfix.graph.owners import Fate, Verdict, holds_on, judge
from etcdfix.graph.tables import FOREGROUND, ORPHANS, TERMINATING
from etcdfix.model.storagekey import CRD_PATH, display

_CRD_UNREADABLE: Final = (
    "as soon as the CRD of its owner is served: it cannot be read, but a running API server may still hold it"
)
_OWNER_NOT_SERVED: Final = "as soon as the kind of its owner is served: no built-in and no CRD in etcd has it"
CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_RAN: Final = "a controller manager that ran before the damage"
_NOBODY: Final = -1
_NOBODY_SEES: Final = "whatever becomes of this owner, no API serves the dependent any more: it stays in etcd"
_NOTHING: Final = dict.fromkeys(Action, 0)
_NOT_SERVED: Final = "as soon as its own kind is served: no readable CRD has it"


def collect(
    index: ImpactIndex, *removed: int, uid: str = "", by_api: Propagation | None = None
) -> Collection:
    """Play through the removal of an object, or of several at once; the first stands for all.

    Args:
        index: Of the cluster as it is.
        removed: Nodes of the objects that are deleted in etcd, or unsafely.
        uid: Its uid, where it is known from elsewhere: references with another uid were dangling before. Where no
            CRD tells its kind, it finds those that state it.
        by_api: It is deleted through the API instead, in this way; then its finalizers count.
    """
    return _Collector(index, {node: uid or index.uid(node) for node in removed}, by_api).run()


def catch_up(index: ImpactIndex) -> tuple[Decision, ...]:
    """Return what the collector would do now if it had just started, depth first; nothing for a cluster at rest."""
    return _Collector(index, {}, None).catch_up()


class _Collector:
    def __init__(self, index: ImpactIndex, removed: dict[int, str], by_api: Propagation | None) -> None:
        self._index = index
        self._removed = removed
        # What goes, in the order in which that is found out. What is taken from etcd orphans nothing, whatever it said.
        self._fates = {node: Fate(by_api or Propagation.BACKGROUND) for node in removed}
        self._decisions: dict[int, Decision] = {}
        self._parents: dict[int, int] = {}
        self._unseen = 0
        # What is taken from etcd cleans up nothing: the objects of a CustomResourceDefinition are left, and not served.
        self._unserved = {
            crd_path(index.place(node)[2])
            for node in removed
            if by_api is None and self._path(node) == CRD_PATH
        }
        counts = index.unlistable_counts(removed if by_api is None else ())
        self._listable = [path for path, count in counts.items() if not count]
        self._blind = {path: count for path, count in counts.items() if count} if self._listable else counts
        if by_api is not None:
            for node, fate in list(self._fates.items()):
                fate.stays = holds_on(index, node)
                unnoticed = self._unnoticed(node) if by_api is not Propagation.BACKGROUND else ""
                if unnoticed:
                    fate.stays = f"the garbage collector, which {unnoticed}"
                    fate.ran_before = fate.started_after = unnoticed
                self._unseen = self._unseen_dependents(node)
                if by_api is not Propagation.BACKGROUND and self._unseen:
                    fate.uncertain = (
                        f"if one of {self._unseen} that cannot be read depends on it, {_RAN} waits for that one, and "
                        "it stays Terminating; one that started since does not wait"
                    )
                self._instances(node, fate)

    # -- the play

    def run(self) -> Collection:
        """Play it through."""
        if self._concerns_nobody():
            return Collection((), dict(_NOTHING), {}, unlistable=self._blind)
        self._spread(deque(self._fates))
        found = list(self._decisions)
        self._spread(self._pending() if self._listable else self._waiting_owners())
        self._foreground()
        decisions = [self._decisions[node] for node in found]
        deleted = [node for node in found if self._decisions[node].action is Action.CASCADE_DELETED]
        counts = _NOTHING | Counter(decision.action for decision in decisions)
        by_resource = Counter(self._decisions[node].object.full_resource for node in deleted)
        first = next(iter(self._removed))
        return Collection(
            tree=self._below(*self._removed),
            counts=counts,
            deleted_by_resource=dict(sorted(by_resource.items())),
            when_served=sum(bool(self._fates[node].when_served) for node in deleted),
            later=sum(1 for decision in decisions if decision.later),
            stays=self._fates[first].stays,
            uncertain=self._fates[first].uncertain,
            listable=tuple(self._listable),
            unlistable=dict(self._blind),
            caught_up=self._below(_NOBODY),
            unseen=self._unseen,
        )

    def _concerns_nobody(self) -> bool:
        """Say whether one object is taken from etcd that owns nothing, that nothing owns, and that blinds nobody.

        So it is with nearly all of many broken objects, as what cannot be read refers to nothing.
        """
        if len(self._fates) != 1 or self._listable:
            return False
        ((node, fate),) = self._fates.items()
        if fate.propagation is not Propagation.BACKGROUND or fate.stays or fate.uncertain or self._unseen:
            return False
        if self._index.has_owners(node) or self._path(node) == CRD_PATH:
            return False
        uid = self._removed[node] if not self._kind_known(node) else ""
        return not self._index.dependents(node, uid)

    def catch_up(self) -> tuple[Decision, ...]:
        """Play through what waits to be done."""
        self._spread(self._pending())
        self._foreground()
        return self._below(_NOBODY)

    def _spread(self, waiting: deque[int]) -> None:
        while waiting:
            owner = waiting.popleft()
            uid = self._removed.get(owner, "") if not self._kind_known(owner) else ""
            for dependent in self._index.dependents(owner, uid):
                if dependent in self._fates:
                    continue
                owners = self._owners(dependent)
                if not self._concerns(owner, owners):
                    continue
                self._parents.setdefault(dependent, owner)
                if self._take(dependent, *self._weigh(dependent, owners)):
                    waiting.append(dependent)

    def _take(self, node: int, decision: Decision, fate: Fate | None) -> bool:
        self._decisions[node] = decision
        if fate is not None:
            self._fates[node] = fate
        return fate is not None

    def _pending(self) -> deque[int]:
        """Return what waits for the collector, whatever is removed, and take it in."""
        index = self._index
        found = deque[int]()
        for node in sorted(index.nodes(), key=index.relative):
            if node in self._fates or node in self._decisions:
                continue
            flags = index.flags[node]
            works = bool(flags & (ORPHANS | FOREGROUND)) or self._path(node) == CRD_PATH
            if flags & TERMINATING and works:
                self._goes_on(node, found)
            elif index.has_owners(node) and not flags & TERMINATING:
                owners = index.owners(node)
                decision, fate = self._weigh(node, owners)
                # What an owner takes along is found from that owner.
                if fate is not None and not any(owner.node in self._fates for owner in owners):
                    self._parents[node] = _NOBODY
                    self._take(node, decision, fate)
                    found.append(node)
        return found

    def _waiting_owners(self) -> deque[int]:
        """Return what is being deleted in the foreground and waited for something that goes, and take it in."""
        index, found = self._index, deque[int]()
        for node in list(self._fates):
            for owner in index.owners(node):
                target = owner.node
                if target >= 0 and target not in self._fates and index.exists(target):
                    flags = index.flags[target]
                    if flags & TERMINATING and flags & FOREGROUND and owner.uid == index.uid(target):
                        self._goes_on(target, found)
        return found

    def _goes_on(self, node: int, found: deque[int]) -> None:
        index, flags = self._index, self._index.flags[node]
        propagation = Propagation.FOREGROUND if flags & FOREGROUND else Propagation.BACKGROUND
        unnoticed = self._unnoticed(node)
        stays = holds_on(index, node) or (unnoticed and f"the garbage collector, which {unnoticed}")
        fate = Fate(Propagation.ORPHAN if flags & ORPHANS else propagation, stays=stays)
        self._parents[node] = _NOBODY
        found.append(node)
        found.extend(self._instances(node, fate))
        self._take(node, _goes(index, node, fate), fate)

    def _instances(self, node: int, fate: Fate) -> list[int]:
        """Take in the objects of a CustomResourceDefinition that is deleted through the API: they go before it does.

        One that cannot be read keeps them all, and the CustomResourceDefinition.
        """
        if self._path(node) != CRD_PATH:
            return []
        index = self._index
        fate.stays = holds_on(index, node, beside=CRD_FINALIZER)
        path = crd_path(index.place(node)[2])
        if path in self._blind:
            fate.stays = f"{self._blind[path]} of its objects, which cannot be read"
            return []
        instances = [instance for instance in index.below(path) if instance not in self._fates]
        for instance in instances:
            below = Fate(stays=holds_on(index, instance))
            self._parents[instance] = node
            self._take(instance, _goes(index, instance, below), below)
            if below.stays and not fate.stays:
                fate.stays = f"{index.ref(instance)}, which waits for {below.stays}"
        return instances

    def _unseen_dependents(self, node: int) -> int:
        index = self._index
        namespace = index.place(node)[1]
        blind = (other for path in self._blind for other in index.unlistable[path])
        return sum(not namespace or index.place(other)[1] == namespace for other in blind)

    def _path(self, node: int) -> str:
        return self._index.place(node)[0].path

    def _foreground(self) -> None:
        """Keep what is deleted in the foreground as long as a dependent that blocks it is there."""
        found = ForegroundWaits(self._index, self._fates, self._decisions, self._removed, self.decision).run()
        for node, why in found.items():
            self._fates[node].stays = why
            if node in self._decisions:
                self._decisions[node] = msgspec.structs.replace(self._decisions[node], stays=why)

    # -- one object

    def decision(self, dependent: int) -> Decision:
        """Return what becomes of one object."""
        return self._weigh(dependent, self._index.owners(dependent))[0]

    def _weigh(self, dependent: int, owners: list[Owner]) -> tuple[Decision, Fate | None]:
        """Return what becomes of one object as far as is known by now, and its fate where it is deleted."""
        index, fates = self._index, self._fates
        owners = [self._as_served(owner) for owner in owners]
        verdict = judge(index, dependent, owners, fates)
        if self._path(dependent) in self._unserved and verdict.action is not Action.NEVER_COLLECTED:
            verdict = _unseen(verdict)
        going = [owner for owner in owners if owner.node in fates and owner.served is not Served.NO]
        acts = verdict.action not in {Action.NEVER_COLLECTED, Action.FROZEN}
        deleted = verdict.propagation is not None
        served = self._served(dependent, going) if acts else ""
        ran, started = self._managers(dependent, going) if acts and not served else ("", "")
        later = self._later(going) if deleted else ""
        above = verdict.race or next((text for o in going if (text := fates[o.node].uncertain)), "")
        stays = holds_on(index, dependent) if deleted else ""
        perhaps = next((o.api_version for o in owners if o.served is Served.PERHAPS), "")
        uncertain = (
            served,
            above,
            f"only where the API serves {perhaps}, which not every release does" if perhaps else "",
            self._told(dependent, verdict.action, ran, started),
            f"deleted later, once {later} is really gone" if later else "",
        )
        decision = Decision(
            object=index.ref(dependent),
            action=Action.KEPT if later else verdict.action,
            owners=verdict.owners,
            uncertain="; ".join(filter(None, uncertain)) if acts else "",
            stays=stays,
            later=later,
            ran_before=ran,
            started_after=started,
        )
        if verdict.propagation is None:
            return decision, None
        above = f"only if {index.ref(dependent)} goes, which cannot be forecast" if above else ""
        return decision, Fate(
            verdict.propagation,
            stays=stays,
            later=later,
            uncertain=above,
            when_served=served,
            ran_before=ran,
            started_after=started,
        )

    def _later(self, going: list[Owner]) -> str:
        """Return the owner that only becomes Terminating and keeps its dependents as long; "" for none."""
        for owner in going:
            fate = self._fates[owner.node]
            if fate.keeps_dependents and owner.uid in {"", self._index.uid(owner.node)}:
                return fate.later or str(self._index.ref(owner.node))
        return ""

    def _served(self, dependent: int, going: list[Owner]) -> str:
        """Return what must be served before the collector sees that an owner is gone; "" for nothing."""
        for owner in going:
            text = self._fates[owner.node].when_served
            if owner.guess:
                directory = self._index.place(owner.node)[0]
                unreadable = self._index.crd_unreadable(directory)
                text = _CRD_UNREADABLE if unreadable else _OWNER_NOT_SERVED
            if text:
                return text
        return "" if self._kind_known(dependent) else _NOT_SERVED

    def _managers(self, dependent: int, going: list[Owner]) -> tuple[str, str]:
        ran = next((text for o in going if (text := self._fates[o.node].ran_before)), "")
        started = next((text for o in going if (text := self._fates[o.node].started_after)), "")
        paths = [self._path(owner.node) for owner in going]
        if not ran and paths and all(path in self._blind for path in paths):
            first = self._index.ref(going[0].node)
            ran = f"does not notice that {first} is gone before all {first.full_resource} can be listed"
        directory = self._index.place(dependent)[0]
        if not started and directory.path in self._blind:
            started = f"does not see it before all {self._index.ref(dependent).full_resource} can be listed"
        return ran, started

    def _told(self, dependent: int, action: Action, ran: str, started: str) -> str:
        """Say what controller managers do that started before and after the damage, where that differs."""
        path = self._path(dependent)
        own = self._blind.get(path, 0)
        of_type = f"{own} of its type cannot be read; " if own else ""
        if ran and ran == started:
            return f"{of_type}the collector {ran}"
        if ran and started:
            return f"{of_type}{_RAN} {ran}, one that started since {started}"
        if ran:
            return f"{of_type}{_RAN} {ran}; one that started since does not wait"
        if not started:
            return ""
        then = ", and deletes it then" if action in {Action.ORPHANED, Action.REFERENCE_STRIPPED} else ""
        return (
            f"{of_type}a controller manager that started since then {started}{then}; one that ran before knows what "
            "was made before"
        )

    def _unnoticed(self, node: int) -> str:
        """Return why the collector does not notice that an object is being deleted; "" where it does."""
        ref = self._index.ref(node)
        if self._path(node) not in self._blind:
            return ""
        return f"does not notice that {ref} is being deleted before all {ref.full_resource} can be listed"

    # -- references

    def _kind_known(self, node: int) -> bool:
        return bool(self._index.place(node)[0].kind)

    def _owners(self, dependent: int) -> list[Owner]:
        """Return the owner references; those of unknown kind that state a removed object's uid point at it."""
        owners = self._index.owners(dependent)
        for node, uid in self._removed.items():
            if uid and not self._kind_known(node):
                owners = [self._pointed(owner, node, uid, dependent) for owner in owners]
        return owners

    def _pointed(self, owner: Owner, node: int, uid: str, dependent: int) -> Owner:
        unknown = owner.guess or owner.node < 0
        fits = owner.uid == uid and unknown and not owner.wrong_scope
        if fits and self._index.may_own(node, dependent, owner.name):
            return owner._replace(node=node, guess=True)
        return owner

    def _as_served(self, owner: Owner) -> Owner:
        """Return an owner reference as it is once the removed CustomResourceDefinitions serve nothing any more."""
        gone = owner.node >= 0 and owner.node not in self._fates and self._path(owner.node) in self._unserved
        return owner._replace(served=Served.NO) if gone else owner

    def _concerns(self, owner: int, owners: list[Owner]) -> bool:
        """Leave out dependents of an earlier object of the same name, where the uid shows it."""
        uid = self._removed.get(owner, "")
        return not uid or any(o.node == owner and o.uid in {"", uid} for o in owners)

    def _below(self, *roots: int) -> tuple[Decision, ...]:
        """Return what hangs below nodes, depth first, each below its first owner.

        Chains can be long, so this does not recurse.
        """
        children: dict[int, list[int]] = {}
        for node, parent in self._parents.items():
            children.setdefault(parent, []).append(node)
        found = []
        waiting = [(1, root, node) for root in reversed(roots) for node in reversed(children.get(root, []))]
        while waiting:
            depth, parent, node = waiting.pop()
            below = display(self._index.key(parent)) if parent != _NOBODY else ""
            found.append(msgspec.structs.replace(self._decisions[node], depth=depth, below=below))
            waiting += [(depth + 1, node, child) for child in reversed(children.get(node, []))]
        return tuple(found)


def _goes(index: ImpactIndex, node: int, fate: Fate) -> Decision:
    return Decision(object=index.ref(node), action=Action.CASCADE_DELETED, owners=(), stays=fate.stays)


def _unseen(verdict: Verdict) -> Verdict:
    """Return what becomes of an object that no API serves any more: nothing, whatever its owners are."""
    owners = tuple(
        msgspec.structs.replace(owner, state=OwnerState.UNKNOWN, reason=_NOBODY_SEES, stripped=False)
        for owner in verdict.owners
    )
    return Verdict(Action.FROZEN, None, owners)
