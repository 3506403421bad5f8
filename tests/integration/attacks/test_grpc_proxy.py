"""Through ``etcd grpc-proxy`` everything can be read; what is written depends on whether it shows the members."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.places import clean_environment, find_tools, free_port
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.fixtures import Captured, StartEtcd
from tests.support.objects import config_map, namespace_object

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEY = "/registry/configmaps/shop/settings"
CHANGES = {
    "delete": ["--ignore-store-read-error-with-cluster-breaking-potential"],
    "fix": [],
}


@pytest.fixture
def etcd(start_etcd: StartEtcd) -> EtcdServer:
    server = start_etcd()
    server.put(b"/registry/namespaces/kube-system", namespace_object("kube-system"))
    server.put(KEY.encode(), config_map())
    server.put(KEY.encode(), b"k8s\0broken")
    return server


@contextmanager
def proxy_of(etcd: EtcdServer, folder: Path, *options: str) -> Iterator[str]:
    tools, endpoint = find_tools(), f"127.0.0.1:{free_port()}"
    command: list[str | Path] = [tools.etcd, "grpc-proxy", "start"]
    command += [f"--endpoints={etcd.endpoint}", f"--listen-addr={endpoint}", *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=clean_environment())
    try:
        proxied = EtcdServer(endpoint, "process", tools.ctl)
        until = time.monotonic() + 30
        while "started gRPC proxy" not in (folder / "log").read_text(errors="replace"):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        assert proxied.get(KEY.encode())
        yield endpoint
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", [*CHANGES, "compare"])
def test_without_its_members_nothing_is_changed(
    etcd: EtcdServer, tmp_path: Path, capsys: Captured, command: str
) -> None:
    before = etcd.get(KEY.encode()), etcd.revision()
    places = ["--backup-dir", str(own_directory(tmp_path / "b")), "--audit-log", str(tmp_path / "a")]
    changing = ["--reason", "x", "--yes", *places]
    words = [*CHANGES[command], *changing] if command in CHANGES else []
    with proxy_of(etcd, tmp_path) as proxy:
        assert run(["scan", "--no-encryption", "--endpoints", proxy]) == 1
        assert run(["explain", KEY, "--no-encryption", "--endpoints", proxy]) == 1
        capsys.readouterr()
        assert run([command, KEY, *words, "--no-encryption", "--endpoints", proxy]) == 4
        said = capsys.readouterr().err
        assert proxy in said
        run(["doctor", "--no-encryption", "--endpoints", proxy, "--backup-dir", str(tmp_path)])
        assert "grpc-proxy" in capsys.readouterr().out
    assert (etcd.get(KEY.encode()), etcd.revision()) == before
    assert not (tmp_path / "a").exists()
    if command in CHANGES:
        assert run([command, KEY, *words, "--no-encryption", "--endpoints", etcd.endpoint]) == 0


@pytest.mark.parametrize("command", CHANGES)
def test_where_it_shows_the_members_they_are_asked(etcd: EtcdServer, tmp_path: Path, command: str) -> None:
    places = ["--backup-dir", str(own_directory(tmp_path / "b")), "--audit-log", str(tmp_path / "a")]
    with proxy_of(etcd, tmp_path, "--advertise-client-url=") as proxy:
        source = ["--no-encryption", "--endpoints", proxy, "--reason", "x", "--yes", *places]
        assert run([command, KEY, *CHANGES[command], *source]) == 0
    assert etcd.get(KEY.encode()) == (config_map() if command == "fix" else None)
