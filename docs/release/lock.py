"""Write both lock files anew: ``python docs/release/lock.py``, in an environment of ``build-requirements.txt``.

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

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]

_LOCKS: Final = {
    "requirements.txt": ["--extra", "kubernetes", "pyproject.toml"],
    "build-requirements.txt": ["docs/release/build-requirements.in"],
}
_HEADERS: Final = {
    "requirements.txt": "What etcdfix runs on, with the extra `kubernetes`",
    "build-requirements.txt": "What a release is made with, from build-requirements.in",
}
_FLAGS: Final = [
    "--quiet", "--no-config", "--no-header", "--strip-extras", "--allow-unsafe", "--generate-hashes",
    "--no-reuse-hashes", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options",
]  # fmt: skip
_OTHER_PLACES: Final = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT")


def main() -> None:
    """Resolve each lock and put it in its place."""
    for name in _LOCKS:
        text = resolve(name, upgrade="--upgrade" in sys.argv[1:])
        (HERE / name).write_text(text)


def resolve(name: str, *, upgrade: bool) -> str:
    """Return the text of a lock, which keeps the pins of the one that is there."""
    environment = {key: value for key, value in os.environ.items() if key not in _OTHER_PLACES}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, name)
        if (HERE / name).exists() and not upgrade:
            output.write_text((HERE / name).read_text())
        subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-m", "piptools", "compile", *_FLAGS, *(["--upgrade"] if upgrade else []),
             "--output-file", str(output), *_LOCKS[name]],
            cwd=ROOT, check=True, env={**environment, "PIP_CONFIG_FILE": os.devnull},
        )  # fmt: skip
        pins = output.read_text()
    return f"# {_HEADERS[name]}. Written by docs/release/lock.py.\n\n{pins.lstrip()}"


if __name__ == "__main__":
    main()
