"""Which fields differ between two objects: their paths, and nothing of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from etcdfix.report.history import ChangeKind, FieldChange
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import fit

_RESOURCE_VERSION: Final = ("metadata", "resourceVersion")
"""Made of the mod revision when an object is read."""
_MANAGED_FIELDS: Final = ("metadata", "managedFields")
"""Told as one: who manages what changes with nearly every write."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_NAME: Final = 253
_MISSING: Final = object()
_Path = tuple[str | int, ...]


class Comparable(msgspec.Struct, frozen=True):
    """An object whose fields can be compared; its ``repr`` shows nothing.

    Attributes:
        document: As it is; its values go nowhere.
        names: Names of fields and entries that may be shown; any other one is told by its size alone.
    """

    document: dict[str, Any]
    names: frozenset[str]

    def __repr__(self) -> str:
        return "Comparable()"

    @classmethod
    def of(cls, document: dict[str, Any], masked: dict[str, Any]) -> Comparable:
        """Return one whose names are those that are left once the object is masked."""
        names: set[str] = set()
        waiting: list[Any] = [masked]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                names.update(item)
                waiting += item.values()
            elif isinstance(item, list):
                waiting += item
        return cls(document, frozenset(names))


def field_changes(before: Comparable, after: Comparable, *, most: int) -> tuple[list[FieldChange], int]:
    """Return the fields that differ, in the order of the later object, and how many more there are than ``most``."""
    shown: list[FieldChange] = []
    more = 0
    managed = False
    for path, change in _differing(before.document, after.document):
        if path[:2] == _MANAGED_FIELDS:
            managed = True
        elif len(shown) == most:
            more += 1
        else:
            names = before.names if change is ChangeKind.REMOVED else after.names
            shown.append(FieldChange(_written(path, names), change))
    if managed:
        shown.append(FieldChange(_written(_MANAGED_FIELDS, frozenset(_MANAGED_FIELDS)), ChangeKind.CHANGED))
    return shown, more


def _differing(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[_Path, ChangeKind]]:
    """Yield each place where two objects differ; not by recursion, since strangers decide how deep they are."""
    waiting: list[tuple[_Path, Any, Any]] = [((), before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if path == _RESOURCE_VERSION:
            continue
        if old is _MISSING or new is _MISSING:
            yield path, ChangeKind.ADDED if old is _MISSING else ChangeKind.REMOVED
        elif isinstance(old, dict) and isinstance(new, dict):
            members = reversed(dict.fromkeys((*new, *old)))
            waiting += [((*path, name), old.get(name, _MISSING), new.get(name, _MISSING)) for name in members]
        elif isinstance(old, list) and isinstance(new, list):
            places = reversed(range(max(len(old), len(new))))
            waiting += [((*path, at), _item(old, at), _item(new, at)) for at in places]
        elif type(old) is not type(new) or old != new:
            yield path, ChangeKind.CHANGED


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _MISSING


def _written(path: _Path, names: frozenset[str]) -> str:
    """Return a path as people write it: ``spec.containers[0].image``, ``data["tls.crt"]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in names:
            text += f"[<name of {len(part.encode('utf-8', 'surrogatepass'))} bytes masked>]"
        elif _PLAIN_NAME.fullmatch(part) and len(part) <= _LONGEST_NAME:
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(safe_text(fit(part, _LONGEST_NAME)), ensure_ascii=False)}]"
    return fit(text, 500)
