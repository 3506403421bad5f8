"""What takes the place of a call that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return a function that raises this, whatever it is given."""

    def fail(*_given: object, **_named: object) -> NoReturn:
        raise error

    return fail
