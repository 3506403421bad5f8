"""Completion: what click offers for words, and that real shells take it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from etcdfix.cli.root import cli, run
from tests.support.fixtures import Captured

pytestmark = pytest.mark.usefixtures("no_variables")


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    completion = ShellComplete(cli, {}, "etcdfix", "_ETCDFIX_COMPLETE")
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_options() -> None:
    assert offered("sc") == ["scan", "schema"]
    assert offered("encryption", "us") == ["usage"]
    assert offered("scan", "--no-k") == ["--no-kms"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, capfd: Captured) -> None:
    if shutil.which("bash") is None:
        pytest.skip("click asks bash for its version, and there is none")
    assert run(["completion", shell]) == 0
    assert f"_ETCDFIX_COMPLETE={shell}_complete" in capfd.readouterr().out


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A folder with an ``etcdfix`` that is this checkout."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "etcdfix"
    path.write_text(f'#!/bin/sh\ncd {Path.cwd()} && exec {sys.executable} -m etcdfix "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def typed(tool: Path, line: str, expected: str) -> str:
    """Type a line and TAB into bash at a terminal; return what it shows until the expected word is there."""
    pid, terminal = pty.fork()
    if not pid:
        environ = {"PATH": f"{tool}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environ)
    shown = ""

    def until(word: str) -> None:
        nonlocal shown
        end = time.monotonic() + 60
        while word not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")

    try:
        os.write(terminal, b"eval \"$(etcdfix completion bash)\"; echo rea''dy\n")
        until("ready")
        shown = ""
        os.write(terminal, line.encode() + b"\t")
        until(expected)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return shown


def test_a_real_bash(tool: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    assert "status" in typed(tool, "etcdfix scan -o stat", "status")
