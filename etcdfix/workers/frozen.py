"""A worker of a program that has its interpreter and modules within itself, such as one that PyInstaller made.

It starts itself once more, with one argument. What reads that argument, before any command line, calls :func:`main`.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

WORKER_ARGUMENT: Final = "--be-a-worker-of-etcdfix"


def is_frozen() -> bool:
    """Whether this program is such a one."""
    return bool(getattr(sys, "frozen", False))


def main() -> NoReturn:
    """Be a worker. The import paths that come first are not needed: its modules are in the program."""
    from etcdfix.workers.worker import main as work_until_the_end  # noqa: PLC0415 - every start of the program imports us

    work = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - read until the process ends
    work.read(int.from_bytes(work.read(8), "little"))
    work_until_the_end(work)
