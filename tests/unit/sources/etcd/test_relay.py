from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.relay import Relay

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
    def refuse(_thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(CallFailed, match="too few threads"):
        to(listener)


@pytest.mark.parametrize("call", ["socket", "bind", "listen"])
def test_no_socket_to_be_had(listener: socket.socket, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Nothing is left open: whoever listens sees the end at once."""

    class Denied(socket.socket):
        def __init__(self, family: int = -1, *given: Any, **named: Any) -> None:
            if call == "socket" and family == socket.AF_UNIX:
                raise OSError(24, "Too many open files")
            super().__init__(family, *given, **named)

    def deny(*_given: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    if call != "socket":
        setattr(Denied, call, deny)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Denied)
        with pytest.raises(CallFailed, match="no socket of its own"):
            to(listener)
    etcd, _ = listener.accept()
    with etcd:
        etcd.settimeout(5)
        assert etcd.recv(9) == b""


def test_strangers_do_not_fill_the_queue(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as come before the first of them was sent away."""
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda *_given: None)
    with to(listener) as relay:
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(50)]
        for each in waiting:
            each.setblocking(False)
            each.connect(f"\0{name_of(relay)}")
            each.close()
