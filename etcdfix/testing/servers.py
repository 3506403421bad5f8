"""Real etcd servers for tests: in containers where a Docker engine answers, else as processes on loopback.

Which etcd is started, ``docs/testing.md`` says. No variable names a server that runs already: tests destroy what they
find. Whoever has one for them says so in code, with :func:`disposable_etcd`.
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

from etcdfix.testing.certificates import CertificateAuthority
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
from etcdfix.testing.writes import HOLDS_NOTHING, ChangeRefused, ClientFiles, Condition, EtcdWriter, holds

MARKER = b"etcdfix-testing/disposable"
"""This key in an etcd says that tests may destroy everything in it; its value must be :data:`MARKER_VALUE`."""
MARKER_VALUE = b"everything in this etcd may be destroyed"

ROOT_USER = ("root", "root-of-the-test")
READER = ("reader", "reads:one prefix")  # a colon in a password is allowed


_GONE = "{}: the key that said that everything may be destroyed is gone; nothing was changed"


class NotDisposable(Exception):
    """An etcd that was given is not one that tests may destroy; nothing was changed in it."""


class EtcdServer:
    """One etcd that is there for a test, made by :class:`EtcdServers` or :func:`disposable_etcd`.

    Attributes:
        endpoint: ``host:port`` as seen from here.
        kind: ``container``, ``process`` or ``given``.
        tls: What clients show and trust; None where they do not speak TLS.
        guarded: Nothing is changed where :data:`MARKER` is not in it. So it is unless whoever makes it has started it.
    """

    def __init__(
        self,
        endpoint: str,
        kind: str,
        ctl: Path,
        *,
        tls: ClientFiles | None = None,
        end: Callable[[], None] = lambda: None,
        guarded: bool = True,
    ) -> None:
        self.endpoint, self.kind, self._ctl, self.tls, self.guarded = endpoint, kind, ctl, tls, guarded
        self._user: tuple[str, str] | None = None
        self._ends = contextlib.ExitStack()
        self._ends.callback(end)
        self._writer: EtcdWriter | None = None

    def etcdctl(self, *arguments: str | Path, input: bytes | None = None) -> bytes:  # noqa: A002 - as subprocess
        """Run etcdctl against this server and return what it printed; raise with its words when it fails.

        Raises:
            NotDisposable: It is one that was given, and its marker is gone.
            AssertionError: etcdctl failed.
        """
        if self.guarded and not self.is_marked():
            raise NotDisposable(_GONE.format(self.endpoint))
        return self._etcdctl(*arguments, input=input)

    @property
    def user(self) -> str | None:
        """``NAME:PASSWORD`` of who may do everything; None while nobody has to log in."""
        return ":".join(self._user) if self._user is not None else None

    def has_member(self, name: str) -> bool:
        """Say whether it is of a cluster with a member of that name."""
        members = self._etcdctl("member", "list").decode(errors="replace")
        return any(line.split(", ")[2:3] == [name] for line in members.splitlines())

    def is_marked(self) -> bool:
        """Say whether :data:`MARKER` is in it."""
        return self._etcdctl("get", "--print-value-only", "--", MARKER.decode()).strip() == MARKER_VALUE

    def empty(self, *, marked: bool) -> None:
        """Delete every key in one transaction; ``marked``: all but :data:`MARKER`."""
        all_others = [(b"\0", MARKER), (MARKER + b"\0", b"\0")]
        with self._writing() as (writer, only_if):
            writer.delete_all(all_others if marked else [*all_others, (MARKER, b"")], only_if=only_if)

    def _etcdctl(self, *arguments: str | Path, input: bytes | None = None) -> bytes:  # noqa: A002 - as subprocess
        command: list[str | Path] = [self._ctl, f"--endpoints={self.endpoint}", "--command-timeout=20s"]
        if self.tls is not None:
            cacert, cert, key = self.tls
            command += [f"--cacert={cacert}", f"--cert={cert}", f"--key={key}"]
        if self._user is not None:
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
        with self._writing() as (writer, only_if):
            return writer.put_all(pairs, only_if=only_if)
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[tuple[EtcdWriter, Condition | None]]:
        """Give what writes, and on what condition it may."""
        if self._writer is None:
            self._writer = self._ends.enter_context(contextlib.closing(EtcdWriter(self.endpoint, self.tls)))
        try:
            yield self._writer, holds(MARKER, MARKER_VALUE) if self.guarded else None
        except ChangeRefused as exc:
            raise NotDisposable(_GONE.format(self.endpoint)) from exc

    def mark(self) -> bool:
        """Put :data:`MARKER` into an etcd that holds no key at all; say whether it was one."""
        with self._writing() as (writer, _only_if), contextlib.suppress(ChangeRefused):
            writer.put_all([(MARKER, MARKER_VALUE)], only_if=HOLDS_NOTHING)
            return True
        return False

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None where there is none."""
        answer = json.loads(self._etcdctl("get", "-w", "json", "--", os.fsdecode(key)))
        values = [base64.b64decode(pair.get("value", "")) for pair in answer.get("kvs", ())]
        return values[0] if values else None

    def delete(self, key: bytes) -> None:
        """Delete one key. Not once users exist."""
        with self._writing() as (writer, only_if):
            writer.delete_all([(key, b"")], only_if=only_if)

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
            name = f"etcdfix-{secrets.token_hex(8)}"

            def certify(host: str) -> None:
                assert authority is not None
                hosts = tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", host)))
                files = authority.issue(f"server-of-{token}", hosts=hosts, expired=expired)
                shutil.copy(files.cert, folder / "server.crt")
                shutil.copy(files.key, folder / "server.key")
                shutil.copy(authority.cert, folder / "ca.crt")

            with unpacked(snapshot) as restorable:
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
            server = EtcdServer(
                endpoint, self.kind, self._tools.ctl, tls=tls, end=stack.pop_all().close, guarded=False
            )
            self._running.callback(server.stop)
            # Which address leads to a container, its engine says, and variables can have a say in that. A certificate
            # that is out of date lets nobody in.
            if self.kind == Containers.kind and not expired and not server.has_member(name):
                raise NoEtcdError(
                    f"{endpoint} is another etcd than the one that was started; nothing was written to it "
                    "(TESTCONTAINERS_HOST_OVERRIDE and DOCKER_HOST say where containers are)"
                )
            return server
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End every server that still runs."""
        self._running.close()

    def _new_token(self) -> str:
        self._started += 1
        return f"etcdfix-tests-{os.getpid()}-{self._started}"


@contextlib.contextmanager
def disposable_etcd(endpoint: str, *, tls: ClientFiles | None = None) -> Iterator[EtcdServer]:
    """Use an etcd that runs already, in which everything may be destroyed; at the end all its keys are deleted.

    It is taken only where it holds no key at all, or :data:`MARKER`. Every put and deletion is one transaction with the
    question whether the marker is still there; what goes by etcdctl is asked right before.

    Args:
        endpoint: ``host:port`` of one member, without users.
        tls: What a client shows and trusts, where it speaks TLS.

    Raises:
        NotDisposable: It holds keys and no marker.
        NoEtcdError: There is no etcdctl.
    """
    server = EtcdServer(
        endpoint.removeprefix("http://").removeprefix("https://"), "given", find_tools().ctl, tls=tls
    )
    try:
        marked = server.is_marked()
        if not marked and not server.mark():
            raise NotDisposable(
                f"{server.endpoint} holds keys, and not the key {MARKER.decode()} that says that all of them may be "
                "destroyed"
            )
        yield server
        server.empty(marked=marked)
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
