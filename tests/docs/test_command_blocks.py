"""Every block of commands in the documentation is run, or taken apart and held against what the programs take."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.support.command_blocks import (
    COMMANDS,
    REPOSITORY,
    Block,
    all_blocks,
    named_in_sentences,
    pages,
    shown_of,
)
from tests.support.documented_commands import NotACommandError, check
from tests.support.pasted import apart, missing, paste
from tests.support.shell_commands import commands_in

OTHERS = {"text", "yaml", "json", "toml", "ini", "html", "mermaid", "python", "promql", "groovy"}
BLOCKS = all_blocks()
WITH_COMMANDS = [block for block in BLOCKS if block.info in COMMANDS]


def journeys() -> list[list[Block]]:
    alone, together = [], defaultdict(list)
    for block in WITH_COMMANDS:
        if block.mark is None or not block.mark.run or block.mark.by_ci:
            continue
        if block.mark.journey is None:
            alone.append([block])
        else:
            together[block.page, block.mark.journey].append(block)
    return [*together.values(), *alone]


def _pasted(blocks: list[Block]) -> ParameterSet:
    page = blocks[0].page
    rare = page.parent.name in {"runbooks", "causes"} and page.name not in {
        "500-on-list.md",
        "trailing-bytes.md",
    }
    return pytest.param(blocks, id=blocks[0].where, marks=[pytest.mark.thorough] if rare else [])


def test_every_block_with_commands_is_marked() -> None:
    assert [block.where for block in WITH_COMMANDS if block.mark is None] == []


@pytest.mark.parametrize("block", WITH_COMMANDS, ids=lambda block: block.where)
def test_a_block_is_of_commands_that_exist(block: Block) -> None:
    read = subprocess.run(["bash", "-n"], input=block.commands, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    found = commands_in(block.commands)
    assert found, "no command in it"
    for words in found:
        check(words)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_sentences_name_is_a_command(page: Path) -> None:
    for where, text in named_in_sentences(page):
        for words in commands_in(re.sub(r"(?<=\w)(\|[\w-]+)+", "", text)):  # bash|zsh|fish: the first of them
            try:
                check(words, whole=False)
            except NotACommandError as exc:
                pytest.fail(f"{where}: {text}: {exc}")


@pytest.mark.parametrize("blocks", [_pasted(blocks) for blocks in journeys()])
def test_blocks_run_as_they_are_pasted(blocks: list[Block], tmp_path: Path) -> None:
    if apart() is None:
        pytest.skip("no namespaces of its own for a shell")
    if lacking := missing(blocks):
        pytest.skip(f"not on this machine: {', '.join(lacking)}")
    printed = paste(blocks, tmp_path)
    shown = [block.output for block in blocks if block.output is not None]
    if shown and len(blocks) == 1:
        assert printed.rstrip() == shown[0].rstrip()
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for text, line in shown_of(blocks):
        parts = re.split(r"\.\.\.|…", " ".join(line.split()))
        pattern = re.compile(".*".join(map(re.escape, parts)))
        assert any(map(pattern.fullmatch, lines)), f"{text.where} shows what was not printed: {line}"


# --- the checks themselves --------------------------------------------------------------------------------------------


def block(text: str, mark: str = "<!-- run -->", info: str = "sh") -> Block:
    return Block(REPOSITORY / "README.md", 1, info, text, mark)


@pytest.mark.parametrize(
    ("text", "mark", "passes"),
    [
        ("true\nfalse; (exit 3)\ntrue | cat &\n", "<!-- run exit=1,3,0 -->", True),
        ("false\ntrue\n", "<!-- run -->", False),
        ("true\n", "<!-- run exit=1,0 -->", False),
        ("if true; then\n  exit 3\nfi\n", "<!-- run exit=3 -->", False),  # a reader's shell would be gone
        ("test -d fixtures && cd / && ls -A /var/lib | wc -l | grep -qx 0\n", "<!-- run -->", True),
    ],
)
def test_a_run_ends_as_its_mark_says(text: str, mark: str, passes: bool, tmp_path: Path) -> None:
    if apart() is None:
        pytest.skip("no namespaces of its own for a shell")
    if passes:
        paste([block(text, mark)], tmp_path)
        return
    with pytest.raises(AssertionError, match="exit code"):
        paste([block(text, mark)], tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "etcdfix scann",
        "etcdfix scan --no-such-option",
        "etcdfix scan --revision many",
        "etcdfix scan -o pdf",
        "etcdfix explain --snapshot backup.db | etcdfix scan --snapshot",
        "echo $(etcdfix scan --no-colour)",
        "while true; do etcdfix encryption lin enc.yaml; done",
        "kubectl -n shop gett pods",
        "notaprogram --help",
    ],
)
def test_what_is_wrong_is_found(command: str) -> None:
    *before, last = commands_in(command)
    for words in before:
        if "$(" not in " ".join(words):
            check(words)
    with pytest.raises(NotACommandError):
        check(last)
