"""A tree of sources that commands are run from."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.support.change_runs import Ran
from tests.support.collecting import REPOSITORY


def unpack(commit: str, folder: Path) -> Path:
    """Put the package of a commit into a folder."""
    command = ["git", "-C", str(REPOSITORY), "archive", commit, "etcdfix", "docs/causes"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        members.extractall(folder, filter="data")
    return folder


class Tree:
    """Runs commands of one tree.

    Args:
        folder: Where its package stands.
        home: Folder for what it leaves behind.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        home.mkdir(parents=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "PYTHONPATH": str(folder),
            "PYTHONHASHSEED": "0",
            "COLUMNS": "100",
        }
        runner = Path(__file__).with_name("runner.py")
        command = [sys.executable, "-P", str(runner)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=home)
        package = self._answer()["package"]
        assert package == str(folder / "etcdfix"), f"{package} is another tree"

    def run(self, *arguments: str) -> Ran:
        """Run a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        return Ran(**self._answer())

    def told(self, *arguments: str) -> dict[str, Any]:
        """Run a command; return its exit code and the JSON that it printed."""
        ran = self.run(*arguments)
        said = (
            [json.loads(line) for line in ran.out.splitlines()] if "jsonl" in arguments else json_of(ran.out)
        )
        return {"exit_code": ran.code, "told": said}

    def close(self) -> None:
        """End it."""
        with self._process:  # which closes what it reads, and waits
            pass

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def json_of(text: str) -> Any:
    """Return a document that was printed; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
