"""A fresh environment of Python that holds what locks pin, each file by its digest."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT, committed_at


@dataclass(frozen=True)
class Environment:
    """What was made.

    Attributes:
        folder: Where it lies.
        packages: The directory with the wheel of etcdfix.
    """

    folder: Path
    packages: Path

    def run(self, *arguments: str | Path, cwd: Path = ROOT) -> None:
        """Run its interpreter."""
        steady = {
            "PYTHONHASHSEED": "0",
            "SOURCE_DATE_EPOCH": str(committed_at()),
            "PYI_LOG_LEVEL": "ERROR",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        command = [self.folder / "bin/python", *arguments]
        subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **steady})

    def pip(self, verb: str, *arguments: str | Path) -> None:
        """Install or download; nothing is compiled, and nothing taken whose digest no lock has."""
        flags = ["-q", "--only-binary", ":all:", "--require-hashes", "--find-links", self.packages]
        self.run("-m", "pip", verb, *flags, *arguments)


def make_environment(folder: Path, packages: Path, *locks: Path) -> Environment:
    """Make an environment in a folder.

    Args:
        folder: Made by this.
        packages: See :attr:`Environment.packages`.
        locks: What to install.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    made = Environment(folder, packages)
    made.pip("install", *(word for lock in locks for word in ("-r", lock)))
    made.run("-m", "pip", "check")
    return made
