"""What --from and --in name is there, or nothing is opened: one mistake, one exit code, one way out."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.fixtures import Captured

pytestmark = pytest.mark.usefixtures("no_variables")

KEY = "/registry/secrets/shop/db"
REST = ["--endpoints", "127.0.0.1:1"]
FILES = ("snapshot", "backup", "object", "candidate")
NO_FILE = "it cannot be read: no such file or directory"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        *((f"{kind}:{{folder}}", "it is a directory, not a file") for kind in FILES),
        *((f"{kind}:{{folder}}/none", NO_FILE) for kind in (*FILES, "log")),
        ("snapshot:{file}/inside", NO_FILE),
        ("log:{file}", "it is a file, not a directory"),
        ("log:{file}#7", "it is a file, not a directory"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["fix", KEY, "--reason", "a b", "--dry-run"], "--from"),
        (["fix", KEY, "--reason", "a b"], "--in"),
        (["explain", KEY], "--in"),
        (["copies"], "--in"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_what_is_not_there_is_a_usage_error(
    tmp_path: Path, capfd: Captured, command: list[str], option: str, place: str, what: str
) -> None:
    (tmp_path / "file").touch()
    word = place.format(folder=tmp_path, file=tmp_path / "file")
    assert run([*command, option, word, *REST]) == 2
    told, hint = capfd.readouterr().err.splitlines()
    kind, _, path = word.partition("#")[0].partition(":")
    assert told == f"etcdfix: {option} {kind}: {path}: {what}"
    assert hint == f"  next: write {kind}:{'DIR[#ENTRY]' if kind == 'log' else 'FILE'}"


def test_a_key_in_another_option_is_not_repeated(capfd: Captured) -> None:
    typed = base64.b64encode(b"\x07" * 32).decode()
    assert run(["fix", KEY, "--reason", "x", "--from", "object:none", "--encryption-config", typed]) == 2
    assert typed not in capfd.readouterr().err
