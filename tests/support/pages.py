"""What a page says, read without a browser: its markup, its words, and the rows that its script shows."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

HOSTILE = (
    "</script><script>document.title='x'</script><img src=x onerror=\"document.title='x'\">'\"&amp;{{7*7}}"
)
"""A name that breaks out wherever something is not escaped."""
INVISIBLE = "\u202egnp.exe\u202c\x1b[2J\x00\u2028\u200b"


class Row(NamedTuple):
    """A row as the script shows it: its cells by their heads, what is wrong, and what an opened one has."""

    cells: dict[str, Any]
    key: str
    below: str
    facts: dict[str, str]
    blocks: list[tuple[str, str, list[list[str]]]]


class Page(HTMLParser):
    """A page: every tag is closed, or this fails."""

    def __init__(self, written: bytes) -> None:
        super().__init__()
        self.source = written.decode()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.texts: list[str] = []
        self.data: dict[str, Any] = {}
        self.code: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag not in {"meta", "input"}:
            self._open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            name = str(attributes["id"]).removeprefix("data-")
            self.data[name] = self.data.get(name, "") + data
        elif tag in {"script", "style"}:
            self.code.append(data)
        else:
            self.texts.append(data)

    @property
    def words(self) -> str:
        """Everything that stands in the page itself, with single spaces."""
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def rows(self, name: str = "findings") -> list[Row]:
        """Return the rows of a list."""
        data = json.loads(self.data[name])
        shared, columns = data["shared"], data["columns"]

        def text(cell: Any) -> Any:
            return shared[cell] if isinstance(cell, int) else cell

        rows = []
        for cells, facts, blocks in data["rows"]:
            named: dict[str, Any] = {}
            key = below = ""
            for column, cell in zip(columns, cells, strict=True):
                if column.get("kind", "text") == "key":
                    key, below = cell[0], text(cell[1])
                else:
                    named[column["title"]] = cell if column.get("kind") == "number" else text(cell)
            rows.append(
                Row(
                    named,
                    key,
                    below,
                    {name: fact for name, fact in zip(data["facts"], facts, strict=False) if fact},
                    [(kind, title, [[t.replace("\0", key) for t in text(item)] for item in items])
                     for kind, title, items in blocks],
                )
            )  # fmt: skip
        return rows
