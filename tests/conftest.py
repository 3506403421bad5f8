"""Fixtures with a real etcd; what they give is explained in ``tests/support/etcd_server.py``."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

from etcdfix.sources.etcd import threads
from tests.support.certificates import CertificateAuthority
from tests.support.change_runs import Registry
from tests.support.etcd_places import NoEtcdError
from tests.support.etcd_server import EtcdServer, EtcdServers, given_server
from tests.support.thorough import THOROUGH

if TYPE_CHECKING:
    from tests.support.healing import LoseKey

_Made = TypeVar("_Made")

# No example has a deadline: machines are slow at times, and the first draw may read a corpus.
settings.register_profile("sample", deadline=None, max_examples=100)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("thorough" if THOROUGH else "sample")


def pytest_configure() -> None:
    """Who starts us in the background, or by nohup, has us ignore signals; what is told to stop must hear them.

    Nor does it matter how wide a terminal is: workers are told a width.
    """
    os.environ.pop("COLUMNS", None)
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The first strategy for text makes the table of all characters, once for a checkout: no draw may wait for that."""
    if any(item.get_closest_marker("hypothesis") for item in session.items):
        from hypothesis import strategies

        strategies.text().validate()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for each core, as many tests wait; none for a few files, for timing, the archives and the exam.

    None either on an etcd that was given: its keys are numbered by one process.
    """
    if "ETCDFIX_TEST_ENDPOINTS" in os.environ:
        return 0
    folders = any(Path(argument).is_dir() for argument in config.args)
    if not folders or config.option.markexpr in {"benchmark", "bundles", "exam"}:
        return 0
    return 2 * len(os.sched_getaffinity(0))


def pytest_itemcollected(item: pytest.Item) -> None:
    """The folder gives the mark."""
    folder = item.nodeid.removeprefix("tests/").partition("/")[0]
    if folder in {"browser", "integration", "faults", "property"}:
        item.add_marker(folder)
    elif folder == "offline":
        item.add_marker("bundles")


def _or_skip(make: Callable[[], _Made]) -> _Made:
    try:
        return make()
    except NoEtcdError as exc:
        pytest.skip(str(exc))  # which .ci/run counts as a failure: nobody reads the skips there


@pytest.fixture(scope="session")
def etcd_servers() -> Iterator[EtcdServers]:
    """Starts etcd servers; all of them end with the session at the latest."""
    with closing(_or_skip(EtcdServers.anywhere)) as servers:
        yield servers


@pytest.fixture(scope="session")
def etcd_containers() -> Iterator[EtcdServers]:
    """Starts etcd servers in containers, and nowhere else."""
    with closing(_or_skip(EtcdServers.in_containers)) as servers:
        yield servers


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
        yield _or_skip(lambda: stack.enter_context(given_server(endpoints)))


_NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True)
def _nothing_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test leaves standing still is no reason for another to end the process at once."""
    monkeypatch.setattr(threads, "_stuck", [])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """Issues certificates to servers and clients of one module's tests."""
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what commands read options from."""
    for name in list(os.environ):
        if name.startswith(("ETCDFIX_", "ETCDCTL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    """A small cluster of its own, and the commands that change it."""
    return Registry(etcd, prefix, tmp_path, capfd)


@pytest.fixture
def lose_key(
    etcd: EtcdServer,
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
) -> LoseKey:
    """Make a cluster on etcd that lost its encryption key; the names of its Secrets may be given."""
    from tests.support.healing import lost_key_cluster

    return partial(lost_key_cluster, etcd, prefix, tmp_path, capfd, authority)


@pytest.fixture
def prefix() -> bytes:
    """A key prefix that no other test uses, and that is never one flipped bit away from that of another test."""
    number = next(_NUMBERS)
    return b"/etcdfix-tests/%04d%04d/" % (number, number)


@pytest.fixture(autouse=True)
def _no_cluster_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command of a test finds what runs on this machine."""
    monkeypatch.setattr("etcdfix.cli.presets.ROOT", Path("/no/cluster/here"))


@contextmanager
def _starter(servers: EtcdServers) -> Iterator[Callable[..., EtcdServer]]:
    with ExitStack() as stack:

        def start(**variant: Any) -> EtcdServer:
            server = servers.start(**variant)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="module")
def start_etcd(etcd_servers: EtcdServers) -> Iterator[Callable[..., EtcdServer]]:
    """Start a server of one's own, in the variants of ``EtcdServers.start``; it ends with the module."""
    with _starter(etcd_servers) as start:
        yield start


@pytest.fixture(scope="module")
def start_local_etcd() -> Iterator[Callable[..., EtcdServer]]:
    """The same, always as processes: their write-ahead logs are at hand, which those in containers are not."""
    with closing(_or_skip(EtcdServers.as_processes)) as servers, _starter(servers) as start:
        yield start
