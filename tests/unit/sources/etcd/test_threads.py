from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from etcdfix.errors import SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import channel as channel_module
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd.channel import ReadOnlyChannel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.threads import anything_stuck, do_in_time, require_threads
from etcdfix.wire.etcd import RANGE, message
from tests.support.never_done import NeverDone
from tests.support.raising import raising
from tests.support.scripted_etcd import ScriptedEtcd


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    start = threading.Thread.start
    left = after

    def begin(thread: threading.Thread) -> None:
        nonlocal left
        if left <= 0:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)


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


def test_too_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    refuse_threads(monkeypatch, 3)
    with pytest.raises(SourceUnreachable, match=r"too few threads \(3 of 8\)") as caught:
        require_threads()
    assert "ulimit -u" in caught.value.hint
    assert set(threading.enumerate()) <= before


def test_no_room_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's own thread dies of a MemoryError, or the process of an abort: so room is asked for before."""

    monkeypatch.setattr(mmap, "mmap", raising(OSError(12, "Cannot allocate memory")))
    with pytest.raises(SourceUnreachable, match="too little memory: 64 MiB more are not to be had") as caught:
        require_threads()
    assert "ulimit -v" in caught.value.hint


def kill_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadOnlyChannel, "start", lambda *_arguments, **_options: NeverDone())


STANDS_STILL = "gRPC stands still: the system gives this process too few threads or too little memory$"


def test_a_first_request_whose_end_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    kill_thread(monkeypatch)
    with pytest.raises(SourceUnreachable, match=STANDS_STILL) as caught:
        EtcdClient(EtcdConnection(endpoints=("127.0.0.1:1",)), on_notice=print)
    assert "ulimit -v" in caught.value.hint
    assert anything_stuck()


@pytest.mark.parametrize("seconds", [0.05, 9])
def test_a_request_whose_end_nobody_tells(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A small one, and a page, for which a sign of life is asked between."""
    notices: list[str] = []
    with ScriptedEtcd({b"k": b"v"}) as etcd:
        connection = EtcdConnection(endpoints=(etcd.endpoint,), command_timeout_seconds=0.1)
        client = EtcdClient(connection, on_notice=notices.append)
        kill_thread(monkeypatch)
        for _ in range(2):
            with pytest.raises(CallFailed, match=STANDS_STILL):
                client.call(RANGE, message("RangeRequest")(key=b"k"), timeout_seconds=seconds)
        client.close()
    assert notices == []
    assert anything_stuck()


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


def watch_request() -> Any:
    return message("WatchRequest")(create_request=message("WatchCreateRequest")(key=b"k", start_revision=1))


def test_a_watch_whose_end_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's thread died: the time of the stream goes by, and nothing is said of it."""
    monkeypatch.setattr(channel_module, "_TELLING_SECONDS", 0.1)
    end = threading.Event()

    class Silent:
        def __next__(self) -> NoReturn:
            end.wait(10)
            raise StopIteration

        def cancel(self) -> None:
            end.set()

    def stream(*_arguments: object, timeout_seconds: float, **_options: object) -> Iterator[Any]:
        return channel_module._answers(Silent, timeout_seconds)

    with ScriptedEtcd({b"k": b"v"}) as etcd:
        client = EtcdClient(EtcdConnection(endpoints=(etcd.endpoint,)), on_notice=print)
        monkeypatch.setattr(ReadOnlyChannel, "stream", stream)
        with pytest.raises(CallFailed, match=STANDS_STILL):
            next(client.watch(iter([watch_request()]), timeout_seconds=0.1))
        assert end.is_set()
        with pytest.raises(CallFailed, match=STANDS_STILL):  # nobody is asked any more
            client.call(RANGE, message("RangeRequest")(key=b"k"))
        client.close()


def test_a_watch_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC has its own, and ours is not to be had: the stream is ended."""
    with ScriptedEtcd({b"k": b"v"}) as etcd:
        client = EtcdClient(EtcdConnection(endpoints=(etcd.endpoint,)), on_notice=print)
        with monkeypatch.context() as patch:
            patch.setattr(channel_module, "_draw", None)
            start = threading.Thread.start

            def begin(thread: threading.Thread) -> None:
                if getattr(thread, "_target", start) is None:
                    raise RuntimeError("can't start new thread")
                start(thread)

            patch.setattr(threading.Thread, "start", begin)
            with pytest.raises(SourceUnreachable, match="too few threads"):
                next(client.watch(iter([watch_request()]), timeout_seconds=5))
        assert client.call(RANGE, message("RangeRequest")(key=b"k")).count == 1
        client.close()
