"""The man pages: one for each command, whole, and without a warning of the programs that show them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.test_variables import COMMANDS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    made = [sys.executable, "docs/reference/manpages.py", str(folder)]
    subprocess.run(made, check=True, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    return sorted(folder.iterdir())


def test_every_command_has_a_page(pages: list[Path]) -> None:
    expected = {"etcdfix.1", *(f"etcdfix-{name.replace(' ', '-')}.1" for name in COMMANDS)}
    assert expected <= {page.name for page in pages}


def test_a_page_has_its_options_examples_and_exit_codes(pages: list[Path]) -> None:
    (page,) = (page.read_text() for page in pages if page.name == "etcdfix-delete.1")
    for wanted in (
        ".SH NAME",
        ".SH EXAMPLES",
        ".SH EXIT STATUS",
        r"\-\-dry\-run",
        r"\-\-quiet",
        "ticket 4711",
    ):
        assert wanted in page


def test_mandoc_finds_nothing(pages: list[Path]) -> None:
    mandoc = shutil.which("mandoc")
    if mandoc is None:
        pytest.skip("there is no mandoc")
    done = subprocess.run(
        [mandoc, "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stdout.splitlines() if "missing date" not in line]
    assert told == []


def test_man_finds_nothing(pages: list[Path]) -> None:
    man = shutil.which("man")
    if man is None:
        pytest.skip("there is no man")
    for page in pages:
        done = subprocess.run(
            [man, "--warnings", "-l", str(page)], capture_output=True, text=True, check=True,
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFOPT": ""},
        )  # fmt: skip
        assert done.stderr == "", page.name
        assert "SYNOPSIS" in done.stdout, page.name
