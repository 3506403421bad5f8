"""One gRPC connection to one endpoint, through which only read methods can be called.

gRPC guards its state with locks that its own threads need too. Python lets a signal break into code of the main thread
as it enters any function, so also between taking such a lock and giving it back: then the connection stands still for
ever. So signals wait while gRPC's code runs in the main thread, and where something is waited for, its code does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from etcdfix.model.interruptions import interruptions_held
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind, classify
from etcdfix.sources.etcd.relay import Relay
from etcdfix.sources.etcd.threads import do_in_time, no_threads, stands_still
from etcdfix.sources.etcd.tls import TLSMaterial, channel_credentials
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import ALARM, READ_METHODS, alarm_query, message

# gRPC reads these when it is imported. Its log lines would repeat on stderr what we say in our own words,
# and its fork handlers cost time in every child process.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # after the variables that it reads

# <malloc.h>; only glibc has this. Pages come from gRPC's threads, which start with the first channel, and go in others.
# With a heap for each thread, what is free in one is of no use to the next: half as much memory again.
_M_ARENA_MAX = -8
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

MAX_ANSWER_BYTES = 512 << 20

_CLOSING_SECONDS = 5.0

_END = object()

# gRPC tells within moments that the time of a request is over; where it does not, it never will.
_TELLING_SECONDS = 5.0


class _Callee(NamedTuple):
    """Whom a request goes to, as its failures are told."""

    endpoint: Endpoint
    certificate: bytes | None
    """The client certificate that is shown, as PEM."""

    def failed(self, error: Any, timeout_seconds: float) -> CallFailed:
        """Take over what gRPC's error says; that one has a lock, and is not to live on."""
        status, details = error.code().name, error.details() or ""
        error.with_traceback(None)  # its frames hold it
        failure = classify(
            status,
            details,
            self.endpoint,
            timeout_seconds=timeout_seconds,
            client_certificate=self.certificate,
        )
        return CallFailed(failure, status=status, details=details)


class Answer:
    """What a request brings."""

    def __init__(self, begin: Callable[[], Any], callee: _Callee, timeout_seconds: float) -> None:
        """Send the request."""
        self._callee, self._timeout_seconds = callee, timeout_seconds
        self._told: SimpleQueue[None] = SimpleQueue()
        self._ended = False
        with interruptions_held():
            self._future: Any = begin()
            self._future.add_done_callback(self._end)

    def _end(self, _future: object) -> None:
        self._ended = True
        self._told.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds; say whether the request has ended."""
        if not self._ended:
            with contextlib.suppress(Empty):
                self._told.get(timeout=seconds)
        return self._ended

    def result(self) -> Any:
        """Wait until the request has ended, and return the answer: once.

        Raises:
            CallFailed: There is none; or gRPC does not see to its end, as its thread is gone.
        """
        if not self.wait(self._timeout_seconds + _TELLING_SECONDS):
            raise CallFailed(stands_still(self._callee.endpoint.text))
        answer: Any = None
        failed: CallFailed | None = None
        with interruptions_held():
            future, self._future = self._future, None
            if future is None or future.cancelled():
                failed = CallFailed(Failure(FailureKind.ENDED, "the connection was closed"))
            else:
                error = future.exception(timeout=0)
                if error is None:
                    answer = future.result(timeout=0)
                else:
                    failed = self._callee.failed(error, self._timeout_seconds)
                del error
            del future  # gRPC's has a lock, which is taken once more when it goes
        if failed is not None:
            raise failed
        return answer

    def cancel(self) -> None:
        """Stop waiting; the answer is not wanted any more."""
        with interruptions_held():
            future, self._future = self._future, None
            if future is not None:
                future.cancel()
            del future


class ReadOnlyChannel:
    """Wraps a gRPC channel so that nothing but :data:`~etcdfix.wire.etcd.READ_METHODS` goes through it."""

    def __init__(self, channel: Any, endpoint: Endpoint, *, certificate: bytes | None = None) -> None:
        self._channel = channel
        self._callee = _Callee(endpoint, certificate)
        self._calls: dict[str, Any] = {}

    def start(
        self,
        method: ReadMethod,
        request: Any,
        *,
        timeout_seconds: float,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        """Send a request and return what will bring ``(answer, the bytes of the answer)`` at once.

        Raises:
            ValueError: The method is not on the list of read methods, or the request is an AlarmRequest that
                does more than ask.
        """
        if method.path == ALARM.path:
            _refuse_raising_alarms(request)
        call = self._calls.get(method.path)
        if call is None:
            _refuse_writes(method)
            call = self._calls[method.path] = self._channel.unary_unary(
                method.path,
                request_serializer=message(method.request).SerializeToString,
                response_deserializer=_with_bytes(message(method.response).FromString),
            )
        return self._send(call, request, timeout_seconds, metadata)

    def _send(
        self, call: Any, request: Any, timeout_seconds: float, metadata: tuple[tuple[str, str], ...]
    ) -> Answer:
        begin = partial(call.future, request, timeout=timeout_seconds, metadata=metadata)
        return Answer(begin, self._callee, timeout_seconds)

    def stream(
        self,
        method: ReadMethod,
        requests: Iterator[Any],
        *,
        timeout_seconds: float,
        patience_seconds: float = math.inf,
        on_silence: Callable[[], object] = bool,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Generator[Any, None, None]:
        """Return the answers of a two-way stream, opened by the first; ``requests`` is drawn in a thread. Close it.

        Raises:
            ValueError: The method is not on the list of read methods, or is one whose requests are looked at
                one by one.
            CallFailed: The stream broke, at the answer that did not come; or gRPC stands still.
            SourceUnreachable: There is no thread to be had.
        """
        _refuse_writes(method)
        if method == ALARM:
            raise ValueError(f"{method.path} is not a stream")
        call = self._channel.stream_stream(
            method.path,
            request_serializer=message(method.request).SerializeToString,
            response_deserializer=message(method.response).FromString,
        )
        begin = partial(call, requests, timeout=timeout_seconds, metadata=metadata)
        return self._answers(begin, timeout_seconds, patience_seconds, on_silence)

    def _answers(
        self,
        begin: Callable[[], Any],
        timeout_seconds: float,
        patience_seconds: float,
        on_silence: Callable[[], object],
    ) -> Generator[Any, None, None]:
        """Yield what comes down a stream, one by one as they are wanted; a thread of its own waits for each."""
        wanted: SimpleQueue[bool] = SimpleQueue()
        came: SimpleQueue[Any] = SimpleQueue()
        deadline = time.monotonic() + timeout_seconds
        stream: Any = None

        def draw(stream: Any) -> None:
            while wanted.get():
                try:
                    came.put(next(stream, _END))
                except grpc.RpcError as exc:
                    came.put(self._callee.failed(exc, timeout_seconds))

        try:
            # What comes meanwhile is raised when they are let go: the stream is ended then too.
            with interruptions_held():
                stream = begin()
                try:
                    threading.Thread(target=draw, args=(stream,), daemon=True).start()
                except (RuntimeError, MemoryError) as exc:
                    raise no_threads("a stream needs one") from exc
            while True:
                wanted.put(True)
                found: Any = None
                while found is None:
                    left = max(deadline - time.monotonic(), 0) + _TELLING_SECONDS
                    try:
                        found = came.get(timeout=min(left, patience_seconds))
                    except Empty:
                        if left <= patience_seconds:
                            raise CallFailed(stands_still(self._callee.endpoint.text)) from None
                        on_silence()
                if isinstance(found, CallFailed):
                    raise found
                if found is _END:
                    return
                yield found
        finally:
            with interruptions_held():
                wanted.put(False)
                if stream is not None:
                    stream.cancel()
                del stream

    def close(self) -> None:
        """End the connection; requests under way are cancelled. One that does not end in time is left alone."""
        do_in_time(self._channel.close, _CLOSING_SECONDS)


def open_channel(endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection) -> ReadOnlyChannel:
    """Prepare a channel; the connection itself is made by the first request.

    Raises:
        CallFailed: With ``insecure_skip_tls_verify``, the server's certificate could not be fetched.
    """
    transport = open_transport(endpoint, material, connection)
    return ReadOnlyChannel(transport, endpoint, certificate=material.certificate)


def open_transport(
    endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection, relay: Relay | None = None
) -> Any:
    """Prepare gRPC's own channel, which any method goes through; for whoever wraps it in an allow-list.

    Raises:
        CallFailed: With ``insecure_skip_tls_verify``, the server's certificate could not be fetched.
    """
    dial_timeout_ms = max(1, int(connection.dial_timeout_seconds * 1000))
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        # Despite its name this is also the longest that one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", dial_timeout_ms),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # We decide what is asked again, and of whom.
        ("grpc.enable_retries", 0),
        # etcdctl dials directly too; a proxy variable for the outside world must not catch etcd.
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    target = endpoint.target if relay is None else relay.target
    host, credentials = endpoint.host.partition("%")[0], None  # without the zone of an IPv6 address
    if endpoint.tls:
        credentials, more = channel_credentials(grpc, endpoint, material, connection)
        if relay is not None and not more:
            more.append(("grpc.ssl_target_name_override", host))
        options += more
        host = more[0][1] if more else host
    if relay is not None and endpoint.port:
        # What gRPC says where it connects by itself, or a name that the certificate bears, which it asks for here. To a
        # Unix socket it says "localhost" either way.
        name = f"[{host}]" if ":" in host else host
        options.append(("grpc.default_authority", f"{name}:{endpoint.port}"))
    if credentials is None:
        return grpc.insecure_channel(target, options)
    return grpc.secure_channel(target, credentials, options)


def _with_bytes(parse: Callable[[bytes], Any]) -> Callable[[bytes], tuple[Any, bytes]]:
    """Parse an answer and keep its bytes: a page goes to another process as it came."""
    return lambda raw: (parse(raw), raw)


def _refuse_writes(method: ReadMethod) -> None:
    if READ_METHODS.get(method.path) != method:
        raise ValueError(f"{method.path} is not a read method of etcd")


def _refuse_raising_alarms(request: Any) -> None:
    # Compared as it travels: an action could also hide among the fields that our message does not know.
    if request.SerializeToString() != alarm_query().SerializeToString():
        raise ValueError(f"{ALARM.path}: this request could raise or lift an alarm")
