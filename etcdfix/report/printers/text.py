r"""Plain values as YAML and JSON that look like kubectl's and that no terminal can act upon.

PyYAML's own dumper is not used: it recurses (a custom resource may nest ten thousand levels deep), has no way to keep a
number's text, and lets bidirectional marks through. Only four scalar styles are written here: plain, single-quoted,
literal block, and double-quoted with every character that is not printable escaped.

Format: YAML 1.1 as go-yaml v2 and PyYAML read it; layout as ``sigs.k8s.io/yaml`` writes it (sorted keys, lists not
indented below their key).
"""

from __future__ import annotations

import re
from typing import Any, Final

from etcdfix.golang.gojsontext import Pieces, encode_json, joined, number_text
from etcdfix.text.safetext import safe_json

MAX_BLOCK_DEPTH: Final = 100
"""Deeper values stand on one line: indentation would multiply a hostile kilobyte into megabytes."""

_LONGEST_SIMPLE_KEY: Final = 128

# What some reader of YAML 1.1 or 1.2 takes for something else than a string.
_OTHER_TYPE = re.compile(
    r"""(?: ~ | null | true | false | yes | no | on | off | y | n | = | <<
      | [-+]?(?: 0b[-+01_]+ | 0o[-+0-7_]+ | 0x[-+0-9a-f_]+ )
      | [-+]?[0-9_][0-9_,]*(?: :[0-5]?[0-9] )*(?: \.[0-9_]* )?(?: e[-+]?[0-9]+ )?
      | [-+]?\.[0-9_]+(?: e[-+]?[0-9]+ )?
      | [-+]?\.?(?: inf | nan | infinity )
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?: [Tt\ ].* )?
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_INDICATORS: Final = frozenset("?:,[]{}#&*!|>'\"%@`-")
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\0": "\\0",
    "\x1b": "\\e",
}  # fmt: skip


def yaml_text(value: Any) -> str:
    """Return one YAML document, ended by a line break; keys sorted.

    Every character of it is printable, or the line break. A lone surrogate, which stands for a byte that is not UTF-8,
    becomes U+FFFD, as in JSON.

    Args:
        value: Plain values (dict, list, str, int, float, bool, None); keys are strings.
    """
    if isinstance(value, (dict, list)) and value:
        return joined(_block(value, 0, 1, inline=True))
    return f"{_leaf(value, 0)}\n"


def _block(value: Any, indent: int, depth: int, *, inline: bool) -> Pieces:
    """Write a mapping or a sequence that is not empty; ``inline``: its first line has begun already."""
    margin = " " * indent
    is_mapping = isinstance(value, dict)
    for entry in sorted(value) if is_mapping else value:
        if not inline:
            yield margin
        inline = False
        if is_mapping:
            item = value[entry]
            yield _key(entry, margin)
        else:
            item = entry
            yield "-"
        if not isinstance(item, (dict, list)) or not item:
            yield f" {_leaf(item, indent)}\n"
        elif depth >= MAX_BLOCK_DEPTH:
            yield " "
            yield _flow(item)
            yield "\n"
        elif is_mapping:
            yield "\n"
            deeper = indent + 2 if isinstance(item, dict) else indent
            yield _block(item, deeper, depth + 1, inline=False)
        else:
            yield " "
            yield _block(item, indent + 2, depth + 1, inline=True)


def _key(name: str, margin: str) -> str:
    text = _string(name)
    # Readers do not look further for the colon behind a key.
    return f"{text}:" if len(text) <= _LONGEST_SIMPLE_KEY else f"? {text}\n{margin}:"


def _flow(value: Any) -> Pieces:
    is_mapping = isinstance(value, dict)
    yield "{" if is_mapping else "["
    for number, entry in enumerate(sorted(value) if is_mapping else value):
        if number:
            yield ", "
        item = entry
        if is_mapping:
            item = value[entry]
            text = _double_quoted(entry)
            yield f"{text}: " if len(text) <= _LONGEST_SIMPLE_KEY else f"? {text} : "
        if isinstance(item, (dict, list)):
            yield _flow(item)
        else:
            yield _double_quoted(item) if isinstance(item, str) else _leaf(item, 0)
    yield "}" if is_mapping else "]"


def _leaf(value: Any, indent: int) -> str:
    if isinstance(value, str):
        return _literal(value, indent) if "\n" in value else _string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    return "{}" if isinstance(value, dict) else "[]"


def _literal(text: str, indent: int) -> str:
    """Write a text of several lines as a literal block, where a reader can only get the same text from it."""
    lines = text.split("\n")
    if not lines[0] or lines[0].startswith(" ") or not all(line.isprintable() for line in lines):
        return _double_quoted(text)
    chomping = "-"
    if not lines[-1]:
        lines.pop()
        chomping = "" if lines[-1] else "+"
    margin = " " * (indent + 2)
    return f"|{chomping}\n" + "\n".join(margin + line if line else "" for line in lines)


def _string(text: str) -> str:
    """Write a string on one line in the plainest style that is safe."""
    if not text.isprintable() or _OTHER_TYPE.fullmatch(text) or not text:
        return _double_quoted(text)
    first = text[0]
    dash = first == "-" and len(text) > 1 and text[1] not in " -"
    flag = first == "-" and text.startswith("--") and len(text) > 2 and text[2] not in " -"
    plain = (
        (first not in _INDICATORS or dash or flag)
        and text[0] != " "
        and text[-1] not in " :"
        and ": " not in text
        and " #" not in text
        and not text.startswith("...")
    )
    return text if plain else "'" + text.replace("'", "''") + "'"


def _double_quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    short = _ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


INDENT: Final = "    "


def json_text(value: Any, *, margin: str = "") -> bytes:
    """Return JSON with one member per line; everything on one line where it is nested very deeply.

    No line break follows, and the first line has no margin.

    Args:
        value: Plain values, as :func:`~etcdfix.golang.gojsontext.encode_json` takes them.
        margin: Stands in front of every line but the first.
    """
    text = encode_json(value, indent=INDENT if _depth_is_usual(value) else "")
    if not text.isascii() or b"\x7f" in text:
        # Inside strings line breaks are escaped: those that are left are the layout's.
        text = b"\n".join(map(safe_json, text.split(b"\n")))
    return text.replace(b"\n", b"\n" + margin.encode()) if margin else text


def _depth_is_usual(value: Any) -> bool:
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_BLOCK_DEPTH:
            return False
        if isinstance(item, dict):
            waiting += [(inner, depth + 1) for inner in item.values() if isinstance(inner, (dict, list))]
        else:
            waiting += [(inner, depth + 1) for inner in item if isinstance(inner, (dict, list))]
    return True
