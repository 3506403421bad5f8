"""The documentation as a site: ``sphinx-build -W --keep-going -n -b html -c docs . DIRECTORY``.

The pages are plain Markdown, as they are read in the repository. So nothing in them is for Sphinx alone: what the
sidebar shows, and in which order, is taken from the links of ``docs/README.md``, and below each page from its own.
Decisions: ``docs/adr/0020-the-site.md``.
"""

from __future__ import annotations

import posixpath
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt
from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_DOCS: Final = Path(__file__).parent
_TOP: Final = _DOCS.parent
sys.path.insert(0, str(_TOP))

from etcdfix import __version__  # noqa: E402  # of this checkout, whatever is installed

project = "etcdfix"
author = "The etcdfix authors"
version = release = __version__
language = "en"
root_doc = "README"
include_patterns = ["README.md", "docs/*.md", "docs/**/*.md"]
extensions = ["myst_parser"]
nitpicky = True

# Links of the pages lead to headings by the names that GitHub gives them.
myst_heading_anchors = 4
# Jinja, YAML with "…" in it and output that looks like a language are shown as they are.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"etcdfix {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

_COMMANDS: Final = re.compile(
    r'(?<=<div class="highlight-sh notranslate"><div class="highlight"><pre>).*?(?=</pre>)', re.DOTALL
)
_TAG_OR_HYPHENED: Final = re.compile(r"<[^>]*>|[^\s<]*-[^\s<]*")

_INDEX: Final = "docs/README"
_COMMANDS_PAGE: Final = "docs/reference/commands"
# To draw it would take a script of another host, or a browser that runs while the site is built.
_NOT_DRAWN: Final = "*A diagram in the words of Mermaid; where the repository is shown, it is drawn.*"


def _links(name: str) -> Iterator[tuple[str, str]]:
    """Yield each page that a page links to, with the heading of level 2 above the link."""
    heading, is_heading = "", False
    text = (_TOP / f"{name}.md").read_text(encoding="utf-8")
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "heading_open":
            is_heading = token.tag == "h2"
        elif token.type == "inline":
            if is_heading:
                heading, is_heading = token.content, False
            for child in token.children or []:
                target = str(child.attrs.get("href", "")).partition("#")[0]
                if target.endswith(".md") and "://" not in target:
                    path = posixpath.normpath(f"{posixpath.dirname(name)}/{target}")
                    if (_TOP / path).is_file():  # else a warning of MyST says so
                        yield heading, path.removesuffix(".md")


def _tables_of_contents() -> dict[str, list[tuple[str, list[str]]]]:
    """Return what stands below each page in the sidebar: captions, and pages that nothing before it has.

    Below the start page stands what the index lists, under the headings of the index.
    """
    sections: dict[str, list[str]] = {"": [_INDEX]}
    seen = {root_doc, _INDEX}
    for heading, page in _links(_INDEX):
        if page not in seen:
            seen.add(page)
            sections.setdefault(heading, []).append(page)
    tables = {root_doc: list(sections.items())}
    # What an index of a folder lists stands below that one, even if another page mentions it first.
    waiting = [page for pages in sections.values() for page in pages]
    waiting.sort(key=lambda page: not page.endswith("/README"))
    for page in waiting:
        below = [
            target for target in dict.fromkeys(target for _, target in _links(page)) if target not in seen
        ]
        seen.update(below)
        waiting += below
        if below:
            tables[page] = [("", below)]
    return tables


_TABLES: Final = _tables_of_contents()


def _complete(_app: Sphinx, name: str, source: list[str]) -> None:
    """Put in what is for the site alone."""
    for caption, pages in _TABLES.get(name, []):
        lines = [
            ":hidden:",
            *([f":caption: {caption}"] if caption else []),
            "",
            *(f"/{page}" for page in pages),
        ]
        source[0] += "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"
    source[0] = source[0].replace("```mermaid", f"{_NOT_DRAWN}\n\n```mermaid")
    if name == _COMMANDS_PAGE:
        source[0] += f"\n{runpy.run_path(str(_DOCS / 'reference' / 'generate.py'))['commands']()}"


def _keep_words_whole(
    _app: Sphinx, _name: str, _template: str, context: dict[str, Any], _tree: object
) -> None:
    """Have commands fold between words only: a browser also breaks behind a hyphen, and ``--`` would stand alone."""
    if "body" in context:
        context["body"] = _COMMANDS.sub(lambda found: _TAG_OR_HYPHENED.sub(_word, found[0]), context["body"])


def _word(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("<") else f'<span class="word">{found[0]}</span>'


def _finish(app: Sphinx, problem: Exception | None) -> None:
    """Write the start page under the name that servers look for."""
    if problem is None and app.builder.name == "html":
        out = Path(app.outdir)
        shutil.copyfile(out / f"{root_doc}.html", out / "index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Have Sphinx call the functions above."""
    app.connect("source-read", _complete)
    app.connect("html-page-context", _keep_words_whole)
    app.connect("build-finished", _finish)
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
