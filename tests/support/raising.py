"""What takes the place of a call that fails, or never ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return a function that raises this, whatever it is given."""

    def fail(*_given: object, **_named: object) -> NoReturn:
        raise error

    return fail


def never_told(_answer: object, seconds: float) -> bool:
    """Wait for a request whose end nobody tells, since gRPC's thread died."""
    time.sleep(min(seconds, 0.01))
    return False
