"""A worker of a program that has its interpreter and modules within itself, such as one that PyInstaller made.

It starts itself once more, with one argument. A program does so that calls :func:`work_if_asked` before it reads any
command line; any other one has no workers.
"""

from __future__ import annotations

import os
import sys
from typing import Final

WORKER_ARGUMENT: Final = "--be-a-worker-of-etcdfix"


class _ThisProgram:
    heeds_the_argument = False


def is_frozen() -> bool:
    """Whether this program is such a one."""
    return bool(getattr(sys, "frozen", False))


def can_be_its_own_worker() -> bool:
    """Whether this program, started once more with the argument, is a worker."""
    return is_frozen() and _ThisProgram.heeds_the_argument


def work_if_asked() -> None:
    """Be a worker until nobody asks any more, if this is what the program was started for; else return at once."""
    _ThisProgram.heeds_the_argument = True
    if sys.argv[1:] != [WORKER_ARGUMENT]:
        return
    from etcdfix.workers.worker import main  # noqa: PLC0415 - every start of the program comes by here

    work = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - read until the process ends
    work.read(int.from_bytes(work.read(8), "little"))  # import paths: its modules are in the program
    main(work)
