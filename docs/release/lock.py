"""Write the lock files anew: ``python docs/release/lock.py``, in an environment of ``build-requirements.txt``.

What is pinned already stays as it is, unless ``--upgrade`` is said. A lock holds the digests of all files of a version,
for every machine; it names no index. Only the index is asked: a folder of wheels on this machine may hold other files
under the same names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from checkout import ARCHIVES_LOCK, BUILD_LOCK, ROOT, RUNTIME_LOCK

_SOURCES: Final = {
    RUNTIME_LOCK: ["--extra", "kubernetes", "pyproject.toml"],
    BUILD_LOCK: ["docs/release/build-requirements.in"],
    ARCHIVES_LOCK: ["docs/offline/build-requirements.in"],
}
_HEADERS: Final = {
    RUNTIME_LOCK: "What etcdfix runs on, with the extra `kubernetes`",
    BUILD_LOCK: "What a release is made with, from build-requirements.in",
    ARCHIVES_LOCK: "What makes the archives out of a release, from build-requirements.in",
}
_FLAGS: Final = [
    "--quiet", "--no-config", "--no-header", "--strip-extras", "--allow-unsafe", "--generate-hashes",
    "--no-reuse-hashes", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options",
]  # fmt: skip
_OTHER_PLACES: Final = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT")


def main() -> None:
    """Resolve each lock and put it in its place."""
    for lock in _SOURCES:
        lock.write_text(resolve(lock, upgrade="--upgrade" in sys.argv[1:]))


def resolve(lock: Path, *, upgrade: bool) -> str:
    """Return the text of a lock, which keeps the pins of the one that is there unless it is to be upgraded."""
    environment = {key: value for key, value in os.environ.items() if key not in _OTHER_PLACES}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, lock.name)
        if lock.exists() and not upgrade:
            output.write_text(lock.read_text())
        subprocess.run(
            [sys.executable, "-m", "piptools", "compile", *_FLAGS, "--output-file", str(output), *_SOURCES[lock]],
            cwd=ROOT, check=True, env={**environment, "PIP_CONFIG_FILE": os.devnull},
        )  # fmt: skip
        pins = output.read_text()
    return f"# {_HEADERS[lock]}. Written by docs/release/lock.py.\n\n{pins.lstrip()}"


if __name__ == "__main__":
    main()
