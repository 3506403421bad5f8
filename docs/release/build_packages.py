"""Build the sdist and the wheel of the last commit: ``python docs/release/build_packages.py [DIRECTORY]``.

Runs in an environment of ``build-requirements.txt``. The same commit makes the same bytes: what is built is an export
of the commit, so nothing that only lies about here gets in, and every file has the time of the commit. The wheel is
built from the sdist. Beside them goes ``etcdfix-VERSION-requirements.txt``: the lock, and the digests of both files.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version as installed
from pathlib import Path

from checkout import (
    BUILD_LOCK,
    ROOT,
    RUNTIME_LOCK,
    committed_at,
    digest_of,
    git,
    pinned,
    requirements_in,
    version,
)


def main() -> None:
    """Build into the directory that is named, or into ``dist``."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    wanted = pinned(BUILD_LOCK)["hatchling"]
    if installed("hatchling") != wanted:
        sys.exit(
            f"hatchling here is {installed('hatchling')}: install {BUILD_LOCK.name}, which pins {wanted}"
        )
    changed = git("status", "--porcelain", "--untracked-files=no").decode()
    if changed:
        sys.exit(f"what is not committed would not be in the release; commit it first:\n{changed}")
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        sys.exit(f"{target} is not empty: what lies there would be taken for a part of the release")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "etcdfix")
        with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD"))) as export:
            export.extractall(tree, filter="data")
        subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", target.resolve(), tree],
            cwd=folder, check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(committed_at())},
        )  # fmt: skip
    built = sorted(target.iterdir())
    requirements = requirements_in(target)
    requirements.write_text(RUNTIME_LOCK.read_text() + _requirement(built))
    for file in (*built, requirements):
        sys.stdout.write(f"{digest_of(file)}  {file.name}\n")


def _requirement(files: list[Path]) -> str:
    return " \\\n    --hash=sha256:".join([f"etcdfix=={version()}", *map(digest_of, files)]) + "\n"


if __name__ == "__main__":
    main()
