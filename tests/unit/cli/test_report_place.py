"""A report that goes to a file is told of in one line: where it is, its form, and how it begins as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured

LOST = str(ALPHA / "config-lost.yaml")
SOURCE = ("--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", LOST, "--no-kms")
ROTATED = str(ALPHA / "config-rotated.yaml")
KEY = "/registry/configmaps/infra/cm-4"
Run = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def etcdfix(capfd: Captured) -> Run:
    """Return a function that runs a command, and returns its output and the lines on standard error."""

    def run_command(*arguments: str) -> tuple[str, list[str]]:
        assert run(list(arguments)) in {0, 1, 3}
        captured = capfd.readouterr()
        return captured.out, captured.err.splitlines()

    return run_command


@pytest.mark.parametrize(
    ("command", "form"),
    [
        (("scan", *SOURCE), "json"),
        (("scan", *SOURCE, "pods", "-n", "shop"), "html"),
        (("scan", *SOURCE, "secrets"), "jsonl"),
        (("scan", *SOURCE, "services"), "text"),
        (("namespace", "default", *SOURCE), "json"),
        (("explain", KEY, "--history", *SOURCE), "yaml"),
        (("copies", KEY, *SOURCE), "json"),
        (("compare", "--with-snapshot", str(ALPHA / "snapshot.db.gz"), *SOURCE), "json"),
        (("encryption", "what-if", *SOURCE, "--new", ROTATED), "junit"),
        (("encryption", "check", LOST, ROTATED), "yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_file_is_told_of_with_the_first_line_of_the_table(
    etcdfix: Run, tmp_path: Path, command: tuple[str, ...], form: str
) -> None:
    table, _lines = etcdfix(*command)
    target = tmp_path / "report"
    out, lines = etcdfix(*command, "-o", form, "--output-file", str(target))
    assert out == ""
    told = [line for line in lines if line.startswith("etcdfix: wrote ")]
    assert told == [f"etcdfix: wrote {target} ({form}): {table.splitlines()[0]}"]
    assert target.stat().st_size


@pytest.mark.parametrize("where", ["-", "/dev/stdout", "/dev/null"])
def test_what_is_no_file_is_not_told_of(etcdfix: Run, where: str) -> None:
    _out, lines = etcdfix("scan", *SOURCE, "pods", "-o", "name", "--output-file", where)
    assert lines == []
