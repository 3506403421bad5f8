"""What the other scripts ask this checkout: its version, its last commit, its locks."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
RUNTIME_LOCK: Final = HERE / "requirements.txt"
BUILD_LOCK: Final = HERE / "build-requirements.txt"
ARCHIVES_LOCK: Final = HERE.parent / "offline/build-requirements.txt"


def version() -> str:
    """Return the version that ``etcdfix/__init__.py`` tells."""
    text = (ROOT / "etcdfix/__init__.py").read_text()
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def requirements_in(folder: Path) -> Path:
    """Return the file of a release that pins all, the wheel beside it too."""
    return folder / f"etcdfix-{version()}-requirements.txt"


def committed_at() -> int:
    """Return when the last commit was made, in seconds since 1970: every file of a release has this time."""
    return int(git("log", "-1", "--format=%ct"))


def git(*words: str) -> bytes:
    """Run git in this checkout, and return what it prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def same_name(name: str) -> str:
    """Return the one spelling of a package's name that an index compares by."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: Path) -> dict[str, str]:
    """Return what a lock pins: versions by name."""
    return {same_name(name): at for name, at in re.findall(r"^(\S+)==(\S+)", lock.read_text(), re.MULTILINE)}


def packages_of(environment: Path) -> Path:
    """Return the directory that the packages of an environment lie in."""
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found
