"""The folder with the executable: etcdfix, Python and all packages, for machines that have none of them."""

from __future__ import annotations

import ast
import platform
import shutil
from pathlib import Path
from typing import Final

from environment import ROOT, Environment
from libraries import elf_files, oldest_glibc, system_libraries
from licences import copy_library_licences, copy_package_licences, copy_python_licence

NAMES: Final = ("kubectl-etcdfix", "kubectl_complete-etcdfix")
"""Other names of the executable, by which kubectl calls it."""

_TOOLS: Final = frozenset({
    "altgraph", "hatchling", "packaging", "pathspec", "pip", "pluggy", "pyinstaller", "pyinstaller-hooks-contrib",
    "setuptools", "tomlkit", "trove-classifiers",
})  # fmt: skip
_OF_GLIBC: Final = ("ld-linux", "libc.", "libdl.", "libm.", "libpthread.", "libresolv.", "librt.", "libutil.")
_DOCS: Final = (".md", ".yaml")


def build_folder(environment: Environment, work: Path, folder: Path) -> None:
    """Make the folder.

    Args:
        environment: What it is made of.
        work: An empty directory to work in.
        folder: Made by this; its name is that of the archive.
    """
    toc = _freeze(environment, work, folder)
    for name in NAMES:
        (folder / name).symlink_to("etcdfix")
    environment.run("docs/reference/manpages.py", folder / "man1")
    for name in ("README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=_left_out)
    home = environment.python.parents[1]
    (packages,) = home.glob("lib/python*/site-packages")
    copy_package_licences(packages, folder / "licences", without={*_TOOLS, "etcdfix"})
    unknown = copy_python_licence(folder / "licences")
    unknown += copy_library_licences(_libraries_of_this_machine(toc, home), folder / "licences/libraries")
    (folder / "BUILD").write_text(_described(environment, folder, unknown))


def _left_out(directory: str, names: list[str]) -> list[str]:
    """Return what of docs does not go in: all but pages and manifests."""
    files = [name for name in names if (Path(directory) / name).is_file()]
    return ["changelog.d", "screenshots", *(name for name in files if Path(name).suffix not in _DOCS)]


def _freeze(environment: Environment, work: Path, folder: Path) -> Path:
    """Have PyInstaller make the folder; return its list of what went in."""
    dependencies = environment.run(
        "-c", "from etcdfix.cli.version import DEPENDENCIES; print(*DEPENDENCIES)", cwd=work
    ).split()
    environment.run(
        "-m", "PyInstaller", "--onedir", "--name", "etcdfix", "--noconfirm", "--clean", "--noupx",
        "--distpath", work / "dist", "--workpath", work / "build", "--specpath", work,
        "--collect-submodules", "etcdfix", "--collect-data", "etcdfix",
        "--exclude-module", "readline",  # nothing needs it, and its licence would hold for the whole
        *(f"--copy-metadata={name}" for name in dependencies),
        ROOT / "docs/offline/entry.py",
        cwd=work,
    )  # fmt: skip
    (work / "dist/etcdfix").rename(folder)
    for record in (folder / "_internal").glob("*.dist-info/RECORD"):
        record.unlink()  # of the environment, its place too
    return work / "build/etcdfix/COLLECT-00.toc"


def _libraries_of_this_machine(toc: Path, environment: Path) -> list[Path]:
    """Return what PyInstaller took from the system: neither from a package nor from Python."""
    (entries,) = ast.literal_eval(toc.read_text())
    sources = {Path(source) for _, source, kind in entries if kind == "BINARY"}
    return sorted(
        path
        for path in sources
        if not path.is_relative_to(environment) and not path.name.startswith("libpython")
    )


def _described(environment: Environment, folder: Path, unknown: list[str]) -> str:
    """Return what somebody wants to know before it is run: on what, and made of what."""
    packages = {
        name: version for name, version in environment.packages().items() if name.lower() not in _TOOLS
    }
    tools = environment.packages()
    lock = "versions by docs/release/requirements.txt" if environment.lock else "versions not pinned"
    libc = platform.libc_ver()[1]
    libraries = system_libraries(folder / "etcdfix", folder / "_internal")
    others = (
        ", ".join(sorted(path.name for path in libraries if not path.name.startswith(_OF_GLIBC))) or "nothing"
    )
    lines = [
        f"etcdfix {packages.pop('etcdfix')} for {platform.system()} on {platform.machine()}",
        f"needs: glibc {oldest_glibc(elf_files(folder))} or newer, and beside it of the system {others}; no Python",
        f"made with: Python {platform.python_version()}, PyInstaller {tools['pyinstaller']}, glibc {libc}",
        f"{lock}:",
        *(
            f"  {name} {version}"
            for name, version in sorted(packages.items(), key=lambda item: item[0].lower())
        ),
    ]
    if unknown:
        lines.append(
            f"parts of the machine that made it, whose licence was not found there: {', '.join(unknown)}"
        )
    return "".join(f"{line}\n" for line in lines)
