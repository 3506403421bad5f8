from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from etcdfix.errors import SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import threads
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.threads import anything_stuck, do_in_time, require_threads


@pytest.fixture(autouse=True)
def _nothing_stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing stands still before, and no thread of a test outlives it."""
    before = set(threading.enumerate())
    monkeypatch.setattr(threads, "_stuck", [])
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """From now on only so many threads can be started."""
    start = threading.Thread.start
    left = after

    def begin(thread: threading.Thread) -> None:
        nonlocal left
        if left <= 0:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)


def test_work_that_ends_in_time() -> None:
    done: list[int] = []
    assert do_in_time(lambda: done.append(1), 5)
    assert done == [1]
    assert not anything_stuck()


def test_work_that_does_not_end() -> None:
    end = threading.Event()
    began = time.monotonic()
    assert not do_in_time(lambda: end.wait(10), 0.05)
    assert time.monotonic() - began < 5
    assert anything_stuck()
    end.set()


def test_work_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch, 0)
    assert not do_in_time(lambda: None, 5)
    assert anything_stuck()


def test_threads_that_can_be_had() -> None:
    before = set(threading.enumerate())
    require_threads()
    assert set(threading.enumerate()) <= before


def test_too_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    refuse_threads(monkeypatch, 3)
    with pytest.raises(SourceUnreachable, match=r"too few threads \(3 of 8\)") as caught:
        require_threads()
    assert "ulimit -u" in caught.value.hint
    assert set(threading.enumerate()) <= before


def test_a_client_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch, 3)
    with pytest.raises(SourceUnreachable, match="too few threads"):
        EtcdClient(EtcdConnection(endpoints=("127.0.0.1:1",)), on_notice=print)


def test_a_channel_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def hang(*_arguments: object) -> NoReturn:
        end.wait(10)
        raise CallFailed(Failure(FailureKind.UNREACHABLE, "the test is over"))

    monkeypatch.setattr(client_module, "_PREPARING_SECONDS", 0.05)
    monkeypatch.setattr(client_module, "open_channel", hang)
    with pytest.raises(SourceUnreachable, match="gRPC stands still"):
        EtcdClient(EtcdConnection(endpoints=("127.0.0.1:1",), dial_timeout_seconds=0.05), on_notice=print)
    assert anything_stuck()
    end.set()
