"""How large the project may be: the table ``[tool.etcdfix.budget]`` of ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from etcdfix.cli.root import cli

ROOT = Path(__file__).parents[2]
BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["etcdfix"]["budget"]


def files(folder: str, ending: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob(f"*{ending}") if "practice/" not in str(path)]


def lines(folder: str) -> int:
    return sum(path.read_text().count("\n") for path in files(folder, ".py"))


def words() -> int:
    return sum(len(path.read_text().split()) for path in (ROOT / "README.md", *files("docs", ".md")))


def options() -> int:
    found: set[str] = set()
    waiting: list[click.Command] = [cli]
    while waiting:
        command = waiting.pop()
        found |= {name for option in command.params for name in option.opts if name.startswith("--")}
        if isinstance(command, click.Group):
            context = click.Context(command)
            below = (command.get_command(context, name) for name in command.list_commands(context))
            waiting += [one for one in below if one]
    return len(found)


WHOLE: dict[str, Callable[[], int]] = {
    "package-lines": lambda: lines("etcdfix"),
    "test-lines": lambda: sum(lines(folder) for folder in ("tests", "fixtures", ".ci", "docs")),
    "words": words,
    "options": options,
    "readme-lines": lambda: (ROOT / "README.md").read_text().count("\n"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_project_stays_within_its_budget(name: str) -> None:
    assert WHOLE[name]() <= BUDGET[name], (
        f"take something away, or change {name} in pyproject.toml and say why"
    )


def test_each_package_stays_within_its_budget() -> None:
    packages = {path.name for path in (ROOT / "etcdfix").iterdir() if (path / "__init__.py").exists()}
    assert packages == set(BUDGET["packages"])
    over = {
        name: count for name in packages if (count := lines(f"etcdfix/{name}")) > BUDGET["packages"][name]
    }
    assert over == {}


def test_no_module_is_longer_than_a_person_reads() -> None:
    most = BUDGET["module-lines"]
    longer = {
        str(path.relative_to(ROOT)) for path in files("etcdfix", ".py") if path.read_text().count("\n") > most
    }
    assert longer == set(BUDGET["longer-modules"])
