"""A gRPC server between the package and etcd: writes down what was asked, and can say no in etcd's name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from etcdfix.testing.certificates import CertificateFiles
from tests.support.stopping import Stopping

RANGE = "/etcdserverpb.KV/Range"

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Refusal(NamedTuple):
    """A status to answer with instead of asking etcd."""

    code: str
    details: str


NO_LEADER = Refusal("UNAVAILABLE", "etcdserver: no leader")


class EtcdProxy(Stopping):
    """Passes every method on as raw bytes.

    Attributes:
        before: Called with the path and the first request of each call before it is passed on; a
            :class:`Refusal` goes back to the caller instead.
    """

    def __init__(
        self,
        upstream: str,
        before: Callable[[str, bytes], Refusal | None] | None = None,
        certificate: CertificateFiles | None = None,
    ) -> None:
        import grpc  # not at the top: the package sets variables that grpc reads when it is imported

        self.calls: list[str] = []
        self.before = before
        self._grpc = grpc
        self._upstreams: list[Any] = []
        self.turn(upstream)
        self._threads = ThreadPoolExecutor(max_workers=8)
        self._server = grpc.server(self._threads, options=[("grpc.so_reuseport", 0), *_UNLIMITED])
        self._server.add_generic_rpc_handlers((self._handler(),))
        if certificate is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            pair = certificate.key.read_bytes(), certificate.cert.read_bytes()
            port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        self.endpoint = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """End all calls and stop listening."""
        self._server.stop(None).wait()
        for upstream in self._upstreams:
            upstream.close()
        self._threads.shutdown()

    def turn(self, upstream: str) -> None:
        """Pass every call from now on to this etcd; who calls sees no difference."""
        channel = self._grpc.insecure_channel(upstream, [("grpc.enable_http_proxy", 0), *_UNLIMITED])
        self._upstreams.append(channel)

    def ranges(self) -> int:
        """How many pages were asked for."""
        return self.calls.count(RANGE)

    def _handler(self) -> Any:
        proxy = self
        grpc: Any = self._grpc

        class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC comes without types: its classes are Any
            def service(self, handler_call_details: Any) -> Any:
                path = handler_call_details.method
                return grpc.stream_stream_rpc_method_handler(
                    lambda requests, context: proxy._pass_on(path, requests, context)
                )

        return Anything()

    def _pass_on(self, path: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self.calls.append(path)
        first = next(requests)
        refusal = self.before(path, first) if self.before is not None else None
        if refusal is not None:
            context.abort(self._grpc.StatusCode[refusal.code], refusal.details)

        def all_requests() -> Iterator[bytes]:
            yield first
            # The caller hung up: whoever reads this only needs to see the end.
            with contextlib.suppress(self._grpc.RpcError):
                yield from requests

        metadata = [item for item in context.invocation_metadata() if item[0] == "token"]
        answers = self._upstreams[-1].stream_stream(path)(all_requests(), metadata=metadata)
        context.add_callback(answers.cancel)
        try:
            yield from answers
        except self._grpc.RpcError as exc:
            context.abort(exc.code(), exc.details())
