"""Edges between numbered nodes, in plain arrays that chain them by source and by target: 24 bytes an edge."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from etcdfix.graph.model import OwnerReference
from etcdfix.graph.uses import Use

T = TypeVar("T")

UNKNOWN: Final = -1
"""Target of an owner reference that leads to no node."""


class Edges:
    """Uses and owner references: the label says which. They are chained, the newest first."""

    def __init__(self) -> None:
        self.sources = array("I")
        self.targets = array("i")
        self._label = array("I")
        self._uid = array("I")
        self._next_out = array("i")
        self._next_in = array("i")
        self._first_out = array("i")
        self._first_in = array("i")
        self._labels: _Values[Use | OwnerReference] = _Values()
        self._uids: _Values[str] = _Values()

    def add_node(self) -> None:
        """Make room for the edges of one more node."""
        self._first_out.append(-1)
        self._first_in.append(-1)

    def add(self, source: int, target: int, label: Use | OwnerReference, uid: str) -> None:
        """Add an edge; ``uid`` is the one that the source states of the target."""
        edge = len(self.sources)
        self.sources.append(source)
        self.targets.append(target)
        self._label.append(self._labels.number(label))
        self._uid.append(self._uids.number(uid))
        self._next_out.append(self._first_out[source])
        self._first_out[source] = edge
        self._next_in.append(self._first_in[target] if target >= 0 else -1)
        if target >= 0:
            self._first_in[target] = edge

    def label(self, edge: int) -> Use | OwnerReference:
        """Return what an edge is."""
        return self._labels.values[self._label[edge]]

    def owner(self, edge: int) -> OwnerReference | None:
        """Return the owner reference that an edge is; None for a use."""
        label = self.label(edge)
        return label if isinstance(label, OwnerReference) else None

    def uid(self, edge: int) -> str:
        """Return the uid that the source states; "" where it states none."""
        return self._uids.values[self._uid[edge]]

    def of_source(self, node: int) -> Iterator[int]:
        """Yield the edges that start at a node."""
        edge = self._first_out[node]
        while edge >= 0:
            yield edge
            edge = self._next_out[edge]

    def of_target(self, node: int) -> Iterator[int]:
        """Yield the edges that lead to a node."""
        edge = self._first_in[node]
        while edge >= 0:
            yield edge
            edge = self._next_in[edge]

    def owners(self) -> Iterator[int]:
        """Yield every edge that is an owner reference."""
        return (edge for edge in range(len(self.sources)) if self.owner(edge))


class _Values(Generic[T]):
    """Values that many edges share, by number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number
