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

from etcdfix.report.document import Document, Facts, Kind, Prose, Section, Steps, Table, Tree, in_full
from etcdfix.report.render.rows import ShownRows
from etcdfix.report.render.text import cell_text, headline_of
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

MOST_ROWS: Final = 10_000
"""More make a page that no browser likes."""
_LONGEST_CELL: Final = 8_192
_TEMPLATES: Final = Path(__file__).parent / "templates"
_TONES: Final = {"ok": "good", "done": "good"}
_BREAKS_NOW: Final = ("BREAKS NOW", "breaks-now")
"""What is red, and nothing else is."""
_MORE: Final = "more"
"""Name of the fact that says how to see more: a page has everything."""

_STYLES: Final = {Kind.NUMBER: "number", Kind.KEY: "key", Kind.COMMAND: "run"}


class HTMLWriter(ShownRows):
    """Writes the document of a report as a page."""

    most = MOST_ROWS

    def end(self, report: Any) -> None:
        """Write the page."""
        document = in_full(self.document_of(report))
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
        trim_blocks=True, lstrip_blocks=True, finalize=_safe,
    )  # fmt: skip
    environment.filters["line"] = lambda command: command.line(run)
    style, script = ((_TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    about = [*(value for name, value in document.about.facts if name != _MORE), *origin]
    what_to_do_first = sorted(document.sections, key=lambda section: not isinstance(section, Steps))
    return environment.get_template("page.html").render(
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        headline=headline_of(document),
        tone=_TONES.get(document.status.state, "unknown"),
        about=[*dict.fromkeys(filter(None, about))],
        breaks_now=_BREAKS_NOW,
        document=document,
        sections=[
            (type(section).__name__, section, content)
            for section in what_to_do_first
            if (content := _content(section, run))
        ],
    )


def _safe(value: Any) -> Any:
    """Return what is written into the page, safe to show; markup is our own."""
    return safe_text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _content(section: Section, run: RunOptions) -> Any:
    """Return what stands in a section, as the template takes it; nothing for an empty one."""
    match section:
        case Facts():
            return [fact for fact in section.facts if fact[1] and fact[0] != _MORE]
        case Steps():
            return section.steps
        case Prose():
            return section.paragraphs
        case Tree():
            return section.nodes
        case Table():
            return _table(section, run) if section.rows else None


def _table(table: Table, run: RunOptions) -> dict[str, Any]:
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
        "columns": [(column.name, style) for column, style in zip(columns, styles, strict=True)],
        "rows": [
            [(style, cell_text(row[at], run, _LONGEST_CELL)) for style, at in zip(styles, order, strict=True)]
            for row in rows
        ],
        "more": f"and {counted(left, f'more {table.noun}')}: -o json has all" if left > 0 else "",
    }
