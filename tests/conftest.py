"""Fixtures with a real etcd; what they give is explained in ``tests/support/etcd_server.py``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NoReturn

import pytest

from tests.support.etcd_places import NoEtcdError
from tests.support.etcd_server import EtcdServer, EtcdServers, given_server


def _unavailable(problem: NoEtcdError) -> NoReturn:
    # In CI a test that cannot run is a failure: nobody reads the skips there.
    if os.environ.get("CI"):
        pytest.fail(str(problem), pytrace=False)
    pytest.skip(str(problem))


@pytest.fixture(scope="session")
def etcd_servers() -> Iterator[EtcdServers]:
    """Starts etcd servers; all of them end with the session at the latest."""
    try:
        servers = EtcdServers.anywhere()
    except NoEtcdError as exc:
        _unavailable(exc)
    try:
        yield servers
    finally:
        servers.close()


@pytest.fixture(scope="session")
def etcd(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """One plain server that tests share; each keeps to the keys under its own ``prefix``."""
    endpoints = os.environ.get("ETCDFIX_TEST_ENDPOINTS")
    if endpoints is None:
        server = request.getfixturevalue("etcd_servers").start()
        yield server
        server.stop()
        return
    with ExitStack() as stack:
        try:
            server = stack.enter_context(given_server(endpoints))
        except NoEtcdError as exc:
            _unavailable(exc)
        yield server


_NUMBERS = itertools.count(1)


@pytest.fixture
def prefix() -> bytes:
    """A key prefix that no other test uses."""
    return b"/etcdfix-tests/%04d/" % next(_NUMBERS)


@pytest.fixture(scope="module")
def start_etcd(etcd_servers: EtcdServers) -> Iterator[Callable[..., EtcdServer]]:
    """Start a server of one's own, in the variants of ``EtcdServers.start``; it ends with the module."""
    with ExitStack() as stack:

        def start(**variant: object) -> EtcdServer:
            server = etcd_servers.start(**variant)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="session")
def etcd_containers() -> Iterator[EtcdServers]:
    """Starts etcd servers in containers, and nowhere else."""
    try:
        servers = EtcdServers.in_containers()
    except NoEtcdError as exc:
        _unavailable(exc)
    try:
        yield servers
    finally:
        servers.close()
