"""Real etcd servers for tests: in containers where a Docker engine answers, else as processes on loopback.

``docs/testing.md`` says which etcd is started. Tests destroy what they find, so nothing here takes an address.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcdfix.testing.places import (
    Containers,
    NoEtcdError,
    Processes,
    Tools,
    Wanted,
    clean_environment,
    find_tools,
    packaged_tools,
)
from etcdfix.testing.writes import ClientFiles, EtcdWriter

if TYPE_CHECKING:
    from etcdfix.testing.certificates import CertificateAuthority

ROOT_USER = ("root", "root-of-the-test")
READER = ("reader", "reads:one prefix")  # a colon in a password is allowed


class EtcdServer:
    """One etcd that was started for a test by :class:`EtcdServers`.

    Attributes:
        endpoint: ``host:port`` as seen from here.
        kind: ``container`` or ``process``.
        tls: What clients show and trust; None where they do not speak TLS.
        user: ``NAME:PASSWORD`` of the user with every right; None while nobody has to log in.
    """

    user: str | None = None

    def __init__(
        self,
        endpoint: str,
        kind: str,
        ctl: Path,
        *,
        tls: ClientFiles | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoint, self.kind, self._ctl, self.tls = endpoint, kind, ctl, tls
        self._ends = contextlib.ExitStack()
        self._ends.callback(end)
        self._writer: EtcdWriter | None = None

    def etcdctl(self, *arguments: str | Path, input: bytes | None = None) -> bytes:  # noqa: A002 - as subprocess
        """Run etcdctl against this server and return what it printed.

        Raises:
            AssertionError: etcdctl failed; with its words.
        """
        command: list[str | Path] = [self._ctl, f"--endpoints={self.endpoint}", "--command-timeout=20s"]
        if self.tls is not None:
            cacert, cert, key = self.tls
            command += [f"--cacert={cacert}", f"--cert={cert}", f"--key={key}"]
        if self.user is not None:
            command.append(f"--user={self.user}")
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
        return self._open_writer().put_all(pairs)

    def delete(self, key: bytes) -> None:
        """Delete one key. Not once users exist."""
        self._open_writer().delete(key)

    def _open_writer(self) -> EtcdWriter:
        if self._writer is None:
            self._writer = self._ends.enter_context(contextlib.closing(EtcdWriter(self.endpoint, self.tls)))
        return self._writer

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None where there is none."""
        pairs = self._answer("get", "--", os.fsdecode(key)).get("kvs", ())
        return base64.b64decode(pairs[0].get("value", "")) if pairs else None

    def revision(self) -> int:
        """The newest revision."""
        return int(self._answer("get", "revision-of-this-etcd")["header"]["revision"])

    def _answer(self, *arguments: str) -> Any:
        return json.loads(self.etcdctl("-w", "json", *arguments))

    def compact(self) -> int:
        """Compact everything before the newest revision, and return that."""
        newest = self.revision()
        self.etcdctl("compact", "--physical", str(newest))
        return newest

    def require_login(self, readable: bytes) -> None:
        """Enable authentication: ROOT_USER may do everything, READER may read below ``readable``."""
        self._add_user(ROOT_USER, "root")
        self.add_reader(READER, "below", readable)
        self.etcdctl("auth", "enable")
        self.user = ":".join(ROOT_USER)

    def add_reader(self, user: tuple[str, str], role: str, readable: bytes) -> None:
        """Add a user, by name and password, who may read below ``readable`` by a role of this name."""
        self.etcdctl("role", "add", role)
        self.etcdctl("role", "grant-permission", role, "read", "--prefix=true", os.fsdecode(readable))
        self._add_user(user, role)

    def _add_user(self, user: tuple[str, str], role: str) -> None:
        # Not NAME:PASSWORD: etcdctl would split at the first colon, and one of our passwords has one.
        self.etcdctl("user", "add", "--interactive=false", user[0], f"--new-user-password={user[1]}")
        self.etcdctl("user", "grant-role", user[0], role)

    def forget_tokens(self) -> None:
        """Make every token that was handed out invalid, as happens when one expires."""
        self.etcdctl("auth", "disable")
        root, self.user = self.user, None
        self.etcdctl("auth", "enable")
        self.user = root

    def stop(self) -> None:
        """End it and remove what it left; more than once is fine."""
        self._writer = None
        self._ends.close()


class EtcdServers:
    """Starts servers in one place, in the variants that tests want, and ends them all.

    Attributes:
        kind: ``container`` or ``process``.
    """

    def __init__(self, place: Processes | Containers, tools: Tools) -> None:
        self.kind = place.kind
        self._place, self._tools = place, tools
        self._running = contextlib.ExitStack()

    @classmethod
    def anywhere(cls) -> EtcdServers:
        """In containers if an engine answers and no binary is named, else as processes.

        Raises:
            NoEtcdError: Neither is there.
        """
        if "ETCDFIX_TEST_ETCD" not in os.environ:
            with contextlib.suppress(NoEtcdError):
                return cls.in_containers()
        return cls.as_processes()

    @classmethod
    def as_processes(cls) -> EtcdServers:
        """As processes, whose files are at hand; raises NoEtcdError where there is no etcd to start."""
        return cls(Processes(), find_tools())

    @classmethod
    def in_containers(cls) -> EtcdServers:
        """In containers and nowhere else; raises NoEtcdError where that is not possible."""
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
        name = f"etcdfix-{secrets.token_hex(8)}"
        token = token or name
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-test-")))

            def certify(host: str) -> None:
                assert authority is not None
                hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", host)))
                files = authority.issue(f"server-of-{token}", hosts=hosts, expired=expired)
                shutil.copy(files.cert, folder / "server.crt")
                shutil.copy(files.key, folder / "server.key")
                shutil.copy(authority.cert, folder / "ca.crt")

            with _unpacked(snapshot) as restorable:
                wanted = Wanted(
                    tools=self._tools, folder=folder, certify=certify if authority is not None else None,
                    client_certificates=client_certificates, snapshot=restorable, token=token, flags=flags, name=name,
                )  # fmt: skip
                endpoint, end = self._place.launch(wanted)
            stack.callback(end)
            tls = None
            if authority is not None:
                shown = authority.issue(f"client-of-{token}")
                tls = ClientFiles(authority.cert, shown.cert, shown.key)
            server = EtcdServer(endpoint, self.kind, self._tools.ctl, tls=tls, end=stack.pop_all().close)
            self._running.callback(server.stop)
            # The engine, and variables, say which address leads to a container. Nobody gets in past a certificate that
            # is out of date.
            if (
                self.kind == Containers.kind
                and not expired
                and name.encode() not in server.etcdctl("member", "list")
            ):
                raise NoEtcdError(
                    f"{endpoint} is another etcd than the one that was started; nothing was written to it "
                    "(TESTCONTAINERS_HOST_OVERRIDE and DOCKER_HOST say where containers are)"
                )
            return server
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def starter(self) -> Iterator[Callable[..., EtcdServer]]:
        """Give what starts servers, as :meth:`start` does; all of them end with the block."""
        with contextlib.ExitStack() as stack:

            def start(**variant: Any) -> EtcdServer:
                server = self.start(**variant)
                stack.callback(server.stop)
                return server

            yield start

    def close(self) -> None:
        """End every server that still runs."""
        self._running.close()


def started_or_missing(config: Any, make: Callable[[], EtcdServers]) -> EtcdServers:
    """Return what was made; where there is no etcd, fail or skip the test, with the reason; ``config`` is pytest's."""
    import pytest  # noqa: PLC0415 - of the extra

    try:
        return make()
    except NoEtcdError as exc:
        if config.getini("etcd_missing") == "skip":
            pytest.skip(str(exc))
        pytest.fail(f"{exc}; or set etcd_missing = skip in the configuration of pytest", pytrace=False)


@contextlib.contextmanager
def _unpacked(snapshot: Path | None) -> Iterator[Path | None]:
    if snapshot is None or snapshot.suffix != ".gz":
        yield snapshot
        return
    with tempfile.TemporaryDirectory(prefix="etcdfix-test-") as aside:
        target = Path(aside) / "snapshot.db"
        with gzip.open(snapshot) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
        yield target
