"""What looks like a reference in a custom resource.

A custom resource may mean anything by its fields. What looks like a reference of a pod is taken for one, and marked as
a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from etcdfix.impact.fields import Plain
from etcdfix.impact.references import Reference
from etcdfix.impact.uses import CLAIMS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Role, Use

_MOST_GUESSED_PATH: Final = 160

# Field of a custom resource, lower-cased end -> directory and role. The value is an object with a name.
_GUESSED_OBJECTS: Final = (
    ("secretkeyref", SECRETS, Role.ENV),
    ("secretref", SECRETS, Role.UNKNOWN),
    ("configmapkeyref", CONFIG_MAPS, Role.ENV),
    ("configmapref", CONFIG_MAPS, Role.UNKNOWN),
    ("persistentvolumeclaim", CLAIMS, Role.CLAIM),
    ("configmap", CONFIG_MAPS, Role.VOLUME),
    ("secret", SECRETS, Role.VOLUME),
)
# The value is a name.
_GUESSED_NAMES: Final = (
    ("secretname", SECRETS, Role.UNKNOWN),
    ("configmapname", CONFIG_MAPS, Role.UNKNOWN),
    ("serviceaccountname", SERVICE_ACCOUNTS, Role.SERVICE_ACCOUNT),
    ("claimname", CLAIMS, Role.CLAIM),
)
_UNGUESSED: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


def guess_references(plain: Plain, namespace: str) -> Iterator[Reference]:
    """Yield what looks like a reference in a custom resource, every one marked as a guess.

    Args:
        plain: The object; its metadata and status are left out.
        namespace: Where it lives; "" for none: then only references that name a namespace count.
    """
    waiting: list[tuple[str, Any]] = [(key, item) for key, item in plain.items() if key not in _UNGUESSED]
    while waiting:
        path, value = waiting.pop()
        if type(value) is list:
            waiting += [(f"{path}[]", item) for item in value if type(item) in {dict, list}]
        elif type(value) is dict:
            where = _text(value.get("namespace")) or namespace
            for key, item in value.items():
                below = f"{path}.{key}"[:_MOST_GUESSED_PATH]
                if where:
                    yield from _guess(key, below, item, value, where)
                if type(item) in {dict, list}:
                    waiting.append((below, item))


def _guess(key: str, path: str, item: Any, holder: Mapping[str, Any], namespace: str) -> Iterator[Reference]:
    lower = key.lower()
    if type(item) is str:
        for end, target, role in _GUESSED_NAMES:
            if lower.endswith(end) and item:
                optional = holder.get("optional") is True
                yield Reference(
                    f"{target}/{namespace}/{item}", Use(role, path, optional=optional, heuristic=True)
                )
                return
    elif type(item) is dict:
        name = item.get("name")
        if type(name) is not str or not name:
            return
        for end, target, role in _GUESSED_OBJECTS:
            if lower.endswith(end):
                where = _text(item.get("namespace")) or namespace
                optional = item.get("optional") is True
                yield Reference(
                    f"{target}/{where}/{name}", Use(role, path, optional=optional, heuristic=True)
                )
                return
    elif type(item) is list and lower == "imagepullsecrets":
        for entry in item:
            name = _text(entry.get("name")) if type(entry) is dict else ""
            if name:
                yield Reference(
                    f"{SECRETS}/{namespace}/{name}", Use(Role.IMAGE_PULL, f"{path}[].name", heuristic=True)
                )


def _text(value: Any) -> str:
    return value if type(value) is str else ""
