"""How etcdfix and its plugin for pytest start: with any Python one line, with the right one little to import."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

import etcdfix
from etcdfix import __main__

PACKAGE = Path(etcdfix.__file__).parent
SLOW = (
    "grpc",
    "cryptography",
    "testcontainers",
    "docker",
    "kubernetes",
    "etcdfix.examine",
    "etcdfix.commands",
)


def test_an_old_python_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("__init__.py", "__main__.py"):
        ast.parse((PACKAGE / module).read_text(), feature_version=(3, 7))
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(
        SystemExit, match=r"^etcdfix: needs Python 3\.11 or newer, and this is Python 3\.9\.2;"
    ):
        __main__.main()


def test_a_library_of_another_python_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *arguments: object) -> object:
        if name == "etcdfix.cli":
            raise ModuleNotFoundError("No module named 'msgspec._core'", name="msgspec._core")
        return real(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(SystemExit, match=r"^etcdfix: msgspec\._core cannot be loaded; "):
        __main__.main()


def test_the_plugin_for_pytest_imports_nothing_slow() -> None:
    script = f"import etcdfix.testing.plugin, sys; print([name for name in {SLOW} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
