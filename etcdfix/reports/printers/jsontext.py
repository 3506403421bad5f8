"""Plain values as the API server's JSON, laid out like kubectl's, that no terminal can act upon."""

from __future__ import annotations

from typing import Any, Final

from etcdfix.golang.gojsontext import encode_json
from etcdfix.reports.printers.yamltext import MAX_BLOCK_DEPTH
from etcdfix.text.safetext import safe_json

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
