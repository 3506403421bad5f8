"""The archives for machines without internet, made by the documented command, once for all tests."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nowhere import NOBODY, Nowhere, can_make_namespaces, nowhere
from tests.support.offline_jobs import REPOSITORY

PAGE = REPOSITORY / "docs/offline/README.md"


def the_command() -> list[str]:
    """The command that the page gives, word by word."""
    (line,) = {
        line for line in PAGE.read_text().splitlines() if line.startswith("python3 docs/offline/build.py")
    }
    return shlex.split(line)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all archives. ``ETCDFIX_TEST_ARCHIVES`` names one that is made already."""
    if made := os.environ.get("ETCDFIX_TEST_ARCHIVES"):
        return Path(made)
    folder = tmp_path_factory.mktemp("archives")
    program, script, *options = the_command()
    assert program == "python3"
    assert options == ["--output-dir", "dist"]
    subprocess.run([sys.executable, script, "--output-dir", folder], cwd=REPOSITORY, check=True)
    return folder


def only(archives: Path, pattern: str) -> Path:
    (found,) = archives.glob(pattern)
    return found


@pytest.fixture(scope="session")
def place() -> Iterator[Nowhere]:
    """Where there is no network."""
    if why := can_make_namespaces():
        pytest.skip(why)
    with nowhere() as made:
        yield made


@pytest.fixture(scope="session")
def executable(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the executable, unpacked by somebody who is not root, below a name with a space."""
    folder = tmp_path_factory.mktemp("unpacked") / "of somebody"
    folder.mkdir()
    archive = folder / only(archives, "etcdfix-*-linux-*[!s].tar.gz").name
    shutil.copy(only(archives, archive.name), archive)
    for path in (folder, archive):
        os.chown(path, NOBODY, NOBODY)
    for above in folder.parents[: folder.parts.__len__() - 3]:
        above.chmod(above.stat().st_mode | 0o055)
    subprocess.run(["tar", "xzf", archive.name], cwd=folder, check=True, user=NOBODY, group=NOBODY)
    archive.unlink()
    (found,) = folder.iterdir()
    assert found.stat().st_uid == NOBODY
    assert found.name + ".tar.gz" == archive.name
    return found


def names_in(archive: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(archive) as tar:
        return tar.getmembers()


def modules_in(executable: bytes) -> set[str]:
    """What can be imported in a frozen program, by the table in it."""
    begin = executable.index(b"PYZ\0" + importlib.util.MAGIC_NUMBER)
    table = begin + int.from_bytes(executable[begin + 8 : begin + 12], "big")
    return {name for name, _ in marshal.loads(executable[table:])}
