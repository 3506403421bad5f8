"""The graph of a page: users on the left, the object, what it owns in layers to the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from etcdfix.graph.model import Decision, ObjectRef
from etcdfix.reports.formats.text import shown
from etcdfix.reports.impact_model import ImpactReport
from etcdfix.text.words import counted

_MOST_USERS: Final = 20
_MOST_DEPENDENTS: Final = 40
_MOST_LAYERS: Final = 4
_WIDTH, _HEIGHT = 210, 42
_BETWEEN_LAYERS, _BETWEEN_NODES = 64, 10
_MARGIN: Final = 6
_LETTERS: Final = 26
_SHADES: Final = {"cascade-deleted": "bad", "kept": "good", "reference-stripped": "good", "orphaned": "good"}
_STOPS: Final = {"yes": "bad", "perhaps": "warn"}


class Node(msgspec.Struct, frozen=True):
    """A box; ``full`` is all of its name."""

    x: int
    y: int
    what: str
    name: str
    full: str
    shade: str


class Edge(msgspec.Struct, frozen=True):
    """A line between two boxes, as a path of SVG."""

    path: str
    shade: str


class Graph(msgspec.Struct, frozen=True):
    """A drawn graph; ``words`` say what it shows to who cannot see it."""

    kind: ClassVar = "graph"
    node_width: ClassVar = _WIDTH
    node_height: ClassVar = _HEIGHT
    title: str
    words: str
    width: int
    height: int
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    notes: Sequence[str]


class _Placed(msgspec.Struct):
    object: ObjectRef
    shade: str
    below: str
    y: int = 0


def impact_graph(report: ImpactReport) -> Graph | None:
    """Return the graph of what hangs on an object; None where nothing does."""
    users: dict[str, _Placed] = {}
    all_users: set[str] = set()
    for group in report.users:
        for user in group.users:
            all_users.add(user.object.key)
            if len(users) < _MOST_USERS and user.object.key not in users:
                shade = _STOPS.get(user.stops or "", "")
                users[user.object.key] = _Placed(user.object, shade, report.object.key)
    layers = _layers(report.dependents.tree, users)
    if not users and not layers:
        return None
    columns = [[*users.values()]] if users else []
    middle = _Placed(report.object, "middle", "")
    columns += [[middle], *layers]
    width, height = _place(columns)
    at = {one.object.key: (number, one) for number, column in enumerate(columns) for one in column}
    edges = []
    for number, column in enumerate(columns):
        for one in column:
            if one is middle:
                continue
            owner, other = at.get(one.below, at[report.object.key])
            edges.append(_edge(number, one.y, owner, other.y, one.shade))
    shown_dependents = sum(map(len, layers))
    left = len(report.dependents.tree) - shown_dependents
    notes = ["Dashed: uses it. Red: cannot go on without it, or is deleted with it. Green: stays."]
    if left > 0:
        notes.append(f"{counted(left, 'more dependent')} not drawn; the list below has them.")
    if len(all_users) > len(users):
        notes.append(
            f"{counted(len(all_users) - len(users), 'more user')} not drawn; the list below has them."
        )
    words = (
        f"{shown(report.object)} in the middle; {counted(len(users), 'user')} on the left, "
        f"{counted(shown_dependents, 'dependent')} on the right, as in the lists below."
    )
    nodes = [
        Node(
            _left(number),
            one.y,
            _cut(one.object.full_resource or "key"),
            _cut("/".join(filter(None, (one.object.namespace, one.object.name))) or one.object.key),
            shown(one.object),
            one.shade,
        )
        for number, column in enumerate(columns)
        for one in column
    ]
    return Graph("What hangs on it", words, width, height, nodes, edges, notes)


def _layers(tree: Sequence[Decision], users: dict[str, _Placed]) -> list[list[_Placed]]:
    """Return the dependents in layers by depth: the nearest first, each beside its owner; a user stays a user."""
    layers: list[list[_Placed]] = [[] for _ in range(_MOST_LAYERS)]
    drawn: set[str] = set(users)
    room = _MOST_DEPENDENTS
    for depth, layer in enumerate(layers, start=1):
        for entry in tree:
            if room and entry.depth == depth and entry.object.key not in drawn:
                drawn.add(entry.object.key)
                layer.append(_Placed(entry.object, _SHADES.get(entry.action, ""), entry.below))
                room -= 1
    return [layer for layer in layers if layer]


def _place(columns: Sequence[Sequence[_Placed]]) -> tuple[int, int]:
    """Give every box its height above the bottom of its layer, and return the size of all."""
    tallest = max(map(len, columns))
    height = tallest * (_HEIGHT + _BETWEEN_NODES) - _BETWEEN_NODES + 2 * _MARGIN
    for column in columns:
        own = len(column) * (_HEIGHT + _BETWEEN_NODES) - _BETWEEN_NODES
        first = (height - own) // 2
        for number, one in enumerate(column):
            one.y = first + number * (_HEIGHT + _BETWEEN_NODES)
    width = len(columns) * (_WIDTH + _BETWEEN_LAYERS) - _BETWEEN_LAYERS + 2 * _MARGIN
    return width, height


def _left(column: int) -> int:
    return _MARGIN + column * (_WIDTH + _BETWEEN_LAYERS)


def _edge(column: int, y: int, owner: int, owner_y: int, shade: str) -> Edge:
    """Return a line from a box to its owner's, or from a user to what it uses."""
    uses = column < owner
    (left, left_y), (right, right_y) = sorted([(column, y), (owner, owner_y)])
    from_x, to_x = _left(left) + _WIDTH, _left(right)
    from_y, to_y = left_y + _HEIGHT // 2, right_y + _HEIGHT // 2
    bend = _BETWEEN_LAYERS // 2
    path = f"M{from_x} {from_y} C{from_x + bend} {from_y} {to_x - bend} {to_y} {to_x} {to_y}"
    return Edge(path, f"{shade} user" if uses else shade)


def _cut(text: str) -> str:
    safe = shown(text)
    return safe if len(safe) <= _LETTERS else f"{safe[: _LETTERS - 1]}…"
