"""Help, schemas and completion: examples that parse, the nearest of an unknown command."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import click
import msgspec
import pytest
from click.shell_completion import ShellComplete

from etcdfix import __version__
from etcdfix.cli.about import audit_schema
from etcdfix.cli.examples import EXAMPLES
from etcdfix.cli.plan import run_command
from etcdfix.cli.root import cli, run
from etcdfix.report.schema import SCHEMAS
from tests.support.fixtures import Captured, Patch
from tests.unit.cli.test_options import COMMANDS

pytestmark = pytest.mark.usefixtures("no_variables")


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, examples in EXAMPLES.items() for _, line in examples]
)
def test_an_example_is_one_that_its_command_takes(name: str, line: str, capfd: Captured) -> None:
    inner = re.search(r"\$\((etcdfix [^)]*)\)", line)  # for a shell
    words = shlex.split(re.split(r" [|>] ", inner[1] if inner else line)[0].replace("\\\n", " "))
    assert words.pop(0) == "etcdfix"
    assert " ".join(words[: len(name.split())]) == name
    context = cli.make_context("etcdfix", list(words), resilient_parsing=True)
    group: click.Group = cli
    while True:
        found, command, words = group.resolve_command(context, words)
        assert command is not None
        if not isinstance(command, click.Group):
            break
        context, group = (
            command.make_context(found, list(words), parent=context, resilient_parsing=True),
            command,
        )
    with command.make_context(found, words, parent=context) as parsed:
        assert parsed.params or name == "version"  # which takes nothing
    assert max(map(len, line.splitlines())) <= 100
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", [*COMMANDS, "plan --run FILE"])
def test_a_page_fits_and_has_shared_options_as_names_at_its_end(
    name: str, capfd: Captured, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run([*name.split(), "--help"]) == 0
    page, _, shared = capfd.readouterr().out.partition("Shared options, explained by etcdfix help options:\n")
    for _purpose, line in EXAMPLES.get(name, ()):
        assert all(f"  {part}\n" in page for part in line.splitlines())  # whole, to be copied
    names = re.findall(r"--[a-z0-9-]+", shared)
    assert 1 <= len(shared.splitlines()) <= 6
    assert page.count("\n") + shared.count("\n") + 1 <= 60
    assert run(["help", "options"]) == 0
    explained = re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", capfd.readouterr().out, flags=re.MULTILINE)
    assert set(names) <= set(explained)
    own = page.partition("\nOptions:\n")[2]
    assert not set(names) & set(re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", own, flags=re.MULTILINE))


def test_there_are_at_most_seventy_options() -> None:
    found = {
        name for command in (*COMMANDS.values(), run_command) for one in command.params for name in one.opts
    }
    assert len([name for name in found if name.startswith("--")]) + 2 <= 70  # --help, and ETCDFIX_DEBUG


@pytest.mark.parametrize("words", [["dlete", "/registry/x"], ["help", "dlete"]])
def test_an_unknown_command_is_told_the_nearest(words: list[str], capfd: Captured) -> None:
    assert run(words) == 2
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith("Error: No such command 'dlete'.")
    assert "'delete'" in told


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["help"], ["--help"]),
        (["help", "delete", "--", "/registry/x"], ["delete", "--help"]),
        (["help", "encryption"], ["encryption", "--help"]),
        (["encryption", "help", "usage"], ["encryption", "usage", "--help"]),
        (["help", "log", "verify", "x"], ["log", "verify", "--help"]),
    ],
    ids=" ".join,
)
def test_help_in_words(words: list[str], page: list[str], capfd: Captured) -> None:
    assert run(page) == 0
    expected = capfd.readouterr()
    assert run(words) == 0
    assert capfd.readouterr() == expected


ALL = {**SCHEMAS, "audit": audit_schema}


@pytest.mark.parametrize(("words", "name"), [([], "report"), (["finding"], "finding"), (["audit"], "audit")])
def test_schema_is_printed(capfd: Captured, words: list[str], name: str) -> None:
    assert run(["schema", *words]) == 0
    assert json.loads(capfd.readouterr().out) == json.loads(msgspec.json.encode(ALL[name]()))


def test_help_names_each_schema_and_no_other(capfd: Captured) -> None:
    assert run(["schema", "--help"]) == 0
    (names,) = re.findall(r"\n\n((?: {4}[a-z].*\n)+)", capfd.readouterr().out)
    assert "".join(names.split()).split(",") == list(ALL)


def test_what_it_says(capfd: Captured, no_variables: None) -> None:
    assert run(["version"]) == 0
    first, _python, *knows = capfd.readouterr().out.splitlines()
    assert first == f"etcdfix {__version__}"
    assert knows == ["Kubernetes: knows 1.17 to 1.37", "reports: writes and reads etcdfix/v1"]


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
