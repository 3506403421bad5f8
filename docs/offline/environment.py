"""A fresh environment of Python with etcdfix and what makes the archives, all of it pinned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = Path(__file__).with_name("build-requirements.txt")
EXTRA: Final = "kubernetes"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What was made.

    Attributes:
        python: Its interpreter.
        wheel: The wheel of etcdfix.
        lock: File with the versions and digests of what etcdfix needs; None where there is none.
        epoch: The time that everything is given, in seconds since 1970.
    """

    python: Path
    wheel: Path
    lock: Path | None
    epoch: int

    def run(self, *arguments: str | Path, cwd: Path = ROOT) -> str:
        """Run its interpreter, and return what it prints."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=cwd,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=self.variables(),
        )
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Return the variables of every program that is run here."""
        return {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYI_LOG_LEVEL": "ERROR",
        }

    def packages(self) -> dict[str, str]:
        """Return the versions of all that is installed, by name."""
        found = json.loads(self.run("-m", "pip", "list", "--format", "json"))
        return {package["name"]: package["version"] for package in found}


def make_environment(folder: Path, lock: Path | None, epoch: int) -> Environment:
    """Make an environment in a folder.

    Args:
        folder: An empty directory.
        lock: See :attr:`Environment.lock`; without one, what ``pyproject.toml`` asks for is taken as it is today.
        epoch: See :attr:`Environment.epoch`.
    """
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    wheels = folder / "wheel"
    _pip(python, "install", "--require-hashes", "-r", TOOLS)
    made = Environment(python=python, wheel=wheels, lock=lock, epoch=epoch)
    subprocess.run(
        [python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir",
         "--wheel-dir", wheels, ROOT],
        check=True, env=made.variables(),
    )  # fmt: skip
    (wheel,) = wheels.glob("etcdfix-*.whl")
    if lock is None:
        _pip(python, "install", f"{wheel}[{EXTRA}]")
    else:
        _pip(python, "install", "--require-hashes", "-r", lock)
        _pip(python, "install", "--no-deps", wheel)
    made = Environment(python=python, wheel=wheel, lock=lock, epoch=epoch)
    made.run("-m", "pip", "check")
    if EXTRA not in made.packages():
        sys.exit(f"{lock}: holds no {EXTRA}, which etcdfix asks API servers with")
    return made


def _pip(python: Path, *arguments: str | Path) -> None:
    pip: Sequence[str | Path] = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments, "--only-binary", ":all:"], check=True)
