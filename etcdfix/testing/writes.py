"""Changing what is in a test's etcd.

What etcdfix itself changes goes through ``remediation/writer.py``, one etcd key at a time and never by force. This is
another client, for tests alone: no command and nothing else of the package imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from etcdfix.wire.descriptors import build_pool, parse_table

# etcd refuses more operations (--max-txn-ops, 128) and larger requests (--max-request-bytes, 1.5 MB).
_MOST_OPERATIONS = 100
_MOST_BYTES = 1 << 20

# Of a Compare, result 0 is EQUAL, target 1 is CREATE and 3 is VALUE; the create revision is 0 where nothing is said.
_TABLE: Final = """
PutRequest: 1 key bytes, 2 value bytes
DeleteRangeRequest: 1 key bytes, 2 range_end bytes
RequestOp: 2 request_put PutRequest, 3 request_delete_range DeleteRangeRequest
Compare: 1 result int32, 2 target int32, 3 key bytes, 7 value bytes, 64 range_end bytes
TxnRequest: 1 compare *Compare, 2 success *RequestOp
ResponseHeader: 3 revision int64
TxnResponse: 1 header ResponseHeader, 2 succeeded bool
"""
_MESSAGES = build_pool(parse_table(_TABLE), "etcdfix.testing.writes")
_ALL_KEYS = (b"\0", b"\0")
Condition = Mapping[str, Any]
"""What must hold in the very moment of a change."""
HOLDS_NOTHING: Final[Condition] = {"target": 1, "key": _ALL_KEYS[0], "range_end": _ALL_KEYS[1]}
"""There is no etcd key at all."""


def holds(key: bytes, value: bytes) -> Condition:
    """Return the condition that an etcd key has a value."""
    return {"target": 3, "key": key, "value": value}


class ChangeRefused(Exception):
    """What had to be so in etcd is not; nothing was changed."""


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

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]], *, only_if: Condition | None = None) -> int:
        """Put pairs, up to a hundred in one transaction; return the last revision, 0 without pairs.

        Raises:
            ChangeRefused: The condition does not hold.
        """
        revision = 0
        for batch in _batches(pairs):
            puts = [{"request_put": {"key": key, "value": value}} for key, value in batch]
            revision = self._change(puts, only_if)
        return revision

    def delete_all(self, ranges: Iterable[tuple[bytes, bytes]], *, only_if: Condition | None = None) -> None:
        """Delete ranges, each from an etcd key up to another, or one key alone up to nothing; in one transaction.

        Raises:
            ChangeRefused: The condition does not hold.
        """
        self._change(
            [{"request_delete_range": {"key": first, "range_end": end}} for first, end in ranges], only_if
        )

    def _change(self, operations: Sequence[Mapping[str, Any]], only_if: Condition | None) -> int:
        request: Any = _MESSAGES["TxnRequest"](
            compare=[] if only_if is None else [only_if], success=operations
        )
        answer = self._txn(request, timeout=30, wait_for_ready=True)
        if not answer.succeeded:
            raise ChangeRefused
        return int(answer.header.revision)

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
