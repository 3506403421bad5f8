from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError

import pytest

from etcdfix import __version__
from etcdfix.cli import version
from etcdfix.cli.root import run
from tests.support.collecting import REPOSITORY

pytestmark = pytest.mark.usefixtures("no_variables")


def test_what_it_says(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(version, "version", missing)
    assert run(["version"]) == 0
    out = capfd.readouterr().out
    assert f"etcdfix        {__version__}" in out
    assert "knows 1.17 to 1.37" in out
    assert "writes and reads etcdfix/v1" in out
    assert re.search(r"msgspec +not installed", out)


def test_all_dependencies_are_named() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert tuple(re.split(r"[\[<>=]", one)[0] for one in project["dependencies"]) == version.DEPENDENCIES
