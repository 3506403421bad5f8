"""What tests of the command line have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.fixtures import Captured
from tests.support.objects import KEY_1, configuration_yaml, provider


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The path of a configuration with one key of aescbc, and identity."""
    path = tmp_path / "config.yaml"
    path.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1), {"identity": {}}))
    return str(path)


@pytest.fixture
def command(capfd: Captured, no_variables: None) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command, and returns its exit code and what it wrote."""

    def run_command(*arguments: object) -> tuple[int, str, str]:
        code = run([*map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command
