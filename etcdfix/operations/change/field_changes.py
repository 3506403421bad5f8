"""Which fields differ between two objects: their paths, and nothing of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from etcdfix.text.safetext import safe_text
from etcdfix.text.words import fit

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_NAME: Final = 253
_MISSING: Final = object()
_Path = tuple[str | int, ...]
_Change = Literal["added", "removed", "changed"]


class FieldChange(NamedTuple):
    """A field that differs; of its value nothing is told."""

    path: str
    change: _Change


def field_changes(
    before: dict[str, Any], after: dict[str, Any], masked: dict[str, Any], *, most: int
) -> tuple[list[FieldChange], int]:
    """Return the fields that differ, in the order of the later object, and how many more there are than ``most``.

    Only names that ``masked`` shows are told; any other one is told by its size.
    """
    names = _names(masked)
    differing = list(_differing(before, after))
    shown = [FieldChange(_written(path, names), change) for path, change in differing[:most]]
    return shown, len(differing) - len(shown)


def _names(masked: dict[str, Any]) -> set[str]:
    names: set[str] = set()
    waiting: list[Any] = [masked]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            names.update(item)
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return names


def _differing(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[_Path, _Change]]:
    """Yield each place where two objects differ; not by recursion, since strangers decide how deep they are."""
    waiting: list[tuple[_Path, Any, Any]] = [((), before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old is _MISSING or new is _MISSING:
            yield path, "added" if old is _MISSING else "removed"
        elif isinstance(old, dict) and isinstance(new, dict):
            members = reversed(dict.fromkeys((*new, *old)))
            waiting += [((*path, name), old.get(name, _MISSING), new.get(name, _MISSING)) for name in members]
        elif isinstance(old, list) and isinstance(new, list):
            places = reversed(range(max(len(old), len(new))))
            waiting += [((*path, at), _item(old, at), _item(new, at)) for at in places]
        elif type(old) is not type(new) or old != new:
            yield path, "changed"


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _MISSING


def _written(path: _Path, names: set[str]) -> str:
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
