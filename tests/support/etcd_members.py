"""A cluster of real members that a test can stop, start again, and tamper with while they are down."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from etcdfix.testing.places import NoEtcdError, clean_environment, find_tools, free_port, wait_until_ready
from etcdfix.testing.servers import EtcdServer
from tests.support.objects import secret


def broken(name: str) -> bytes:
    """Return a Secret that cannot be read, as long as the readable one."""
    return secret(name).replace(b"\x12\x06Secret", b"\x12\x7fSecret")


class EtcdMembers:
    """Members as processes on loopback, each with a folder of its own.

    Attributes:
        names: Of all members, learners included.
    """

    def __init__(self, folder: Path, count: int) -> None:
        """Prepare; :meth:`start` starts them."""
        self.names = [f"member-{number}" for number in range(count)]
        self._tools = find_tools()
        self._folder = folder
        self._peers = {name: f"http://127.0.0.1:{free_port()}" for name in self.names}
        self._clients = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._initial = dict(self._peers)

    def endpoint(self, name: str) -> str:
        return self._clients[name]

    def endpoints(self) -> tuple[str, ...]:
        return tuple(self._clients[name] for name in self.names)

    def server(self, name: str) -> EtcdServer:
        return EtcdServer(self._clients[name], "process", self._tools.ctl)

    def member_id(self, name: str) -> int:
        for line in self.server(self.names[0]).etcdctl("member", "list").decode().splitlines():
            fields = line.split(", ")
            if fields[2] == name:
                return int(fields[0], 16)
        raise AssertionError(name)

    def start(self, *names: str, state: str = "new") -> None:
        """Start members and wait until they serve; none does before a majority runs."""
        for name in names:
            home = self._folder / name
            home.mkdir(exist_ok=True)
            arguments = [
                f"--name={name}",
                f"--data-dir={home / 'data'}",
                f"--listen-client-urls=http://{self._clients[name]}",
                f"--advertise-client-urls=http://{self._clients[name]}",
                f"--listen-peer-urls={self._peers[name]}",
                f"--initial-advertise-peer-urls={self._peers[name]}",
                "--initial-cluster=" + ",".join(f"{n}={url}" for n, url in self._initial.items()),
                f"--initial-cluster-token={self._folder.name}",
                f"--initial-cluster-state={state}",
                # Else members may join only after the cluster has been in touch for a while.
                "--strict-reconfig-check=false",
                "--heartbeat-interval=100",
                "--election-timeout=1000",
                *self._tools.no_fsync,
            ]
            with (home / "log").open("wb") as output:
                self._processes[name] = subprocess.Popen(
                    [self._tools.etcd, *arguments], stdout=output, stderr=output, env=clean_environment()
                )
        for name in names:
            wait_until_ready(self._folder / name, partial(self._runs, name))

    def _runs(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def stop(self, name: str) -> None:
        """End a member in good order: what it was told is in its database then."""
        # A member that was behind when the others took a write would end without it; no answer before it has all.
        self.server(name).etcdctl("get", "all-that-was-written")
        process = self._processes.pop(name)
        process.terminate()
        process.wait()

    def tamper(self, name: str, old: bytes, new: bytes) -> None:
        """Replace bytes in the database of a member that is stopped; pages of bbolt have no checksums."""
        assert len(old) == len(new)
        database = self._folder / name / "data" / "member" / "snap" / "db"
        content = database.read_bytes()
        assert old in content
        database.write_bytes(content.replace(old, new))

    def close(self) -> None:
        # Killed, not asked: each would hand its leadership over to the next one first.
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()


@contextlib.contextmanager
def etcd_members(folder: Path, count: int = 3) -> Iterator[EtcdMembers]:
    """Start a cluster; it ends with the block. The test is skipped where there is no etcd to start."""
    try:
        members = EtcdMembers(folder, count)
    except NoEtcdError as exc:
        pytest.skip(str(exc))
    with contextlib.closing(members):
        members.start(*members.names)
        yield members
