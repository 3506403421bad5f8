"""Between the package and etcd, for what can go wrong with one transaction: lost, held back, answered otherwise.

:class:`LossyProxy` speaks gRPC and stands before a real etcd; :class:`RawHTTP2` speaks just enough HTTP/2 to see how
often a request is sent when its stream or its connection breaks.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from tests.support.etcd_proxy import EtcdProxy

TXN = "/etcdserverpb.KV/Txn"


class LossyProxy(EtcdProxy):
    """Passes everything on, and then tampers with what comes back.

    Attributes:
        lost: Paths whose answers are thrown away: the connection seems to break after etcd did its work.
        held: Paths whose answers are kept until the proxy stops.
        holding: Set once such an answer is kept.
        rewrite: Called with the path and each answer; what it returns goes back.
    """

    def __init__(self, upstream: str) -> None:
        self.lost: set[str] = set()
        self.held: set[str] = set()
        self.holding = threading.Event()
        self.rewrite: Callable[[str, bytes], bytes] = lambda _path, answer: answer
        self._release = threading.Event()
        super().__init__(upstream)

    def stop(self) -> None:
        self._release.set()
        super().stop()

    def _pass_on(self, path: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for answer in super()._pass_on(path, requests, context):
            if path in self.held:
                self.holding.set()
                self._release.wait()
            if path in self.lost:
                context.abort(self._grpc.StatusCode.UNAVAILABLE, "Socket closed")
            yield self.rewrite(path, answer)


class Withheld:
    """Keeps each transaction before a proxy from etcd until it is released.

    Attributes:
        holding: Set once one is kept.
        release: Set it to let go of all; after half a minute the call fails.
        passed: Set once etcd answered one.
    """

    def __init__(self, proxy: LossyProxy) -> None:
        self.holding, self.release, self.passed = threading.Event(), threading.Event(), threading.Event()
        proxy.before, proxy.rewrite = self._hold, self._note

    def _hold(self, path: str, _request: bytes) -> None:
        if path == TXN:
            self.holding.set()
            assert self.release.wait(30)

    def _note(self, path: str, answer: bytes) -> bytes:
        if path == TXN:
            self.passed.set()
        return answer


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK = 1, 1
_REFUSED_STREAM = 7


class RawHTTP2:
    """A server that never answers a request, and breaks it off in one of three ways.

    Format:
        RFC 9113, sections 3.4 (preface), 4.1 (frames) and 6.
    """

    def __init__(self, trouble: str) -> None:
        """Listen; ``trouble`` is ``refused-stream``, ``goaway`` or ``cut``."""
        self.requests = 0
        self._trouble = trouble
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        # A thread in accept() does not notice that the socket was closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection, connection.makefile("rb") as stream:
            _exactly(stream, len(_PREFACE))
            connection.sendall(_frame(_SETTINGS, 0, 0))
            while True:
                length, kind, flags, stream_id = _head(_exactly(stream, 9))
                payload = _exactly(stream, length)
                if kind == _SETTINGS and not flags & _ACK:
                    connection.sendall(_frame(_SETTINGS, _ACK, 0))
                elif kind == _PING and not flags & _ACK:
                    connection.sendall(_frame(_PING, _ACK, 0, payload))
                elif kind == _HEADERS:
                    self.requests += 1
                elif kind == _DATA and flags & _END_STREAM:
                    if self._trouble == "refused-stream":
                        connection.sendall(
                            _frame(_RST_STREAM, 0, stream_id, struct.pack(">I", _REFUSED_STREAM))
                        )
                    elif self._trouble == "goaway":
                        # "No stream was processed": the client may send it again elsewhere, says the protocol.
                        connection.sendall(_frame(_GOAWAY, 0, 0, struct.pack(">II", 0, 0)))
                        return
                    else:
                        return


def _exactly(stream: Any, size: int) -> bytes:
    found: bytes = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _head(raw: bytes) -> tuple[int, int, int, int]:
    high, low, kind, flags, stream_id = struct.unpack(">BHBBI", raw)
    return high << 16 | low, kind, flags, stream_id & 0x7FFF_FFFF


def _frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream_id) + payload
