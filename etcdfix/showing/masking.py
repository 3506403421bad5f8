"""What of a Secret may be shown: decided here and nowhere else.

A value is replaced by a marker that tells its size. ``<`` is no letter of base64, so no API server takes a masked
Secret for one.

Damage can move contents to where a Secret has none: one flipped bit makes of an entry of ``data`` the ``type``, or
lets ``generateName`` swallow it. Such text always holds the control characters of the entry's tags, so whatever of a
Secret is not plainly printable is masked wherever it stands. A changed tag makes the value of an entry its key, or an
entry of ``data`` the metadata: so keys without a value are masked, and a ``generateName`` that the name does not start
with. Of a Secret that does not decode, only what its own key confirms is shown.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

SECRET: Final = "Secret"  # noqa: S105 - a kind
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_CONTENTS: Final = ("data", "stringData")
# Members of a Secret that hold none of its contents, and what they look like.
_HARMLESS: Final = {
    "apiVersion": re.compile(r"[A-Za-z0-9./-]{1,253}"),
    "kind": re.compile(r"[A-Za-z0-9]{1,63}"),
    "type": re.compile(r"[A-Za-z0-9._/-]{1,253}"),
}
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
# A member of fieldsV1 that names an item of a list.
_FIELD = re.compile(r"[kv]:[{\"]")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_TIMES: Final = frozenset({"creationTimestamp", "deletionTimestamp"})


class Identity(msgspec.Struct, frozen=True):
    """What the key says of an object: shown of a damaged one, too, where its metadata say the same."""

    namespace: str
    name: str


def marker(value: Any) -> str:
    """Return what stands for a masked value: its size, that of what base64 stands for where it is that."""
    if isinstance(value, str):
        return f"<{_size(value)} bytes masked>"
    if isinstance(value, (dict, list)):
        return f"<{len(value)} entries masked>"
    return "<masked>"


def mask_secrets(value: dict[str, Any], *, secret: bool) -> int:
    """Mask, in place, a Secret and any other that is inside an object; return how many values were masked.

    Args:
        value: The object; changed.
        secret: It is stored where Secrets are, whatever it says of itself.
    """
    masked = 0
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += (inner for inner in item if isinstance(inner, (dict, list)))
            continue
        if item is value and item.get("kind") == SECRET:
            masked += _mask_secret(item)
        elif item is value and secret:
            masked += _mask_all(item)
        elif item.get("kind") == SECRET:
            masked += _mask_inner(item)
        waiting += (inner for inner in item.values() if isinstance(inner, (dict, list)))
    return masked


def mask_damaged_secret(value: dict[str, Any], identity: Identity) -> int:
    """Mask, in place, what is left of a damaged Secret, but for what its key confirms; return how many values."""
    metadata = value.get("metadata")
    shown: dict[str, Any] = {}
    masked = 0
    for name, pattern in _HARMLESS.items():
        if name != "type" and isinstance(value.get(name), str) and pattern.fullmatch(value[name]):
            shown[name] = value[name]
    if isinstance(metadata, dict):
        kept = {name: item for name, item in metadata.items() if _confirmed(name, item, identity)}
        masked += len(metadata) - len(kept)
        shown["metadata"] = kept | {
            name: marker(metadata[name]) for name in _known(metadata) if name not in kept
        }
    for name, item in value.items():
        if name not in shown:
            shown[name if _DATA_KEY.fullmatch(name) else marker(name)] = marker(item)
            masked += 1
    value.clear()
    value.update(shown)
    return masked


def _known(metadata: dict[str, Any]) -> list[str]:
    return [name for name in metadata if _DATA_KEY.fullmatch(name)]


def _confirmed(name: str, value: Any, identity: Identity) -> bool:
    if name in {"name", "namespace"}:
        return bool(value == getattr(identity, name))
    if name == "uid":
        return isinstance(value, str) and _UID.fullmatch(value) is not None
    if name in _TIMES:
        return isinstance(value, str) and _TIME.fullmatch(value) is not None
    return name == "generation" and isinstance(value, int)


def _mask_secret(secret: dict[str, Any]) -> int:
    masked = 0
    for name in list(secret):
        value = secret[name]
        if name in _CONTENTS and isinstance(value, dict):
            masked += len(value)
            secret[name] = {
                key if item and _DATA_KEY.fullmatch(key) else f"<key of {marker(key)[1:]}": marker(item)
                for key, item in value.items()
            }
        elif name == "metadata" and isinstance(value, dict):
            masked += _mask_metadata(value)
        elif value is not None and not _harmless(name, value):
            masked += 1
            secret[name] = marker(value)
    return masked


def _harmless(name: str, value: Any) -> bool:
    if name == "immutable":
        return isinstance(value, bool)
    pattern = _HARMLESS.get(name)
    return (
        pattern is not None and isinstance(value, str) and (not value or pattern.fullmatch(value) is not None)
    )


def _mask_inner(item: dict[str, Any]) -> int:
    """Mask a Secret inside another object (a List, a template); what only refers to one has nothing to mask."""
    masked = 0
    for name in _CONTENTS:
        contents = item.get(name)
        if isinstance(contents, dict):
            item[name] = {key: marker(text) for key, text in contents.items()}
            masked += len(contents)
        elif contents is not None:
            item[name] = marker(contents)
            masked += 1
    metadata = item.get("metadata")
    return masked + (_mask_metadata(metadata) if isinstance(metadata, dict) else 0)


def _mask_all(value: dict[str, Any]) -> int:
    """Mask everything but metadata of an object that is no Secret and is stored where Secrets are."""
    masked = 0
    for name in list(value):
        item = value[name]
        pattern = _HARMLESS.get(name)
        if name == "metadata" and isinstance(item, dict):
            masked += _mask_metadata(item)
        elif name != "type" and pattern is not None and isinstance(item, str) and pattern.fullmatch(item):
            continue
        else:
            masked += 1
            value[name] = marker(item)
    return masked


def _mask_metadata(metadata: dict[str, Any]) -> int:
    """Mask documents in annotations, which repeat the Secret, and every text with characters that no name has."""
    masked = 0
    generate, name = metadata.get("generateName"), metadata.get("name")
    if generate and not (isinstance(generate, str) and isinstance(name, str) and name.startswith(generate)):
        metadata["generateName"] = marker(generate)
        masked += 1
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        for name, text in annotations.items():
            if name == LAST_APPLIED or not isinstance(text, str) or text.lstrip().startswith(("{", "[")):
                annotations[name] = marker(text)
                masked += 1
    waiting: list[Any] = [metadata]
    while waiting:
        item = waiting.pop()
        entries = list(item.items()) if isinstance(item, dict) else list(enumerate(item))
        for place, inner in entries:
            if isinstance(inner, (dict, list)):
                waiting.append(inner)
            elif isinstance(inner, str) and _is_odd(inner, in_annotation=item is annotations):
                item[place] = marker(inner)
                masked += 1
            if isinstance(place, str) and _is_odd(place, in_annotation=False) and not _FIELD.match(place):
                item[f"<key of {marker(place)[1:]}"] = item.pop(place)
                masked += 1
    return masked


def sounds_odd(text: str) -> bool:
    """Say whether a text may be contents that damage moved there: an entry of a map, or a document, also quoted."""
    return not text.isprintable() or any(character in text for character in '"\\{')


def _is_odd(text: str, *, in_annotation: bool) -> bool:
    return not text.isprintable() if in_annotation else sounds_odd(text)


def _size(text: str) -> int:
    """Return the size of what a value of ``data`` stands for, of any other text its own, in bytes."""
    padding = len(text) - len(text.rstrip("="))
    if text and len(text) % 4 == 0 and padding <= 2 and re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return len(text) // 4 * 3 - padding
    return len(text.encode("utf-8", "replace"))
