"""What all tests have; the fixtures with a real etcd come from ``etcdfix/testing/plugin.py``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.inputs import machine
from etcdfix.sources.etcd import threads
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer, EtcdServers, started_or_missing
from tests.support.change_runs import Registry
from tests.support.empty_machine import forget_machine
from tests.support.thorough import THOROUGH

if TYPE_CHECKING:
    from tests.support.healing import LoseKey

pytest_plugins = ["etcdfix.testing.plugin"]

_machines = count()
_WHOLE_SUITE = 5_000  # tests; fewer are a part that somebody chose
_MOST_RARE = 0.15
_RARE = ("tests/browser/test_site", "tests/integration/jobs/")

# No example has a deadline: machines are slow at times, and the first draw may read a corpus.
settings.register_profile("sample", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("thorough" if THOROUGH else "sample")


def pytest_configure() -> None:
    """Who starts us in the background, or by nohup, has us ignore signals; what is told to stop must hear them.

    Nor does it matter how wide a terminal is (workers are told a width), or what else this machine's variables say.
    """
    os.environ.pop("COLUMNS", None)
    forget_machine(os.environ)
    time.tzset()
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
    """Two workers for each core, as many tests wait; none for few files, and for timing."""
    folders = any(Path(argument).is_dir() for argument in config.args)
    if not folders or config.option.markexpr == "benchmark":
        return 0
    return 2 * len(os.sched_getaffinity(0))


def pytest_itemcollected(item: pytest.Item) -> None:
    """The folder gives the mark."""
    folder = item.nodeid.removeprefix("tests/").partition("/")[0]
    if folder in {"browser", "integration", "faults", "property"}:
        item.add_marker(folder)
    if item.nodeid.startswith(_RARE):
        item.add_marker("thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow and rare, unless tests are thorough: few of them all, and nothing that refuses an attack.

    Raises:
        pytest.UsageError: More than that is marked.
    """
    rare = [item for item in items if item.get_closest_marker("thorough")]
    if len(items) > _WHOLE_SUITE and len(rare) > len(items) * _MOST_RARE:
        raise pytest.UsageError(f"{len(rare)} of {len(items)} tests are thorough: too many")
    if any("/attacks/" in item.nodeid for item in rare if "killed" not in item.nodeid):
        raise pytest.UsageError("what refuses an attack is tried always, not where tests are thorough")
    if rare and not THOROUGH:
        config.hook.pytest_deselected(items=rare)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


@pytest.fixture(scope="session")
def etcd_containers(pytestconfig: pytest.Config) -> Iterator[EtcdServers]:
    """Starts etcd servers in containers, and nowhere else."""
    with closing(started_or_missing(pytestconfig, EtcdServers.in_containers)) as servers:
        yield servers


@pytest.fixture(autouse=True)
def _plugins_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the pace at which KMS plugins are asked, but those of the pace, which name it."""
    defaults = KMSPlugins.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "max_rate", 0.0)


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
def prefix(etcd_prefix: str) -> bytes:
    """The test's own storage prefix, as its etcd keys begin."""
    return f"{etcd_prefix}/".encode()


@pytest.fixture(autouse=True)
def _no_waiting_for_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a machine that dies loses what was not synced; that it is synced, and when, the announced steps show."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(autouse=True)
def _empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test has a machine of its own: nothing runs there, and nothing is kept there yet."""
    root = tmp_path_factory.getbasetemp() / f"machine-{next(_machines)}"
    monkeypatch.setattr(machine, "ROOT", root)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))


@pytest.fixture(scope="module")
def start_local_etcd(pytestconfig: pytest.Config) -> Iterator[Callable[..., EtcdServer]]:
    """As ``start_etcd``, always as processes: their write-ahead logs are at hand, which those in containers are not."""
    made = started_or_missing(pytestconfig, EtcdServers.as_processes)
    with closing(made) as servers, servers.starter() as start:
        yield start


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Set to 022, and back to what it was after the test; sets it to something else."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)
