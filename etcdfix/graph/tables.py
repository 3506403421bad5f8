"""The arrays behind the index: what is kept of each object and of each edge, and how edges are chained.

An object, or the mere mention of one, costs its key, a few numbers and an entry of a dictionary; an edge costs some
twenty bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Final

from etcdfix.graph.model import OwnerReference
from etcdfix.graph.uses import Use

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
OTHER_VERSION: Final = 1024

# Flags of an owner reference.
CONTROLLER: Final = 1
BLOCKS: Final = 2
GUESSED: Final = 4
NOT_SERVED: Final = 16
PERHAPS_SERVED: Final = 32

# Targets of owner references that are no node.
UNKNOWN_KIND: Final = -1
WRONG_SCOPE: Final = -2
FORGOTTEN: Final = -3


class Texts:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self.texts = [""]

    def number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def find(self, text: str) -> int:
        """Return a text's number; -1 where it was never kept."""
        return self._numbers.get(text, -1)


class Tables:
    """Plain arrays by node, by edge and by owner reference; the index explains them."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.keys: list[bytes] = []
        self.flags = array("H")
        self.sizes = array("I")
        self.uids: list[bytes] = []
        self.finalizer_lists: dict[int, tuple[str, ...]] = {}
        self.since: dict[int, str] = {}
        self.types: dict[int, int] = {}
        self.unprotected: set[int] = set()
        self.texts = Texts()
        self.use_numbers: dict[Use, int] = {}
        self.use_list: list[Use] = []
        # Edges: source, target, use, stated uid; the next edge with the same source, and with the same target.
        self.edge_source = array("I")
        self.edge_target = array("I")
        self.edge_use = array("I")
        self.edge_uid = array("I")
        self.next_out = array("i")
        self.next_in = array("i")
        self.first_out = array("i")
        self.first_in = array("i")
        # Owner references: the same, dependents are the sources.
        self.owner_dependent = array("I")
        self.owner_target = array("i")
        self.owner_texts = array("I")  # uid, apiVersion, kind, name of each
        self.owner_flags = bytearray()
        self.next_owner = array("i")
        self.next_dependent = array("i")
        self.first_owner = array("i")
        self.first_dependent = array("i")
        self.unknown_owners = array("I")  # those of unknown kinds, guessed or not, in the order of their uids

    def number(self, relative: bytes) -> int:
        found = self.numbers.get(relative)
        if found is None:
            found = self.numbers[relative] = len(self.keys)
            self.keys.append(relative)
            self.flags.append(0)
            self.sizes.append(0)
            self.uids.append(b"")
            self.first_out.append(-1)
            self.first_in.append(-1)
            self.first_owner.append(-1)
            self.first_dependent.append(-1)
        return found

    def add_edge(self, source: int, target: int, use: int, uid: str) -> None:
        edge = len(self.edge_source)
        self.edge_source.append(source)
        self.edge_target.append(target)
        self.edge_use.append(use)
        self.edge_uid.append(self.texts.number(uid) if uid else 0)
        self.next_out.append(self.first_out[source])
        self.first_out[source] = edge
        self.next_in.append(self.first_in[target])
        self.first_in[target] = edge

    def add_owner(self, dependent: int, target: int, owner: OwnerReference, flags: int = 0) -> None:
        number = len(self.owner_dependent)
        self.owner_dependent.append(dependent)
        self.owner_target.append(target)
        text = self.texts.number
        self.owner_texts.extend(
            (text(owner.uid), text(owner.api_version), text(owner.kind), text(owner.name))
        )
        self.owner_flags.append(
            flags | (CONTROLLER if owner.controller else 0) | (BLOCKS if owner.block_owner_deletion else 0)
        )
        self.next_owner.append(self.first_owner[dependent])
        self.first_owner[dependent] = number
        self.next_dependent.append(-1)
        if target >= 0:
            self._link(number, target)

    def guess_owner(self, number: int, target: int) -> None:
        """Let an owner reference of unknown kind point at a node."""
        self.owner_target[number] = target
        self.owner_flags[number] |= GUESSED
        self._link(number, target)

    def keep_unknown_owners(self, numbers: list[int]) -> None:
        """Make the owner references of unknown kinds findable by uid."""
        numbers.sort(key=self._owner_uid)
        self.unknown_owners = array("I", numbers)

    def unknown_owners_of(self, uid: str) -> Iterator[int]:
        """Yield the owner references of unknown kinds that state a uid."""
        text = self.texts.find(uid)
        start = bisect_left(self.unknown_owners, text, key=self._owner_uid)
        for number in islice(self.unknown_owners, start, None):
            if self._owner_uid(number) != text:
                return
            yield number

    def forget(self, node: int) -> None:
        """Take back all that was said of a node, and by it; what others say of it stays."""
        number = self.first_owner[node]
        while number >= 0:
            self._unlink_owner(number)
            self.owner_target[number] = FORGOTTEN
            self.owner_texts[4 * number] = 0  # no uid: nobody finds it by one
            number = self.next_owner[number]
        self.first_owner[node] = -1
        edge = self.first_out[node]
        while edge >= 0:
            _unlink(self.first_in, self.next_in, self.edge_target[edge], edge)
            edge = self.next_out[edge]
        self.first_out[node] = -1
        self.flags[node] = 0
        self.sizes[node] = 0
        self.uids[node] = b""
        for told in (self.finalizer_lists, self.since, self.types):
            told.pop(node, None)
        self.unprotected.discard(node)

    def _unlink_owner(self, number: int) -> None:
        target = self.owner_target[number]
        if target >= 0:
            _unlink(self.first_dependent, self.next_dependent, target, number)
            self.next_dependent[number] = -1

    def withdraw_guesses(self) -> bool:
        """Take back to which nodes the owner references of unknown kinds point; say whether there are any."""
        for number in self.unknown_owners:
            if self.owner_target[number] == FORGOTTEN:
                continue
            self._unlink_owner(number)
            self.owner_target[number] = UNKNOWN_KIND
            self.owner_flags[number] &= ~GUESSED
        self.unknown_owners = array("I")
        return UNKNOWN_KIND in self.owner_target

    def _owner_uid(self, number: int) -> int:
        return self.owner_texts[4 * number]

    def _link(self, number: int, target: int) -> None:
        self.next_dependent[number] = self.first_dependent[target]
        self.first_dependent[target] = number


def _unlink(first: array[int], following: array[int], chain: int, wanted: int) -> None:
    """Take an element out of a chain, which begins with ``first[chain]``."""
    before, at = -1, first[chain]
    while at != wanted:
        before, at = at, following[at]
    if before < 0:
        first[chain] = following[wanted]
    else:
        following[before] = following[wanted]


def encoded(text: str) -> bytes:
    """Return text out of an object as a part of a key."""
    return text.encode("utf-8", "backslashreplace")
