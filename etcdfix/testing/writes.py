"""A client that changes what is in a test's etcd. No command and nothing else of the package imports it.

What etcdfix itself changes goes through ``remediation/writer.py``, one etcd key at a time and never by force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from etcdfix.wire.descriptors import build_pool, parse_table

# etcd refuses more operations (--max-txn-ops, 128) and larger requests (--max-request-bytes, 1.5 MB).
_MOST_OPERATIONS = 100
_MOST_BYTES = 1 << 20
_TABLE: Final = """
PutRequest: 1 key bytes, 2 value bytes
DeleteRangeRequest: 1 key bytes
RequestOp: 2 request_put PutRequest, 3 request_delete_range DeleteRangeRequest
TxnRequest: 2 success *RequestOp
ResponseHeader: 3 revision int64
TxnResponse: 1 header ResponseHeader
"""
_MESSAGES = build_pool(parse_table(_TABLE), "etcdfix.testing.writes")


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

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> int:
        """Put pairs, up to a hundred in one transaction; return the last revision, 0 without pairs."""
        revision, size = 0, 0
        puts: list[Mapping[str, Any]] = []
        for key, value in pairs:
            if puts and (len(puts) == _MOST_OPERATIONS or size + len(value) > _MOST_BYTES):
                self._change(puts)
                puts, size = [], 0
            puts.append({"request_put": {"key": key, "value": value}})
            size += len(value)
        if puts:
            revision = self._change(puts)
        return revision

    def delete(self, key: bytes) -> None:
        """Delete one etcd key."""
        self._change([{"request_delete_range": {"key": key}}])

    def _change(self, operations: list[Mapping[str, Any]]) -> int:
        request: Any = _MESSAGES["TxnRequest"](success=operations)
        return int(self._txn(request, timeout=30, wait_for_ready=True).header.revision)

    def close(self) -> None:
        self._channel.close()
