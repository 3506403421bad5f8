"""The wheelhouse: every package as a wheel, with their digests, for a machine that has Python and no index."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from checkout import ARCHIVES_LOCK, ROOT, requirements_in
from environment import Environment

INSTALL: Final = """\
# With this interpreter, in this directory; pip is among the wheels, and none need be installed:
#
#   {python} -m venv --without-pip /opt/etcdfix
#   /opt/etcdfix/bin/python wheels/{pip}/pip install --no-index --find-links wheels --require-hashes -r requirements.txt
#   /opt/etcdfix/bin/etcdfix version

"""
_PIP: Final = re.compile(r"^pip==(?:.*\\\n)*.*\n", re.MULTILINE)


def build_wheelhouse(environment: Environment, licences: Path, folder: Path, python: str) -> None:
    """Make the folder.

    Args:
        environment: What it is made of.
        licences: File with those of all packages.
        folder: Made by this; its name is that of the archive.
        python: What the interpreter is called that the wheels are for.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    requirements = requirements_in(environment.packages)
    (only_pip,) = _PIP.findall(ARCHIVES_LOCK.read_text())
    (lock := folder.parent / "pip.txt").write_text(only_pip)
    environment.pip("download", "--no-deps", "--dest", wheels, "-r", requirements, "-r", lock)
    (pip,) = wheels.glob("pip-*.whl")
    (folder / "requirements.txt").write_text(
        INSTALL.format(python=python, pip=pip.name) + requirements.read_text()
    )
    for file in (ROOT / "LICENSE", licences):
        shutil.copyfile(file, folder / file.name)
