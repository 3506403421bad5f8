r"""Plain values as YAML and JSON that look like kubectl's and that no terminal can act upon.

A string that some reader of YAML takes for another type is quoted: go-yaml reads a plain ``y``, ``1e3`` or ``0o7`` as a
boolean or a number, and PyYAML does not.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import yaml

from etcdfix.golang.gojsontext import NumberLiteral, encode_json, number_text
from etcdfix.text.safetext import safe_json

MAX_DEPTH: Final = 100
"""Deeper values stand on one line: indentation would multiply a hostile kilobyte into megabytes."""
INDENT: Final = "    "

_OTHER_TYPE = re.compile(
    r"""(?: ~ | null | true | false | yes | no | on | off | y | n | = | <<
      | [-+]?(?: 0b[-+01_]+ | 0o[-+0-7_]+ | 0x[-+0-9a-f_]+ )
      | [-+]?[0-9_][0-9_,]*(?: :[0-5]?[0-9] )*(?: \.[0-9_]* )?(?: e[-+]?[0-9]+ )?
      | [-+]?\.[0-9_]+(?: e[-+]?[0-9]+ )?
      | [-+]?\.?(?: inf | nan | infinity )
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?: [Tt\ ].* )?
    )?""",
    re.VERBOSE | re.IGNORECASE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, _data: Any) -> bool:
        """Write the same value twice in full."""
        return True


def _string(dumper: Any, text: str) -> Any:
    text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    style = None
    if not all(line.isprintable() for line in text.split("\n")) or _OTHER_TYPE.fullmatch(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _number(dumper: Any, value: float) -> Any:
    text = number_text(value)
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)


_Dumper.add_representer(str, _string)
for _type in (int, float, NumberLiteral):
    _Dumper.add_representer(_type, _number)


def yaml_text(value: Any, *, sort_keys: bool = True) -> str:
    """Return one YAML document, ended by a line break.

    Every character of it is printable, or the line break. A lone surrogate, which stands for a byte that is not UTF-8,
    becomes U+FFFD, as in JSON.
    """
    if _is_deep(value):
        return json_text(value).decode() + "\n"
    text = yaml.dump(value, Dumper=_Dumper, width=2**31 - 1, allow_unicode=True, sort_keys=sort_keys)
    text = text.removesuffix("...\n")
    if all(map(str.isprintable, text.split("\n"))):
        return text
    # What is not printable stands in double quotes only.
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text)


def json_text(value: Any, *, margin: str = "") -> bytes:
    """Return JSON with one member per line; everything on one line where it is nested very deeply.

    No line break follows, and the first line has no margin.
    """
    text = safe_json(encode_json(value))
    if not _is_deep(value):
        text = msgspec.json.format(text, indent=len(INDENT))
    return text.replace(b"\n", b"\n" + margin.encode())


def _is_deep(value: Any) -> bool:
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return True
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        waiting += [(each, depth + 1) for each in inner if isinstance(each, (dict, list))]
    return False
