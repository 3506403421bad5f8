"""``-o html``: the same document as a page that needs nothing but itself, for the incident call.

Nothing in it is loaded from anywhere, and its policy forbids that: the one style and the one script count by their
digests, so markup that got in by a hole in the escaping could neither look like ours nor run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from etcdfix.report.document import Document, Facts, Kind, Node, Prose, Section, Steps, Table, Tree
from etcdfix.report.render.rows import ShownRows
from etcdfix.report.render.text import cell_text, headline_of
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

MOST_ROWS: Final = 10_000
"""More make a page that no browser likes."""
_LONGEST_CELL: Final = 8_192
_TEMPLATES: Final = Path(__file__).parent / "templates"
_TONES: Final = {"ok": "good", "done": "good", "findings": "bad", "failed": "bad", "refused": "bad"}

_STYLES: Final = {Kind.NUMBER: "number", Kind.KEY: "key", Kind.COMMAND: "run"}


class HTMLWriter(ShownRows):
    """Writes the document of a report as a page."""

    most = MOST_ROWS

    def end(self, report: Any) -> None:
        """Write the page."""
        document = self.document_of(report)
        self._stream.write(page(document, self._run, [*_origin(report)]).encode("utf-8", "backslashreplace"))


def _origin(report: Any) -> Iterator[str]:
    """Yield what a ticket needs to know years later: which cluster, when, by which version."""
    uid = getattr(getattr(report, "source", None), "kube_system_uid", None)
    if uid:
        yield f"kube-system uid {uid}"
    tool = getattr(report, "tool", None)  # a list of records has neither time nor tool
    yield from (report.generated_at, f"{tool.name} {tool.version}") if tool is not None else ()


def page(document: Document, run: RunOptions, origin: Sequence[str] = ()) -> str:
    """Return a document as a page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only this form pays for it

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    written = _Written(run)
    about = [*(value for _name, value in document.about.facts), *origin]
    return environment.get_template("page.html").render(
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        state=document.status.state.value,
        headline=safe_text(headline_of(document)),
        tone=_TONES.get(document.status.state, "unknown"),
        about=[*dict.fromkeys(safe_text(value) for value in about if value)],
        stakes=[safe_text(line) for line in document.stakes],
        next=written.step(document.next) if document.next is not None else None,
        sections=[written.section(section) | {"wide": section.wide} for section in document.sections],
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class _Written:
    """Sections as the template takes them: safe text, commands as lines."""

    def __init__(self, run: RunOptions) -> None:
        self._run = run

    def step(self, step: Any) -> tuple[str, str, str]:
        return safe_text(step.action), safe_text(step.command.line(self._run)), safe_text(step.note)

    def section(self, section: Section) -> dict[str, Any]:
        title = safe_text(section.title)
        match section:
            case Facts():
                facts = [(safe_text(name), safe_text(value)) for name, value in section.facts if value]
                return {"kind": "facts", "title": title, "facts": facts}
            case Steps():
                return {"kind": "steps", "title": title, "steps": [self.step(step) for step in section.steps]}
            case Prose():
                paragraphs = [safe_text(text) for text in section.paragraphs]
                return {
                    "kind": "verbatim" if section.verbatim else "prose",
                    "title": title,
                    "lines": paragraphs,
                }
            case Tree():
                return {"kind": "tree", "title": title, "nodes": [self._node(node) for node in section.nodes]}
            case Table():
                return self._table(section, title)

    def _node(self, node: Node) -> tuple[str, list[Any]]:
        return safe_text(node.text), [self._node(child) for child in node.children]

    def _table(self, table: Table, title: str) -> dict[str, Any]:
        rows = table.rows[:MOST_ROWS]
        left = (table.total or len(table.rows)) - len(rows)
        # A page may be wider than the screen: what names the row stands first.
        order = sorted(
            range(len(table.columns)),
            key=lambda at: table.columns[at].kind is not Kind.KEY or table.columns[at].wide,
        )
        columns = [table.columns[at] for at in order]
        styles = [_STYLES.get(column.kind, "fold" if column.folds else "") for column in columns]
        return {
            "kind": "table",
            "title": title,
            "columns": [(column.name, style) for column, style in zip(columns, styles, strict=True)],
            "rows": [
                [
                    (style, cell_text(row[at], self._run, _LONGEST_CELL))
                    for style, at in zip(styles, order, strict=True)
                ]
                for row in rows
            ],
            "more": f"and {counted(left, f'more {table.noun}')}: -o json has all" if left > 0 else "",
        }
