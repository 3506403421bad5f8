"""What keeps the memory of this process, with keys and contents in it, from others."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from typing import Final

# <linux/prctl.h>
_PR_SET_DUMPABLE: Final = 4


def forbid_core_dumps() -> None:
    """Have a crash leave no core file, and nobody but root look into this process.

    The limit alone does not count where the kernel hands core dumps to a program; there the second counts. It holds
    until the next ``exec``. Where one of the two is not to be had, the other has to do.
    """
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):  # no prctl outside Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
