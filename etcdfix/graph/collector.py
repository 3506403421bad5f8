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
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from etcdfix.graph.deletion import wait_in_the_foreground
from etcdfix.graph.index import FOREGROUND, ORPHANS, TERMINATING, ImpactIndex, Owner
from etcdfix.graph.kinds import Served, crd_path
from etcdfix.graph.model import Action, Collection, Decision, OwnerState, Propagation
from etcdfix.graph.owners import Fate, how_deleted, judge, waits_for
from etcdfix.model.storagekey import CRD_PATH, display

_CRD_UNREADABLE: Final = (
    "as soon as the CRD of its owner is served: it cannot be read, but a running API server may still hold it"
)
_OWNER_NOT_SERVED: Final = (
    "as soon as the kind of its owner is served: it is not built in, and no CRD in etcd has it"
)
_NOT_SERVED: Final = "as soon as its own kind is served: no readable CRD has it"
_CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_RAN: Final = "a controller manager that ran before the damage"
_NOBODY_SEES: Final = "whatever becomes of this owner, no API serves the dependent any more: it stays in etcd"
_NOBODY: Final = -1
_IDLE: Final = frozenset({Action.NEVER_COLLECTED, Action.FROZEN})


def collect(
    index: ImpactIndex, *removed: int, uid: str = "", by_api: Propagation | None = None
) -> Collection:
    """Play through the removal of an object, or of several at once; the first stands for all.

    Args:
        index: Of the cluster as it is.
        removed: Nodes of the objects that are deleted in etcd, or unsafely; none for a collector that has just started.
        uid: Its uid, where it is known from elsewhere: references with another uid were dangling before. Where no
            CRD tells its kind, it finds those that state it.
        by_api: It is deleted through the API instead, in this way; then its finalizers count.
    """
    return _Collector(index, {node: uid or index.uid(node) for node in removed}, by_api).run()


class _Collector:
    """The play: what goes so far (``_going``), what was weighed and stays, and below whom everything was found."""

    def __init__(self, index: ImpactIndex, removed: dict[int, str], by_api: Propagation | None) -> None:
        self._index = index
        self._removed = removed
        # What is taken from etcd orphans nothing, whatever it said.
        self._going = {node: Fate(propagation=by_api or Propagation.BACKGROUND) for node in removed}
        self._kept: dict[int, Fate] = {}
        self._parents: dict[int, int] = {}
        self._unseen = 0
        from_etcd = removed if by_api is None else {}
        self._unserved = {crd_path(index.place(n)[2]) for n in from_etcd if self._path(n) == CRD_PATH}
        counts = {path: sum(n not in from_etcd for n in nodes) for path, nodes in index.unlistable.items()}
        self._listable = [path for path, count in counts.items() if not count]
        self._blind = {path: count for path, count in counts.items() if count}
        if by_api is not None:
            for node, fate in list(self._going.items()):
                self._delete_by_api(node, fate)

    def _delete_by_api(self, node: int, fate: Fate) -> None:
        by_collector = fate.propagation is not Propagation.BACKGROUND
        fate.stays = waits_for(self._index, node)
        if by_collector and (unnoticed := self._unnoticed(node)):
            fate.stays = f"the garbage collector, which {unnoticed}"
            fate.ran_before = fate.started_after = unnoticed
        namespace = self._index.place(node)[1]
        blind = (other for path in self._blind for other in self._index.unlistable[path])
        self._unseen = sum(not namespace or self._index.place(other)[1] == namespace for other in blind)
        if by_collector and self._unseen:
            fate.doubtful = True
            fate.uncertain = (
                f"if one of {self._unseen} that cannot be read depends on it, {_RAN} waits for that one, and it stays "
                "Terminating; one that started since does not wait"
            )
        self._delete_instances(node, fate)

    # -- the play

    def run(self) -> Collection:
        """Play it through."""
        self._spread(self._going)
        own = [node for node in self._parents if node not in self._removed]
        self._spread(self._pending() if self._listable or not self._removed else self._waiting_owners())
        wait_in_the_foreground(self._index, self._going, self._removed, self._fate)
        fates = [self._fate(node) for node in own]
        gone = [
            node
            for node, fate in zip(own, fates, strict=True)
            if self._action(fate) is Action.CASCADE_DELETED
        ]
        by_resource = Counter(self._index.ref(node).full_resource for node in gone)
        first = next((self._going[node] for node in self._removed), Fate())
        return Collection(
            tree=self._below(*self._removed),
            counts=dict.fromkeys(Action, 0) | Counter(map(self._action, fates)),
            deleted_by_resource=dict(sorted(by_resource.items())),
            stays=first.stays,
            uncertain=first.uncertain,
            listable=tuple(self._listable),
            unlistable=self._blind,
            caught_up=self._below(_NOBODY),
            unseen=self._unseen,
        )

    def _spread(self, going: Iterable[int]) -> None:
        waiting = deque(going)
        while waiting:
            owner = waiting.popleft()
            uid = self._removed.get(owner, "")
            for dependent in self._index.dependents(owner, "" if self._kind_known(owner) else uid):
                owners = self._owners(dependent)
                # Dependents of an earlier object of the same name are left out, where the uid shows it.
                meant = not uid or any(o.node == owner and o.uid in {"", uid} for o in owners)
                if dependent in self._going or not meant:
                    continue
                self._parents.setdefault(dependent, owner)
                if self._take(dependent, self._weigh(dependent, owners)):
                    waiting.append(dependent)

    def _take(self, node: int, fate: Fate) -> bool:
        goes = fate.propagation is not None
        (self._going if goes else self._kept)[node] = fate
        return goes

    def _pending(self) -> list[int]:
        """Return what waits for the collector, whatever is removed, and take it in."""
        index, found = self._index, list[int]()
        for node in sorted(index.nodes(), key=index.keys.__getitem__):
            if node in self._going or node in self._kept:
                continue
            flags = index.flags[node]
            if flags & TERMINATING and (flags & (ORPHANS | FOREGROUND) or self._path(node) == CRD_PATH):
                found += self._go_on(node)
            elif not flags & TERMINATING and (owners := index.owners(node)):
                fate = self._weigh(node, owners)
                # What an owner takes along is found from that owner.
                if fate.propagation is not None and not any(owner.node in self._going for owner in owners):
                    self._parents[node] = _NOBODY
                    self._take(node, fate)
                    found.append(node)
        return found

    def _waiting_owners(self) -> list[int]:
        """Return what is being deleted in the foreground and waited for something that goes, and take it in."""
        index, found = self._index, list[int]()
        for node in list(self._going):
            for owner in index.owners(node):
                target = owner.node
                if target >= 0 and target not in self._going and index.exists(target):
                    flags = index.flags[target]
                    if flags & TERMINATING and flags & FOREGROUND and owner.uid == index.uid(target):
                        found += self._go_on(target)
        return found

    def _go_on(self, node: int) -> list[int]:
        """Take in an object that is being deleted already; return it, and what goes before it."""
        unnoticed = self._unnoticed(node)
        stays = waits_for(self._index, node) or (unnoticed and f"the garbage collector, which {unnoticed}")
        fate = self._going[node] = Fate(propagation=how_deleted(self._index, node), stays=stays)
        self._parents[node] = _NOBODY
        return [node, *self._delete_instances(node, fate)]

    def _delete_instances(self, node: int, fate: Fate) -> list[int]:
        """Take in the objects of a CustomResourceDefinition that is deleted through the API: they go before it does.

        One that cannot be read keeps them all, and the CustomResourceDefinition.
        """
        if self._path(node) != CRD_PATH:
            return []
        index, path = self._index, crd_path(self._index.place(node)[2])
        fate.stays = waits_for(index, node, beside=_CRD_FINALIZER)
        if path in self._blind:
            fate.stays = f"{self._blind[path]} of its objects, which cannot be read"
            return []
        instances = [instance for instance in index.below(path) if instance not in self._going]
        for instance in instances:
            below = self._going[instance] = Fate(stays=waits_for(index, instance))
            self._parents[instance] = node
            if below.stays and not fate.stays:
                fate.stays = f"{index.ref(instance)}, which waits for {below.stays}"
        return instances

    # -- one object

    def _fate(self, node: int) -> Fate:
        """Return what becomes of one object."""
        return self._going.get(node) or self._kept.get(node) or self._weigh(node, self._index.owners(node))

    @staticmethod
    def _action(fate: Fate) -> Action:
        return Action.KEPT if fate.later else fate.action

    def _weigh(self, dependent: int, owners: list[Owner]) -> Fate:
        """Return what becomes of one object as far as is known by now."""
        index = self._index
        owners = [self._as_served(owner) for owner in owners]
        fate = judge(index, dependent, owners, self._going)
        if fate.action is not Action.NEVER_COLLECTED and self._path(dependent) in self._unserved:
            unseen = {"state": OwnerState.UNKNOWN, "reason": _NOBODY_SEES}
            fate = Fate(Action.FROZEN, None, tuple(replace(owner, **unseen) for owner in fate.owners))
        if fate.action in _IDLE:
            return fate
        going = [owner for owner in owners if owner.node in self._going and owner.served is not Served.NO]
        above = next((owner for owner in going if self._going[owner.node].doubtful), None)
        if above is not None and not fate.doubtful:
            fate.doubtful = True
            fate.uncertain = f"it hangs on {index.ref(above.node)}, which cannot be forecast"
        fate.when_served = self._when_served(dependent, going)
        if not fate.when_served:
            fate.ran_before, fate.started_after = self._managers(dependent, going)
        if fate.propagation is not None:
            fate.stays, fate.later = waits_for(index, dependent), self._later(going)
        perhaps = next((o.api_version for o in owners if o.served is Served.PERHAPS), "")
        uncertain = (
            fate.when_served,
            fate.uncertain,
            f"only where the API serves {perhaps}, which not every release does" if perhaps else "",
            self._told(dependent, fate),
            f"deleted later, once {fate.later} is really gone" if fate.later else "",
        )
        fate.uncertain = "; ".join(filter(None, uncertain))
        return fate

    def _later(self, going: list[Owner]) -> str:
        """Return the owner that only becomes Terminating and keeps its dependents as long; "" for none."""
        for owner in going:
            fate = self._going[owner.node]
            if fate.keeps_dependents and owner.uid in {"", self._index.uid(owner.node)}:
                return fate.later or str(self._index.ref(owner.node))
        return ""

    def _when_served(self, dependent: int, going: list[Owner]) -> str:
        """Return what must be served before the collector sees that an owner is gone; "" for nothing."""
        for owner in going:
            if owner.guess:
                unreadable = self._index.crd_unreadable(self._index.place(owner.node)[0])
                return _CRD_UNREADABLE if unreadable else _OWNER_NOT_SERVED
            if text := self._going[owner.node].when_served:
                return text
        return "" if self._kind_known(dependent) else _NOT_SERVED

    def _managers(self, dependent: int, going: list[Owner]) -> tuple[str, str]:
        """Return why a controller manager does nothing yet that ran before the damage, and one that started since."""
        fates = [self._going[owner.node] for owner in going]
        ran = next((fate.ran_before for fate in fates if fate.ran_before), "")
        started = next((fate.started_after for fate in fates if fate.started_after), "")
        if not ran and going and all(self._path(owner.node) in self._blind for owner in going):
            first = self._index.ref(going[0].node)
            ran = f"does not notice that {first} is gone before all {first.full_resource} can be listed"
        if not started and self._path(dependent) in self._blind:
            started = f"does not see it before all {self._index.ref(dependent).full_resource} can be listed"
        return ran, started

    def _told(self, dependent: int, fate: Fate) -> str:
        """Say what controller managers do that started before and after the damage, where that differs."""
        ran, started = fate.ran_before, fate.started_after
        own = self._blind.get(self._path(dependent), 0)
        of_type = f"{own} of its type cannot be read; " if own else ""
        if ran and ran == started:
            return f"{of_type}the collector {ran}"
        if ran and started:
            return f"{of_type}{_RAN} {ran}, one that started since {started}"
        if ran:
            return f"{of_type}{_RAN} {ran}; one that started since does not wait"
        if not started:
            return ""
        then = ", and deletes it then" if fate.action in {Action.ORPHANED, Action.REFERENCE_STRIPPED} else ""
        return (
            f"{of_type}a controller manager that started since then {started}{then}; one that ran before knows what "
            "was made before"
        )

    def _unnoticed(self, node: int) -> str:
        """Return why the collector does not notice that an object is being deleted; "" where it does."""
        if self._path(node) not in self._blind:
            return ""
        ref = self._index.ref(node)
        return f"does not notice that {ref} is being deleted before all {ref.full_resource} can be listed"

    # -- references

    def _path(self, node: int) -> str:
        return self._index.place(node)[0].path

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
        unknown = (owner.guess or owner.node < 0) and not owner.wrong_scope
        means_it = unknown and owner.uid == uid and self._index.may_own(node, dependent, owner.name)
        return owner._replace(node=node, guess=True) if means_it else owner

    def _as_served(self, owner: Owner) -> Owner:
        """Return an owner reference as it is once the removed CustomResourceDefinitions serve nothing any more."""
        gone = owner.node >= 0 and owner.node not in self._going and self._path(owner.node) in self._unserved
        return owner._replace(served=Served.NO) if gone else owner

    # -- the answer

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
            fate = self._fate(node)
            found.append(
                Decision(
                    depth=depth,
                    below=display(self._index.key(parent)) if parent != _NOBODY else "",
                    object=self._index.ref(node),
                    action=self._action(fate),
                    owners=fate.owners,
                    uncertain=fate.uncertain,
                    stays=fate.stays,
                    later=fate.later,
                    ran_before=fate.ran_before,
                    started_after=fate.started_after,
                )
            )
            waiting += [(depth + 1, node, child) for child in reversed(children.get(node, []))]
        return tuple(found)
