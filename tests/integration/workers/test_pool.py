"""Pieces of work done by real processes, and yielded in order, whatever becomes of the processes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from etcdfix.errors import EndedEarly, SourceError
from etcdfix.workers import pool as pool_module
from etcdfix.workers import process
from etcdfix.workers.pool import WorkerPool
from tests.support.pieces import SECRET, TARGET, here, nothing_left, process_ids, run_all, same
from tests.support.thorough import some

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


def numbered(count: int) -> list[bytes]:
    return [b"piece %d" % number for number in range(count)]


def reversed_all(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [(piece, piece[::-1]) for piece in pieces]


def test_the_order_of_the_work_whatever_takes_how_long() -> None:
    delays = random.Random(1)
    pieces = [b"sleep %.3f %d" % (delays.choice([0, 0, 0, 0.02]), number) for number in range(300)]
    with WorkerPool(3, TARGET, b"") as pool:
        assert run_all(pool, pieces) == reversed_all(pieces)
        assert run_all(pool, pieces[:3]) == reversed_all(pieces[:3])
        assert run_all(pool, []) == []
        assert pool.lost == []


def test_large_frames_and_large_answers() -> None:
    """Both are larger than what a pipe holds, so that neither side may wait for the other."""
    with WorkerPool(2, TARGET, b"setup" * 10**6) as pool:
        pieces = [bytes([number]) * (5 << 20) for number in range(12)]
        assert run_all(pool, pieces) == reversed_all(pieces)
        assert [len(answer) for _, answer in run_all(pool, [b"answer 9000000"] * 8)] == [9_000_000] * 8


def test_whoever_is_ahead_waits() -> None:
    given: list[bytes] = []
    most = 0
    pieces = [b"sleep 0.5", *numbered(100)]

    def frame(piece: bytes) -> bytes:
        given.append(piece)
        return piece

    with WorkerPool(2, TARGET, b"") as pool:
        for done, _ in enumerate(pool.run(pieces, frame)):
            most = max(most, len(given) - done)
    assert most == 8  # 4 for each worker


def test_large_frames_that_were_not_yielded_are_few() -> None:
    given: list[int] = []
    most = 0

    def frame(number: int) -> bytes:
        given.append(number)
        return bytes(16 << 20)

    with WorkerPool(3, TARGET, b"") as pool:
        work = pool.run(range(30), frame)
        for done, (number, answer) in enumerate(work):
            assert answer is not None
            assert (number, len(answer)) == (done, 16 << 20)
            most = max(most, len(given) - done)
            time.sleep(0.02)
    assert most <= 4  # in 48 MiB, and the one that reached them


def test_a_full_disk_only_makes_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(**_: object) -> IO[bytes]:
        tried.append(1)
        return Path("/dev/full").open("r+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    pieces = [b"sleep 0.4", *[b"answer %d" % (3_000_000 + number) for number in range(30)], b"sleep 0.1"] * 2
    with WorkerPool(3, TARGET, b"") as pool:
        found = [len(answer) for _, answer in run_all(pool, pieces)]
        assert pool.lost == []
    assert tried
    assert found[1:31] == found[33:63] == [3_000_000 + number for number in range(30)]


def test_what_cannot_be_read_back_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> bytes:
        raise OSError(errno.EIO, "damaged")

    monkeypatch.setattr(os, "pread", unreadable)
    pieces = [b"sleep 0.4", *[b"answer %d" % (3_000_000 + number) for number in range(6)]]
    with WorkerPool(3, TARGET, b"") as pool:
        found = run_all(pool, pieces)
    assert [piece for piece, _ in found] == pieces
    assert any(answer == here(piece) for piece, answer in found)


@pytest.mark.parametrize(
    ("piece", "how"),
    [
        (b"die 9", "was ended by SIGKILL"),
        (b"die 11", "was ended by SIGSEGV"),
        (b"die 40", "was ended by signal 40"),
        (b"exit " + SECRET, "ended with exit code 1"),
    ],
)
def test_a_page_that_kills_is_done_here_alone(piece: bytes, how: str, capfd: Captured) -> None:
    pieces = [*numbered(20), piece, *numbered(40)]
    with WorkerPool(2, TARGET, b"") as pool:
        found = run_all(pool, pieces)
        assert len(process_ids(pool)) == 1
    assert [piece for piece, _ in found] == pieces
    assert found[20] == (piece, here(piece))
    done_here = [piece for piece, answer in found if answer == here(piece)]
    assert len(done_here) in {1, 2}  # the next one was on its way
    pages = "1 page" if len(done_here) == 1 else "2 pages"
    assert pool.lost == [f"a worker process {how} over {pages}, which the main process examined"]
    assert capfd.readouterr() == ("", "")


def test_all_workers_die() -> None:
    pieces = [b"die 9"] * 5 + numbered(50)
    with WorkerPool(2, TARGET, b"") as pool:
        assert run_all(pool, pieces) == [(piece, here(piece)) for piece in pieces]
        assert run_all(pool, numbered(2)) == [(piece, here(piece)) for piece in numbered(2)]
        assert len(pool.lost) == 2


def test_killed_at_random_moments() -> None:
    moments = random.Random(2)
    pieces = [b"sleep 0.00%d %d" % (number % 3, number) for number in range(60)]
    for _ in range(20):
        with WorkerPool(4, TARGET, b"") as pool:
            victims = moments.sample(process_ids(pool), moments.choice([1, 1, 1, 4]))
            timer = threading.Timer(moments.uniform(0, 0.12), kill, [victims])
            timer.start()
            found = run_all(pool, pieces)
            timer.join()
        assert [piece for piece, _ in found] == pieces
        assert all(answer in {piece[::-1], here(piece)} for piece, answer in found)
        done_here = sum(answer == here(piece) for piece, answer in found)
        assert len(pool.lost) <= len(victims)
        assert done_here <= 2 * len(pool.lost) or len(pool.lost) == 4


def kill(victims: list[int]) -> None:
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def test_an_exception_is_no_death_and_its_text_appears_nowhere(capfd: Captured) -> None:
    pieces = [b"raise " + SECRET, *numbered(3), b"raise " + SECRET, b"pid"]
    with WorkerPool(1, TARGET, b"") as pool:
        found = run_all(pool, pieces)
        assert pool.lost == []
        assert found[5][1] == str(process_ids(pool)[0]).encode()
    assert [answer for _, answer in found[:5]] == [
        here(pieces[0]),
        *[piece[::-1] for piece in pieces[1:4]],
        here(pieces[4]),
    ]
    assert capfd.readouterr() == ("", "")


def test_workers_that_end_before_they_are_told_anything() -> None:
    with WorkerPool(2, TARGET, None) as pool:
        for pid in process_ids(pool):
            os.kill(pid, signal.SIGKILL)
        pool.set_up(b"setup" * 10**6)
        found = list(pool.run(numbered(9), same, here))
        assert [piece for piece, _ in found] == numbered(9)
        assert all(answer in (None, here(piece)) for piece, answer in found)
    assert len(pool.lost) == 2
    assert all("a worker process was ended by SIGKILL" in sentence for sentence in pool.lost)


def test_this_process_does_pieces_while_the_workers_have_enough() -> None:
    pieces = [b"sleep 0.5", *numbered(20)]
    with WorkerPool(1, TARGET, b"") as pool:
        done = list(pool.run(pieces, same, here))
    assert [piece for piece, _ in done] == pieces
    assert all(answer in (piece[::-1], here(piece)) for piece, answer in done)
    # Two are the worker's, and there are eight for two processes until the first is yielded.
    assert [answer == here(piece) for piece, answer in done[:8]] == [False, False, *[True] * 6]


@pytest.mark.parametrize("error", [SourceError("cannot do it"), RuntimeError("nor this")])
def test_what_fails_in_this_process_has_no_answer(error: Exception) -> None:
    """As what fails in a worker: whoever takes it in its turn sees what is wrong with it."""

    def failing(_: bytes) -> bytes:
        raise error

    pieces = [b"sleep 0.5", b"raise x", b"b", b"c"]
    with WorkerPool(1, TARGET, b"") as pool:
        found = list(pool.run(pieces, same, failing))
    assert found == [(b"sleep 0.5", pieces[0][::-1]), (b"raise x", None), (b"b", None), (b"c", None)]


def test_an_interruption_while_this_process_does_a_piece() -> None:
    def interrupted(_: bytes) -> bytes:
        raise KeyboardInterrupt

    with WorkerPool(1, TARGET, b"") as pool, pytest.raises(KeyboardInterrupt):
        list(pool.run([b"sleep 30", b"a", b"b"], same, interrupted))


def test_a_worker_that_cannot_begin(capfd: Captured) -> None:
    with WorkerPool(2, TARGET, b"unfit " + SECRET) as pool:
        assert run_all(pool, numbered(9)) == [(piece, here(piece)) for piece in numbered(9)]
    assert all("a worker process could not begin (Unlucky) over" in sentence for sentence in pool.lost)
    assert len(pool.lost) == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "program",
    [
        "os.write(1, b'nonsense' * 20)",
        "os.write(1, (7).to_bytes(8, 'little') + (1).to_bytes(8, 'little') + b'\\x03a')",  # of another piece
        "os.write(1, (1).to_bytes(8, 'little') + (1).to_bytes(8, 'little') + b'\\x02a')",  # no answer
        "os.write(1, (1).to_bytes(8, 'little') + (1 << 40).to_bytes(8, 'little') + b'\\x03a')",  # too large
        "os.write(1, (0).to_bytes(8, 'little') + (4).to_bytes(8, 'little') + b'\\x05\\x1b[2J')",  # no name
    ],
)
def test_garbage(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(process, "_BOOTSTRAP", f"import os, time\n{program}\ntime.sleep(60)")
    with WorkerPool(1, TARGET, b"") as pool:
        assert run_all(pool, numbered(3)) == [(piece, here(piece)) for piece in numbered(3)]
    assert len(pool.lost) == 1
    assert any(how in pool.lost[0] for how in ("answered nonsense", "could not begin (unknown error)"))
    assert pool.lost[0].isprintable()


@pytest.mark.parametrize("when", some([0.001, 0.003, 0.006, 0.01, 0.03, 0.06, 0.1, 0.15], of=3))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_ended_early(when: float, number: signal.Signals) -> None:
    """While workers start, while they work, while some of them wait."""

    def end(_number: int, _frame: object) -> None:
        raise EndedEarly("ended", 143)

    before = signal.signal(number, end)
    timer = threading.Timer(when, os.kill, [os.getpid(), number])
    try:
        with pytest.raises(EndedEarly):
            work_until(timer)
    finally:
        timer.join()
        signal.signal(number, before)


def work_until(timer: threading.Timer) -> None:
    timer.start()
    with WorkerPool(2, TARGET, b"") as pool:
        run_all(pool, [b"sleep 1", b"answer 5000000"] * 30)


def test_an_error_of_the_source_comes_in_its_turn() -> None:
    def source() -> Iterator[bytes]:
        yield from [b"sleep 0.1", *numbered(2)]
        raise SourceError("lost midway")

    with WorkerPool(2, TARGET, b"") as pool:
        run = pool.run(source(), same)
        assert [piece for piece, _ in itertools.islice(run, 3)] == [b"sleep 0.1", *numbered(2)]
        with pytest.raises(SourceError):
            next(run)
        assert process_ids(pool) == []


@pytest.mark.parametrize(
    ("stuck", "room"),
    [(b"sleep 60", True), (b"stop", True), (b"stop", False), (b"cut", True), (b"cut", False)],
)
def test_an_interruption_of_the_source_waits_for_no_worker_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch, stuck: bytes, room: bool
) -> None:
    """What has come is yielded first: pages that were read, and examined, are part of a report."""

    def source() -> Iterator[bytes]:
        yield from [b"a", b"answer 5000000", stuck, b"b", b"c", b"answer 5000000"]
        time.sleep(0.3)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool_module, "_AFTER_THE_END_SECONDS", 0.5)
    if not room:
        monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    began = time.monotonic()
    with WorkerPool(3, TARGET, b"") as pool:
        found = until_interrupted(pool, source())
        assert process_ids(pool) == []
        assert pool.lost == []
    assert [piece for piece, _ in found] == [b"a", b"answer 5000000"]
    assert time.monotonic() - began < 10


def until_interrupted(pool: WorkerPool, source: Iterator[bytes]) -> list[tuple[bytes, bytes | None]]:
    found = []
    with contextlib.suppress(KeyboardInterrupt):
        for done in pool.run(source, same):
            found.append(done)  # noqa: PERF402 - those before the interruption
        pytest.fail("it was not interrupted")
    return found


def no_room(**_: object) -> IO[bytes]:
    raise OSError(errno.ENOSPC, "full")


def test_a_second_signal_does_not_wait_for_workers_that_the_kernel_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def held(timeout: float) -> int:
        time.sleep(timeout)
        raise subprocess.TimeoutExpired("worker", timeout)

    with WorkerPool(4, TARGET, b"") as pool:
        workers = pool._workers[:]
        with monkeypatch.context() as patch:
            for worker in workers:
                patch.setattr(worker._process, "wait", held)
            began = time.monotonic()
            timers = [threading.Timer(when, os.kill, [os.getpid(), signal.SIGINT]) for when in (0.2, 0.5)]
            patch.setattr(process, "DEATH_SECONDS", 30.0)
            for timer in timers:
                timer.start()
            with pytest.raises(KeyboardInterrupt):
                pool.close()
            assert time.monotonic() - began < 9
        for worker in workers:
            worker.end()


def test_signals_to_the_workers_are_not_heard() -> None:
    with WorkerPool(2, TARGET, b"") as pool:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            for pid in process_ids(pool):
                os.kill(pid, number)  # while they start
        run_all(pool, numbered(10))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            for pid in process_ids(pool):
                os.kill(pid, number)
        assert run_all(pool, numbered(10)) == reversed_all(numbered(10))
        assert pool.lost == []


def facts(setup: bytes = b"", **options: Any) -> dict[str, Any]:
    with WorkerPool(2, TARGET, setup, **options) as pool:
        [(_, answer)] = run_all(pool, [b"facts"])
    found: dict[str, Any] = json.loads(answer)
    return found


def test_what_a_worker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCDCTL_PASSWORD", SECRET.decode())
    monkeypatch.setenv("ETCDFIX_USER", f"root:{SECRET.decode()}")
    found = facts(SECRET)
    assert found["core limit"] == [0, 0]
    assert (found["dumpable"], found["umask"], found["directory"]) == (0, 0o077, "/")
    assert found["oom score"] == 1000  # it ends before an etcd on this machine does
    assert (found["heard"], found["blocked"], found["leads its session"]) == ([], [], True)
    assert SECRET.decode() not in json.dumps(found)
    assert not [name for name in found["environment"] if name.startswith("ETCD")]
    assert found["command"].split("\0")[:3] == [
        sys.executable,
        "-I",
        "-B" if sys.dont_write_bytecode else "-c",
    ]


def test_nothing_but_its_pipes_is_open_in_a_worker() -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        found = facts()["descriptors"]
        assert found["0"] == found["1"] == found["2"] == "/dev/null"
        rest = [name for number, name in found.items() if int(number) > 2]
        assert len(rest) == 2
        assert all(name.startswith("pipe:") for name in rest)
        passed = facts(pass_fds=(write,))["descriptors"]
        assert passed[str(write)].startswith("pipe:")
        assert str(read) not in passed
    finally:
        os.close(read)
        os.close(write)


def _refused(error: Exception) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("where", "name", "instead"),
    [
        (sys, "executable", ""),
        (subprocess, "Popen", _refused(OSError(errno.EAGAIN, "no more processes"))),
        (threading.Thread, "start", _refused(RuntimeError("can't start new thread"))),
    ],
)
def test_without_workers_all_is_done_here(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, instead: object
) -> None:
    monkeypatch.setattr(where, name, instead)
    with WorkerPool(2, TARGET, b"") as pool:
        assert run_all(pool, [b"a", b"b"]) == [(b"a", b"here a"), (b"b", b"here b")]
