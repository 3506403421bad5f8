"""The licences of everything that is in the archives and is not ours."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

_NAMES: Final = ("license", "licence", "copying", "notice", "authors")


def copy_package_licences(packages: Path, target: Path, *, without: Iterable[str]) -> None:
    """Copy what the packages of an environment bring, each into a directory of its own.

    Args:
        packages: The directory that they are installed in.
        target: Made where it is not there.
        without: Names of packages that only make the archives.
    """
    for package in distributions(path=[str(packages)]):
        if package.name.lower() not in without:
            _copy_all(package, target / f"{package.name}-{package.version}")


def _copy_all(package: Distribution, target: Path) -> None:
    target.mkdir(parents=True)
    said = [*package.metadata.get_all("License-Expression", []), *package.metadata.get_all("License", [])]
    (target / "METADATA").write_text(
        f"{package.name} {package.version}\n{said[0] if said else 'see below'}\n"
        + "".join(
            f"{line}\n" for line in package.metadata.get_all("Classifier", []) if line.startswith("License")
        )
    )
    for file in package.files or []:
        if (
            file.name.lower().startswith(_NAMES)
            and ".dist-info" in file.parts[0]
            and not file.name.endswith(".py")
        ):
            shutil.copyfile(str(file.locate()), target / file.name)


def copy_python_licence(target: Path) -> list[str]:
    """Copy the licence of the interpreter and its library.

    Returns:
        As :func:`copy_library_licences` does.
    """
    library = Path(sysconfig.get_path("stdlib"))
    places = (library / "LICENSE.txt", *_of_debian(library / "os.py"))
    found = next((place for place in places if place.exists()), None)
    if found is None:
        return ["Python"]
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found, target / "Python")
    return []


def copy_library_licences(libraries: Iterable[Path], target: Path) -> list[str]:
    """Copy the licences of libraries of this machine, where it is a Debian and tells them.

    Returns:
        The names of libraries whose licence is not known here.
    """
    unknown = []
    for library in libraries:
        found = next((place for place in _of_debian(library) if place.exists()), None)
        if found is None:
            unknown.append(library.name)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, target / found.parent.name)
    return unknown


def _of_debian(path: Path) -> list[Path]:
    """Return where the licence of a file's package may be."""
    if shutil.which("dpkg-query") is None:
        return []
    asked = {str(path), str(path).removeprefix("/usr"), str(path.resolve())}
    found = subprocess.run(["dpkg-query", "-S", *sorted(asked)], capture_output=True, text=True, check=False)
    packages = {line.partition(":")[0] for line in found.stdout.splitlines()}  # PACKAGE:ARCHITECTURE: PATH
    return [Path("/usr/share/doc", package, "copyright") for package in sorted(packages)]
