from __future__ import annotations

import threading
import time
from typing import NoReturn

import pytest

from etcdfix.errors import SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import threads
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.threads import anything_stuck, do_in_time, require_threads


@pytest.fixture(autouse=True)
def _nothing_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_stuck", [])


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
    before = threading.active_count()
    require_threads()
    assert threading.active_count() == before


def test_too_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    refuse_threads(monkeypatch, 3)
    with pytest.raises(SourceUnreachable, match=r"too few threads \(3 of 8\)") as caught:
        require_threads()
    assert "ulimit -u" in caught.value.hint
    assert threading.active_count() == before


def test_a_client_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch, 3)
    with pytest.raises(SourceUnreachable, match="too few threads"):
        EtcdClient(EtcdConnection(endpoints=("127.0.0.1:1",)), on_notice=print)


def test_a_channel_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def hang(*_arguments: object) -> NoReturn:
        end.wait(10)
        raise AssertionError

    monkeypatch.setattr(client_module, "_PREPARING_SECONDS", 0.05)
    monkeypatch.setattr(client_module, "open_channel", hang)
    monkeypatch.setattr(threading, "excepthook", lambda _told: None)
    with pytest.raises(SourceUnreachable, match="gRPC stands still"):
        EtcdClient(EtcdConnection(endpoints=("127.0.0.1:1",), dial_timeout_seconds=0.05), on_notice=print)
    assert anything_stuck()
    end.set()
