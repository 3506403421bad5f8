"""What the programs and libraries of a folder need of the system they run on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_ELF: Final = b"\x7fELF"


def elf_files(folder: Path) -> Iterator[Path]:
    """Yield each program and library, by name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == _ELF:
                    yield path


def oldest_glibc(files: Iterable[Path]) -> str:
    """Return the oldest release of glibc that has all that the files ask for by name."""
    shown = subprocess.run(["objdump", "-p", *files], check=True, capture_output=True, text=True).stdout
    wanted = re.findall(r"\bGLIBC_(\d+)\.(\d+)", shown)
    return ".".join(map(str, max((int(major), int(minor)) for major, minor in wanted)))


def system_libraries(files: Iterable[Path], folder: Path) -> set[Path]:
    """Return the libraries of this system that the files of a folder load, the loader among them."""
    found = set()
    for file in files:
        asked = subprocess.run(
            ["ldd", file], capture_output=True, text=True, check=False,
            env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        )  # fmt: skip
        for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", asked.stdout, re.MULTILINE):
            if not Path(path).is_relative_to(folder):
                found.add(Path(path))
    return found
