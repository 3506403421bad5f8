"""Pieces of work done by real processes, and yielded in order, whatever becomes of the processes."""

from __future__ import annotations

import itertools
import json
import multiprocessing.util
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.examine import workers
from etcdfix.examine.workers import WorkerPool
from etcdfix.model.errors import SourceError
from tests.support.pieces import SECRET, here, make, nothing_left, process_ids, run_all, same

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
    pieces = [b"sleep %.3f %d" % (delays.choice([0, 0, 0, 0.02]), number) for number in range(60)]
    large = [bytes([number]) * (5 << 20) for number in range(8)]
    with WorkerPool(3, make, b"setup" * 10**6) as pool:
        for given in (pieces, pieces[:3], [], large):
            assert run_all(pool, given) == reversed_all(given)
        assert [len(answer) for _, answer in run_all(pool, [b"answer 9000000"] * 4)] == [9_000_000] * 4
        assert pool.lost == []


@pytest.mark.parametrize("piece", [b"die 9", b"exit " + SECRET])
def test_a_page_that_kills_is_done_here_alone(piece: bytes, capfd: Captured) -> None:
    pieces = [*numbered(20), piece, *numbered(40)]
    with WorkerPool(2, make, b"") as pool:
        found = run_all(pool, pieces)
        assert len(process_ids()) == 1
    assert [one for one, _ in found] == pieces
    done_here = [(one, answer) for one, answer in found if answer != one[::-1]]
    assert done_here[0][0] == piece
    assert len(done_here) <= 2  # and one that was given to the worker already
    assert all(answer == here(one) for one, answer in done_here)
    assert pool.lost == ["a worker process ended over a page, which the main process examined"]
    assert capfd.readouterr() == ("", "")


def test_all_workers_die() -> None:
    pieces = [b"die 9"] * 5 + numbered(20)
    with WorkerPool(2, make, b"") as pool:
        assert run_all(pool, pieces) == [(piece, here(piece)) for piece in pieces]
        assert len(pool.lost) == 2


def test_an_exception_is_no_death_and_its_text_appears_nowhere(capfd: Captured) -> None:
    pieces = [b"raise " + SECRET, *numbered(3), b"raise " + SECRET, b"print " + SECRET, b"pid"]
    with WorkerPool(1, make, b"") as pool:
        found = run_all(pool, pieces)
        assert pool.lost == []
        assert found[-1][1] == str(process_ids()[0]).encode()
    expected = [(piece, here(piece) if piece.startswith(b"raise") else piece[::-1]) for piece in pieces]
    assert found[:-1] == expected[:-1]
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_cannot_begin(capfd: Captured) -> None:
    with WorkerPool(2, make, b"unfit " + SECRET) as pool:
        assert run_all(pool, numbered(9)) == [(piece, here(piece)) for piece in numbered(9)]
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_source_comes_in_its_turn() -> None:
    def source() -> Iterator[bytes]:
        yield from [b"sleep 0.1", *numbered(2)]
        raise SourceError("lost midway")

    with WorkerPool(2, make, b"") as pool:
        run = pool.run(source(), same)
        assert [piece for piece, _ in itertools.islice(run, 3)] == [b"sleep 0.1", *numbered(2)]
        with pytest.raises(SourceError):
            next(run)
        assert process_ids() == []


@pytest.mark.parametrize("stuck", [b"sleep 60", b"stop"])
def test_an_interruption_of_the_source_waits_for_no_worker_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch, stuck: bytes
) -> None:
    """What has come is yielded first: pages that were read, and examined, are part of a report."""

    def source() -> Iterator[bytes]:
        yield from [b"a", b"answer 5000000", stuck, b"b", b"c"]
        time.sleep(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "_AFTER_THE_END_SECONDS", 0.5)
    began = time.monotonic()
    found: list[bytes] = []
    with WorkerPool(3, make, b"") as pool:
        run_all(pool, [b"sleep 0.1"] * 6)  # all of them have started
        with pytest.raises(KeyboardInterrupt):
            found.extend(piece for piece, _ in pool.run(source(), same))
    assert found == [b"a", b"answer 5000000"]
    assert process_ids() == []
    assert time.monotonic() - began < 15


def test_what_a_terminal_sends_to_workers_is_not_heard() -> None:
    with WorkerPool(2, make, b"") as pool:
        for _ in range(2):  # while they start, and later
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                for pid in process_ids():
                    os.kill(pid, number)
            assert run_all(pool, numbered(10)) == reversed_all(numbered(10))
        assert pool.lost == []


def test_what_a_worker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name in ("ETCDFIX_PASSWORD", "ETCDCTL_USER"):
        monkeypatch.setenv(name, SECRET.decode())
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        with WorkerPool(2, make, SECRET) as pool:
            [(_, answer)] = run_all(pool, [b"facts"])
        found: dict[str, Any] = json.loads(answer)
    finally:
        os.close(read)
        os.close(write)
    assert found["core limit"] == [0, 0]
    assert found["dumpable"] == 0
    assert found["oom score"] == 1000  # it ends before an etcd on this machine does
    assert (found["heard"], found["blocked"]) == ([], [])
    assert SECRET.decode() not in json.dumps(found)
    assert "PYTHONSAFEPATH" not in os.environ
    assert os.environ["ETCDCTL_USER"] == SECRET.decode()
    descriptors = found["descriptors"]
    assert {descriptors[number] for number in "012"} == {"/dev/null"}
    assert str(read) not in descriptors


def test_without_workers_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
    with WorkerPool(2, make, b"") as pool:
        assert run_all(pool, [b"a", b"b"]) == [(b"a", b"here a"), (b"b", b"here b")]
