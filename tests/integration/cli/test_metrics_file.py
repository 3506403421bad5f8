"""``--metrics-file`` with real processes, and of a real etcd."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.change_runs import Registry
from tests.support.collecting import ALPHA
from tests.support.metrics import names, read_metrics, value


class Silent(NamedTuple):
    """A server, and the connections that it took."""

    server: socket.socket
    accepted: contextlib.ExitStack

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.getsockname()[1]}"

    def accept(self) -> None:
        self.accepted.enter_context(self.server.accept()[0])


pytestmark = pytest.mark.usefixtures("no_variables")


@pytest.fixture
def silent() -> Iterator[Silent]:
    """Return a server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as accepted:
        server.settimeout(60)
        yield Silent(server, accepted)


@pytest.mark.etcd
def test_of_a_live_etcd(registry: Registry, tmp_path: Path) -> None:
    metrics = tmp_path / "etcdfix.prom"
    ran = registry.run("scan", *registry.common(places=False, reason=None), "--metrics-file", str(metrics))
    found = read_metrics(metrics.read_bytes())
    assert value(found, "etcdfix_scan_exit_code") == ran.code
    assert value(found, "etcdfix_scan_revision") > 0
    assert value(found, "etcdfix_scan_keys", outcome="decrypt-failure") > 0
    (what,) = (dict(labels) for name, labels in found if name == "etcdfix_scan_info")
    assert what["source"] == "etcd"
    assert "etcdfix_scan_snapshot_timestamp_seconds" not in names(found)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_scan_that_is_told_to_end_says_so(
    silent: Silent, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    metrics = tmp_path / "etcdfix.prom"
    last_night(metrics)
    scan = waiting_scan(silent, metrics)
    scan.send_signal(number)
    assert scan.wait() == code
    found = read_metrics(metrics.read_bytes())
    assert value(found, "etcdfix_scan_exit_code") == code
    assert value(found, "etcdfix_scan_complete") == value(found, "etcdfix_scan_reached_end") == 0
    assert value(found, "etcdfix_scan_last_complete_timestamp_seconds") > 0
    assert "etcdfix_scan_keys" not in names(found)
    assert [*tmp_path.iterdir()] == [metrics]


def test_one_that_is_killed_leaves_last_nights_file_and_nothing_else(silent: Silent, tmp_path: Path) -> None:
    metrics = tmp_path / "etcdfix.prom"
    last_night(metrics)
    before = metrics.read_bytes()
    scan = waiting_scan(silent, metrics)
    scan.kill()
    assert scan.wait() == -signal.SIGKILL
    assert metrics.read_bytes() == before
    assert {path.suffix for path in tmp_path.iterdir()} <= {".prom", ".partial"}


def last_night(metrics: Path) -> None:
    words = ["--snapshot", str(ALPHA / "snapshot.db.gz"), "--no-encryption", "namespaces", "-o", "name"]
    done = subprocess.run(
        [sys.executable, "-m", "etcdfix", "scan", *words, "--metrics-file", str(metrics)],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert value(read_metrics(metrics.read_bytes()), "etcdfix_scan_complete") == 1


def waiting_scan(silent: Silent, metrics: Path) -> subprocess.Popen[bytes]:
    """Start a scan, and return it once it waits for an answer."""
    words = ["--endpoints", silent.endpoint, "--dial-timeout", "120s", "--command-timeout", "120s"]
    scan = subprocess.Popen(
        [sys.executable, "-m", "etcdfix", "scan", *words, "--metrics-file", str(metrics)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    silent.accept()
    return scan
