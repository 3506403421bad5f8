"""What pytest shows of a call that failed: the message and the test's own line. Our frames hold keys and plaintext."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def without_frames(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Drop the frames below a call from what it raises: pytest shows their arguments and variables."""

    @functools.wraps(function)
    def call(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        __tracebackhide__ = True  # of pytest: what failed is the test's own line
        try:
            return function(*arguments, **named)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it goes on
            raise exc.with_traceback(None) from None

    return call
