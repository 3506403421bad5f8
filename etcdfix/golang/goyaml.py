"""YAML turned into JSON the way the API server does it, as far as the bytes decide it.

The API server's YAML serializer converts to JSON first and decodes that. Only two questions matter for a
stored value: does the conversion succeed, and which JSON comes out. Both depend on habits of go-yaml v2:
YAML 1.1 booleans, octal and binary integers, merge keys, a limit on alias expansion, the first document only.

libyaml's events come from PyYAML; composing and resolving are ours, because PyYAML composes recursively in C
(hostile depth ends the process) and resolves by other rules. Nothing here recurses.

Format:
    ``sigs.k8s.io/yaml`` ``yaml.go`` (``YAMLToJSON``) over go-yaml v2 ``decode.go`` and ``resolve.go``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import yaml
from yaml import events
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from etcdfix.golang import gobase64
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import INT64_MAX, INT64_MIN
from etcdfix.golang.gojsontext import encode_json, number_text
from etcdfix.golang.goquote import withheld
from etcdfix.model.errors import DecodeError

MAX_DEPTH: Final = 10_000
"""``max_flow_level`` and ``max_indents`` of go-yaml's scanner."""

MAX_EXPANDED_BYTES: Final = 64 << 20
"""Our own cap on the text that aliases may multiply into; the API server has none and would exhaust itself."""

_TAG: Final = "tag:yaml.org,2002:"

_Walk: TypeAlias = Generator[Any, Any, Any]
"""A walk in progress: yields further walks, is sent their results, returns its own. :func:`_walked` keeps the stack,
so that ten thousand levels, the depth that Kubernetes allows, cost memory and nothing else."""


class _Events(Protocol):
    """The one method of PyYAML's loaders that is used here."""

    def get_event(self) -> events.Event | None: ...


class _DeepLoader(yaml.SafeLoader):
    """PyYAML's own parser, in time that grows with the text alone.

    It keeps the tokens that may turn out to be keys by their flow level, each level later than the one around it, and
    looks at all of them for every token. The first one in the order is enough for its questions.
    """

    def next_possible_simple_key(self) -> int | None:
        return next((key.token_number for key in self.possible_simple_keys.values()), None)

    def stale_possible_simple_keys(self) -> None:
        while self.possible_simple_keys:
            level, key = next(iter(self.possible_simple_keys.items()))
            if key.line == self.line and self.index - key.index <= 1024:
                return
            if key.required:
                raise ScannerError(
                    "while scanning a simple key", key.mark, "could not find expected ':'", self.get_mark()
                )
            del self.possible_simple_keys[level]


# libyaml where PyYAML was built with it; its Python twin raises the same errors, in part otherwise worded.
_parser: Callable[[bytes], _Events] = getattr(yaml, "CSafeLoader", _DeepLoader)

_TOO_DEEP_FOR_LIBYAML: Final = "exceeded maximum nesting depth"
"""libyaml since 0.2.6 (PyYAML 6.0.4) refuses what is deeper than 1,000, a tenth of what go-yaml takes."""


class _Node:
    """A composed YAML node: ``s`` scalar, ``q`` sequence, ``m`` mapping (children alternate), ``a`` alias."""

    __slots__ = ("children", "implicit", "kind", "line", "tag", "value")

    def __init__(
        self, kind: str, line: int, tag: str = "", value: str = "", *, implicit: bool = False
    ) -> None:
        self.kind = kind
        self.line = line
        self.tag = tag
        self.value = value
        self.implicit = implicit
        self.children: list[_Node] = []


class Field(NamedTuple):
    """A key of a mapping or object, and the line where it stands."""

    name: str
    line: int


def to_json(data: bytes, repeated: list[Field] | None = None) -> bytes:
    """Convert the first YAML document of ``data`` to JSON, keys sorted as Go's ``json.Marshal`` sorts them.

    Args:
        data: The whole text.
        repeated: Takes the keys that their mapping already has, merged ones included; the last counts.

    Raises:
        JSONMalformed: go-yaml or the conversion refuses it; in their words, names and values withheld.
    """
    root = _compose(data)
    if root is None:
        return b"null"
    resolver = _Resolver()
    value = _walked(resolver.value(root))
    if resolver.bad_key is not None:
        raise resolver.bad_key
    if repeated is not None:
        repeated += resolver.repeated
    return encode_json(value)


def line_of(data: bytes, path: Sequence[str | int]) -> int:
    """Return the line where a member of the document stands, or else the nearest one around it; 0 for none.

    Args:
        data: YAML, or JSON, which is YAML but for rarities.
        path: Keys and indexes from the top down.
    """
    try:
        node = _compose(data)
    except JSONMalformed:
        return 0
    line = 0
    for step in path:
        if node is None:
            break
        members = (node.children[0] if node.kind == "a" else node).children
        if isinstance(step, int):
            node = members[step] if step < len(members) else None
            line = node.line if node else line
        else:
            keys = [at for at in range(0, len(members), 2) if members[at].value == step]
            line = members[keys[-1]].line if keys else line
            node = members[keys[-1] + 1] if keys else None
    return line


def _fail(message: str) -> JSONMalformed:
    return JSONMalformed(f"yaml: {message}")


# --------------------------------------------------------------------------------------------- composing


def _compose(data: bytes) -> _Node | None:
    """Build the node tree of the first document, or None for an empty stream (go-yaml ``parser.parse``)."""
    return _compose_with(_parser, data or b"\n")


def _compose_with(parser: Callable[[bytes], _Events], data: bytes) -> _Node | None:
    try:
        return _compose_events(parser(data))
    except yaml.YAMLError as error:
        too_deep = getattr(error, "problem", None) == _TOO_DEEP_FOR_LIBYAML
        problem = _parser_message(error)
    except (ValueError, OverflowError):  # Python's scanner lets chr() raise
        too_deep = False
        problem = "found invalid Unicode character escape code"
    if too_deep:
        return _compose_with(_DeepLoader, data)
    # Raised outside of the handler: the marks of PyYAML's error quote the text.
    raise _fail(problem)


def _compose_events(parser: _Events) -> _Node | None:
    anchors: dict[str, _Node] = {}
    open_nodes: list[_Node] = []
    while True:
        event = parser.get_event()
        if isinstance(event, (events.SequenceEndEvent, events.MappingEndEvent)):
            node = open_nodes.pop()
            complete = True
        elif isinstance(event, events.NodeEvent):
            node = _node(event, anchors)
            complete = node.kind in "sa"
            if open_nodes:
                open_nodes[-1].children.append(node)
            if not complete:
                open_nodes.append(node)
                if len(open_nodes) > MAX_DEPTH:
                    raise _fail(f"exceeded max depth of {MAX_DEPTH}")
        elif event is None or isinstance(event, events.StreamEndEvent):
            return None
        else:
            continue  # the start of the stream or of the document
        if complete and not open_nodes:
            # One event more, as go-yaml reads it: damage right behind the document fails the whole.
            parser.get_event()
            return node


def _node(event: events.NodeEvent, anchors: dict[str, _Node]) -> _Node:
    anchor = event.anchor or ""
    line = event.start_mark.line + 1 if event.start_mark else 0
    if isinstance(event, events.AliasEvent):
        node = _Node("a", line, value=anchor)
        target = anchors.get(anchor)
        if target is None:
            raise _fail(f"unknown anchor '{withheld(anchor)}' referenced")
        node.children.append(target)
        return node
    if isinstance(event, events.ScalarEvent):
        node = _Node("s", line, event.tag or "", event.value, implicit=event.implicit[0])
    else:
        node = _Node("q" if isinstance(event, events.SequenceStartEvent) else "m", line)
    if anchor:
        anchors[anchor] = node
    return node


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


# --------------------------------------------------------------------------------------------- resolving


class _Resolver:
    """Turns nodes into None, bool, int, float, str, list and dict (go-yaml ``decoder.unmarshal``)."""

    def __init__(self) -> None:
        self.repeated: list[Field] = []
        self.bad_key: JSONMalformed | None = None
        self._decoded = 0
        self._by_alias = 0
        self._alias_depth = 0
        self._open_aliases: set[int] = set()
        self._expanded_bytes = 0

    def value(self, node: _Node) -> _Walk:
        self._count(node)
        if node.kind == "a":
            return (yield self._alias(node))
        if node.kind == "s":
            return _resolve_scalar(node)
        if node.kind == "q":
            items = []
            for child in node.children:
                items.append((yield self.value(child)))  # noqa: PERF401 - yield cannot stand in a comprehension
            return items
        mapping: _Mapping = {}
        yield self._mapping(node, mapping)
        return self._members(mapping)

    def _members(self, mapping: _Mapping) -> dict[str, Any]:
        """Return a mapping as a JSON object (``convertToJSONableObject``)."""
        members = {}
        for (_, key), value in mapping.items():
            try:
                members[_key_text(key)] = value
            except JSONMalformed as error:
                self.bad_key = self.bad_key or error
        # Go sorts by bytes, which for UTF-8 is the order of code points.
        return dict(sorted(members.items()))

    def _count(self, node: _Node) -> None:
        """Refuse what go-yaml calls excessive aliasing, and what would not fit in memory."""
        self._decoded += 1
        if not self._alias_depth:
            return
        self._by_alias += 1
        self._expanded_bytes += len(node.value)
        if self._by_alias > 100 and self._decoded > 1000:
            share = min(max((self._decoded - 400_000) / 3_600_000, 0.0), 1.0)
            if self._by_alias / self._decoded > 0.99 - 0.89 * share:
                raise _fail("document contains excessive aliasing")
        if self._expanded_bytes > MAX_EXPANDED_BYTES:
            raise _fail("document contains excessive aliasing")

    def _alias(self, node: _Node) -> _Walk:
        self._enter_alias(node)
        value = yield self.value(node.children[0])
        self._leave_alias(node)
        return value

    def _enter_alias(self, node: _Node) -> None:
        if id(node) in self._open_aliases:
            raise _fail(f"anchor '{withheld(node.value)}' value contains itself")
        self._open_aliases.add(id(node))
        self._alias_depth += 1

    def _leave_alias(self, node: _Node) -> None:
        self._open_aliases.discard(id(node))
        self._alias_depth -= 1

    def _mapping(self, node: _Node, into: _Mapping) -> _Walk:
        pairs = iter(node.children)
        for key_node, value_node in zip(pairs, pairs, strict=True):
            if _is_merge(key_node):
                yield self._merge(value_node, into)
                continue
            key = yield self.value(key_node)
            if isinstance(key, (list, dict)):
                raise _fail("invalid map key: <value withheld>")
            value = yield self.value(value_node)
            typed = (type(key).__name__, key)
            if typed in into:
                self.repeated.append(Field(key_node.value, key_node.line))
            into[typed] = value

    def _merge(self, node: _Node, into: _Mapping) -> _Walk:
        # Backwards, because what stands first in a list of merged mappings takes precedence.
        sources = reversed(node.children) if node.kind == "q" else iter((node,))
        for source in sources:
            target = source.children[0] if source.kind == "a" else source
            if target.kind != "m":
                raise _fail("map merge requires map or sequence of maps as the value")
            self._count(source)
            if source.kind == "a":
                self._enter_alias(source)
                self._count(target)
                yield self._mapping(target, into)
                self._leave_alias(source)
            else:
                yield self._mapping(target, into)


# From a key as YAML knows it, so that 1 and true stay apart, to the value.
_Mapping: TypeAlias = dict[tuple[str, Any], Any]


def _is_merge(node: _Node) -> bool:
    return node.kind == "s" and node.value == "<<" and (node.implicit or node.tag == f"{_TAG}merge")


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


def _resolve_scalar(node: _Node) -> Any:
    """Return a scalar's value (go-yaml ``resolve``); timestamps stay strings, as v2 keeps them."""
    if not node.tag and not node.implicit:
        return node.value
    if node.tag == f"{_TAG}binary":
        try:
            return gobase64.decode(node.value.encode()).decode("utf-8", "surrogateescape")
        except DecodeError:
            raise _fail("!!binary value contains invalid base64 data") from None
    wanted = _RESOLVABLE.get(node.tag)
    if wanted is None:
        return node.value
    found, value = _resolve_plain(node.value, wanted)
    if wanted in ("", found):
        return value
    if wanted == "float" and found == "int" and value <= INT64_MAX:
        return float(value)
    raise _fail(f"cannot decode !!{found} `{withheld(node.value)}` as a !!{wanted}")


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


def _walked(walk: _Walk) -> Any:
    """Walk to the end; return the result. Exceptions end all of it."""
    stack = [walk]
    answer: Any = None
    while True:
        try:
            call = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
            if not stack:
                return answer
        else:
            stack.append(call)
            answer = None
