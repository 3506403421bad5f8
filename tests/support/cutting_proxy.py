"""A TCP proxy before etcd that cuts a connection at a chosen HTTP/2 frame; from then on it leads to another etcd."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, NamedTuple

from tests.support.lossy_etcd import _PREFACE, _exactly
from tests.support.stopping import Stopping


class CutPoint(NamedTuple):
    """Where a connection is cut.

    Attributes:
        upwards: Frames from the client to etcd are counted, or else those from etcd.
        frames: So many pass; then all connections end.
    """

    upwards: bool
    frames: int


class CuttingProxy(Stopping):
    """Passes bytes on, on as many connections as are made, TLS too where nothing is counted."""

    def __init__(self, upstream: str, listener: socket.socket | None = None) -> None:
        self._upstream = upstream
        self._armed: tuple[CutPoint, str] | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.was_cut = False
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._nodelay = self._listener.family != socket.AF_UNIX
        name = self._listener.getsockname()
        host = name[0] if self._listener.family == socket.AF_INET else "[::1]"
        self.endpoint = f"{host}:{name[1]}" if self._nodelay else f"unix://{name}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def arm(self, point: CutPoint, other: str) -> None:
        """Cut the next connection that is made at this point, and lead to ``other`` from then on."""
        self._armed = point, other

    def stop(self) -> None:
        """End all connections and stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._end_all()
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._open):
            each.close()

    def _end_all(self) -> None:
        with self._lock:
            for each in self._open:
                _shut(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                armed, self._armed = self._armed, None
                host, _, port = self._upstream.rpartition(":")
                upstream = socket.create_connection((host, int(port)))
                for each in (client, upstream)[not self._nodelay :]:  # each frame is sent by itself
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open += [client, upstream]
                for ends, upwards in (((client, upstream), True), ((upstream, client), False)):
                    counted = armed if armed is not None and armed[0].upwards == upwards else None
                    passing = threading.Thread(
                        target=self._pass_on, args=(*ends, upwards, counted), daemon=True
                    )
                    self._threads.append(passing)
                    passing.start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, upwards: bool, armed: tuple[CutPoint, str] | None
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError, EOFError), source.makefile("rb") as stream:
            while armed is None:
                sink.sendall(stream.read1() or _end())
            if upwards:
                sink.sendall(_exactly(stream, len(_PREFACE)))
            while True:
                if passed == armed[0].frames:
                    self.was_cut, self._upstream = True, armed[1]
                    self._end_all()
                sink.sendall(_frame_of(stream))
                passed += 1
        _shut(source)
        _shut(sink)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _end() -> bytes:
    raise EOFError


def _frame_of(stream: Any) -> bytes:
    """Read one frame (RFC 9113, section 4.1)."""
    head = _exactly(stream, 9)
    return head + _exactly(stream, int.from_bytes(head[:3], "big"))
