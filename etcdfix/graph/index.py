"""Who refers to whom, in both directions, as :mod:`etcdfix.graph.builder` gathered it in one pass over etcd.

What an object holds is forgotten as soon as its references are taken: ids and edges stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.graph.kinds import Kinds, Served
from etcdfix.graph.model import Condition, ObjectRef
from etcdfix.graph.tables import (
    BLOCKS,
    CONTROLLER,
    GUESSED,
    NOT_SERVED,
    PERHAPS_SERVED,
    SEEN,
    SERVES_EMPTY,
    UNDETERMINED,
    UNREADABLE,
    WRONG_SCOPE,
    Tables,
    encoded,
)
from etcdfix.graph.uses import Role, Use, unscoped_keys
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, StorageLayout, display
from etcdfix.text.safetext import BOOTSTRAP, key_base64

if TYPE_CHECKING:
    from etcdfix.graph.recreation import Claim
    from etcdfix.graph.webhooks import Webhook

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"

_REFERRED_KEPT: Final = 64
_PARENTS_KEPT: Final = 1024
_ANY_NAME: Final = b"x"


class NamespaceDetails(msgspec.Struct, frozen=True):
    """What a Namespace object says of its end.

    Attributes:
        phase: ``Active`` or ``Terminating``, as stored.
        spec_finalizers: Which the namespace controller removes at last.
    """

    phase: str
    spec_finalizers: tuple[str, ...]
    conditions: tuple[Condition, ...]
    labels: dict[str, str] = {}


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
    controller: bool
    blocks: bool
    wrong_scope: bool
    guess: bool
    served: Served = Served.YES


class Edge(NamedTuple):
    """One use: from the user's node to the used one's; ``uid`` as the user states it, "" where it does not."""

    source: int
    target: int
    use: Use
    uid: str


class ImpactIndex(Tables):
    """Objects as numbers (*nodes*), and the edges between them. Made by :class:`IndexBuilder`.

    A node stands for an object that exists, or that somebody mentions; :meth:`exists` tells them apart.

    Attributes:
        namespaces: By node, as ``api_services`` (Services that APIServices name), ``endpoints`` (Services that have a
            ready endpoint) and ``webhooks`` (those that refuse where nobody answers).
        unavailable_apis: APIServices that are not available, with their reason.
        claims: What specs make controllers create, by namespace and what is wanted; never taken back.
        unreadable_crds: ``(group, plural)`` of CRDs that cannot be read.
        outside: Keys outside the storage prefix: first segments to (count, bytes); maybe not ``outside_complete``.
        problems: Why the index is not everything: one sentence each.
        truncated: How many objects had more references than are followed.
        opaque: How many objects can be read, but not looked into: what they refer to is not known.
    """

    def __init__(self, layout: StorageLayout, kinds: Kinds) -> None:
        super().__init__()
        self.layout = layout
        self.kinds = kinds
        # Keys that differ in their last part alone differ in their name alone.
        self._placed = lru_cache(maxsize=_PARENTS_KEPT)(self._place_below)
        # One object is looked at in many ways before the next.
        self._referred = lru_cache(maxsize=_REFERRED_KEPT)(self._refer)
        self._places = lru_cache(maxsize=_REFERRED_KEPT)(lambda node: self._place(self.key(node)))
        self._last_users: tuple[int, tuple[Edge, ...]] = -1, ()
        self.namespaces: dict[int, NamespaceDetails] = {}
        self.unavailable_apis: dict[str, str] = {}
        self.api_services: dict[int, str] = {}
        self.endpoints: dict[int, str] = {}
        self.webhooks: dict[int, tuple[Webhook, ...]] = {}
        self.claims: dict[tuple[str, str], Claim] = {}
        self.unreadable_crds: tuple[tuple[str, str], ...] = ()
        self.outside: dict[str, tuple[int, int]] = {}
        self.outside_complete = True
        self.problems: list[str] = []
        self.truncated = 0
        self.opaque = 0

    def forget_counts(self) -> None:
        """Forget what was counted over all nodes: some of them are others now."""
        self._last_users = -1, ()
        for counted in ("unreadable_by_path", "unlistable", "_counts", "_strays"):
            self.__dict__.pop(counted, None)

    # -- nodes

    def __len__(self) -> int:
        """Return how many nodes there are, mentioned ones included."""
        return len(self.keys)

    def find(self, key: bytes) -> int | None:
        """Return the node of a complete etcd key; None where nobody has it or mentions it."""
        relative = self.layout.below(key)
        return self.numbers.get(relative) if relative is not None else None

    def node(self, relative: str) -> int | None:
        """Return the node of a key below the storage prefix."""
        return self.numbers.get(encoded(relative))

    def key(self, node: int) -> bytes:
        """Return a node's complete etcd key."""
        return self.layout.path(self.keys[node])

    def relative(self, node: int) -> bytes:
        """Return a node's key below the storage prefix."""
        return self.keys[node]

    def ref(self, node: int) -> ObjectRef:
        """Return a node's name, taken apart."""
        return self.ref_of(self.key(node))

    def ref_of(self, key: bytes) -> ObjectRef:
        """Return a key's name, taken apart, whether or not anybody has it."""
        return self._referred(key)

    def _refer(self, key: bytes) -> ObjectRef:
        directory, namespace, name = self._place(key)
        return ObjectRef(
            key=display(key),
            key_base64=key_base64(key),
            group=directory.group,
            resource=directory.resource,
            kind=directory.kind,
            namespace=namespace,
            name=name,
        )

    def place(self, node: int) -> tuple[ResourcePrefix, str, str]:
        """Return a node's directory, namespace ("" for none) and name."""
        return self._places(node)

    def _place(self, key: bytes) -> tuple[ResourcePrefix, str, str]:
        parent, slash, last = key.rpartition(b"/")
        below = self._placed(parent + slash) if last and BOOTSTRAP not in key else None
        if below is None:
            return self._take_apart(key)[1]
        directory, namespace, beginning = below
        return directory, namespace, beginning + display(last)

    def _place_below(self, parent: bytes) -> tuple[ResourcePrefix, str, str] | None:
        """Return directory, namespace and how the name begins of the keys right below; None where they differ."""
        shared, (directory, namespace, name) = self._take_apart(parent + _ANY_NAME)
        alike = parent.startswith(shared)
        return (directory, namespace, name[: -len(_ANY_NAME)]) if alike else None

    def _take_apart(self, key: bytes) -> tuple[bytes, tuple[ResourcePrefix, str, str]]:
        directory, shared = self.layout.locate(key)
        if directory.codec is StorageCodec.CUSTOM_RESOURCE:
            directory = self.kinds.custom(directory)
        where = self.layout.split(key, (directory, shared))
        return shared, (directory, where.namespace, where.name)

    def exists(self, node: int) -> bool:
        """Tell whether a key is there, readable or not."""
        return bool(self.flags[node] & SEEN)

    def unreadable(self, node: int) -> bool:
        """Tell whether an object is proven broken, or could not be judged."""
        return bool(self.flags[node] & (UNREADABLE | UNDETERMINED))

    def lost(self, node: int) -> bool:
        """Tell whether an object is proven broken."""
        return bool(self.flags[node] & UNREADABLE)

    def node_of(self, pod: int) -> int | None:
        """Return the Node that a Pod is bound to, whether it exists or not; None for a Pod without one."""
        return next((edge.target for edge in self.uses(pod) if edge.use.role is Role.NODE), None)

    def serves_empty(self, node: int) -> bool:
        """Tell whether an object is broken in such a way that the API server shows an empty one, without a uid."""
        return bool(self.flags[node] & SERVES_EMPTY)

    @cached_property
    def unreadable_by_path(self) -> dict[str, int]:
        """How many objects of each directory are proven broken or could not be judged."""
        return Counter(self.place(node)[0].path for node in self._unreadable_nodes())

    @cached_property
    def unlistable(self) -> dict[str, tuple[int, ...]]:
        """The directories whose LIST fails, or may fail, each with the objects that are the reason.

        Left out is what the API server shows as an empty object, and what no API serves.
        """
        reasons = filter(self._kept_from_being_listed, self._unreadable_nodes())
        return {
            directory.path: tuple(sorted(nodes, key=self.relative))
            for directory, nodes in self.by_directory(reasons)
        }

    def _unreadable_nodes(self) -> list[int]:
        unread = UNREADABLE | UNDETERMINED
        return [node for node, flags in enumerate(self.flags) if flags & unread and flags & SEEN]

    def unlistable_counts(self, without: Iterable[int] = ()) -> dict[str, int]:
        """Return how many objects keep each directory of :meth:`unlistable` from being listed.

        Args:
            without: Nodes that count as gone; a directory that nothing else is the reason for stays, with 0.
        """
        counts = {path: len(nodes) for path, nodes in self.unlistable.items()}
        for node in without:
            if path := self._kept_from_being_listed(node):
                counts[path] -= 1
        return counts

    def _kept_from_being_listed(self, node: int) -> str:
        """Return the directory whose LIST fails, or may fail, because of a node; "" for none."""
        if not self.exists(node) or not self.unreadable(node) or self.serves_empty(node):
            return ""
        directory = self.place(node)[0]
        return directory.path if directory.kind or self.crd_unreadable(directory) else ""

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

    def count_in(self, namespace: str) -> int:
        """Return how many objects live in a namespace."""
        return self._counts[0].get(namespace, 0)

    def count_below(self, path: str) -> int:
        """Return how many objects a directory holds."""
        return self._counts[1].get(path, 0)

    @cached_property
    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        places = [self.place(node) for node in self.nodes()]
        return Counter(place[1] for place in places), Counter(place[0].path for place in places)

    def has_owners(self, node: int) -> bool:
        """Tell whether a node has owner references."""
        return self.first_owner[node] >= 0

    def uid(self, node: int) -> str:
        """Return the object's own uid; "" where it is not known."""
        return display(self.uids[node])

    def finalizers(self, node: int) -> tuple[str, ...]:
        """Return ``metadata.finalizers``."""
        return self.finalizer_lists.get(node, ())

    def terminating_since(self, node: int) -> str:
        """Return ``metadata.deletionTimestamp``, "" for none."""
        return self.since.get(node, "")

    def secret_type(self, node: int) -> str:
        """Return a Secret's ``type``; "" where it is not known."""
        return self.texts.texts[self.types.get(node, 0)]

    def nodes(self) -> Iterator[int]:
        """Yield every object that exists, in no order."""
        return (node for node, flags in enumerate(self.flags) if flags & SEEN)

    def below(self, path: str) -> Iterator[int]:
        """Yield every object that exists in a directory (``pods``)."""
        start = path.encode() + b"/"
        return (node for node in self.nodes() if self.keys[node].startswith(start))

    # -- edges

    def users(self, node: int) -> tuple[Edge, ...]:
        """Return the uses of a node, those included that leave its namespace or its name open."""
        if self._last_users[0] != node:
            self._last_users = node, tuple(self._users(node))
        return self._last_users[1]

    def _users(self, node: int) -> Iterator[Edge]:
        yield from self._named(node)
        for key in unscoped_keys(self.keys[node]):
            unscoped = self.numbers.get(key)
            if unscoped is not None and unscoped != node:
                yield from (edge._replace(target=node) for edge in self._named(unscoped) if edge.use.unscoped)

    def _named(self, node: int) -> Iterator[Edge]:
        edge = self.first_in[node]
        while edge >= 0:
            yield self._edge(edge)
            edge = self.next_in[edge]

    def uses(self, node: int) -> Iterator[Edge]:
        """Yield what a node uses."""
        edge = self.first_out[node]
        while edge >= 0:
            yield self._edge(edge)
            edge = self.next_out[edge]

    def _edge(self, edge: int) -> Edge:
        return Edge(
            self.edge_source[edge],
            self.edge_target[edge],
            self.use_list[self.edge_use[edge]],
            self.texts.texts[self.edge_uid[edge]],
        )

    def owners(self, node: int) -> list[Owner]:
        """Return a node's owner references, in their order."""
        found = []
        number = self.first_owner[node]
        while number >= 0:
            found.append(self._owner(number))
            number = self.next_owner[number]
        return found[::-1]

    def dependents(self, node: int, uid: str = "") -> list[int]:
        """Return the nodes that name this one as an owner.

        By kind, name and namespace; where its kind is not known, by uid, or by API group and name if its uid is not
        known either.

        Args:
            node: The owner.
            uid: Its uid as its history or somebody else tells it: finds more where its kind is not known.
        """
        found: dict[int, None] = {}
        number = self.first_dependent[node]
        while number >= 0:
            found[self.owner_dependent[number]] = None
            number = self.next_dependent[number]
        for number in self.unknown_owners_of(uid) if uid else ():
            dependent = self.owner_dependent[number]
            name = self.texts.texts[self.owner_texts[4 * number + 3]]
            if self.may_own(node, dependent, name):
                found[dependent] = None
        return sorted(found, key=self.keys.__getitem__)

    def strays(self, uid: str) -> list[int]:
        """Return the objects that state a uid as their owner's where the collector does not find it.

        It looks for the owner by kind, name and the dependent's namespace; these are cluster-scoped and name a
        namespaced owner, lie in another namespace, or state a name or kind that is not that of the uid.
        """
        return self._strays.get(self.texts.find(uid), [])

    @cached_property
    def _strays(self) -> dict[int, list[int]]:
        tables = self
        found: dict[int, dict[int, None]] = {}
        uids, texts = tables.owner_texts[::4], tables.texts.texts
        for text, target, dependent in zip(uids, tables.owner_target, tables.owner_dependent, strict=True):
            if text and (target < 0 or display(tables.uids[target]) != texts[text]):
                found.setdefault(text, {})[dependent] = None
        return {text: sorted(nodes, key=self.relative) for text, nodes in found.items()}

    def may_own(self, node: int, dependent: int, name: str) -> bool:
        """Tell whether a reference of unknown kind, of a dependent and to a name, can mean a node."""
        directory, namespace, own_name = self.place(node)
        fits = not directory.kind and own_name == name
        return fits and (not namespace or namespace == self.place(dependent)[1])

    def _owner(self, number: int) -> Owner:
        uid, api_version, kind, name = (
            self.texts.texts[text] for text in self.owner_texts[4 * number : 4 * number + 4]
        )
        flags = self.owner_flags[number]
        target = self.owner_target[number]
        return Owner(
            max(target, -1),
            uid,
            api_version,
            kind,
            name,
            bool(flags & CONTROLLER),
            bool(flags & BLOCKS),
            target == WRONG_SCOPE,
            bool(flags & GUESSED),
            Served.NO if flags & NOT_SERVED else Served.PERHAPS if flags & PERHAPS_SERVED else Served.YES,
        )
