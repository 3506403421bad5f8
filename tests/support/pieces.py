"""What a worker of a test does: each piece of work says it."""

from __future__ import annotations

import time
from collections.abc import Callable

TARGET = f"{__name__}:make"


def make(setup: bytes) -> Callable[[bytes], bytes]:
    if setup == b"unfit":
        raise ValueError(setup)
    return do


def do(piece: bytes) -> bytes:
    """Do one piece, whose first word says how."""
    word, _, rest = piece.partition(b" ")
    match word:
        case b"sleep":
            time.sleep(float(rest.split()[0]))
    return piece[::-1]
