"""Formats of a cause's page and of the list of causes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.cause_model import CauseList, CausePage, CauseSummary
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.tables import prose_lines

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WIDTH: Final = 79
_LABELS: Final = {
    "not-broken": "no: an API server serves the object, and the API can correct or delete it",
    "unproven": "no: nothing is proven",
    "curable": "no: what reads it can be put right, and then it can be read",
    "declarable": "no, unless its encryption key is declared lost for ever: `--declare-key-lost`",
    "moved": "only while the etcd key that it belongs to holds the object",
    "never": "no",
    "deletable": "yes, as the last resort: one key at a time, backed up and recorded",
}
_RISKS: Final = {
    "unproven-damage": "where the damage is only likely, with `--accept unproven-damage`",
    "only-copy": "where it can be repaired, with `--accept only-copy`",
    "newer-than-known": "where a newer release may read it, with `--accept newer-than-known`",
}
_SEVERITIES: Final = {
    "breaks-now": "LIST and WATCH of its type fail",
    "breaks-at-restart": "an API server that starts does not get ready",
    "one-object": "only users of this object meet it",
}


def head_lines(about: CauseSummary) -> list[str]:
    """Return the head of a cause's page in Markdown: what the catalogue says."""
    lines = [
        f"# {about.cause}",
        "",
        *_folded(f"*{about.title[:1].upper()}{about.title[1:]}.* {about.meaning}"),
        "",
    ]
    lines += _item("Outcome", ", ".join(f"`{outcome}`" for outcome in about.outcomes))
    lines += _item("Severity", _severity(about))
    lines += _item("May be deleted", deletion_of(about))
    lines += _item("How it is proven", about.proof)
    lines += _item("An API server's log", "any of these" if about.server_messages else "nothing of its own")
    lines += [f"  - `{text}`" for text in about.server_messages]
    return lines


def deletion_of(about: CauseSummary) -> str:
    """Return whether a value with a cause may be deleted, as a clause."""
    risks = [_RISKS[risk] for risk in about.accept]
    return "; ".join([_LABELS[about.deletability], *risks])


def _severity(about: CauseSummary) -> str:
    if not about.severities:
        return "none: nothing is proven wrong"
    told = "; ".join(f"`{severity}` ({_SEVERITIES[severity]})" for severity in about.severities)
    if about.curable_by_configuration and about.cause != "crd-version-missing":
        return f"{told}, if API servers use the configuration that was given"
    return told


def _item(name: str, text: str) -> Iterator[str]:
    first, *rest = prose_lines(f"- **{name}:** {text}", _WIDTH - 2)
    yield first
    yield from (f"  {line}" for line in rest)


def _folded(text: str) -> list[str]:
    return list(prose_lines(text, _WIDTH))


def write_page_text(page: CausePage, stream: BinaryIO) -> None:
    """Write a page for a terminal: without the marks of Markdown, and with its commands indented."""
    output = Output(stream)
    parts = [
        head_lines(page.about),
        *(["", f"## {s.title}", "", *_LINK.sub(r"\1", s.text).split("\n")] for s in page.sections),
    ]
    output.lines(plain_lines(line for part in parts for line in part))


def plain_lines(markdown: Iterator[str]) -> Iterator[str]:
    """Yield a page's lines as they read well in a terminal."""
    in_block = False
    for line in markdown:
        if line.strip().startswith("```"):
            in_block = not in_block
        elif in_block:
            yield f"    {line.strip()}".rstrip()
        elif line.startswith("#"):
            title = line.lstrip("# ")
            yield title if line.startswith("# ") else title.upper()
        else:
            yield _unmarked(line)


def _unmarked(line: str) -> str:
    line = _LINK.sub(r"\1", line)
    line = re.sub(r"\*\*([^*]+)\*\*", r"\1", line)
    return re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"\1", line)


def write_list_text(listed: CauseList, stream: BinaryIO) -> None:
    """Write a line for each cause."""
    output = Output(stream)
    output.table(("CAUSE", "WHAT"), [(about.cause, about.title) for about in listed.causes])
    output.line()
    output.line("etcdfix explain CAUSE shows the page of one.")


_Writer = Callable[[CausePage | CauseList, BinaryIO], None]


def _text(document: CausePage | CauseList, stream: BinaryIO) -> None:
    if isinstance(document, CausePage):
        write_page_text(document, stream)
    else:
        write_list_text(document, stream)


CAUSE_FORMATS: Final[dict[str, _Writer]] = {
    "table": _text,
    "json": write_document,
    "yaml": write_yaml,
}
