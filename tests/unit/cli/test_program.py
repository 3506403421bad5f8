"""`kubectl etcdfix` speaks of itself by that name; reports do not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from etcdfix.cli.examples import EXAMPLES
from etcdfix.cli.program import PLUGIN, PROGRAM, as_called
from etcdfix.cli.root import COMMANDS, run
from tests.unit.cli.test_variables import COMMANDS as EVERY_COMMAND

REPOSITORY = Path(__file__).parents[3]
ALPHA = "fixtures/snapshots/alpha/snapshot.db.gz"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run etcdfix scan secrets", "run kubectl etcdfix scan secrets"),
        (
            "etcdfix get KEY, or etcdfix get RESOURCE",
            "kubectl etcdfix get KEY, or kubectl etcdfix get RESOURCE",
        ),
        ("kubectl etcdfix get KEY", "kubectl etcdfix get KEY"),
        ("(etcdfix\n    scan lists them)", "(kubectl etcdfix\n    scan lists them)"),
        ("kubectl\n  etcdfix\n  get KEY", "kubectl\n  etcdfix\n  get KEY"),
        ("what etcdfix can read", "what etcdfix can read"),
        ("/var/lib/etcdfix scan", "/var/lib/etcdfix scan"),
        ("etcdfix scanner", "etcdfix scanner"),
    ],
)
def test_commands_are_named_as_the_program_was_called(text: str, expected: str) -> None:
    assert as_called(text, PLUGIN, COMMANDS) == expected
    assert as_called(text, PROGRAM, COMMANDS) == text


@pytest.mark.parametrize("command", [*dict.fromkeys([*COMMANDS, *EVERY_COMMAND])])
def test_every_help_page(command: str, capfd: pytest.CaptureFixture[str], no_variables: None) -> None:
    assert run([*command.split(), "--help"], PLUGIN) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"Usage: kubectl etcdfix {command} [")
    named = re.findall(rf"(kubectl\s+)?(?<![\w./-])etcdfix\s+(?:{'|'.join(COMMANDS)})\b", out)
    assert all(named)
    examples = [as_called(line, PLUGIN, COMMANDS) for _, line in EXAMPLES.get(command, ())]
    copied = {f"  {part}" for line in examples for part in line.splitlines()}
    assert copied <= set(out.splitlines())
    assert bool(copied) is (command in EVERY_COMMAND)
    assert all(len(line) <= 100 for line in out.splitlines() if PLUGIN in line and line not in copied)
    assert run([*command.split(), "--help"]) == 0
    own = capfd.readouterr().out
    assert PLUGIN not in own
    assert ("Examples:" in own) is (command in EVERY_COMMAND)


def test_messages_and_hints(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert run(["get"], PLUGIN) == 2
    assert "next: kubectl etcdfix get KEY, or kubectl etcdfix get RESOURCE" in capfd.readouterr().err
    assert run(["scan", "--nix"], PLUGIN) == 2
    assert "Try 'kubectl etcdfix scan --help' for help." in capfd.readouterr().err
    assert run(["get", "po", "-n", "infra", "--snapshot", ALPHA, "--no-kms"], PLUGIN) in {1, 3}
    assert "        kubectl etcdfix scan --snapshot" in capfd.readouterr().err


def test_a_report_is_the_same_for_whoever_reads_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    arguments = ["scan", "cm", "--snapshot", ALPHA, "--no-kms"]
    run(arguments, PLUGIN)
    by_kubectl = capfd.readouterr().out
    run(arguments)
    assert by_kubectl == capfd.readouterr().out
    assert PLUGIN not in by_kubectl


def test_the_entry_points() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    assert scripts == {
        "etcdfix": "etcdfix.cli.root:main",
        "kubectl-etcdfix": "etcdfix.cli.root:main_of_plugin",
        "kubectl_complete-etcdfix": "etcdfix.cli.kubectl_completion:main",
    }
