"""Completion: what click offers for words, and that real shells take it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from etcdfix.cli.root import cli, run
from tests.support.collecting import ALPHA

pytestmark = pytest.mark.usefixtures("no_variables")

CONFIG = str(ALPHA / "config-rotated.yaml")


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    completion = ShellComplete(cli, {}, "etcdfix", "_ETCDFIX_COMPLETE")
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


def test_commands_and_options() -> None:
    assert offered("sc") == ["scan", "schema"]
    assert offered("encryption", "us") == ["usage"]
    assert offered("scan", "--no-p") == ["--no-progress"]
    assert offered("scan", "--color", "a") == ["auto", "always"]


def test_names() -> None:
    assert "deployments.apps" in offered("scan", "dep")
    assert offered("get", "secr") == ["secrets"]
    assert offered("explain", "wrong-") == ["wrong-key", "wrong-kind-for-key"]


def test_transformers_of_the_configuration_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["delete", "/k", "--declare-key-lost", "aes"]
    assert offered(*words) == []
    found = offered("delete", "/k", "--encryption-config", CONFIG, "--declare-key-lost", "aes")
    assert found
    assert all(name.startswith("aes") for name in found)
    monkeypatch.setenv("ETCDFIX_ENCRYPTION_CONFIG", CONFIG)
    assert offered(*words) == found


def test_no_key_material_is_offered(tmp_path: Path) -> None:
    """Somebody may have typed a key where its name belongs."""
    material = "c2l4dGVlbiBieXRlcyBvZiBhIGtleSBoZXJlISEhISE="
    config = tmp_path / "enc.yaml"
    config.write_text(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n"
        "- resources: [secrets]\n  providers:\n"
        f"  - aescbc: {{keys: [{{name: {material}, secret: {material}}}, {{name: key1, secret: {material}}}]}}\n"
    )
    assert offered("delete", "--encryption-config", str(config), "--declare-key-lost", "") == [
        "aescbc/v1/key1"
    ]


def test_backups_the_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new.json", "old.json")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    found = offered("restore", "--backup-dir", str(tmp_path), "")
    assert found == [str(tmp_path / "new.json"), str(tmp_path / "old.json")]


def test_what_cannot_be_read_offers_nothing_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCDFIX_PLAN", "set in vain")
    assert offered("delete", "--encryption-config", "/none", "--declare-key-lost", "") == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
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


def typed(
    command: list[str], tool: Path, start: str, line: str, expected: str, environ: dict[str, str]
) -> str:
    """Type a line and TAB into a shell at a terminal; return what it shows until the expected word is there."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], command, {"PATH": f"{tool}:{os.environ['PATH']}", "TERM": "dumb", **environ})
    shown = ""

    def until(word: str) -> None:
        nonlocal shown
        end = time.monotonic() + 60
        while word not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")

    try:
        os.write(terminal, f"{start}; echo rea''dy\n".encode())
        until("ready")
        shown = ""
        os.write(terminal, line.encode() + b"\t")
        until(expected)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return shown


CASES = [
    ("etcdfix comple", "etcdfix completion"),
    ("etcdfix encryption usa", "etcdfix encryption usage"),
    ("etcdfix explain authentication-f", "authentication-failed"),
    ("etcdfix scan customresourcedef", "customresourcedefinitions.apiextensions.k8s.io"),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_real_bash(line: str, expected: str, tool: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    words = [bash, "--norc", "--noprofile", "-i"]
    start = 'eval "$(etcdfix completion bash)"'
    assert expected in typed(words, tool, start, line, expected, {"PS1": "$ "})


@pytest.mark.thorough
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_real_zsh(line: str, expected: str, tool: Path, tmp_path: Path) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("there is no zsh")
    start = f'autoload -U compinit; compinit -u -d {tmp_path}/dump; eval "$(etcdfix completion zsh)"'
    shown = typed([zsh, "-f", "-i"], tool, start, line, expected, {"PS1": "$ ", "HOME": str(tmp_path)})
    assert expected in shown


@pytest.mark.thorough
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_real_fish(line: str, expected: str, tool: Path, tmp_path: Path) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("there is no fish")
    script = f"etcdfix completion fish | source; complete -C '{line}'"
    done = subprocess.run(
        [fish, "--no-config", "-c", script], capture_output=True, text=True, check=False,
        env={"PATH": f"{tool}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert expected.rsplit(maxsplit=1)[-1] in done.stdout, done.stderr
