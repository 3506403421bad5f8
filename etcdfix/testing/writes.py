"""Putting values into a test's etcd.

What etcdfix itself changes goes through ``remediation/writer.py``, one etcd key at a time and never by force. This is
another client, for tests alone: no command and nothing else of the package imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from etcdfix.wire.descriptors import WireField, build_pool

# etcd refuses more operations (--max-txn-ops, 128) and larger requests (--max-request-bytes, 1.5 MB).
_MOST_OPERATIONS = 100
_MOST_BYTES = 1 << 20

_MESSAGES = build_pool(
    {
        "PutRequest": [WireField(1, "key", "optional", "bytes"), WireField(2, "value", "optional", "bytes")],
        "RequestOp": [WireField(2, "request_put", "optional", "PutRequest")],
        # result 0 is EQUAL, target 3 is VALUE.
        "Compare": [
            WireField(1, "result", "optional", "int32"),
            WireField(2, "target", "optional", "int32"),
            WireField(3, "key", "optional", "bytes"),
            WireField(7, "value", "optional", "bytes"),
        ],
        "TxnRequest": [
            WireField(1, "compare", "repeated", "Compare"),
            WireField(2, "success", "repeated", "RequestOp"),
        ],
        "ResponseHeader": [WireField(3, "revision", "optional", "int64")],
        "TxnResponse": [
            WireField(1, "header", "optional", "ResponseHeader"),
            WireField(2, "succeeded", "optional", "bool"),
        ],
    },
    "etcdfix.testing.writes",
)
_VALUE = 3


class PutRefused(Exception):
    """What had to be in etcd is not there; nothing was put."""


class ClientFiles(NamedTuple):
    """What a client shows and trusts: CA, certificate, private key."""

    cacert: Path
    cert: Path
    key: Path


class EtcdWriter:
    """One connection for ``KV/Txn``."""

    def __init__(self, endpoint: str, tls: ClientFiles | None) -> None:
        # Not at the top: the package sets variables that grpc reads when it is imported.
        import grpc  # noqa: PLC0415

        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        if tls is None:
            self._channel = grpc.insecure_channel(endpoint, options)
        else:
            files = (tls.cacert.read_bytes(), tls.key.read_bytes(), tls.cert.read_bytes())
            self._channel = grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(*files), options)
        self._txn: Any = self._channel.unary_unary(
            "/etcdserverpb.KV/Txn",
            request_serializer=_MESSAGES["TxnRequest"].SerializeToString,
            response_deserializer=_MESSAGES["TxnResponse"].FromString,
        )

    def put_all(
        self, pairs: Iterable[tuple[bytes, bytes]], *, only_with: tuple[bytes, bytes] | None = None
    ) -> int:
        """Put pairs, up to a hundred in one transaction; return the last revision, 0 without pairs.

        Args:
            pairs: Etcd keys and values.
            only_with: An etcd key and the value that it must have in that very moment; None for no condition.

        Raises:
            PutRefused: It does not.
        """
        revision = 0
        for batch in _batches(pairs):
            request: Any = _MESSAGES["TxnRequest"]()
            if only_with is not None:
                condition = request.compare.add()
                condition.target = _VALUE
                condition.key, condition.value = only_with
            for key, value in batch:
                put = request.success.add().request_put
                put.key, put.value = key, value
            answer = self._txn(request, timeout=30, wait_for_ready=True)
            if not answer.succeeded:
                raise PutRefused
            revision = answer.header.revision
        return revision

    def close(self) -> None:
        self._channel.close()


def _batches(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    batch: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in pairs:
        if batch and (len(batch) == _MOST_OPERATIONS or size + len(value) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += len(value)
    if batch:
        yield batch
