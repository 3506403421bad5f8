"""What fixtures with a server are made of; apart from the plugin, which nobody may import before pytest does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import pytest

from etcdfix.testing.places import NoEtcdError
from etcdfix.testing.servers import EtcdServer, EtcdServers

_Made = TypeVar("_Made")
MISSING = "etcd_missing"
"""Name of the setting that says what becomes of tests that cannot have an etcd."""


def started_or_missing(config: pytest.Config, make: Callable[[], _Made]) -> _Made:
    """Return what was made; where there is no etcd, fail or skip the test, with the reason."""
    try:
        return make()
    except NoEtcdError as exc:
        if config.getini(MISSING) == "skip":
            pytest.skip(str(exc))
        pytest.fail(f"{exc}; or set {MISSING} = skip in the configuration of pytest", pytrace=False)


@contextmanager
def starter(servers: EtcdServers) -> Iterator[Callable[..., EtcdServer]]:
    """Give what starts servers; all of them end with the block."""
    with ExitStack() as stack:

        def start(**variant: Any) -> EtcdServer:
            server = servers.start(**variant)
            stack.callback(server.stop)
            return server

        yield start
