"""What of a Secret may be shown: decided here and nowhere else.

A value is replaced by a marker that tells its size. Nobody may store markers in place of contents: ``<`` is no letter
of base64, and since a custom resource or an annotation may hold a marker all the same, an object with one gets a
``resourceVersion`` that API servers refuse, see :func:`make_irreplaceable`.

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

from etcdfix.errors import JSONMalformed, UnknownEncoding
from etcdfix.golang import gobase64
from etcdfix.golang.gojsontext import parse_exactly
from etcdfix.verdicts.causes import Cause

MASKED: Final = "masked"
"""The ``resourceVersion`` of what was masked."""
IRREPLACEABLE: Final = frozenset({MASKED, Cause.IDENTITY_MISMATCH.value})
"""Each ``resourceVersion`` that we give to what API servers must not take."""
SECRET: Final = "Secret"  # noqa: S105 - a kind
_SECRET_LIST: Final = "SecretList"  # noqa: S105 - a kind

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
# Annotations may repeat the Secret in any form, compressed ones too: short plain ones are shown. Those whose names end
# so are what some tool keeps of the object (kubectl, Rancher's objectset.rio.cattle.io/applied).
_PLAIN_ANNOTATION = re.compile(r"[A-Za-z0-9 ._:/@-]{0,64}")
_REPEATS_OBJECT: Final = ("applied", "original", "last-applied-configuration")
_MARKER = re.compile(r"<[0-9]{1,20} (?:bytes|entries) masked>|<masked>")
_MARKER_INSIDE = re.compile(r"(?:<|\\u003[cC])(?:[0-9]{1,20} (?:bytes|entries) )?masked(?:>|\\u003[eE])")
# How a value of any encoding names the kind of a Secret or refers to one, also in a document inside a string.
_SAYS_SECRET = re.compile(
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
    metadata = item.get("metadata")
    if metadata is None:
        item["metadata"] = {"resourceVersion": word}
    elif isinstance(metadata, dict):
        metadata["resourceVersion"] = word


def marker(value: Any) -> str:
    """Return what stands for a masked value: its size, that of what base64 stands for where it is that."""
    if isinstance(value, str) and _MARKER.fullmatch(value):
        return value
    if isinstance(value, str):
        return f"<{_size(value)} bytes masked>"
    if isinstance(value, (dict, list)):
        return f"<{len(value)} entries masked>"
    return "<masked>"


def is_masked(value: dict[str, Any]) -> bool:
    """Say whether a document is one in which contents were masked, or of which we said that it replaces nothing.

    A marker inside a text counts: a document that stands in an annotation is masked there. So does one whose brackets
    were written as Go's encoder writes them.
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
        if isinstance(item, dict):
            if item is value and item.get("kind") == SECRET:
                masked += _mask_secret(item)
            elif item is value and secret:
                masked += _mask_all(item)
            elif item.get("kind") == SECRET:
                masked += _mask_inner(item)
            elif item.get("kind") == _SECRET_LIST:
                masked += _mask_items(item)
        masked += _mask_documents(item)
        waiting += _inside(item)
    return masked


def mask_end(value: dict[str, Any]) -> int:
    """Mask, in place, what may be contents of Secrets at the end of a JSON object that was cut; return how many values.

    The API server writes members by name: ``data`` before the ``kind`` that would have said what it is. So whatever was
    open at the end has lost the rest of its members, and its list of items the kind that they have.
    """
    masked = 0
    item: Any = value
    while item and isinstance(item, (dict, list)):
        if isinstance(item, list):
            item = item[-1]
            continue
        last = item[list(item)[-1]]
        if "kind" not in item:
            masked += _mask_items(item)
            masked += _mask_inner(item) if any(name in item for name in _CONTENTS) else 0
        item = last
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


def _inside(item: Any) -> list[Any]:
    inner = item.values() if isinstance(item, dict) else item
    return [value for value in inner if isinstance(value, (dict, list))]


def _mask_items(item: dict[str, Any]) -> int:
    """Mask the items of a list of Secrets, which need no kind of their own; those that have one are left to others."""
    items = item.get("items")
    if not isinstance(items, list):
        return 0
    return sum(_mask_inner(inner) for inner in items if isinstance(inner, dict) and "kind" not in inner)


def _mask_documents(item: Any) -> int:
    masked = 0
    for place, text in list(item.items() if isinstance(item, dict) else enumerate(item)):
        if isinstance(text, str) and _holds_secret(text):
            item[place] = marker(text)
            masked += 1
    return masked


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
    metadata = item.get("metadata")
    masked += _mask_metadata(metadata) if isinstance(metadata, dict) else 0
    if masked:  # kubectl takes the items of a List for objects
        make_irreplaceable(item, MASKED)
    return masked


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
    """Mask annotations that may repeat the Secret, and every text with characters that no name has."""
    masked = 0
    generate, name = metadata.get("generateName"), metadata.get("name")
    if generate and not (isinstance(generate, str) and isinstance(name, str) and name.startswith(generate)):
        metadata["generateName"] = marker(generate)
        masked += 1
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        for name, text in annotations.items():
            if not _is_harmless_annotation(name, text):
                annotations[name] = marker(text)
                masked += annotations[name] != text
    waiting: list[Any] = [metadata]
    while waiting:
        item = waiting.pop()
        entries = list(item.items()) if isinstance(item, dict) else list(enumerate(item))
        for place, inner in entries:
            if isinstance(inner, (dict, list)):
                waiting.append(inner)
            elif isinstance(inner, str) and sounds_odd(inner):
                item[place] = marker(inner)
                masked += 1
            if isinstance(place, str) and sounds_odd(place) and not _FIELD.match(place):
                item[f"<key of {marker(place)[1:]}"] = item.pop(place)
                masked += 1
    return masked


def sounds_odd(text: str) -> bool:
    """Say whether a text may be contents that damage moved there: an entry of a map, or a document, also quoted."""
    return not text.isprintable() or any(character in text for character in '"\\{')


def _is_harmless_annotation(name: str, text: Any) -> bool:
    if not isinstance(text, str) or name.endswith(_REPEATS_OBJECT):
        return False
    return _PLAIN_ANNOTATION.fullmatch(text) is not None


def _size(text: str) -> int:
    """Return the size of what a value of ``data`` stands for, of any other text its own, in bytes."""
    padding = len(text) - len(text.rstrip("="))
    if text and len(text) % 4 == 0 and padding <= 2 and re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text):
        return len(text) // 4 * 3 - padding
    return len(text.encode("utf-8", "replace"))
