"""The commands of a runbook, run in a shell as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_blocks import DOCS


def commands_of(page: str) -> list[str]:
    """Return the lines of all blocks of a runbook, in order."""
    text = (DOCS / "runbooks" / page).read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines()]


class Shell:
    """A shell in a folder; each place that the page names is another one here."""

    def __init__(self, folder: Path, places: dict[str, str], **environment: str) -> None:
        self._folder, self._places = folder, places
        for name in ("bin", "backups"):
            (folder / name).mkdir(mode=0o700)
        (folder / "bin" / "etcdfix").symlink_to(Path(sys.executable).with_name("etcdfix"))
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self._environment = {"HOME": str(folder), "PATH": path, **environment}

    def run(self, line: str, expected: int = 0) -> str:
        """Run a command, which must end with this code; return what it printed."""
        for place, here in self._places.items():
            line = line.replace(place, here)
        if " fix " in line:
            line += f" --backup-dir {self._folder / 'backups'} --audit-log {self._folder / 'audit.jsonl'}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == expected, f"{line}\n{told}"
        assert "never-to-be-shown" not in told
        return told
