"""One connection to etcd that is never made anew, for whoever writes.

gRPC replaces a lost connection by itself, even inside a call, and behind the same address may stand another copy of the
cluster. So the only address that gRPC is given is a socket of ours, which takes one connection in its life. Bytes go
from there to one connection to etcd, made once, and TLS goes through them from end to end. When either side ends, both
end; a second attempt finds nobody.

The socket is abstract (Linux): no file is left behind, and no directory has to be writable. Who else connects to it is
sent away: the kernel says which process is at the other end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import struct
import threading

from etcdfix.model.closing import Closing
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind, classify

_CHUNK_BYTES = 1 << 16
_CLOSING_SECONDS = 5.0
_BACKLOG = 128  # strangers who connect are sent away, and must not fill it meanwhile


class Relay(Closing):
    """Takes one connection, and passes on what comes to the one that it has made.

    Attributes:
        target: Where gRPC finds it.
        passed: How many bytes went to etcd, or were about to.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float) -> None:
        """Connect to the endpoint, and listen.

        Raises:
            CallFailed: The endpoint cannot be reached, or there is no socket or thread to be had.
        """
        try:
            upstream = endpoint.dial(timeout_seconds)
        except (OSError, ValueError) as exc:
            unknown = isinstance(
                exc, (socket.gaierror, ValueError)
            )  # ValueError: no name that can be asked for
            text = "DNS resolution failed" if unknown else str(exc)
            raise CallFailed(
                classify("UNAVAILABLE", text, endpoint, timeout_seconds=timeout_seconds)
            ) from exc
        name = f"etcdfix-{secrets.token_hex(16)}"
        self.target = f"unix-abstract:{name}"
        self.passed = 0
        self._sockets = [upstream]
        try:
            upstream.settimeout(None)
            if endpoint.port:
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listener = socket.socket(socket.AF_UNIX)
            self._sockets.append(self._listener)
            self._listener.bind(f"\0{name}")
            self._listener.listen(_BACKLOG)
        except OSError as exc:
            self._close_all()
            text = (
                f"{endpoint.text}: the system gives this process no socket of its own ({exc.strerror or exc})"
            )
            raise CallFailed(Failure(FailureKind.UNREACHABLE, text)) from exc
        self._upstream = upstream
        self._thread = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as exc:
            self._close_all()
            text = f"{endpoint.text}: the system gives this process too few threads"
            raise CallFailed(Failure(FailureKind.UNREACHABLE, text)) from exc

    def close(self) -> None:
        """End both connections; from then on nothing goes to etcd any more."""
        for each in tuple(self._sockets):
            _shut(each)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self._close_all()

    def nothing_since(self, passed: int) -> bool:
        """End both connections; say whether it is certain that nothing went to etcd since ``passed`` was read."""
        self.close()
        return not self._thread.is_alive() and self.passed == passed

    def _close_all(self) -> None:
        for each in self._sockets:
            each.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # one side is gone, or close() was called
            own = self._accept()
            try:
                self._pass_on(own)
            finally:
                _shut(own)
        _shut(self._upstream)

    def _accept(self) -> socket.socket:
        """Wait for this process, and listen no more."""
        while True:
            found, _ = self._listener.accept()
            peer = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", peer)[0] == os.getpid():
                self._sockets.append(found)
                _shut(
                    self._listener
                )  # closed by close() alone: its number must not go to another file meanwhile
                return found
            found.close()

    def _pass_on(self, own: socket.socket) -> None:
        poll = select.poll()  # select() would refuse high file descriptors
        poll.register(own, select.POLLIN)
        poll.register(self._upstream, select.POLLIN)
        while True:
            for number, _ in poll.poll():
                upwards = number == own.fileno()
                data = (own if upwards else self._upstream).recv(_CHUNK_BYTES)
                if not data:
                    return
                if upwards:
                    self.passed += len(data)  # before: what fails half-way may have arrived
                (self._upstream if upwards else own).sendall(data)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
