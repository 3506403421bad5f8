"""The fenced blocks of the documentation, and the mark before each one that holds commands.

The marks are described in ``docs/contributing.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

REPOSITORY: Final = Path(__file__).parents[2]
DOCS: Final = REPOSITORY / "docs"

COMMANDS: Final = frozenset({"sh", "bash", "console"})
_PROMPT: Final = "$ "
_TEST_COMMAND: Final = "<!-- test-command -->"
_MARK: Final = re.compile(
    r"<!-- (?P<way>run|parsed)(?:: (?P<journey>[a-z0-9-]+))?(?: exit=(?P<exit>\d+(?:,\d+)*))? -->"
)


@dataclass(frozen=True)
class Mark:
    """What a test does with a block.

    Attributes:
        run: It is run, and not only taken apart.
        journey: Blocks of the page that run in one shell.
        exit_codes: Of its last commands; what comes before ends with 0.
        by_ci: It is the README's own test command, which ``.ci/run`` runs.
    """

    run: bool
    journey: str | None = None
    exit_codes: tuple[int, ...] = (0,)
    by_ci: bool = False


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its fence, its info string, the line before it, and under which heading."""

    page: Path
    line: int
    info: str
    text: str
    before: str
    section: int = 0

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    @property
    def mark(self) -> Mark | None:
        """What the mark says, or None where there is none that can be read."""
        if self.before == _TEST_COMMAND:
            return Mark(run=True, by_ci=True)
        found = _MARK.fullmatch(self.before)
        if found is None:
            return Mark(run=False) if self.page.parent.name == "causes" else None
        codes = tuple(map(int, (found["exit"] or "0").split(",")))
        return Mark(run=found["way"] == "run", journey=found["journey"], exit_codes=codes)

    @property
    def commands(self) -> str:
        """What is typed: of a session only what stands behind its prompts."""
        if self.info != "console":
            return self.text
        lines = self.text.splitlines(keepends=True)
        return "".join(line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT))

    @property
    def output(self) -> str | None:
        """What a session shows, or None where nothing is shown."""
        if self.info != "console":
            return None
        lines = self.text.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(_PROMPT)) or None


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page; one without a fence has an empty info string."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    section = 0
    for token in MarkdownIt("commonmark").parse(text):
        section += token.type == "heading_open"
        if token.type in {"fence", "code_block"} and token.map is not None:
            first = token.map[0]
            before = lines[first - 1].strip() if first else ""
            yield Block(page, first + 1, token.info.strip(), token.content, before, section)


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def shown_of(blocks: Sequence[Block]) -> Iterator[tuple[Block, str]]:
    """Yield each line of text that a page shows behind one of these blocks, under the same heading: what it prints."""
    for block, text in pairwise(blocks_of(blocks[0].page)):
        if block in blocks and text.info == "text" and text.section == block.section:
            yield from ((text, line) for line in text.text.splitlines() if line.strip())


def named_in_sentences(page: Path) -> Iterator[tuple[str, str]]:
    """Yield what sentences and tables of a page name as a command of ours, and where."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or []:
            if child.type == "code_inline" and child.content.startswith("etcdfix ") and token.map is not None:
                yield f"{page.relative_to(REPOSITORY)}:{token.map[0] + 1}", child.content
