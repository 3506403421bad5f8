"""Masking: this module alone decides what may be shown of a Secret.

Only what is listed here is shown: names, and what the key confirms. Everything else is replaced by a marker that tells
its size. Nobody may store markers in place of contents: ``<`` is no letter of base64, and since a custom resource or an
annotation may hold a marker all the same, an object with one gets a ``resourceVersion`` that API servers refuse, see
:func:`make_irreplaceable`.

Damage can move contents to where a Secret has none: one flipped bit makes of an entry of ``data`` the ``type``, or lets
``generateName`` swallow it, or makes a value its key. Such text always holds the control characters of the entry's
tags, so what is shown of a Secret is plainly printable. Of one that does not decode, only what its own key confirms is.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.golang import gobase64
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.golang.gojsontext import parse_exactly

MASKED: Final = "masked"
"""The ``resourceVersion`` of what was masked."""
IRREPLACEABLE: Final = frozenset({MASKED, Cause.IDENTITY_MISMATCH.value})
"""Each ``resourceVersion`` that we give to what API servers must not take."""
SECRET: Final = "Secret"  # noqa: S105 - a kind

_CONTENTS: Final = ("data", "stringData")
_TYPE: Final = {"apiVersion": re.compile(r"[A-Za-z0-9./-]{1,253}"), "kind": re.compile(r"[A-Za-z0-9]{1,63}")}
_SECRET_TYPE: Final = re.compile(r"[A-Za-z0-9._/-]{0,253}")
_NAME: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_CONFIRMED: Final = {
    "uid": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "creationTimestamp": _TIME,
    "deletionTimestamp": _TIME,
}
# Of a Secret that decodes these are shown too, where they are plain; annotations and managedFields may repeat it.
_PLAIN: Final = frozenset(
    {"name", "namespace", "generateName", "resourceVersion", "labels", "finalizers", "ownerReferences"}
)
_MARKER: Final = re.compile(r"<[0-9]{1,20} (?:bytes|entries) masked>|<masked>")
_MARKER_INSIDE: Final = re.compile(
    r"(?:<|\\u003[cC])(?:[0-9]{1,20} (?:bytes|entries) )?masked(?:>|\\u003[eE])"
)
# How a value of any encoding names the kind of a Secret or refers to one, also in a document inside a string.
_SAYS_SECRET: Final = re.compile(
    rb"""\x06Secret|\x0aSecretList"""
    rb"""|kind\\*["']?\s*:\s*\\*["']?Secret(?:List)?(?![A-Za-z])"""
    rb"""|[\x44\x64]kind(?:[\x46\x66]Secret|[\x4a\x6a]SecretList)"""
)


class Identity(msgspec.Struct, frozen=True):
    """What the key says of an object: shown of a damaged one, too, where its metadata say the same."""

    namespace: str
    name: str


def says_secret(data: bytes) -> bool:
    """Say whether bytes name a Secret as the kind of something, in any encoding of the API server.

    Of a damaged object that is enough to take it for one. Fields like ``f:imagePullSecrets`` do not count.
    """
    if _SAYS_SECRET.search(data):
        return True
    try:
        return _SAYS_SECRET.search(gobase64.decode(data)) is not None
    except UnknownEncoding:
        return False


def make_irreplaceable(item: dict[str, Any], word: str) -> None:
    """Give an object a ``resourceVersion`` that is no number: API servers refuse to replace anything with it.

    Format: ``APIObjectVersioner.ObjectResourceVersion`` of ``apiserver/pkg/storage``.
    """
    if item.get("metadata") is None:
        item["metadata"] = {}
    if isinstance(item["metadata"], dict):
        item["metadata"]["resourceVersion"] = word


def marker(value: Any) -> str:
    """Return what stands for a masked value: its size, that of what base64 stands for where it is that."""
    if isinstance(value, str):
        return value if _MARKER.fullmatch(value) else f"<{_size(value)} bytes masked>"
    if isinstance(value, (dict, list)):
        return f"<{len(value)} entries masked>"
    return "<masked>"


def is_masked(value: dict[str, Any]) -> bool:
    """Say whether a document is one in which contents were masked, or of which we said that it replaces nothing.

    A marker inside a text counts, also with brackets as Go's encoder writes them: an annotation may hold a document.
    """
    metadata = value.get("metadata")
    said = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if isinstance(said, str) and said in IRREPLACEABLE:
        return True
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str) and _MARKER_INSIDE.search(item):
            return True
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
    return False


def mask_secrets(
    value: dict[str, Any], *, secret: bool, damaged: Identity | None = None, cut: bool = False
) -> int:
    """Mask, in place, a Secret and any other that is inside an object; return how many values were masked.

    Args:
        value: The object; changed.
        secret: It is stored where Secrets are, or may be one, whatever it says of itself.
        damaged: What the key says of a Secret that does not decode; nothing else is shown.
        cut: JSON that was cut: the API server writes ``data`` before the ``kind`` that would have said what it is.
    """
    masked = 0
    if secret or value.get("kind") == SECRET:
        masked += _mask_secret(value, damaged)
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            unnamed = cut and "kind" not in item
            if unnamed or (item is not value and item.get("kind") == SECRET):
                masked += _mask_inner(item)
            if unnamed or item.get("kind") == "SecretList":
                masked += _mask_items(item)
        for place, text in list(item.items() if isinstance(item, dict) else enumerate(item)):
            if isinstance(text, str) and _holds_secret(text):
                item[place] = marker(text)
                masked += 1
            elif isinstance(text, (dict, list)):
                waiting.append(text)
    return masked


def _mask_secret(value: dict[str, Any], damaged: Identity | None) -> int:
    """Mask all of a Secret that is not plainly none of its contents."""
    is_one = value.get("kind") == SECRET and damaged is None
    masked = 0
    for name, item in [*value.items()]:
        if (pattern := _TYPE.get(name)) is not None and isinstance(item, str) and pattern.fullmatch(item):
            continue
        if name == "metadata" and isinstance(item, dict):
            masked += _mask_metadata(item, damaged)
        elif is_one and name in _CONTENTS and isinstance(item, dict):
            masked += len(item)
            value[name] = {
                key if text and _NAME.fullmatch(key) else _key_marker(key): marker(text)
                for key, text in item.items()
            }
        elif not (is_one and _is_harmless(name, item)):
            masked += _replace(value, name)
    return masked


def _is_harmless(name: str, item: Any) -> bool:
    if name == "type":
        return isinstance(item, str) and _SECRET_TYPE.fullmatch(item) is not None
    return item is None or (name == "immutable" and isinstance(item, bool))


def _mask_metadata(metadata: dict[str, Any], damaged: Identity | None) -> int:
    masked = 0
    for name, item in [*metadata.items()]:
        if (pattern := _CONFIRMED.get(name)) is not None:
            shown = isinstance(item, str) and pattern.fullmatch(item) is not None
        elif name == "generation":
            shown = isinstance(item, int)
        elif damaged is not None:
            shown = name in {"name", "namespace"} and item == getattr(damaged, name)
        else:
            shown = item is None or (name in _PLAIN and _is_plain(item))
            if name == "generateName" and item:
                shown = shown and str(metadata.get("name")).startswith(str(item))
        masked += 0 if shown else _replace(metadata, name)
    return masked


def _replace(value: dict[str, Any], name: str) -> int:
    """Put a marker in place of a member, and of its name where that may be contents; return whether it is a new one."""
    item = value.pop(name)
    value[name if _NAME.fullmatch(name) else _key_marker(name)] = marker(item)
    return int(marker(item) != item)


def _key_marker(name: str) -> str:
    return f"<key of {marker(name)[1:]}"


def _is_plain(item: Any) -> bool:
    if isinstance(item, dict):
        return all(not sounds_odd(name) and _is_plain(inner) for name, inner in item.items())
    if isinstance(item, list):
        return all(map(_is_plain, item))
    return not isinstance(item, str) or not sounds_odd(item)


def _mask_items(item: dict[str, Any]) -> int:
    """Mask the items of a list of Secrets, which need no kind of their own; those that have one are left to others."""
    items = item.get("items")
    if not isinstance(items, list):
        return 0
    return sum(_mask_inner(inner) for inner in items if isinstance(inner, dict) and "kind" not in inner)


def _holds_secret(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    data = text.encode("utf-8", "surrogatepass")
    if not _SAYS_SECRET.search(data):
        return False
    try:
        parsed = parse_exactly(data)
    except JSONMalformed:
        return True
    # A document inside a document doubles its backslashes: few of them fit into one another.
    return mask_secrets({"": parsed}, secret=False) > 0


def _mask_inner(item: dict[str, Any]) -> int:
    """Mask a Secret inside another object (a List, a template); what only refers to one has nothing to mask.

    What is masked already counts no more.
    """
    masked = 0
    for name in _CONTENTS:
        contents = item.get(name)
        if isinstance(contents, dict):
            item[name] = {key: marker(text) for key, text in contents.items()}
            masked += sum(item[name][key] != text for key, text in contents.items())
        elif contents is not None:
            item[name] = marker(contents)
            masked += item[name] != contents
    if isinstance(metadata := item.get("metadata"), dict) and (masked or item.get("kind") == SECRET):
        masked += _mask_metadata(metadata, None)
    if masked:  # kubectl takes the items of a List for objects
        make_irreplaceable(item, MASKED)
    return masked


def sounds_odd(text: str) -> bool:
    """Say whether a text may be contents that damage moved there: an entry of a map, or a document, also quoted."""
    return not text.isprintable() or any(character in text for character in '"\\{')


def _size(text: str) -> int:
    """Return the size of what a value of ``data`` stands for, of any other text its own, in bytes."""
    padding = len(text) - len(text.rstrip("="))
    if text and len(text) % 4 == 0 and padding <= 2 and re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return len(text) // 4 * 3 - padding
    return len(text.encode("utf-8", "replace"))
