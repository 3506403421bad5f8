"""YAML 1.1 as the API server reads it: go-yaml v2 by way of ``sigs.k8s.io/yaml``.

PyYAML scans and parses; from its events on, everything is ours, because the two libraries differ where it
matters: which plain words are booleans or numbers (``y`` is a boolean, ``1:30`` a string), duplicate keys,
and what an error says. Working on events also bounds depth and alias expansion before anything is built.

Sources: ``sigs.k8s.io/yaml`` ``yaml.go`` (conversion to JSON) and ``goyaml.v2`` ``decode.go``,
``resolve.go``.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import yaml

from etcdfix.encryption.config_document import Document, Mapping, Node, Number
from etcdfix.encryption.wording import shown, shown_bare
from etcdfix.errors import ConfigurationError
from etcdfix.golang.goquote import withheld

_MAX_DEPTH = 100
_MAX_NODES = 100_000
_MAX_DUPLICATES = 100
_TAG = "tag:yaml.org,2002:"
_SYNTAX_HINT = "The file is read as YAML; mind the indentation, and use spaces, not tabs."

_CONSTANTS: dict[str, bool | float | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# From here on Go prints a float64 with an exponent.
_EXPONENT_FROM, _EXPONENT_BELOW = 1e21, 1e-6

Scalar = None | bool | int | float | str
Loader = type[yaml.SafeLoader] | type[yaml.CSafeLoader]


def default_loader() -> Loader:
    """Return libyaml's loader, or the slower one in Python where PyYAML was built without libyaml."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Built:
    """A node: its JSON form, and what duplicate checks and limits need to know of it."""

    __slots__ = ("entries", "height", "items", "key", "line", "node", "size")

    def __init__(self, node: Node, line: int, *, key: tuple[str, Scalar] | None = None) -> None:
        self.node = node
        self.line = line
        self.key = key  # scalars only
        self.size = 1
        self.height = 1
        self.entries: list[tuple[_Built, _Built]] | None = None  # mappings only
        self.items: list[_Built] | None = None  # sequences only

    def absorb(self, child: _Built) -> None:
        self.size += child.size
        self.height = max(self.height, child.height + 1)
        if self.size > _MAX_NODES:
            raise ConfigurationError("yaml: document contains excessive aliasing", hint=_SYNTAX_HINT)
        if self.height > _MAX_DEPTH:
            raise _too_deep()


def read_yaml(raw: bytes, loader: Loader | None = None) -> Document:
    """Parse the first document of a YAML file; later ones are ignored, as upstream does.

    Args:
        raw: The file.
        loader: PyYAML loader to scan with; the fastest one there is by default.

    Raises:
        ConfigurationError: Not YAML, nested too deeply, or bent on expanding aliases; go-yaml's wording.
    """
    problem = ""
    builder = _Builder(yaml.parse(raw, Loader=loader or default_loader()))
    try:
        return builder.document()
    except yaml.YAMLError as error:
        problem = _syntax_problem(error)
    except (ValueError, OverflowError):
        problem = "found invalid Unicode character escape code"  # the Python scanner lets chr() raise
    # Raised outside of the handlers: PyYAML's marks quote the line of the file, which may be a secret's.
    raise ConfigurationError(f"yaml: {problem}", hint=_SYNTAX_HINT)


def _too_deep() -> ConfigurationError:
    return ConfigurationError(f"yaml: exceeded max depth of {_MAX_DEPTH}", hint=_SYNTAX_HINT)


def _syntax_problem(error: yaml.YAMLError) -> str:
    """Return the message as go-yaml puts it, its way of counting lines included (``parser.fail``)."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(getattr(error, "reason", "") or "the file is no text")
    line = 0
    for mark in (error.context_mark, error.problem_mark):
        if mark is not None and mark.line:
            line = mark.line + isinstance(error, yaml.scanner.ScannerError)
            break
    problem = _QUOTED.sub(_harmless, str(error.problem or "unknown problem parsing YAML content"))
    return f"line {line}: {problem}" if line else problem


def _harmless(quoted: re.Match[str]) -> str:
    inside = quoted.group()[1:-1]
    return quoted.group() if len(inside) <= 1 or inside.startswith("<") else withheld(len(inside.encode()))


class _Builder:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, _Built | None] = {}
        self._duplicates: list[str] = []

    def document(self) -> Document:
        root: Node = None
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.DocumentStartEvent):
            root = self._node(next(self._events), 1).node
            next(self._events)  # the end of the document: an error up to here is an error of the file
        if not self._duplicates:
            return Document(root)
        return Document(root, ("yaml: unmarshal errors:\n  " + "\n  ".join(self._duplicates),))

    def _node(self, event: Any, depth: int) -> _Built:
        if depth > _MAX_DEPTH:
            raise _too_deep()
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        anchor: str | None = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None  # under construction: an alias to it would contain itself
        built: _Built
        if isinstance(event, yaml.ScalarEvent):
            built = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            built = self._sequence(event, depth)
        else:
            built = self._mapping(event, depth)
        if anchor is not None:
            self._anchors[anchor] = built
        return built

    def _alias(self, event: Any) -> _Built:
        name = shown_bare(event.anchor)
        if event.anchor not in self._anchors:
            raise ConfigurationError(f"yaml: unknown anchor '{name}' referenced", hint=_SYNTAX_HINT)
        built = self._anchors[event.anchor]
        if built is None:
            raise ConfigurationError(f"yaml: anchor '{name}' value contains itself", hint=_SYNTAX_HINT)
        return built

    def _sequence(self, event: Any, depth: int) -> _Built:
        items: list[Node] = []
        built = _Built(items, event.start_mark.line + 1)
        built.items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            child = self._node(event, depth + 1)
            built.absorb(child)
            built.items.append(child)
            items.append(child.node)
        return built

    def _mapping(self, event: Any, depth: int) -> _Built:
        built = _Built(None, event.start_mark.line + 1)
        built.entries = []
        values: dict[tuple[str, Scalar], tuple[str, Node]] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and _is_merge(event)
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            built.absorb(key)
            built.absorb(value)
            for entry in _merged(value) if merge else [(key, value)]:
                self._set(values, *entry)
                built.entries.append(entry)
        # sigs.k8s.io/yaml goes through a Go map, whose JSON form has sorted keys.
        built.node = Mapping(sorted(values.values(), key=lambda pair: pair[0]))
        return built

    def _set(self, values: dict[tuple[str, Scalar], tuple[str, Node]], key: _Built, value: _Built) -> None:
        if key.key is None:
            raise ConfigurationError("yaml: invalid map key: a collection", hint=_SYNTAX_HINT)
        kind, scalar = key.key
        if kind == "null":
            raise ConfigurationError("unsupported map key of type: null", hint=_SYNTAX_HINT)
        if key.key in values and len(self._duplicates) < _MAX_DUPLICATES:
            name = shown(scalar) if isinstance(scalar, str) else _key_text(scalar)
            self._duplicates.append(f"line {value.line}: key {name} already set in map")
        values[key.key] = (scalar if isinstance(scalar, str) else _key_text(scalar), value.node)


def _is_merge(event: Any) -> bool:
    return bool(event.implicit[0]) if event.tag is None else event.tag == f"{_TAG}merge"


def _merged(value: _Built) -> list[tuple[_Built, _Built]]:
    if value.entries is not None:
        return value.entries
    if value.items is not None:
        merged: list[tuple[_Built, _Built]] = []
        for item in reversed(value.items):  # earlier ones take precedence, so they are set last
            if item.entries is None:
                break
            merged += item.entries
        else:
            return merged
    raise ConfigurationError(
        "yaml: map merge requires map or sequence of maps as the value", hint=_SYNTAX_HINT
    )


def _key_text(scalar: Scalar) -> str:
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    return _number_text(scalar) if isinstance(scalar, (int, float)) else str(scalar)


def _scalar(event: Any) -> _Built:
    value = _resolve(event)
    node: Node
    if isinstance(value, bool) or value is None or isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        node = value
    else:
        kind, node = type(value).__name__, Number(_number_text(value))
    return _Built(node, event.start_mark.line + 1, key=(kind, value))


def _resolve(event: Any) -> Scalar:
    text: str = event.value
    if event.tag is None or event.tag == "!":
        return _plain(text) if event.tag is None and event.implicit[0] else text
    tag = event.tag.removeprefix(_TAG)
    if tag == "binary":
        return _binary(text)
    if tag not in {"bool", "int", "float", "null"}:
        return text  # !!str, !!timestamp (a string in JSON) and tags of somebody's own
    value = _plain(text)
    found = {"NoneType": "null"}.get(type(value).__name__, type(value).__name__)
    if tag == "float" and found == "int":
        return float(value) if isinstance(value, int) else value
    if found != tag:
        raise ConfigurationError(
            f"yaml: cannot decode !!{found} `{withheld(len(text.encode()))}` as a !!{tag}", hint=_SYNTAX_HINT
        )
    return value


def _binary(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode(
            "utf-8", "replace"
        )
    except ValueError:
        pass  # reported below, without the exception that may hold the value
    raise ConfigurationError("yaml: !!binary value contains invalid base64 data", hint=_SYNTAX_HINT)


def _plain(text: str) -> Scalar:
    """Return what an unquoted word means (``resolve.go``): a constant, a number, or itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if not text or text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "") if text[0] != "." else text
    integer = _INTEGER.fullmatch(digits)
    if integer is not None:
        return _integer(integer, digits)
    if _FLOAT.fullmatch(digits):
        value = float(digits)
        return text if math.isinf(value) else value
    return text


def _integer(match: re.Match[str], digits: str) -> int | float:
    for name, base in (("hex", 16), ("bin", 2), ("oct", 8)):
        if match[name] is not None:
            return int(match["sign"] + match[name], base)
    if len(match["dec"]) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        return float(digits)
    return int(digits)


def _number_text(value: float) -> str:
    """Return a number as Go's ``encoding/json`` prints it."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value) or math.isinf(value):
        name = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise ConfigurationError(f"json: unsupported value: {name}", hint=_SYNTAX_HINT)
    if value == 0 or _EXPONENT_BELOW <= abs(value) < _EXPONENT_FROM:
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    mantissa, _, exponent = repr(value).partition("e")
    sign, number = exponent[:1], exponent[1:].lstrip("0")
    return f"{mantissa.removesuffix('.0')}e{sign}{number}"
