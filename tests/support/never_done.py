"""A request whose end nobody tells, since gRPC's thread died."""

from __future__ import annotations

import time
from typing import NoReturn

from etcdfix.sources.etcd.channel import FutureTimeoutError


class NeverDone:
    """Its future."""

    def result(self, timeout: float | None = None) -> NoReturn:
        assert timeout is not None, "this would wait for ever"
        time.sleep(min(timeout, 0.01))
        raise FutureTimeoutError

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        return
