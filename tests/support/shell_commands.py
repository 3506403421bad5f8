"""The commands of a piece of shell text, by a parser of the shell's own grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_BASH: Final = Language(tree_sitter_bash.language())
_COMMANDS: Final = frozenset({"command", "declaration_command"})  # the latter: export NAME=VALUE


class NotShellError(Exception):
    """The text is not what a shell would take."""


def _tree(text: str) -> Node:
    root = Parser(_BASH).parse(text.encode()).root_node
    if root.has_error:
        raise NotShellError(text)
    return root


def commands_in(text: str) -> list[list[str]]:
    """Return the words of every command, those of loops, pipes and substitutions too.

    Quotes are taken off; what the shell would put in stays as it is written (``$NAME``).

    Raises:
        NotShellError: A shell would not take it.
    """
    return [[_word(part) for part in _parts(node)] for node in _every(_tree(text)) if node.type in _COMMANDS]


def statements(text: str) -> list[str]:
    """Take a text apart into what a shell runs one after the other; a loop is one, and so is a pipe.

    Raises:
        NotShellError: A shell would not take it, or there is nothing to run.
    """
    starts = [child.start_byte for child in _tree(text).named_children if child.type != "comment"]
    if not starts:
        raise NotShellError(text)
    raw = text.encode()
    return [raw[start:end].decode() for start, end in pairwise([*starts, len(raw)])]


def _every(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        yield from _every(child)


def _parts(command: Node) -> Iterator[Node]:
    if command.type == "declaration_command":
        yield from command.children
    name = command.child_by_field_name("name")
    if name is not None:
        yield name.named_children[0]
    yield from command.children_by_field_name("argument")


def _word(node: Node) -> str:
    text = (node.text or b"").decode()
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        return re.sub(r'\\(["\\$`])', r"\1", text[1:-1])
    if node.type == "concatenation":
        return "".join(_word(child) for child in node.children)
    if node.type == "word":
        return re.sub(r"\\(.)", r"\1", text)
    return text
