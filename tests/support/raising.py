"""What takes the place of a call that fails, or never ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from etcdfix.sources.etcd.channel import FutureTimeoutError


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return a function that raises this, whatever it is given."""

    def fail(*_given: object, **_named: object) -> NoReturn:
        raise error

    return fail


class NeverDone:
    """The future of a request whose end nobody tells, since gRPC's thread died."""

    def result(self, timeout: float | None = None) -> NoReturn:
        assert timeout is not None, "this would wait for ever"
        time.sleep(min(timeout, 0.01))
        raise FutureTimeoutError

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        return
