"""One gRPC connection to one endpoint, through which only read methods can be called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.endpoints import Endpoint
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.threads import do_in_time, stands_still
from etcdfix.sources.etcd.tls import TLSMaterial, channel_credentials
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import ALARM, READ_METHODS, alarm_query, message

# gRPC reads these when it is imported. Its log lines would repeat on stderr what we say in our own words,
# and its fork handlers cost time in every child process.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # after the variables that it reads

MAX_ANSWER_BYTES = 512 << 20

_CLOSING_SECONDS = 5.0

RpcError = grpc.RpcError
FutureCancelledError = grpc.FutureCancelledError
FutureTimeoutError = grpc.FutureTimeoutError

# gRPC tells within moments that the time of a request is over; where it does not, it never will.
_TELLING_SECONDS = 5.0


def settle(future: Any, endpoint: Endpoint, timeout_seconds: float) -> Any:
    """Wait until a request has ended, which gRPC sees to: unless its thread is gone, and then nobody does.

    Args:
        future: gRPC's, of an answer.
        endpoint: Who was asked.
        timeout_seconds: Of the request.

    Raises:
        RpcError: As gRPC has it.
        CallFailed: gRPC stands still.
    """
    try:
        return future.result(timeout=timeout_seconds + _TELLING_SECONDS)
    except FutureTimeoutError as exc:
        raise CallFailed(stands_still(endpoint.text)) from exc


class ReadOnlyChannel:
    """Wraps a gRPC channel so that nothing but :data:`~etcdfix.wire.etcd.READ_METHODS` goes through it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._calls: dict[str, Any] = {}

    def start(
        self,
        method: ReadMethod,
        request: Any,
        *,
        timeout_seconds: float,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Any:
        """Send a request and return gRPC's future of ``(answer, the bytes of the answer)`` at once.

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
                response_deserializer=_WithBytes(message(method.response).FromString),
            )
        return call.future(request, timeout=timeout_seconds, metadata=metadata)

    def stream(
        self,
        method: ReadMethod,
        requests: Iterator[Any],
        *,
        timeout_seconds: float,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Any:
        """Open a two-way stream and return gRPC's iterator of answers; ``requests`` is drawn in a thread.

        Raises:
            ValueError: The method is not on the list of read methods, or is one whose requests are looked at
                one by one.
        """
        _refuse_writes(method)
        if method == ALARM:
            raise ValueError(f"{method.path} is not a stream")
        call = self._channel.stream_stream(
            method.path,
            request_serializer=message(method.request).SerializeToString,
            response_deserializer=message(method.response).FromString,
        )
        return call(requests, timeout=timeout_seconds, metadata=metadata)

    def close(self) -> None:
        """End the connection; requests under way are cancelled. One that does not end in time is left alone."""
        do_in_time(self._channel.close, _CLOSING_SECONDS)


def open_channel(endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection) -> ReadOnlyChannel:
    """Prepare a channel; the connection itself is made by the first request.

    Raises:
        CallFailed: With ``insecure_skip_tls_verify``, the server's certificate could not be fetched.
    """
    return ReadOnlyChannel(open_transport(endpoint, material, connection))


def open_transport(endpoint: Endpoint, material: TLSMaterial, connection: EtcdConnection) -> Any:
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
    if not endpoint.tls:
        return grpc.insecure_channel(endpoint.target, options)
    credentials, more = channel_credentials(grpc, endpoint, material, connection)
    return grpc.secure_channel(endpoint.target, credentials, [*options, *more])


class _WithBytes:
    """Parses an answer and keeps its bytes: a page goes to another process as it came."""

    def __init__(self, parse: Any) -> None:
        self._parse = parse

    def __call__(self, raw: bytes) -> tuple[Any, bytes]:
        return self._parse(raw), raw


def _refuse_writes(method: ReadMethod) -> None:
    if READ_METHODS.get(method.path) != method:
        raise ValueError(f"{method.path} is not a read method of etcd")


def _refuse_raising_alarms(request: Any) -> None:
    # Compared as it travels: an action could also hide among the fields that our message does not know.
    if request.SerializeToString() != alarm_query().SerializeToString():
        raise ValueError(f"{ALARM.path}: this request could raise or lift an alarm")
