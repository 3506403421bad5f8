"""Write a man page for every command, from its help: ``python docs/reference/manpages.py DIRECTORY``.

Format: man(7), as groff and mandoc read it. A page has no date: the same version makes the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click

from etcdfix import __version__
from etcdfix.cli.examples import EXAMPLES
from etcdfix.cli.root import cli

_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": 100, "max_content_width": 100}
_AS_IT_IS = "\b"  # click's mark for lines that stay


def pages() -> Iterator[tuple[str, str]]:
    """Yield each page: its name as a file, and its text."""
    yield from _pages(cli, "etcdfix", None)


def _pages(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    with click.Context(command, info_name=name, parent=parent, **_SETTINGS) as context:
        title = context.command_path.replace(" ", "-")
        lines = ["", *_lines(context, title)]
        # A heading begins a paragraph by itself.
        kept = [line for before, line in pairwise(lines) if line != ".PP" or not before.startswith(".SH")]
        yield f"{title}.1", "".join(f"{line}\n" for line in kept)
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield from _pages(found, below, context)


def _lines(context: click.Context, title: str) -> Iterator[str]:
    command = context.command
    first, _, rest = (command.help or "").partition("\n\n")
    yield f'.TH {title.upper()} 1 "" "etcdfix {__version__}" "etcdfix manual"'
    yield ".SH NAME"
    yield f"{_text(title)} \\- {_text(' '.join(first.split()))}"
    yield ".SH SYNOPSIS"
    yield f".B {_text(context.command_path)}"
    yield _text(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    yield from _prose(rest or first)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _item(_text(name), found.get_short_help_str(limit=300))
    yield ".SH OPTIONS"
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            yield from _item(f"\\fB{_text(record[0])}\\fR", record[1])
    examples = EXAMPLES.get(context.command_path.partition(" ")[2], ())
    if examples:
        yield ".SH EXAMPLES"
    for purpose, words in examples:
        yield from (".PP", _text(purpose), *_as_it_is(words.splitlines()))
    if command.epilog:
        yield ".SH EXIT STATUS"
        meanings = re.findall(r"^ +(\d+)  (.*)$", command.epilog, re.MULTILINE)
        for code, meaning in meanings:
            yield from _item(code, meaning)
    if context.parent is not None:
        yield ".SH SEE ALSO"
        yield f".BR {_text(context.parent.command_path.replace(' ', '-'))} (1)"


def _item(title: str, text: str) -> Iterator[str]:
    yield from (".TP", title, _text(" ".join(text.split())))


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        mark, _, lines = paragraph.partition("\n")
        if mark.strip() == _AS_IT_IS:
            yield from _as_it_is(lines.splitlines())
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))


def _as_it_is(lines: list[str]) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".nf", *map(_text, lines), ".fi", ".RE")


def _text(text: str) -> str:
    """Return text in which nothing is a request or an escape; every dash is one that can be pasted."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main() -> None:
    """Write all pages to the directory that is named."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
