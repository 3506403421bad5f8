"""Runs the tests of one mutant after the other, each in a fork of one process that has everything imported.

``python -m tests.mutation.running WORK RESULTS``: WORK is a JSON file (:class:`Work`); a line of JSON is added to
RESULTS for each mutant. The checkout is never changed: in the fork, the function that holds the guard gets other
code; what has run at import already (a constant, a decorator) is broken in a copy of the tree, by a process of its
own.

All forks share one etcd, which is empty before each. A test that notices a mutant has to pass without one, in a fork
just the same, or it does not count.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from etcdfix.testing.places import packaged_tools
from etcdfix.testing.servers import EtcdServer, EtcdServers

_COPIED = ("etcdfix", "tests", "fixtures", "docs", "pyproject.toml", "README.md")
_SLACK_SECONDS = 20.0
_SLOWER = 10.0
_FIRST_FEW = 10


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant and who may notice it.

    Attributes:
        key: Of the mutant.
        path: Of its module.
        function: Whose code is replaced; "" for a fresh process.
        source: The whole module, broken.
        tests: Ids of tests, in the order in which they are to be run.
    """

    key: str
    path: str
    function: str
    source: str
    tests: tuple[str, ...]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one process has to do.

    Attributes:
        root: Of the checkout.
        files: Test files to be collected.
        seconds: How long each test takes, by its id.
        tasks: In this order.
    """

    root: str
    files: tuple[str, ...]
    seconds: dict[str, float]
    tasks: tuple[Task, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant.

    Attributes:
        key: Of the mutant.
        killer: The test that noticed it, "" where none did.
        how: What the test said, one line.
        run: How many tests have looked at it.
    """

    key: str
    killer: str = ""
    how: str = ""
    run: int = 0


class TooLongError(BaseException):
    """A test takes far longer than without the mutant."""


def _code_of(code: CodeType, qualified: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualified:
                return constant
            found = _code_of(constant, qualified)
            if found is not None:
                return found
    return None


class Loop:
    """Takes the place of pytest's own loop over the tests that were collected."""

    def __init__(self, work: Work, results: Path) -> None:
        self._work = work
        self._results = results
        self._root = Path(work.root)
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        self._server: EtcdServer | None = None
        self._sound: dict[str, bool] = {}
        self._killers: dict[str, Counter[str]] = defaultdict(Counter)
        self._copy: Path | None = None
        self._temporary: Any = None
        self._folder = Path()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        places = {str(self._root / task.path) for task in self._work.tasks}
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename in places:
                self._functions[found.__code__.co_filename, found.__code__.co_qualname].append(found)
        with contextlib.ExitStack() as stack:
            if any("etcd" in getattr(item, "fixturenames", ()) for item in session.items):
                self._server = stack.enter_context(_one_etcd())
            self._temporary = session.config._tmp_path_factory  # type: ignore[attr-defined]  # there is no public way
            self._folder = (
                self._temporary.getbasetemp()
            )  # made once: to number a new one means to tidy up old ones
            self._copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcdfix-mutant-")))
            with self._results.open("ab") as file:
                for task in self._work.tasks:
                    file.write(msgspec.json.encode(self._judge(task)) + b"\n")
                    file.flush()
        return True

    def _judge(self, task: Task) -> Result:
        before = self._killers[f"{task.path}::{task.function}"]
        tests = [test for test in task.tests if test in self._items and self._sound.get(test, True)]
        tests.sort(key=lambda test: -before[test])
        run = 0
        while tests:
            killer, how, done = self._notice(task, tests)
            run += done
            if not killer:
                break
            if self._is_sound(killer):
                before[killer] += 1
                return Result(key=task.key, killer=killer, how=how, run=run)
            tests = tests[tests.index(killer) + 1 :]
        return Result(key=task.key, run=run)

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound:
            killer, how, _ = self._fork(None, [test])
            self._sound[test] = not killer
            if killer:
                print(f"{test} fails without a mutant: {how}", flush=True)
            if len(self._sound) == _FIRST_FEW and not any(self._sound.values()):
                raise RuntimeError("every test fails in a fork: nothing can be learned from that")
        return self._sound[test]

    def _notice(self, task: Task, tests: list[str]) -> tuple[str, str, int]:
        functions = self._functions.get((str(self._root / task.path), task.function), [])
        if task.function and len({function.__code__ for function in functions}) == 1:
            return self._fork(task, tests)
        return self._fresh(task, tests)

    # --- in a fork ---

    def _fork(self, task: Task | None, tests: Sequence[str]) -> tuple[str, str, int]:
        """Return the test that noticed, what it said, and how many were run."""
        reading, writing = os.pipe()
        folder = self._folder / "fork"
        folder.mkdir()
        child = os.fork()
        if not child:
            os.close(reading)
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._temporary._basetemp = folder
            answer: tuple[str, str, int] = ("", "", 0)
            try:
                if task is not None:
                    self._break(task)
                answer = self._run(tests, lambda: os.write(writing, b"."))
            except BaseException as exc:  # noqa: BLE001 - whatever it is, the parent has to hear of it
                answer = (tests[0], f"{type(exc).__name__}: {exc}", 1)
            os.write(writing, json.dumps(answer).encode()[:60000] + b"\n")
            os._exit(0)
        os.close(writing)
        data = b""
        try:
            # A byte for each test that has ended, then the answer; a thread that never ends hears no alarm.
            while data.count(b"\n") == 0:
                under_way = tests[min(len(data), len(tests) - 1)]
                if not select.select([reading], [], [], self._limit(under_way) + _SLACK_SECONDS)[0]:
                    break
                part = os.read(reading, 65536)
                if not part:
                    break
                data += part
        finally:
            os.close(reading)
            # With it goes what it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            shutil.rmtree(folder, ignore_errors=True)
        if any("etcd" in getattr(self._items[test], "fixturenames", ()) for test in tests):
            self._sweep()
        if not data.endswith(b"\n"):
            return tests[min(len(data), len(tests) - 1)], "it never came to an end", len(data) + 1
        killer, how, run = json.loads(data.lstrip(b"."))
        return killer, how, run

    def _limit(self, test: str) -> float:
        return _SLACK_SECONDS + _SLOWER * self._work.seconds.get(test, 1.0)

    def _break(self, task: Task) -> None:
        place = str(self._root / task.path)
        code = _code_of(compile(task.source, place, "exec"), task.function)
        assert code is not None
        for function in self._functions[place, task.function]:
            function.__code__ = code

    def _run(self, tests: Sequence[str], ended: Callable[[], object]) -> tuple[str, str, int]:
        def too_long(*_: object) -> None:
            raise TooLongError

        signal.signal(signal.SIGALRM, too_long)
        items = [self._items[test] for test in tests]
        for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True), start=1):
            signal.setitimer(signal.ITIMER_REAL, self._limit(item.nodeid))
            try:
                reports = runtestprotocol(item, log=False, nextitem=following)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for report in reports:
                if report.failed:
                    said = getattr(report.longrepr, "reprcrash", None)
                    text = said.message if said is not None else str(report.longrepr)
                    if following is not None:  # servers of its own end with its fixtures
                        item.session._setupstate.teardown_exact(None)
                    return item.nodeid, text.splitlines()[0][:200] if text else "", number
            ended()
        return "", "", len(items)

    def _sweep(self) -> None:
        if self._server is not None:
            self._server.empty(marked=True)

    # --- in a process of its own ---

    def _fresh(self, task: Task, tests: Sequence[str]) -> tuple[str, str, int]:
        assert self._copy is not None
        if not any(self._copy.iterdir()):
            for name in {*_COPIED, *(Path(each).parts[0] for each in (task.path, *self._work.files))}:
                there = self._root / name
                if there.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(there, self._copy / name, ignore=ignored)
                elif there.exists():
                    shutil.copy(there, self._copy / name)
        place = self._copy / task.path
        whole = place.read_bytes()
        place.write_text(task.source)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            "-rf",
            *tests,
        ]
        surroundings = {
            **os.environ,
            "PYTHONPATH": f"{self._copy}{os.pathsep}{self._root}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command,
                cwd=self._copy,
                env=surroundings,
                capture_output=True,
                text=True,
                timeout=60 + sum(self._limit(test) for test in tests),
                check=False,
            )
            code, said = done.returncode, done.stdout.splitlines()
        except subprocess.TimeoutExpired:
            code, said = 1, ["it never came to an end"]
        finally:
            place.write_bytes(whole)
            self._sweep()
        if not code:
            return "", "", len(tests)
        failed = [line.split(" ")[1] for line in said if line.startswith(("FAILED ", "ERROR "))]
        killer = next((test for test in failed if test in self._items), tests[0])
        return killer, "in a fresh process", tests.index(killer) + 1 if killer in tests else 1


@contextlib.contextmanager
def _one_etcd() -> Iterator[EtcdServer]:
    """One server for all, and no container for those that start their own: they take longer to come up."""
    tools = packaged_tools()
    if tools is not None:
        os.environ.setdefault("ETCDFIX_TEST_ETCD", str(tools.etcd))
    with contextlib.closing(EtcdServers.anywhere()) as servers:
        server = servers.start()
        os.environ["ETCDFIX_TEST_ENDPOINTS"] = server.endpoint
        yield server


class Durations:
    """Adds up how long each test takes, with its fixtures."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" or report.failed:
            self.passed[report.nodeid] = report.passed


def run_tests(arguments: Sequence[str], plugin: Any) -> int:
    """Run pytest here with one more plugin, quietly."""
    return int(
        pytest.main(
            ["-q", "-n", "0", "-p", "no:cacheprovider", "--continue-on-collection-errors", *arguments],
            [plugin],
        )
    )


def main(work: str, results: str) -> int:
    """Do what a file says."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    began = time.monotonic()
    todo = msgspec.json.decode(Path(work).read_bytes(), type=Work)
    code = run_tests([*todo.files], Loop(todo, Path(results)))
    print(f"{len(todo.tasks)} mutants in {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
