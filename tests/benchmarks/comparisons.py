"""Which commands are compared over which data."""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from etcdfix.testing.places import clean_environment, find_tools
from tests.benchmarks.large_data import (
    KEK_FILE,
    KMS_NAME,
    Damage,
    Data,
    Made,
    Provider,
    key_of_one,
    made_once,
)
from tests.benchmarks.measure import Run, run
from tests.benchmarks.results import Bar
from tests.benchmarks.served import serving
from tests.support.kms_plugin import KMSPlugin, load_keks

ETCDCTL, RAW, SHA256SUM, AUGER = "etcdctl get --prefix", "raw paged read", "sha256sum", "auger extract"
SCAN, PLAN, IMPACT = "scan", "plan", "impact"
ETCDFIX = (sys.executable, "-m", "etcdfix")
PARTS = (100, 20, 5, 1)
"""Where it is asked how time grows, the largest size is divided by these: 10,000 keys to a million."""

_FLAT_MB, _INDEX_BYTES = 40, 400
"""``plan`` and ``impact``: what they need whatever is read, and for each object: its name, and what it refers to."""

_SECONDS = {
    ETCDCTL: 0.012, RAW: 0.009, SHA256SUM: 0.005, AUGER: 0.01, PLAN: 0.3, IMPACT: 0.15,
    SCAN: 0.3, "healthy": 0.015, "lost": 0.2,
}  # fmt: skip
"""Roughly, for a thousand keys on a slow machine; only to say how long a measurement may take."""


class Command(msgspec.Struct, frozen=True):
    """A command of a comparison.

    Attributes:
        name: What it is called in tables.
        words: What is run.
        keys: How many keys it looks at.
        expect: How it may end.
        ours: It writes a report that says whether it is complete.
        doubts: The report is not, as a KMS plugin that refuses a data key proves nothing.
        line: As in :class:`~tests.benchmarks.results.Series`.
        optional: A tool that happens to be there: where it fails, the others are measured without it.
    """

    name: str
    words: tuple[str, ...]
    keys: int
    expect: tuple[int, ...] = (0,)
    ours: bool = False
    doubts: bool = False
    line: str = ""
    optional: bool = False

    def measure(self) -> Run:
        return run(self.words, expect=self.expect)


class IncompleteError(Exception):
    """A command of ours did not report everything: its time means nothing."""


def jobs_name(jobs: int) -> str:
    return f"etcdfix, {jobs} job{'s' if jobs > 1 else ''}"


@functools.cache
def has_jobs(command: str) -> bool:
    """Whether a command of etcdfix knows ``--jobs``."""
    words = [*ETCDFIX, command, "--help"]
    return "--jobs" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def jobs_words(command: str, jobs: int) -> list[str]:
    """The option for a number of jobs, where the command has it; one that has not runs alone."""
    return ["--jobs", str(jobs)] if has_jobs(command) else []


class Ground:
    """What the commands of one comparison need: data, servers, a plugin; all ends with the block.

    Args:
        store: Where data is kept.
        jobs: Numbers of jobs to measure.
    """

    def __init__(self, store: Path, jobs: Sequence[int]) -> None:
        self._store = store
        self._ends = contextlib.ExitStack()
        self.tools = find_tools()
        self.jobs = tuple(jobs) if has_jobs("scan") else (1,)

    def __enter__(self) -> Self:
        self.folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-bench-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def made(self, data: Data) -> Made:
        return made_once(self._store, data)

    def endpoint(self, data: Data) -> str:
        """Start an etcd on the data."""
        return self._ends.enter_context(serving(self.made(data), self.tools))

    def file(self, data: Data) -> list[str]:
        return ["--snapshot", str(self.made(data).database)]

    def reading(self, data: Data) -> list[str]:
        """The options by which the data is read; starts the plugin that they name."""
        words = ["--encryption-config", str(self.made(data).config)]
        if data.provider is Provider.KMS_V2:
            words += ["--kms-endpoint", f"{KMS_NAME}=unix://{self._socket}"]
        return words

    @functools.cached_property
    def _socket(self) -> Path:
        socket = self.folder / "kms.sock"
        self._ends.enter_context(KMSPlugin("v2", socket, load_keks(KEK_FILE)))
        return socket

    def scan(self, name: str, data: Data, where: Sequence[str], *, jobs: int = 1, line: str = "") -> Command:
        """A scan of everything, with a line of JSON for each finding."""
        words = [*ETCDFIX, "scan", *where, *self.reading(data), "-o", "jsonl", *jobs_words("scan", jobs)]
        doubts = data.provider is Provider.KMS_V2 and data.damage is not Damage.NONE
        return Command(name, tuple(words), data.keys, exit_codes(data), ours=True, doubts=doubts, line=line)

    def scans(self, data: Data, where: Sequence[str]) -> list[Command]:
        return [self.scan(jobs_name(jobs), data, where, jobs=jobs) for jobs in self.jobs]

    def etcdctl(self, data: Data, endpoint: str) -> Command:
        words = (
            str(self.tools.ctl),
            f"--endpoints={endpoint}",
            "--command-timeout=600s",
            "get",
            "--prefix",
            "",
        )
        return Command(ETCDCTL, words, data.keys)


def exit_codes(data: Data) -> tuple[int, ...]:
    """How a scan of the data may end: 3 where a refusal of a KMS plugin is no proof."""
    return (0,) if data.damage is Damage.NONE else (1, 3)


class Planned(msgspec.Struct, frozen=True):
    """A comparison that can be measured.

    Attributes:
        name: Unique among all; its first word is what ``--only`` takes.
        title: One line.
        against: The command that the others are held against.
        data: What it is measured on, and whether an etcd must hold it.
        commands: Makes the commands.
        kinds: What the commands do, for the estimate.
    """

    name: str
    title: str
    against: str
    data: tuple[tuple[Data, bool], ...]
    commands: Callable[[Ground], list[Command]]
    kinds: tuple[tuple[str, int], ...]

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    def seconds(self) -> float:
        """Roughly how long one round takes."""
        return sum(0.5 + _SECONDS[kind] * keys / 1000 for kind, keys in self.kinds)


def live(keys: int, jobs: Sequence[int]) -> Planned:
    """A running etcd, read by etcdfix, by etcdctl, and by nobody who looks at it."""
    data = Data(keys)

    def commands(ground: Ground) -> list[Command]:
        endpoint = ground.endpoint(data)
        raw = (sys.executable, "-m", "tests.benchmarks.raw_read", endpoint)
        return [
            *ground.scans(data, ["--endpoints", endpoint]),
            ground.etcdctl(data, endpoint),
            Command(RAW, raw, keys),
        ]

    return Planned(
        f"live-{keys}", f"Live, {keys:,} keys, etcd on the same machine", ETCDCTL, ((data, True),), commands,
        (*[("healthy", keys)] * len(jobs), (ETCDCTL, keys), (RAW, keys)),
    )  # fmt: skip


def offline(keys: int, jobs: Sequence[int]) -> Planned:
    """A snapshot file, held against reading it once for its digest."""
    data = Data(keys, heavy=True)

    def commands(ground: Ground) -> list[Command]:
        database = str(ground.made(data).database)
        found = [*ground.scans(data, ground.file(data)), Command(SHA256SUM, ("sha256sum", database), keys)]
        auger = shutil.which("auger")
        if auger is not None:
            # Lists keys and sizes; opens no value.
            words = (auger, "extract", "-f", database, "--fields=key,value-size")
            found.append(Command(AUGER, words, keys, optional=True))
        return found

    return Planned(
        f"offline-{keys}", f"A snapshot of {keys:,} keys, 2.5 KB of file a key", SHA256SUM, ((data, False),),
        commands, (*[("healthy", keys)] * len(jobs), (SHA256SUM, keys)),
    )  # fmt: skip


def size_name(data: Data) -> str:
    return f"{data.keys:,} keys, {'under a lost key' if data.damage is Damage.LOST else 'healthy'}"


def growth(largest: int) -> Planned:
    """Ever more keys in a snapshot, healthy and under a lost key."""
    sizes = [largest // part for part in PARTS]
    series = [Data(size, damage) for damage in (Damage.NONE, Damage.LOST) for size in sizes]

    def commands(ground: Ground) -> list[Command]:
        return [
            ground.scan(size_name(data), data, ground.file(data), line=size_name(data).partition(", ")[2])
            for data in series
        ]

    return Planned(
        f"growth-{largest}", f"A snapshot of up to {largest:,} keys, 2.0 KB of file a key, one job",
        size_name(Data(largest)), tuple((data, False) for data in series), commands,
        tuple(("lost" if data.damage is Damage.LOST else "healthy", data.keys) for data in series),
    )  # fmt: skip


def lost(keys: int) -> Planned:
    """A running etcd under a lost key, beside a healthy one."""
    series = (Data(keys), Data(keys, Damage.LOST))

    def commands(ground: Ground) -> list[Command]:
        return [ground.scan(size_name(data), data, ["--endpoints", ground.endpoint(data)]) for data in series]

    return Planned(
        f"lost-{keys}", f"Live, {keys:,} keys, one job", size_name(series[0]),
        tuple((data, True) for data in series), commands, (("healthy", keys), ("lost", keys)),
    )  # fmt: skip


SHARES = {Damage.NONE: "0 %", Damage.SOME: "1 %", Damage.LOST: "100 %"}


def provider_name(data: Data) -> str:
    return f"{data.provider}, {SHARES[data.damage]} unreadable"


def providers(keys: int) -> Planned:
    """Every provider, with none, few and all of the values unreadable."""
    series = [Data(keys, damage, provider) for provider in Provider for damage in SHARES]

    def commands(ground: Ground) -> list[Command]:
        return [ground.scan(provider_name(data), data, ground.file(data)) for data in series]

    return Planned(
        f"providers-{keys}", f"A snapshot of {keys:,} keys by provider, one job",
        provider_name(Data(keys, provider=Provider.IDENTITY)), tuple((data, False) for data in series), commands,
        tuple(("lost" if data.damage is Damage.LOST else "healthy", keys) for data in series),
    )  # fmt: skip


def work(keys: int) -> Planned:
    """What comes after a scan of a lost key: a plan from its report, the impact of one object."""
    data = Data(keys, Damage.LOST)

    def commands(ground: Ground) -> list[Command]:
        where = [*ground.file(data), *ground.reading(data), "-o", "json"]
        report = ground.folder / "report.json"
        done = subprocess.run(
            [*ETCDFIX, "scan", *where, "--output-file", str(report)],
            capture_output=True, check=False, env=clean_environment(),
        )  # fmt: skip
        if done.returncode not in exit_codes(data) or not report.exists():
            raise IncompleteError(f"scan: exit code {done.returncode}")
        scan = ground.scan(SCAN, data, ground.file(data))
        plan = [*ETCDFIX, "plan", "--from-report", str(report), *where, *jobs_words("plan", 1)]
        impact = [*ETCDFIX, "impact", key_of_one(keys).decode(), *where, *jobs_words("impact", 1)]
        return [
            scan,
            Command(PLAN, tuple(plan), keys, (0, 1, 3), ours=True),
            Command(IMPACT, tuple(impact), keys, (1, 3), ours=True),
        ]

    return Planned(
        f"work-{keys}", f"{keys:,} keys under a lost key: what follows the scan", SCAN, ((data, False),), commands,
        ((SCAN, keys), (PLAN, keys), (IMPACT, keys)),
    )  # fmt: skip


GROUPS = ("live", "offline", "growth", "lost", "providers", "work")


def everything(keys: Sequence[int], jobs: Sequence[int]) -> list[Planned]:
    """All comparisons over data of these sizes."""
    largest = max(keys)
    middle = max((size for size in keys if size <= 200_000), default=largest)
    return [
        *(live(size, jobs) for size in keys),
        *(offline(size, jobs) for size in keys),
        growth(largest),
        lost(largest),
        providers(middle),
        work(middle),
    ]


def what_must_hold(keys: int = 200_000, largest: int = 1_000_000) -> list[Planned]:
    """The comparisons that the bars need, the most important first."""
    jobs = (1, 2)
    return [
        live(keys, jobs),
        offline(keys, jobs),
        growth(largest),
        work(keys),
        lost(largest),
        work(largest),
    ]


def bars(keys: int = 200_000, largest: int = 1_000_000) -> list[Bar]:
    """What must be shown, on two cores."""
    one, two = jobs_name(1), jobs_name(2)
    healthy, under_lost = size_name(Data(largest)), size_name(Data(largest, Damage.LOST))
    file = f"offline-{keys}"
    running = f"live-{keys}"
    return [
        Bar(running, two, 0.75, ETCDCTL),
        Bar(running, one, 1.0, ETCDCTL),
        *(Bar(running, jobs, 150) for jobs in (one, two)),
        Bar(file, one, 2.0, SHA256SUM),
        Bar(file, two, 1.4, SHA256SUM),
        *(Bar(file, jobs, 120) for jobs in (one, two)),
        Bar(f"growth-{largest}", under_lost, 2.5, healthy),
        *(Bar(f"growth-{largest}", name, 120) for name in (healthy, under_lost)),
        Bar(f"lost-{largest}", under_lost, 2.5, healthy),
        *(Bar(f"lost-{largest}", name, 150) for name in (healthy, under_lost)),
        *(
            bar
            for size in sorted({keys, largest})
            for name in (PLAN, IMPACT)
            for bar in (Bar(f"work-{size}", name, 3.0, SCAN), Bar(f"work-{size}", name, index_mb(size)))
        ),
    ]


def index_mb(keys: int) -> float:
    """Return the most that flat memory comes to where an index of all objects is held: so many bytes of each."""
    return _FLAT_MB + _INDEX_BYTES * keys / 1e6


def check(command: Command, timeout_seconds: float) -> float:
    """Run a command once before it is measured, which also warms the caches; return its seconds.

    Raises:
        IncompleteError: It failed, or its report says that it is not complete, or of another number of keys.
        TimeoutError: It took longer than there is time, and was ended.
    """
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command.words,
            stdout=subprocess.PIPE if command.ours else subprocess.DEVNULL,
            stderr=errors,
            env=clean_environment(),
        )
        out_of_time = threading.Timer(timeout_seconds, process.terminate)
        out_of_time.start()
        report = _ends_of_output(process)
        code = process.wait()
        seconds = time.perf_counter() - started
        out_of_time.cancel()
        if seconds >= timeout_seconds:
            raise TimeoutError(f"{command.name} takes longer than {timeout_seconds:.0f} s")
        if code not in command.expect:
            errors.seek(0)
            said = errors.read(2000).decode(errors="replace").strip()
            raise IncompleteError(f"{command.name}: exit code {code}: {said}")
    if command.ours:
        _require_everything(command, report)
    return seconds


_BLOCK = 1 << 16


def _ends_of_output(process: subprocess.Popen[bytes]) -> bytes:
    """Read all that a process writes, and return the first and the last 64 KB of it: reports may be large."""
    begin = end = b""
    if process.stdout is not None:
        with process.stdout:
            begin = process.stdout.read(_BLOCK)
            while block := process.stdout.read(_BLOCK):
                end = (end + block)[-2 * _BLOCK :]
    return begin + end


def _require_everything(command: Command, report: bytes) -> None:
    doubts = rb'|"incomplete_reasons": ?\[\s*"undetermined: [^"]*"\s*\]' if command.doubts else rb""
    if not re.search(rb'"complete": ?true' + doubts, report):
        raise IncompleteError(f"{command.name}: its report does not say that it is complete")
    counted = re.search(rb'"kind":"ScanSummary".*?"summary":\{"keys":(\d+)', report)
    if counted is not None and int(counted[1]) != command.keys:
        raise IncompleteError(f"{command.name}: {int(counted[1])} keys were read, not {command.keys}")
