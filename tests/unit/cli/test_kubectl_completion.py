"""What kubectl is told when somebody presses the tabulator."""

from __future__ import annotations

import subprocess
import sys

import pytest

from etcdfix.cli.kubectl_completion import completions
from etcdfix.cli.root import COMMANDS, cli


def told(*words: str) -> tuple[list[str], str]:
    *lines, directive = completions(cli, words)
    return [line.split("\t")[0] for line in lines], directive


def test_commands() -> None:
    assert told("") == (list(COMMANDS), ":4")
    assert told() == (list(COMMANDS), ":4")
    assert told("re") == (["restore", "reencrypt", "repair", "rescue", "report"], ":4")
    assert told("encryption", "wh") == (["what-if"], ":4")


@pytest.mark.parametrize("command", ["scan", "get", "copies", "compare"])
def test_resources(command: str) -> None:
    assert told(command, "deploy") == (["deployments.apps"], ":4")
    assert told(command, "secrets,deploy") == (["secrets,deployments.apps"], ":4")
    assert told(command, "-n", "shop", "config") == (["configmaps"], ":4")


@pytest.mark.parametrize("command", ["impact", "history", "explain"])
def test_objects_begin_with_their_type_and_a_slash(command: str) -> None:
    assert told(command, "secr") == (["secrets/"], ":6")


def test_causes() -> None:
    assert told("explain", "wrong-k") == (["wrong-key", "wrong-kind-for-key"], ":4")


def test_options_and_their_values() -> None:
    assert "--snapshot" in told("scan", "--sn")[0]
    assert told("get", "-o", "ta") == (["table"], ":4")
    assert told("scan", "--snapshot", "x") == ([], ":0")  # files are the shell's business


def test_the_protocol() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "from etcdfix.cli.kubectl_completion import main; main()", "ge"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [f"get\t{COMMANDS['get'][1]}", ":4"]
    assert ran.stderr == ""
