"""What the programs and libraries of a folder need of the system they run on, and under which licences."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_ELF: Final = b"\x7fELF"
_UNKNOWN: Final = "its licence was not found there"


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


def take_along(libraries: Iterable[Path], licences: Path) -> list[str]:
    """Copy the licences of libraries of this machine, where it is a Debian and tells them.

    Returns:
        A line for each: its name, and the package and version that it is from, or that its licence is not known here.
    """
    told = []
    for library in libraries:
        package, version = _package_of(library)
        found = Path("/usr/share/doc", package, "copyright")
        if package and found.exists():
            licences.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, licences / package)
            told.append(f"{library.name} of {package} {version}")
        else:
            told.append(f"{library.name}: {_UNKNOWN}")
    return told


def copy_python_licence(target: Path) -> str:
    """Copy the licence of the interpreter and its library; return a line as :func:`take_along` does."""
    library = Path(sysconfig.get_path("stdlib"))
    package, _ = _package_of(library / "os.py")
    for place in (library / "LICENSE.txt", Path("/usr/share/doc", package, "copyright")):
        if place.is_file():
            shutil.copyfile(place, target)
            return f"Python {platform.python_version()}"
    return f"Python: {_UNKNOWN}"


def _package_of(path: Path) -> tuple[str, str]:
    """Return the package that a file is from and its version; empty where no Debian tells it."""
    if shutil.which("dpkg-query") is None:
        return "", ""
    asked = {str(path), str(path).removeprefix("/usr"), str(path.resolve())}
    found = re.search(r"^(?!diversion )([^\s:,]+)", _dpkg("-S", *sorted(asked)), re.MULTILINE)
    if found is None:
        return "", ""
    return found[1], _dpkg("-W", "-f", "${Version}\n", found[1]).partition("\n")[0]


def _dpkg(*words: str) -> str:
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True, check=False).stdout
