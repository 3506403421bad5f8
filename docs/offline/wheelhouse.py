"""The wheelhouse: every package as a wheel, with their digests, for a machine that has Python and no index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from archives import digest_of
from environment import EXTRA, ROOT, TOOLS, Environment

INSTALL: Final = """\
# With this interpreter, in this directory; pip is among the wheels, and none need be installed:
#
#   {python} -m venv --without-pip /opt/etcdfix
#   /opt/etcdfix/bin/python wheels/{pip}/pip install --no-index --find-links wheels --require-hashes -r requirements.txt
#   /opt/etcdfix/bin/etcdfix version
"""


def build_wheelhouse(environment: Environment, folder: Path, python: str) -> None:
    """Make the folder.

    Args:
        environment: What it is made of.
        folder: Made by this; its name is that of the archive.
        python: What the interpreter is called that the wheels are for.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    shutil.copyfile(environment.wheel, wheels / environment.wheel.name)
    download: list[str | Path] = ["-m", "pip", "download", "-q", "--only-binary", ":all:", "--dest", wheels]
    if environment.lock is None:
        environment.run(*download, f"{environment.wheel}[{EXTRA}]")
    else:
        environment.run(*download, "--require-hashes", "-r", environment.lock)
    pinned = _pins(wheels)
    environment.run(*download, "--no-deps", "--require-hashes", "-r", _only_pip(folder))
    (pip,) = wheels.glob("pip-*.whl")
    (folder / "requirements.txt").write_text(INSTALL.format(python=python, pip=pip.name) + "".join(pinned))
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")


def _pins(wheels: Path) -> list[str]:
    """Return a line for each wheel: what it is, and the digest of this very file."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{digest_of(wheel)}\n")
    return lines


def _only_pip(folder: Path) -> Path:
    """Write a lock of pip alone, to be removed."""
    lines = TOOLS.read_text().split("\n")
    begin = next(number for number, line in enumerate(lines) if line.startswith("pip=="))
    end = next(
        number for number, line in enumerate(lines) if number > begin and not line.startswith("    --hash")
    )
    lock = folder.parent / "pip.txt"
    lock.write_text("\n".join(lines[begin:end]).rstrip("\\") + "\n")
    return lock
