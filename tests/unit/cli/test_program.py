"""`kubectl etcdfix` speaks of itself by that name; reports do not."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
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
        "etcdfix": "etcdfix.__main__:main",
        "kubectl-etcdfix": "etcdfix.__main__:main_of_plugin",
    }


@pytest.mark.parametrize("name", ["main", "main_of_plugin"])
@pytest.mark.parametrize("ignored", [False, True])
def test_an_interruption_while_it_starts_has_no_traceback(
    name: str, tmp_path: Path, *, ignored: bool
) -> None:
    """Ctrl-C before the first line of ours runs: nothing is said, and a shell sees 130. Under nohup it goes on."""
    begun = tmp_path / "begun"
    slow = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep({'0.2' if ignored else '60'})"
    (tmp_path / "msgspec.py").write_text(f"{slow}\nraise SystemExit(7)\n")
    handler = "signal.SIG_IGN" if ignored else "signal.default_int_handler"
    code = f"import signal; signal.signal(signal.SIGINT, {handler}); from etcdfix.__main__ import {name}; {name}()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not begun.exists():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (7 if ignored else -signal.SIGINT, "")


def test_it_can_be_interrupted_once_it_has_started() -> None:
    code = (
        "import os, signal; from etcdfix import __main__; from etcdfix.cli import root\n"
        "root.main = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "try: __main__.main()\n"
        "except KeyboardInterrupt: print('as Python does it')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("as Python does it\n", "")
