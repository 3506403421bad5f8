"""YAML turned into JSON the way the API server does it, as far as the bytes decide it.

The API server's YAML serializer converts to JSON first and decodes that. Only two questions matter for a
stored value: does the conversion succeed, and which JSON comes out. Both depend on habits of go-yaml v2:
YAML 1.1 booleans, octal and binary integers, merge keys, a limit on alias expansion, the first document only.

libyaml's events come from PyYAML; composing and resolving are ours, because PyYAML composes recursively in C
(hostile depth ends the process) and resolves by other rules. Nothing here recurses: a node is decoded when it ends.

Format:
    ``sigs.k8s.io/yaml`` ``yaml.go`` (``YAMLToJSON``) over go-yaml v2 ``decode.go`` and ``resolve.go``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import yaml
from yaml import events
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from etcdfix.errors import DecodeError, JSONMalformed
from etcdfix.golang import gobase64
from etcdfix.golang.gojson import INT64_MAX, INT64_MIN
from etcdfix.golang.gojsontext import encode_json, number_text
from etcdfix.golang.goquote import withheld

MAX_DEPTH: Final = 10_000
"""``max_flow_level`` and ``max_indents`` of go-yaml's scanner."""

MAX_EXPANDED_BYTES: Final = 64 << 20
"""Our own cap on the text that aliases may multiply into; the API server has none and would exhaust itself."""

_TAG: Final = "tag:yaml.org,2002:"


class _Events(Protocol):
    """The one method of PyYAML's loaders that is used here."""

    def get_event(self) -> events.Event | None: ...


# libyaml where PyYAML was built with it; its Python twin raises the same errors, in part otherwise worded.
_parser: Callable[[bytes], _Events] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Node:
    """A YAML node and what go-yaml decodes it to (``decoder.unmarshal``).

    Attributes:
        line: Where it stands.
        text: Of a scalar, as written.
        value: None, bool, int, float, str, list or dict.
        children: Of a sequence its items, of a mapping keys and values in turn.
        members: Of a mapping, what it gives to one that merges it; else None.
        is_merge: It is the key ``<<``.
        is_list: It is a sequence, and not by alias.
        is_open: Its end has not come yet.
        decoded: How many nodes go-yaml decodes for it.
        size: Length of all text in it.
    """

    __slots__ = (
        "children", "decoded", "is_list", "is_merge", "is_open", "line", "members", "size", "text", "value",
    )  # fmt: skip

    def __init__(self, line: int, text: str = "") -> None:
        self.line = line
        self.text = text
        self.value: Any = None
        self.children: list[_Node] = []
        self.members: _Members | None = None
        self.is_merge = self.is_list = self.is_open = False
        self.decoded = 1
        self.size = len(text)


class Field(NamedTuple):
    """A key of a mapping or object, and the line where it stands."""

    name: str
    line: int


# From a key as YAML knows it, so that 1 and true stay apart, to its value and where it stands.
_Members: TypeAlias = dict[tuple[str, Any], tuple[Any, Field]]


def to_json(data: bytes, repeated: list[Field] | None = None) -> bytes:
    """Convert the first YAML document of ``data`` to JSON, keys sorted as Go's ``json.Marshal`` sorts them.

    Args:
        data: The whole text.
        repeated: Takes the keys that their mapping already has, merged ones included; the last counts.

    Raises:
        JSONMalformed: go-yaml or the conversion refuses it; in their words, names and values withheld.
    """
    composer = _Composer()
    root = composer.read(data)
    if root is None:
        return b"null"
    problem = composer.bad_value or composer.bad_key
    if problem is not None:
        raise problem
    if repeated is not None:
        repeated += composer.repeated
    return encode_json(root.value)


def line_of(data: bytes, path: Sequence[str | int]) -> int:
    """Return the line where a member of the document stands, or else the nearest one around it; 0 for none.

    Args:
        data: YAML, or JSON, which is YAML but for rarities.
        path: Keys and indexes from the top down.
    """
    try:
        node = _Composer().read(data)
    except JSONMalformed:
        return 0
    line = 0
    for step in path:
        if node is None:
            break
        members = node.children
        if isinstance(step, int):
            node = members[step] if step < len(members) else None
            line = node.line if node else line
        else:
            named = range(0, len(members), 2) if node.members is not None else ()
            keys = [at for at in named if members[at].text == step]
            line = members[keys[-1]].line if keys else line
            node = members[keys[-1] + 1] if keys else None
    return line


def _fail(message: str) -> JSONMalformed:
    return JSONMalformed(f"yaml: {message}")


class _Composer:
    """Turns libyaml's events into the first document's node tree, each node decoded as soon as it is complete.

    Attributes:
        repeated: Keys that their mapping already had.
        bad_value: The first complaint of the decoder; the server's parser complains before it.
        bad_key: The first key that JSON cannot have; the server complains of it after everything else.
    """

    def __init__(self) -> None:
        self.repeated: list[Field] = []
        self.bad_value: JSONMalformed | None = None
        self.bad_key: JSONMalformed | None = None
        self._anchors: dict[str, _Node] = {}
        self._decoded = self._by_alias = self._copied_bytes = 0

    def read(self, data: bytes) -> _Node | None:
        """Return the root of the first document, None for an empty stream (go-yaml ``parser.parse``)."""
        try:
            return self._read(_parser(data or b"\n"))
        except yaml.YAMLError as error:
            problem = _parser_message(error)
        except (ValueError, OverflowError):  # Python's scanner lets chr() raise
            problem = "found invalid Unicode character escape code"
        # Raised outside of the handler: the marks of PyYAML's error quote the text.
        raise _fail(problem)

    def _read(self, parser: _Events) -> _Node | None:
        open_nodes: list[_Node] = []
        while True:
            event = parser.get_event()
            if isinstance(event, events.CollectionEndEvent):
                node = open_nodes.pop()
                self._complete(node, is_mapping=isinstance(event, events.MappingEndEvent))
            elif isinstance(event, events.NodeEvent):
                node = self._node(event)
                if node.is_open:
                    open_nodes.append(node)
                    if len(open_nodes) > MAX_DEPTH:
                        raise _fail(f"exceeded max depth of {MAX_DEPTH}")
                    continue
            elif event is None or isinstance(event, events.StreamEndEvent):
                return None
            else:
                continue  # the start of the stream or of the document
            if open_nodes:
                open_nodes[-1].children.append(node)
            else:
                # One event more, as go-yaml reads it: damage right behind the document fails the whole.
                parser.get_event()
                return node

    def _node(self, event: events.NodeEvent) -> _Node:
        anchor = event.anchor or ""
        line = event.start_mark.line + 1 if event.start_mark else 0
        self._decoded += 1
        if isinstance(event, events.AliasEvent):
            return self._alias(anchor, line)
        if isinstance(event, events.ScalarEvent):
            node = _Node(line, event.value)
            tag, implicit = event.tag or "", event.implicit[0]
            node.is_merge = event.value == "<<" and (implicit or tag == f"{_TAG}merge")
            try:
                node.value = _resolve_scalar(event.value, tag, implicit=implicit)
            except JSONMalformed as error:
                self.bad_value = self.bad_value or error
        else:
            node = _Node(line)
            node.is_open = True
        if anchor:
            self._anchors[anchor] = node
        return node

    def _alias(self, anchor: str, line: int) -> _Node:
        """Return the same node in another place; refuse what go-yaml calls excessive, and what fills the memory."""
        target = self._anchors.get(anchor)
        if target is None:
            raise _fail(f"unknown anchor '{withheld(anchor)}' referenced")
        if target.is_open:
            self._refuse(f"anchor '{withheld(anchor)}' value contains itself")
        self._decoded += target.decoded
        self._by_alias += target.decoded
        self._copied_bytes += target.size
        share = min(max((self._decoded - 400_000) / 3_600_000, 0.0), 1.0)
        excessive = (
            self._by_alias > 100
            and self._decoded > 1000
            and self._by_alias / self._decoded > 0.99 - 0.89 * share
        )
        if excessive or self._copied_bytes > MAX_EXPANDED_BYTES:
            raise _fail("document contains excessive aliasing")
        node = copy(target)
        node.line = line
        node.is_merge = node.is_list = node.is_open = False
        node.decoded += 1
        return node

    def _complete(self, node: _Node, *, is_mapping: bool) -> None:
        node.is_open = False
        node.decoded += sum(child.decoded for child in node.children)
        node.size += sum(child.size for child in node.children)
        if not is_mapping:
            node.is_list = True
            node.value = [child.value for child in node.children]
            return
        node.members = self._members(node)
        members = {}
        for (_, key), (value, _) in node.members.items():
            try:
                members[_key_text(key)] = value
            except JSONMalformed as error:
                self.bad_key = self.bad_key or error
        # Go sorts by bytes, which for UTF-8 is the order of code points.
        node.value = dict(sorted(members.items()))

    def _members(self, node: _Node) -> _Members:
        into: _Members = {}
        pairs = iter(node.children)
        for key, value in zip(pairs, pairs, strict=True):
            if key.is_merge:
                # Backwards, because what stands first in a list of merged mappings takes precedence.
                for source in reversed(value.children) if value.is_list else (value,):
                    if source.members is None:
                        self._refuse("map merge requires map or sequence of maps as the value")
                    else:
                        self._add(source.members, into)
            elif isinstance(key.value, (list, dict)):
                self._refuse("invalid map key: <value withheld>")
            else:
                typed = type(key.value).__name__, key.value
                self._add({typed: (value.value, Field(key.text, key.line))}, into)
        return into

    def _refuse(self, message: str) -> None:
        self.bad_value = self.bad_value or _fail(message)

    def _add(self, members: _Members, into: _Members) -> None:
        self.repeated += [field for typed, (_, field) in members.items() if typed in into]
        into.update(members)


def _parser_message(error: yaml.YAMLError) -> str:
    """Word a libyaml error as go-yaml's ``parser.fail`` does; scanner lines count from 1, parser lines from 0."""
    if isinstance(error, ReaderError):
        return str(error.reason)
    problem_mark = getattr(error, "problem_mark", None)
    context_mark = getattr(error, "context_mark", None)
    line = 0
    if problem_mark is not None and problem_mark.line:
        line = problem_mark.line + isinstance(error, ScannerError)
    elif context_mark is not None:
        line = context_mark.line
    problem = getattr(error, "problem", None) or "unknown problem parsing YAML content"
    problem = _QUOTED.sub(_harmless, problem)  # Python's scanner and parser quote what they found
    return f"line {line}: {problem}" if line else problem


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


def _harmless(quoted: re.Match[str]) -> str:
    inside = quoted[0][1:-1]
    return quoted[0] if len(inside) <= 1 or inside.startswith("<") else withheld(inside)


_WORDS: Final[dict[str, tuple[str, Any]]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), ("bool", True)),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), ("bool", False)),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ("null", None)),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), ("float", math.nan)),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), ("float", math.inf)),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), ("float", -math.inf)),
    "<<": ("merge", "<<"),
}  # fmt: skip
_RESOLVABLE: Final = {
    "": "",
    **{f"{_TAG}{name}": name for name in ("str", "bool", "int", "float", "null", "timestamp")},
}
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DOT_FLOAT = re.compile(r"\.[0-9]+(?:_[0-9]+)*([eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:[.,][0-9]+)?)?"
)


def _resolve_scalar(text: str, tag: str, *, implicit: bool) -> Any:
    """Return a scalar's value (go-yaml ``resolve``); timestamps stay strings, as v2 keeps them."""
    if not tag and not implicit:
        return text
    if tag == f"{_TAG}binary":
        try:
            return gobase64.decode(text.encode()).decode("utf-8", "surrogateescape")
        except DecodeError:
            raise _fail("!!binary value contains invalid base64 data") from None
    wanted = _RESOLVABLE.get(tag)
    if wanted is None:
        return text
    found, value = _resolve_plain(text, wanted)
    if wanted in ("", found):
        return value
    if wanted == "float" and found == "int" and value <= INT64_MAX:
        return float(value)
    raise _fail(f"cannot decode !!{found} `{withheld(text)}` as a !!{wanted}")


_UINT64_MAX: Final = (1 << 64) - 1


def _resolve_plain(text: str, wanted: str) -> tuple[str, Any]:
    first = text[:1]
    if wanted == "str" or (first and first not in "+-0123456789yYnNtTfFoO~."):
        # Not even looked up, so that "<<" as a value stays a string.
        return "str", text
    word = _WORDS.get(text)
    if word is not None:
        return word
    if first == ".":
        value = float(text) if _DOT_FLOAT.fullmatch(text) else math.inf
        return ("str", text) if math.isinf(value) else ("float", value)
    if first and first in "+-0123456789":
        if wanted in ("", "timestamp") and _TIMESTAMP.fullmatch(text):
            return "timestamp", text
        return _resolve_number(text)
    return "str", text


def _resolve_number(text: str) -> tuple[str, Any]:
    plain = text.replace("_", "")
    match = _INTEGER.fullmatch(plain)
    if match is not None:
        sign, hexadecimal, binary, octal, decimal = match.groups()
        digits, base = next(
            (part, base) for part, base in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if part
        )
        digits = digits.lstrip("0") or "0"
        if len(digits) <= 64:  # no integer of 64 bits has more, and a megabyte of digits would take its time
            value = int(f"{sign}{digits}", base)
            if INT64_MIN <= value <= (INT64_MAX if sign else _UINT64_MAX):
                return "int", value
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if not math.isinf(number):
            return "float", number
    return "str", text


_FLOAT_KEYS = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}


def _key_text(key: Any) -> str:
    """Return a mapping's key as JSON text (``convertToJSONableObject``)."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int) and key <= INT64_MAX:
        return str(key)
    if isinstance(key, float):
        # Go writes float keys with 32 bits of precision; no field has such a name, so that decides nothing.
        return _FLOAT_KEYS.get(str(key)) or number_text(key)
    name = "%!s(<nil>)" if key is None else "uint64"
    raise JSONMalformed(
        f"Unsupported map key of type: {name}, key: <value withheld>, value: <value withheld>"
    )
