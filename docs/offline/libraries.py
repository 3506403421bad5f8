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


def system_libraries(program: Path, inside: Path) -> set[Path]:
    """Return the libraries of this system that a folder needs, the loader among them.

    Args:
        program: The executable, which the loader starts before anything in the folder is looked at.
        inside: The directory with its libraries, which come before the system's for all that is in it.
    """
    found = _loaded(program)
    for file in elf_files(inside):
        found |= {path for path in _loaded(file, first=inside) if not path.is_relative_to(inside)}
    return found


def _loaded(file: Path, *, first: Path | None = None) -> set[Path]:
    """Return what the loader would load for a file, from a directory before all others."""
    variables = {**os.environ, **({"LD_LIBRARY_PATH": str(first)} if first is not None else {})}
    shown = subprocess.run(["ldd", file], capture_output=True, text=True, check=False, env=variables).stdout
    return {Path(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", shown, re.MULTILINE)}
