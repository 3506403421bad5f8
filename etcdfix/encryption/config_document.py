"""From the bytes of a configuration file to a tree, as the API server's JSON and YAML readers see it.

JSON where the first character that is no space is ``{``, else YAML
(``k8s.io/apimachinery/pkg/runtime/serializer/json``). The tree is that of a JSON document: the API server
turns YAML into JSON first, and later messages show it (fields of a YAML file are met in sorted order).

The tree holds secrets, so its nodes have no useful ``repr`` and no message here quotes a value.
"""

from __future__ import annotations

import json
from typing import NoReturn

from etcdfix.errors import ConfigurationError

MAX_FILE_BYTES = 4 << 20
_SPACE = b" \t\n\v\f\r"


class Number:
    """A number, kept as the text that JSON would have."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Mapping:
    """A JSON object, duplicate names included, in the order in which the API server meets them."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Node]]) -> None:
        self.pairs = pairs


Node = None | bool | str | Number | Mapping | list["Node"]


class Document:
    """A parsed file.

    Attributes:
        root: The tree.
        strict_problems: What strict decoding holds against the text itself (duplicate YAML keys).
    """

    __slots__ = ("root", "strict_problems")

    def __init__(self, root: Node, strict_problems: tuple[str, ...] = ()) -> None:
        self.root = root
        self.strict_problems = strict_problems


def is_json(raw: bytes) -> bool:
    """Say whether the API server reads the file as JSON."""
    return raw.lstrip(_SPACE).startswith(b"{")


def read_json(raw: bytes) -> Document:
    """Parse a JSON file.

    Raises:
        ConfigurationError: Not JSON. Position and kind of the fault are ours; Go's scanner words them
            differently.
    """
    problem = ""
    root: Node = None
    try:
        root = _JSON.decode(raw.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        what = error.msg.rstrip(": ")
        problem = f"{what[:1].lower()}{what[1:]} at line {error.lineno}, column {error.colno}"
    except _NoJSONValue as error:
        problem = f"{error} is no JSON value"
    except RecursionError:
        problem = "exceeded max depth"
    if problem:
        # Raised outside of the handler: JSONDecodeError carries the whole file, and as the context of our
        # error it would travel along.
        raise ConfigurationError(
            f"couldn't get version/kind; json parse error: {problem}",
            hint="The file starts with { and is read as JSON; check it with: python3 -m json.tool FILE",
        )
    return Document(root)


class _NoJSONValue(Exception):
    """Raised for NaN and the infinities, which Python's parser would let through."""


def _no_constant(name: str) -> NoReturn:
    raise _NoJSONValue(name)


_JSON = json.JSONDecoder(
    object_pairs_hook=Mapping, parse_int=Number, parse_float=Number, parse_constant=_no_constant
)
