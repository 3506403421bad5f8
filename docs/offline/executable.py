"""The folder with the executable: etcdfix, Python and all packages, for machines that have none of them."""

from __future__ import annotations

import ast
import platform
import shutil
from pathlib import Path
from typing import Final

from checkout import ARCHIVES_LOCK, ROOT, RUNTIME_LOCK, git, packages_of, pinned, version
from environment import Environment
from libraries import copy_python_licence, elf_files, oldest_glibc, system_libraries, take_along

NAMES: Final = ("kubectl-etcdfix", "kubectl_complete-etcdfix")
"""Other names of the executable, by which kubectl calls it."""

_NOT_NEEDED: Final = (
    "readline",  # its licence would hold for the whole
    "PyInstaller", "_distutils_hack", "altgraph", "packaging", "pip", "pkg_resources", "setuptools",  # only make it
)  # fmt: skip
_OF_GLIBC: Final = ("ld-linux", "libc.", "libdl.", "libm.", "libpthread.", "libresolv.", "librt.", "libutil.")
_PAGES: Final = (
    "README.md",
    "LICENSE",
    "docs/*.md",
    "docs/*.yaml",
    ":!docs/changelog.d",
)


def build_folder(environment: Environment, licences: Path, work: Path, folder: Path) -> None:
    """Make the folder.

    Args:
        environment: What it is made of.
        licences: File with those of all packages.
        work: An empty directory to work in.
        folder: Made by this; its name is that of the archive.
    """
    toc = _freeze(environment, work, folder)
    for name in NAMES:
        (folder / name).symlink_to("etcdfix")
    environment.run("docs/reference/manpages.py", folder / "man1")
    for name in git("ls-files", "-z", *_PAGES).decode().split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "licences").mkdir()
    shutil.copyfile(licences, folder / "licences" / licences.name)
    taken = [
        copy_python_licence(folder / "licences/Python"),
        *take_along(_libraries_of_this_machine(toc, environment.folder), folder / "licences/libraries"),
    ]
    (folder / "BUILD").write_text(_described(folder, taken))


def _freeze(environment: Environment, work: Path, folder: Path) -> Path:
    """Have PyInstaller make the folder; return its list of what went in."""
    shutil.rmtree(packages_of(environment.folder) / "etcdfix/testing")  # it writes to etcd, for tests
    environment.run(
        "-m", "PyInstaller", "--onedir", "--name", "etcdfix", "--noconfirm", "--clean", "--noupx",
        "--distpath", work / "dist", "--workpath", work / "build", "--specpath", work,
        "--collect-submodules", "etcdfix", "--collect-data", "etcdfix", "--recursive-copy-metadata", "etcdfix",
        *(f"--exclude-module={name}" for name in _NOT_NEEDED),
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


def _described(folder: Path, taken: list[str]) -> str:
    """Return what somebody wants to know before it is run: on what, and made of what."""
    libraries = system_libraries(folder / "etcdfix", folder / "_internal")
    others = (
        ", ".join(sorted(path.name for path in libraries if not path.name.startswith(_OF_GLIBC))) or "nothing"
    )
    tools = f"PyInstaller {pinned(ARCHIVES_LOCK)['pyinstaller']}, glibc {platform.libc_ver()[1]}"
    lines = [
        f"etcdfix {version()} for {platform.system()} on {platform.machine()}",
        f"needs: glibc {oldest_glibc(elf_files(folder))} or newer, and beside it of the system {others}; no Python",
        f"made with: Python {platform.python_version()}, {tools}",
        "packages, by docs/release/requirements.txt:",
        *(f"  {name} {at}" for name, at in pinned(RUNTIME_LOCK).items()),
        "of the machine that made it:",
        *(f"  {line}" for line in taken),
    ]
    return "".join(f"{line}\n" for line in lines)
