"""The pytest plugin: an etcd for tests.

It is loaded by name, in the ``conftest.py`` at the top of the tests, and never by itself::

    pytest_plugins = ["etcdfix.testing.plugin"]

An entry point would load it for everybody who has etcdfix beside pytest: fixtures with short names in the way of
theirs, and the package imported before a project's own ``pythonpath`` and coverage are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from etcdfix.testing.servers import EtcdServer, EtcdServers, started_or_missing

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``etcd_missing`` from the project's configuration."""
    parser.addini(
        "etcd_missing", 'Where no etcd can be started, tests that want one "fail" or "skip".', default="fail"
    )


@pytest.fixture(scope="session")
def etcd_servers(pytestconfig: pytest.Config) -> Iterator[EtcdServers]:
    """Start etcd servers; all of them end with the session at the latest."""
    with closing(started_or_missing(pytestconfig, EtcdServers.anywhere)) as servers:
        yield servers


@pytest.fixture(scope="session")
def etcd(etcd_servers: EtcdServers) -> EtcdServer:
    """One plain server that tests share; each keeps to the keys under its own ``etcd_prefix``."""
    return etcd_servers.start()


@pytest.fixture
def etcd_prefix() -> str:
    """A storage prefix that no other test uses, and that is never one flipped bit away from that of another test."""
    number = next(_numbers)
    return f"/etcdfix-tests/{number:04}{number:04}"


@pytest.fixture
def fresh_etcd(etcd_servers: EtcdServers) -> Iterator[EtcdServer]:
    """A plain server of the test's own, with nothing in it."""
    with etcd_servers.starter() as start:
        yield start()


@pytest.fixture(scope="module")
def start_etcd(etcd_servers: EtcdServers) -> Iterator[Callable[..., EtcdServer]]:
    """Start a server of one's own, in the variants of ``EtcdServers.start``; it ends with the module."""
    with etcd_servers.starter() as start:
        yield start
