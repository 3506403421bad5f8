"""Who refers to whom, in both directions, as :mod:`etcdfix.graph.cluster` gathers it in one pass over etcd.

What an object holds is forgotten as soon as its references are taken: ids and edges stay, in plain arrays. An object,
or the mere mention of one, costs its key and a few numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.graph.edges import UNKNOWN, Edges
from etcdfix.graph.kinds import Kinds, Served
from etcdfix.graph.model import Condition, ObjectRef, OwnerReference
from etcdfix.graph.uses import NODE_FIELD, Use, open_keys
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, StorageLayout, display
from etcdfix.text.safetext import key_base64

if TYPE_CHECKING:
    from etcdfix.graph.contents import ObjectExtract
    from etcdfix.graph.recreation import Claim

# Flags of a node.
SEEN: Final = 1
UNREADABLE: Final = 2
UNDETERMINED: Final = 4
TERMINATING: Final = 8
ORPHANS: Final = 16
FOREGROUND: Final = 32
FINISHED: Final = 64
OPAQUE: Final = 128
SERVES_EMPTY: Final = 256
READY: Final = 512

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"

_MOST_HOLDERS_OF_A_UID: Final = 16


class NamespaceDetails(msgspec.Struct, frozen=True):
    """What a Namespace object says of its end.

    Attributes:
        phase: ``Active`` or ``Terminating``, as stored.
        spec_finalizers: Which the namespace controller removes at last.
    """

    phase: str = ""
    spec_finalizers: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Owner(NamedTuple):
    """One owner reference of a dependent, as it states it.

    Attributes:
        node: The object that kind, name and the dependent's namespace point at; -1 where the kind may not own the
            dependent, or is not known and nothing else tells the object either.
        wrong_scope: The dependent has no namespace and the owner's kind has one: such a reference is never resolved.
        guess: The kind is not known, and the node was found by the uid that it states, or by API group and name
            among objects whose uid is not known.
        served: Whether an API server serves the kind in the apiVersion of the reference; where it does not, the
            collector cannot ask for the owner at all.
    """

    node: int
    uid: str
    api_version: str
    kind: str
    name: str
    blocks: bool
    wrong_scope: bool
    guess: bool
    served: Served


class Edge(NamedTuple):
    """One use: from the user's node to the used one's; ``uid`` as the user states it, "" where it does not."""

    source: int
    target: int
    use: Use
    uid: str


class ImpactIndex:
    """Objects as numbers (*nodes*), and the edges between them. Made by :class:`~etcdfix.graph.cluster.IndexBuilder`.

    A node stands for an object that exists, or that somebody mentions; :meth:`exists` tells them apart.

    Attributes:
        extracts: By node, what was taken out of the few objects that say more than their references.
        claims: What specs make controllers create, by namespace and what is wanted; never taken back.
        unreadable_crds: ``(group, plural)`` of CRDs that cannot be read.
        problems: Why the index is not everything: one sentence each.
        truncated: How many objects had more references than are followed.
        opaque: How many objects can be read, but not looked into: what they refer to is not known.
    """

    def __init__(self, layout: StorageLayout, kinds: Kinds) -> None:
        self.layout = layout
        self.kinds = kinds
        # By node.
        self.keys: list[bytes] = []
        self.flags = array("H")
        self.sizes = array("I")
        self.uids: list[bytes] = []
        self._location = array("I")
        self.finalizer_lists: dict[int, tuple[str, ...]] = {}
        self.since: dict[int, str] = {}
        self.extracts: dict[int, ObjectExtract] = {}
        self._numbers: dict[bytes, int] = {}
        # Directories that are known to share the beginning of keys; the first stands for not looked up yet.
        self._locations: list[tuple[ResourcePrefix, bytes] | None] = [None]
        self._location_numbers: dict[bytes, int] = {}
        self.edges = Edges()
        # Edges of owners whose kind is not known, and what they seem to mean.
        self._guesses: dict[int, int] = {}
        self._guessed: dict[int, list[int]] = {}
        self.claims: dict[tuple[str, str], Claim] = {}
        self.unreadable_crds: tuple[tuple[str, str], ...] = ()
        self.problems: list[str] = []
        self.truncated = 0
        self.opaque = 0

    def number(self, relative: bytes) -> int:
        """Return the node of a key below the storage prefix; a new one where there is none."""
        found = self._numbers.get(relative)
        if found is None:
            found = self._numbers[relative] = len(self.keys)
            self.keys.append(relative)
            self.uids.append(b"")
            for numbers in (self.flags, self.sizes, self._location):
                numbers.append(0)
            self.edges.add_node()
        return found

    def settle(self) -> None:
        """Work out what rests on all nodes together, once all were added.

        Owner references of unknown kinds are linked to the objects that they mean, as far as uid or name tell. A kind
        is unknown where its CRD is gone or cannot be read. An API server that runs may serve it all the same, out of
        its memory, and any will once the CRD is back: the garbage collector then acts on these references.
        """
        edges = self.edges
        unknown = [edge for edge in edges.owners() if edges.targets[edge] == UNKNOWN]
        holders = self.holders({edges.uid(edge) for edge in unknown})
        for edge in unknown:
            owner, dependent = edges.owner(edge), edges.sources[edge]
            if owner is not None and self.kinds.of_owner(*owner[:2])[0] is None:
                among = holders.get(edges.uid(edge)) or self._unidentified(owner, dependent)
                target = next((node for node in among if self.may_own(node, dependent, owner.name)), None)
                if target is not None:
                    self._guesses[edge] = target
                    self._guessed.setdefault(target, []).append(edge)

    def holders(self, uids: Collection[str]) -> dict[str, list[int]]:
        """Return the objects that have these uids."""
        wanted = {encoded(uid): uid for uid in uids if uid}
        found: dict[str, list[int]] = {}
        for node, own in enumerate(self.uids) if wanted else ():
            uid = wanted.get(own)
            if uid is not None and len(found.setdefault(uid, [])) < _MOST_HOLDERS_OF_A_UID:
                found[uid].append(node)
        return found

    def _unidentified(self, owner: OwnerReference, dependent: int) -> Iterator[int]:
        """Yield the objects of an owner's group, kind and name whose uid is not known, since they cannot be read.

        Resources are called as ``UnsafeGuessKindToResource`` of apimachinery has it.
        """
        group, word = owner.api_version.rpartition("/")[0], owner.kind.lower()
        plural = (
            f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("s") else f"{word}s"
        )
        namespace = self.place(dependent)[1]
        for middle in (f"{namespace}/", "") if namespace else ("",):
            node = self.stored(f"{group}/{plural}/{middle}{owner.name}")
            if "." in group and node is not None and not self.uids[node]:
                yield node

    def find(self, key: bytes) -> int | None:
        """Return the node of a complete etcd key; None where nobody has it or mentions it."""
        relative = self.layout.below(key)
        return self._numbers.get(relative) if relative is not None else None

    def node(self, relative: str) -> int | None:
        """Return the node of a key below the storage prefix."""
        return self._numbers.get(encoded(relative))

    def stored(self, relative: str) -> int | None:
        """Return the node of an object that exists at a key below the storage prefix."""
        node = self.node(relative)
        return node if node is not None and self.exists(node) else None

    def key(self, node: int) -> bytes:
        """Return a node's complete etcd key."""
        return self.layout.path(self.keys[node])

    def place(self, node: int) -> tuple[ResourcePrefix, str, str]:
        """Return a node's directory, namespace ("" for none) and name."""
        key = self.key(node)
        located = self._locations[self._location[node]]
        if located is None:
            located = self._locate(key)
            if located[1] != key:
                number = self._location_numbers.setdefault(located[1], len(self._locations))
                if number == len(self._locations):
                    self._locations.append(located)
                self._location[node] = number
        return self.layout.split(key, located)[:3]

    def _locate(self, key: bytes) -> tuple[ResourcePrefix, bytes]:
        directory, shared = self.layout.locate(key)
        return self.kinds.custom(directory), shared

    def ref(self, node: int) -> ObjectRef:
        """Return a node's name, taken apart."""
        return _ref(self.key(node), *self.place(node))

    def ref_of(self, key: bytes) -> ObjectRef:
        """Return a key's name, taken apart, whether or not anybody has it."""
        return _ref(key, *self.layout.split(key, self._locate(key))[:3])

    def exists(self, node: int) -> bool:
        """Tell whether a key is there, readable or not."""
        return bool(self.flags[node] & SEEN)

    def unreadable(self, node: int) -> bool:
        """Tell whether an object is proven broken, or could not be judged."""
        return bool(self.flags[node] & (UNREADABLE | UNDETERMINED))

    def lost(self, node: int) -> bool:
        """Tell whether an object is proven broken."""
        return bool(self.flags[node] & UNREADABLE)

    def serves_empty(self, node: int) -> bool:
        """Tell whether an object is broken in such a way that the API server shows an empty one, without a uid."""
        return bool(self.flags[node] & SERVES_EMPTY)

    def node_of(self, pod: int) -> int | None:
        """Return the Node that a Pod is bound to, whether it exists or not; None for a Pod without one."""
        return next((edge.target for edge in self.uses(pod) if edge.use.path == NODE_FIELD), None)

    @cached_property
    def unreadable_nodes(self) -> list[int]:
        """The objects that are proven broken or could not be judged."""
        unread = UNREADABLE | UNDETERMINED
        return [node for node, flags in enumerate(self.flags) if flags & unread and flags & SEEN]

    @cached_property
    def unlistable(self) -> dict[str, tuple[int, ...]]:
        """The directories whose LIST fails, or may fail, each with the objects that are the reason.

        Left out is what the API server shows as an empty object, and what no API serves.
        """
        failing = (node for node in self.unreadable_nodes if not self.serves_empty(node))
        return {
            directory.path: tuple(sorted(nodes, key=self.keys.__getitem__))
            for directory, nodes in self.by_directory(failing)
            if directory.kind or self.crd_unreadable(directory)
        }

    def without_crd(self, directory: ResourcePrefix) -> bool:
        """Tell whether a directory is that of a custom resource that no readable CRD accounts for."""
        return directory.codec is StorageCodec.CUSTOM_RESOURCE and not directory.kind

    def crd_unreadable(self, directory: ResourcePrefix) -> bool:
        """Tell whether a directory is that of a custom resource whose CRD is there and cannot be read."""
        return (directory.group, directory.resource) in self.unreadable_crds

    def by_directory(self, nodes: Iterable[int]) -> list[tuple[ResourcePrefix, list[int]]]:
        """Return nodes by their directory, in the order of the directories' paths."""
        found: dict[str, list[int]] = {}
        for node in nodes:
            found.setdefault(self.place(node)[0].path, []).append(node)
        return [(self.place(members[0])[0], members) for _, members in sorted(found.items())]

    def uid(self, node: int) -> str:
        """Return the object's own uid; "" where it is not known."""
        return display(self.uids[node])

    def finalizers(self, node: int) -> tuple[str, ...]:
        """Return ``metadata.finalizers``."""
        return self.finalizer_lists.get(node, ())

    def terminating_since(self, node: int) -> str:
        """Return ``metadata.deletionTimestamp``, "" for none."""
        return self.since.get(node, "")

    def ends(self, namespace: int) -> bool:
        """Tell whether a Namespace is being deleted."""
        return namespace in self.since or self.details(namespace).phase == "Terminating"

    def details(self, namespace: int | None) -> NamespaceDetails:
        """Return what a Namespace says of its end; nothing where it is not there, or cannot be read."""
        found = self.extracts.get(namespace) if namespace is not None else None
        return (found.namespace if found is not None else None) or NamespaceDetails()

    def nodes(self) -> Iterator[int]:
        """Yield every object that exists, in no order."""
        return (node for node, flags in enumerate(self.flags) if flags & SEEN)

    def below(self, path: str) -> list[int]:
        """Return every object that exists in a directory (``pods``)."""
        start = path.encode() + b"/"
        return [node for node in self.nodes() if self.keys[node].startswith(start)]

    def inside(self, namespace: str) -> list[int]:
        """Return everything that lives in a namespace, in the order of the keys."""
        part = b"/" + encoded(namespace) + b"/"
        # Most keys are ruled out without taking them apart.
        near = [node for node in self.nodes() if part in self.keys[node]]
        return sorted((node for node in near if self.place(node)[1] == namespace), key=self.keys.__getitem__)

    def _uses(self, edges: Iterable[int]) -> Iterator[Edge]:
        for edge in edges:
            use = self.edges.label(edge)
            if isinstance(use, Use):
                yield Edge(self.edges.sources[edge], self.edges.targets[edge], use, self.edges.uid(edge))

    def uses(self, node: int) -> Iterator[Edge]:
        """Yield what a node uses."""
        return self._uses(self.edges.of_source(node))

    def users(self, node: int) -> Iterator[Edge]:
        """Yield the uses of a node, those included that leave its namespace or name open."""
        yield from self._uses(self.edges.of_target(node))
        for unscoped in map(self._numbers.get, open_keys(self.keys[node])):
            if unscoped is not None and unscoped != node:
                edges = self._uses(self.edges.of_target(unscoped))
                yield from (edge._replace(target=node) for edge in edges if edge.use.unscoped)

    def owners(self, node: int) -> list[Owner]:
        """Return a node's owner references, in their order."""
        edges = [edge for edge in self.edges.of_source(node) if self.edges.owner(edge) is not None]
        return [self._owner(edge) for edge in reversed(edges)]

    def _owner(self, edge: int) -> Owner:
        owner, target = self.edges.owner(edge), self.edges.targets[edge]
        assert owner is not None  # the caller looked
        directory, served = self.kinds.of_owner(owner.api_version, owner.kind)
        return Owner(
            self._guesses.get(edge, -1) if target < 0 else target,
            self.edges.uid(edge),
            owner.api_version,
            owner.kind,
            owner.name,
            owner.block_owner_deletion,
            directory is not None and target < 0,
            edge in self._guesses,
            served,
        )

    def dependents(self, node: int, uid: str = "") -> list[int]:
        """Return the nodes that name this one as an owner.

        By kind, name and namespace; where its kind is not known, by uid, or by API group and name if its uid is not
        known either.

        Args:
            node: The owner.
            uid: Its uid as its history or somebody else tells it: finds more where its kind is not known.
        """
        edges = [*filter(self.edges.owner, self.edges.of_target(node)), *self._guessed.get(node, ())]
        for edge in self._strays.get(uid, ()) if uid else ():
            owner = self.edges.owner(edge)
            if owner is not None and self.kinds.of_owner(*owner[:2])[0] is None:
                edges += [edge] if self.may_own(node, self.edges.sources[edge], owner.name) else []
        return self._sources(edges)

    def strays(self, uid: str) -> list[int]:
        """Return the objects that state a uid as their owner's where the collector does not find it.

        It looks for the owner by kind, name and the dependent's namespace; these are cluster-scoped and name a
        namespaced owner, lie in another namespace, or state a name or kind that is not that of the uid.
        """
        return self._sources(self._strays.get(uid, ()))

    def _sources(self, edges: Iterable[int]) -> list[int]:
        return sorted({self.edges.sources[edge] for edge in edges}, key=self.keys.__getitem__)

    @cached_property
    def _strays(self) -> dict[str, list[int]]:
        """Owner references that lead to no object of the uid that they state, by this uid."""
        found: dict[str, list[int]] = {}
        for edge in self.edges.owners():
            uid, target = self.edges.uid(edge), self.edges.targets[edge]
            if uid and (target < 0 or self.uid(target) != uid):
                found.setdefault(uid, []).append(edge)
        return found

    def may_own(self, node: int, dependent: int, name: str) -> bool:
        """Tell whether a reference of unknown kind, of a dependent and to a name, can mean a node."""
        directory, namespace, own_name = self.place(node)
        fits = not directory.kind and own_name == name
        return fits and (not namespace or namespace == self.place(dependent)[1])


def _ref(key: bytes, directory: ResourcePrefix, namespace: str, name: str) -> ObjectRef:
    return ObjectRef(
        key=display(key),
        key_base64=key_base64(key),
        group=directory.group,
        resource=directory.resource,
        kind=directory.kind,
        namespace=namespace,
        name=name,
    )


def encoded(text: str) -> bytes:
    """Return text out of an object as a part of a key."""
    return text.encode("utf-8", "backslashreplace")
