from __future__ import annotations

import mmap
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from etcdfix.model.errors import SourceUnreachable
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import channel as channel_module
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd.channel import Answer, ReadOnlyChannel, open_channel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.relay import Relay
from etcdfix.sources.etcd.threads import anything_stuck, do_in_time, require_threads
from etcdfix.sources.etcd.tls import TLSMaterial
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import RANGE, READ_METHODS, STATUS, message
from tests.support.raising import never_told, raising
from tests.support.scripted_etcd import ScriptedEtcd

# Every method of etcd 3.6 that is not on the list of read methods: most write, the others are not needed.
NOT_READING = {
    "Auth": (
        "AuthDisable", "AuthEnable", "AuthStatus", "RoleAdd", "RoleDelete", "RoleGrantPermission",
        "RoleList", "RoleRevokePermission", "UserAdd", "UserChangePassword", "UserDelete",
        "UserGrantRole", "UserList", "UserRevokeRole",
    ),
    "Cluster": ("MemberAdd", "MemberPromote", "MemberRemove", "MemberUpdate"),
    "KV": ("Compact", "DeleteRange", "Put", "Txn"),
    "Lease": ("LeaseGrant", "LeaseKeepAlive", "LeaseLeases", "LeaseRevoke"),
    "Maintenance": ("Defragment", "Downgrade", "Hash", "MoveLeader", "Snapshot"),
}  # fmt: skip
PATHS = [
    f"/etcdserverpb.{service}/{method}" for service, methods in NOT_READING.items() for method in methods
]


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd({b"k": b"v"}) as server:
        yield server


@pytest.fixture
def channel(etcd: ScriptedEtcd) -> Iterator[ReadOnlyChannel]:
    endpoint = parse_endpoint(etcd.endpoint, has_tls_material=False)
    opened = open_channel(endpoint, TLSMaterial(), EtcdConnection())
    yield opened
    opened.close()


def test_the_lists_together_are_all_methods_of_etcd() -> None:
    assert len(PATHS) == 31
    assert not set(PATHS) & set(READ_METHODS)
    assert len(set(PATHS) | set(READ_METHODS)) == 41


@pytest.mark.parametrize("path", PATHS)
def test_no_other_method_goes_through(etcd: ScriptedEtcd, channel: ReadOnlyChannel, path: str) -> None:
    # With the messages of a read method, so that nothing but the list can refuse it.
    method = ReadMethod(path, RANGE.request, RANGE.response)
    request = message(RANGE.request)(key=b"k")
    with pytest.raises(ValueError, match="is not a read method of etcd"):
        channel.start(method, request, timeout_seconds=1)
    with pytest.raises(ValueError, match="is not a read method of etcd"):
        channel.stream(method, iter([request]), timeout_seconds=1)
    assert etcd.calls == []


def test_a_read_method_with_other_messages_is_none(channel: ReadOnlyChannel) -> None:
    with pytest.raises(ValueError, match="is not a read method"):
        channel.start(ReadMethod(RANGE.path, STATUS.request, STATUS.response), None, timeout_seconds=1)


def test_an_answer_that_is_not_wanted_any_more(channel: ReadOnlyChannel) -> None:
    answer = channel.start(RANGE, message("RangeRequest")(key=b"k"), timeout_seconds=5)
    answer.cancel()
    answer.cancel()
    with pytest.raises(CallFailed, match="the connection was closed"):
        answer.result()


COUNT_HEAPS = """
import ctypes, sys, threading
import etcdfix.sources.etcd.channel
held = []
threads = [threading.Thread(target=lambda: held.append(bytearray(100_000))) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc has several heaps")
def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    told = tmp_path / "heaps"
    subprocess.run([sys.executable, "-c", COUNT_HEAPS, str(told)], check=True, timeout=60)
    assert told.read_text().count("<heap nr=") == 1


_CONNECT = """
import socket, sys
found = socket.socket(socket.AF_UNIX)
found.connect(sys.argv[1].replace("@", "\\0"))
found.sendall(b"stranger")
print(found.recv(9))
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


@pytest.fixture
def relay(listener: socket.socket) -> Iterator[Relay]:
    with to(listener) as found:
        yield found


def to(listener: socket.socket) -> Relay:
    text = f"127.0.0.1:{listener.getsockname()[1]}"
    return Relay(parse_endpoint(text, has_tls_material=False), timeout_seconds=5)


def name_of(relay: Relay) -> str:
    return relay.target.partition(":")[2]


def connect(relay: Relay) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(f"\0{name_of(relay)}")
    except OSError:
        found.close()
        raise
    return found


def test_nothing_that_was_sent_later_counts(listener: socket.socket, relay: Relay) -> None:
    etcd, _ = listener.accept()
    with etcd, connect(relay) as own:
        own.sendall(b"question")
        assert etcd.recv(9) == b"question"
        assert relay.nothing_since(8)
        with pytest.raises(OSError, match="pipe"):
            own.sendall(b"too late")
        assert relay.passed == 8


def test_there_is_no_second_connection(listener: socket.socket, relay: Relay) -> None:
    etcd, _ = listener.accept()
    with etcd:
        with connect(relay) as own:
            own.sendall(b"question")
            assert etcd.recv(9) == b"question"
            with pytest.raises(ConnectionRefusedError):
                connect(relay)
        # Nor one that takes the place of the first.
        assert etcd.recv(9) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(relay)
    listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        listener.accept()


def test_the_end_of_etcd_is_the_end(listener: socket.socket, relay: Relay) -> None:
    etcd, _ = listener.accept()
    with connect(relay) as own:
        with etcd:
            etcd.sendall(b"last")
        assert own.recv(9) == b"last"
        assert own.recv(9) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(relay)


def test_another_process_is_sent_away(listener: socket.socket, relay: Relay) -> None:
    etcd, _ = listener.accept()
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT, f"@{name_of(relay)}"], capture_output=True, check=False
    )
    assert b"stranger" not in done.stdout
    assert done.stdout.strip() in {b"b''", b""}
    with etcd, connect(relay) as own:
        own.sendall(b"question")
        assert etcd.recv(8 + 9) == b"question"


def test_closed_before_anybody_came(listener: socket.socket) -> None:
    relay = to(listener)
    relay.close()
    assert relay.nothing_since(0)
    with pytest.raises(ConnectionRefusedError):
        connect(relay)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("127.0.0.1:9", "connection refused"),
        ("unix:///nowhere/socket", "no such socket"),
        ("no-such-host.invalid:2379", "host name is not known"),
        (".:2379", "host name is not known"),
    ],
)
def test_what_cannot_be_reached(endpoint: str, words: str) -> None:
    with pytest.raises(CallFailed, match=words):
        Relay(parse_endpoint(endpoint, has_tls_material=False), timeout_seconds=5)


def test_no_thread_to_be_had(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    with pytest.raises(CallFailed, match="too few threads"):
        to(listener)


@pytest.mark.parametrize("call", ["bind", "listen"])
def test_no_socket_to_be_had(listener: socket.socket, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Nothing is left open: whoever listens sees the end at once."""
    denied = {call: raising(PermissionError(1, "Operation not permitted"))}
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", type("Denied", (socket.socket,), denied))
        with pytest.raises(CallFailed, match="no socket of its own"):
            to(listener)
    etcd, _ = listener.accept()
    with etcd:
        etcd.settimeout(5)
        assert etcd.recv(9) == b""


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
    with pytest.raises(SourceUnreachable, match="too little memory: 64 MiB more are not available") as caught:
        require_threads()
    assert "ulimit -v" in caught.value.hint


def kill_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "wait", never_told)


STANDS_STILL = "gRPC stands still: the system gives this process too few threads or too little memory$"


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


def request_of_a_watch() -> Any:
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

    def stream(
        self: ReadOnlyChannel, *_arguments: object, timeout_seconds: float, **_options: object
    ) -> Iterator[Any]:
        return self._answers(Silent, timeout_seconds, 5, bool)

    with ScriptedEtcd({b"k": b"v"}) as etcd:
        client = EtcdClient(EtcdConnection(endpoints=(etcd.endpoint,)), on_notice=print)
        monkeypatch.setattr(ReadOnlyChannel, "stream", stream)
        with pytest.raises(CallFailed, match=STANDS_STILL):
            next(client.watch(iter([request_of_a_watch()]), timeout_seconds=0.1))
        assert end.is_set()
        with pytest.raises(CallFailed, match=STANDS_STILL):  # nobody is asked any more
            client.call(RANGE, message("RangeRequest")(key=b"k"))
        client.close()
