"""Whole scans with several jobs, as processes of their own: watched, disturbed, and looked after once they ended."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import REPOSITORY
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    aesgcm,
    config_map,
    configuration_of_rules,
    namespace_object,
    provider,
    secret,
)
from tests.support.thorough import THOROUGH

JOBS: Final = 4
SECRETS: Final = 8_000
CONFIG_MAPS: Final = 4_000
DAMAGED_EACH: Final = 500
"""One in so many values is damaged."""

SEEDS: Final = 60
"""Under KMS v2 so many seeds; each is asked for once."""

# <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER: Final = 36
_WORKERS_BEGIN_SECONDS: Final = 30.0
_GONE_SECONDS: Final = 1.0


class Ended(NamedTuple):
    """How a command came to its end."""

    code: int
    out: bytes
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The report that it gave."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass
class Command:
    """One command in a process group and a temporary directory of its own."""

    temporary: Path
    arguments: Sequence[str | Path]
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    interpreter: Sequence[str] = (sys.executable, "-m", "etcdfix")

    def __post_init__(self) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETCDFIX_", "ETCDCTL_", "COVERAGE_", "PYTHON"))
        }
        self._others = set(children_of(os.getpid()))
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - until it ended
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": self._out,
            "stderr": self._err,
            "cwd": REPOSITORY,
            "process_group": 0,
        }
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [*self.interpreter, *map(str, self.arguments)],
            env={**kept, "TMPDIR": str(self.temporary), **self.environment},
            **(options | dict(self.options)),
        )

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        return children_of(self.process.pid)

    def wait_for_workers(self) -> list[int]:
        """Wait until it has workers; none where it ended without."""
        deadline = time.monotonic() + _WORKERS_BEGIN_SECONDS
        while not (found := self.workers()):
            if self.process.poll() is not None:
                return []
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return found

    def finish(self, seconds: float = 60) -> Ended:
        """Wait for its end; nothing of it may be left a moment later."""
        piped, _ = self.process.communicate(timeout=seconds)
        self.check_nothing_left(seconds=_GONE_SECONDS)
        out, err = self._written()
        return Ended(self.process.returncode, out or piped or b"", err)

    def _written(self) -> tuple[bytes, str]:
        with self._out, self._err:
            self._out.seek(0)
            self._err.seek(0)
            return self._out.read(), self._err.read().decode()

    def kill(self) -> None:
        """Kill it as the kernel does where memory is short; its workers must go by themselves."""
        self.process.kill()
        self.process.wait(30)
        self.check_nothing_left(seconds=_GONE_SECONDS)
        self._written()

    def check_nothing_left(self, *, seconds: float) -> None:
        """Fail where a process of it still runs after some time, or a temporary file is there."""
        deadline = time.monotonic() + seconds
        while left := set(children_of(os.getpid())) - self._others - {self.process.pid}:
            for pid in left:  # whose parent did not take note of their end: we do where that was killed
                with contextlib.suppress(ChildProcessError):
                    if seconds:
                        os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, "processes were left behind"
        assert list(self.temporary.iterdir()) == []


class Ground:
    """A store in an etcd, and scans of it.

    Attributes:
        alone: How a scan with one job ended.
        expected: What the report of that one says, without times.
    """

    def __init__(self, endpoint: str, folder: Path, *more: str, configuration: Path | None = None) -> None:
        self.folder = folder
        self.configuration = configuration or configuration_file(folder)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._endpoint, self._more = endpoint, more
        self.alone = self.scan(jobs=1).finish(120)
        self.expected = without_times(self.alone.document)

    def scan(
        self,
        *more: str | Path,
        jobs: int = JOBS,
        where: Sequence[str | Path] = (),
        **how: Any,
    ) -> Command:
        """Start a scan, of another place where one is given."""
        place: Sequence[str | Path] = where or ("--endpoints", self._endpoint)
        read: Sequence[str | Path] = ("--encryption-config", self.configuration, *self._more)
        words: Sequence[str | Path] = ("scan", "-o", "json", *place, *read, "--jobs", str(jobs), *more)
        return Command(self.temporary, words, **how)


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of whatever outlives its own parent below us, so that it can be seen."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def process_of(server: EtcdServer) -> int:
    """Return the process id of an etcd that runs as a process here."""
    port = server.endpoint.rpartition(":")[2]

    def listens(entry: Path) -> bool:
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            return any(w.startswith("--listen-client-urls=") and w.endswith(f":{port}") for w in words)
        return False

    (found,) = (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if listens(entry))
    return found


def stop_process(pid: int) -> None:
    """Stop a process as by ``kill -STOP``, and wait until each of its threads stands still.

    The signal goes to one thread, which stops the others once it gets a CPU; on a busy machine they go on
    answering until then.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while any(stat_of(task)[:1] != ["T"] for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} still runs 30 s after SIGSTOP"
        time.sleep(0.001)


def children_of(parent: int) -> list[int]:
    """Return the process ids of all children, zombies among them."""
    processes = Path("/proc").glob("[0-9]*")
    return sorted(int(entry.name) for entry in processes if stat_of(entry)[1:2] == [str(parent)])


def stat_of(process: Path) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on; none where the process is gone."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()
    return []


def moments(count: int, seed: int, *, few: int) -> list[float]:
    """Return moments between 0 and 1: all of them where tests are thorough, else a few."""
    drawn = Random(seed)
    return [drawn.random() for _ in range(count if THOROUGH else few)]


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in {"generated_at", "finished_at"}}


def without_loss(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report without times, and without what is said of its completeness."""
    return {
        name: value
        for name, value in without_times(document).items()
        if name not in {"complete", "incomplete_reasons"}
    }


def pairs() -> Iterator[tuple[bytes, bytes]]:
    """Yield a cluster of Secrets under AES-GCM and plain ConfigMaps; some are damaged."""
    yield b"/registry/namespaces/kube-system", namespace_object("kube-system")
    for number in range(CONFIG_MAPS):
        value = config_map(f"c-{number:05}")
        yield b"/registry/configmaps/shop/c-%05d" % number, damaged(number, value)
    for number in range(SECRETS):
        key = f"/registry/secrets/shop/s-{number:05}"
        yield key.encode(), damaged(number, aesgcm(secret(f"s-{number:05}"), key))


def damaged(number: int, value: bytes) -> bytes:
    match number % DAMAGED_EACH:
        case 7:
            return value[:-20]
        case 23:
            return value[:-30] + bytes([value[-30] ^ 4]) + value[-29:]
        case _:
            return value


def configuration_file(folder: Path) -> Path:
    """Write the configuration that reads :func:`pairs`."""
    path = folder / "config.yaml"
    path.write_bytes(configuration_of_rules((("secrets",), (provider("aesgcm", key1=KEY_1), IDENTITY))))
    return path


def kms_pairs(keks: Mapping[str, bytes], count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield Secrets under KMS v2, of many seeds, and ConfigMaps beside them; none is damaged."""
    plugin = KMSPlugin("v2", "", keks, start=False)
    seeds = [(bytes([number]) * 32, plugin.encrypt(bytes([number]) * 32)) for number in range(SEEDS)]
    yield b"/registry/namespaces/kube-system", namespace_object("kube-system")
    for number in range(count):
        yield b"/registry/configmaps/shop/c-%05d" % number, config_map(f"c-{number:05}")
    for number in range(count):
        key = b"/registry/secrets/shop/s-%05d" % number
        source, wrapped = seeds[number * SEEDS // count]
        yield key, plugin.stored_v2(secret(f"s-{number:05}"), key, source=source, wrapped=wrapped)
