"""Which fields differ between two objects: their paths, and nothing of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from etcdfix.text.safetext import safe_text
from etcdfix.text.words import fit

_MOST: Final = 8
_LONGEST: Final = 120
_MISSING: Final = object()
_Path = tuple[str | int, ...]


def changed_fields(before: dict[str, Any], after: dict[str, Any], *masked: dict[str, Any]) -> list[str]:
    """Return the fields that differ, ``spec.replicas (changed)``, and how many more there are.

    Args:
        before: The earlier object, whole.
        after: The later one.
        masked: Both as they may be shown: names that are not in them are told by their size.
    """
    names = {name for document in masked for name in _names(document)}
    differing = [f"{_written(path, names)} ({change})" for path, change in _differing(before, after)]
    more = len(differing) - _MOST
    return differing if more <= 0 else [*differing[:_MOST], f"{more} more"]


def _names(document: dict[str, Any]) -> Iterator[str]:
    waiting: list[Any] = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _differing(before: Any, after: Any) -> Iterator[tuple[_Path, str]]:
    """Yield each place where two objects differ; not by recursion, since strangers decide how deep they are."""
    waiting: list[tuple[_Path, Any, Any]] = [((), before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old is _MISSING or new is _MISSING:
            yield path, "added" if old is _MISSING else "removed"
        elif isinstance(old, dict) and isinstance(new, dict):
            members = reversed(dict.fromkeys((*new, *old)))
            waiting += [((*path, name), old.get(name, _MISSING), new.get(name, _MISSING)) for name in members]
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            waiting += [
                ((*path, at), *pair) for at, pair in reversed([*enumerate(zip(old, new, strict=True))])
            ]
        elif type(old) is not type(new) or old != new:
            yield path, "changed"


def _written(path: _Path, names: set[str]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in names:
            text += f".{safe_text(part)}" if text else safe_text(part)
        else:
            text += f".<name of {len(part.encode('utf-8', 'surrogatepass'))} bytes masked>"
    return fit(text, _LONGEST)
