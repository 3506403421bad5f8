"""Where a stand-in API server keeps its objects: a real etcd, kine's database, or a dictionary that counts as etcd."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from etcdfix.wire.descriptors import build_pool, parse_table
from etcdfix.wire.etcd import EVENT_DELETE, read_messages
from tests.support.kine import KineWriter


class Entry(NamedTuple):
    """One key as etcd has it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int


class Event(NamedTuple):
    """One change; ``entry`` is None for a deletion, ``previous`` for a key that was made."""

    key: bytes
    entry: Entry | None
    previous: Entry | None
    revision: int


class MemoryStore:
    """A dictionary, which answers what an API server asks of etcd; ``advance`` lets it follow a recording."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}
        self._revision = 1
        self._history: list[Event] = []

    def revision(self) -> int:
        return self._revision

    def advance(self, revision: int) -> None:
        """Let the newest revision be at least this one."""
        self._revision = max(self._revision, revision)

    def get(self, key: bytes) -> Entry | None:
        return self._entries.get(key)

    def range(self, prefix: bytes) -> tuple[list[Entry], int]:
        """Return the keys below a prefix, in their order, and the revision of the answer."""
        found = [self._entries[key] for key in sorted(self._entries) if key.startswith(prefix)]
        return found, self._revision

    def put(self, key: bytes, value: bytes, *, mod_revision: int) -> int | None:
        """Write a key that stands at this mod revision, 0 for none; return the new one, None where it has moved."""
        old = self._entries.get(key)
        if (old.mod_revision if old else 0) != mod_revision:
            return None
        self._revision += 1
        created, version = (old.create_revision, old.version + 1) if old else (self._revision, 1)
        entry = Entry(key, value, created, self._revision, version)
        self._entries[key] = entry
        self._history.append(Event(key, entry, old, self._revision))
        return self._revision

    def delete(self, key: bytes, *, mod_revision: int) -> int | None:
        """Delete a key that stands at this mod revision; return the new revision, None where it has moved."""
        old = self._entries.get(key)
        if old is None or old.mod_revision != mod_revision:
            return None
        self._revision += 1
        del self._entries[key]
        self._history.append(Event(key, None, old, self._revision))
        return self._revision

    def place(self, entry: Entry) -> None:
        """Put a key with its revisions, as it stood before anything was watched."""
        self._entries[entry.key] = entry
        self.advance(entry.mod_revision)

    def since(self, revision: int) -> list[Event]:
        return [event for event in self._history if event.revision > revision]

    def feed(self) -> Feed:
        """Tell of every change from now on."""
        return _PolledFeed(self)


class KineStore:
    """A SQLite file with the rows that kine 0.16 writes, as k3s has it; versions of keys are not kept.

    Several servers may share one: its calls wait for each other.

    Attributes:
        path: ``state.db``; its log lies beside it until :meth:`close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = KineWriter(path)
        self.lock = threading.RLock()

    def close(self) -> None:
        """Stop as k3s stops: the log is brought in."""
        with self.lock:
            self.writer.close()

    def revision(self) -> int:
        with self.lock:
            return self.writer.newest

    def get(self, key: bytes) -> Entry | None:
        found = self._entries("name = CAST(? AS TEXT)", key)
        return found[0] if found else None

    def range(self, prefix: bytes) -> tuple[list[Entry], int]:
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        with self.lock:
            found = self._entries("name >= CAST(? AS TEXT) AND name < CAST(? AS TEXT)", prefix, end)
            return found, self.revision()

    def put(self, key: bytes, value: bytes, *, mod_revision: int) -> int | None:
        with self.lock:
            held = self.get(key)
            if (held.mod_revision if held else 0) != mod_revision:
                return None
            return self.writer.put(key, value)

    def delete(self, key: bytes, *, mod_revision: int) -> int | None:
        with self.lock:
            held = self.get(key)
            if held is None or held.mod_revision != mod_revision:
                return None
            return self.writer.delete(key)

    def feed(self) -> Feed:
        return _PolledFeed(self)

    def since(self, revision: int) -> list[Event]:
        """Return what has come after a revision, as kine's polling finds it."""
        with self.lock:
            rows = self.writer.connection.execute(
                f"SELECT {_KINE_ROW}, deleted, prev_revision, old_value FROM kine WHERE id > ? "
                "AND name NOT LIKE 'gap-%' ORDER BY id",
                (revision,),
            ).fetchall()
        return [_kine_event(*row) for row in rows]

    def _entries(self, where: str, *parameters: bytes) -> list[Entry]:
        with self.lock:
            rows = self.writer.connection.execute(
                f"SELECT {_KINE_ROW} FROM kine WHERE id IN (SELECT MAX(id) FROM kine WHERE {where} GROUP BY name) "
                "AND deleted = 0 ORDER BY name",
                parameters,
            ).fetchall()
        return [Entry(key, value, created, written, 0) for key, value, created, written in rows]


_KINE_ROW = "CAST(name AS BLOB), value, CASE WHEN created THEN id ELSE create_revision END, id"


def _kine_event(
    key: bytes,
    value: bytes | None,
    create_revision: int,
    revision: int,
    deleted: int,
    before: int,
    old_value: bytes | None,
) -> Event:
    previous = None if old_value is None else Entry(key, old_value, create_revision, before, 0)
    entry = None if deleted else Entry(key, value or b"", create_revision, revision, 0)
    return Event(key, entry, previous, revision)


class _PolledFeed:
    """Asks for what is new again and again, as kine does for its watches."""

    def __init__(self, store: KineStore | MemoryStore) -> None:
        self._store = store
        self._seen = store.revision()

    def take(self, up_to: int = 0) -> list[Event]:
        """Return what came since the last time; waits, for a while, for the revision ``up_to``."""
        found = self._store.since(self._seen)
        self._seen = max([self._seen, *(event.revision for event in found)])
        return found

    def close(self) -> None:
        return


_MESSAGES = build_pool(
    {
        **read_messages(),
        **parse_table("""
PutRequest: 1 key bytes, 2 value bytes
DeleteRangeRequest: 1 key bytes
RequestOp: 2 request_put PutRequest, 3 request_delete_range DeleteRangeRequest
Compare: 1 result int64, 2 target int64, 3 key bytes, 6 mod_revision int64
TxnRequest: 1 compare *Compare, 2 success *RequestOp
TxnResponse: 1 header ResponseHeader, 2 succeeded bool
"""),
    },
    "etcdfix.tests.standin",
)
_TARGET_MOD = 2
_SECONDS = 20.0
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class EtcdStore:
    """A real etcd at ``host:port``, without TLS."""

    def __init__(self, endpoint: str) -> None:
        import grpc  # not at the top: the package sets variables that grpc reads when it is imported

        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), *_UNLIMITED]
        self._channel = grpc.insecure_channel(endpoint, options)
        self._rpc_error: type[Exception] = grpc.RpcError

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: Any, answer: str) -> Any:
        call: Any = self._channel.unary_unary(
            f"/etcdserverpb.KV/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_MESSAGES[answer].FromString,
        )
        return call(request, timeout=_SECONDS, wait_for_ready=True)

    def _range(self, key: bytes, end: bytes = b"") -> Any:
        request: Any = _MESSAGES["RangeRequest"]()
        request.key = key
        if end:  # an empty end that is there is none to etcd
            request.range_end = end
        return self._call("Range", request, "RangeResponse")

    def revision(self) -> int:
        return int(self._range(b"revision-of-this-etcd").header.revision)

    def get(self, key: bytes) -> Entry | None:
        return next((_entry(kv) for kv in self._range(key).kvs), None)

    def range(self, prefix: bytes) -> tuple[list[Entry], int]:
        answer = self._range(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))
        return [_entry(kv) for kv in answer.kvs], int(answer.header.revision)

    def put(self, key: bytes, value: bytes, *, mod_revision: int) -> int | None:
        operation: Any = _MESSAGES["RequestOp"]()
        operation.request_put.key, operation.request_put.value = key, value
        return self._transaction(key, operation, mod_revision)

    def delete(self, key: bytes, *, mod_revision: int) -> int | None:
        operation: Any = _MESSAGES["RequestOp"]()
        operation.request_delete_range.key = key
        return self._transaction(key, operation, mod_revision)

    def _transaction(self, key: bytes, operation: Any, mod_revision: int) -> int | None:
        request: Any = _MESSAGES["TxnRequest"]()
        compare = request.compare.add()
        compare.target, compare.key, compare.mod_revision = _TARGET_MOD, key, mod_revision
        request.success.append(operation)
        answer = self._call("Txn", request, "TxnResponse")
        return int(answer.header.revision) if answer.succeeded else None

    def feed(self) -> Feed:
        return _EtcdFeed(self._channel, self.revision, self._rpc_error)


class _EtcdFeed:
    """A watch of everything, read by a thread of its own."""

    def __init__(self, channel: Any, revision: Callable[[], int], rpc_error: type[Exception]) -> None:
        self._events: list[Event] = []
        self._seen = revision()
        self._news = threading.Condition()
        self._closed = threading.Event()
        request: Any = _MESSAGES["WatchRequest"]()
        create = request.create_request
        create.key = create.range_end = b"\x00"
        create.start_revision, create.prev_kv = self._seen + 1, True
        method: Any = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=_MESSAGES["WatchResponse"].FromString,
        )
        self._call: Any = method(self._requests(request), wait_for_ready=True)
        self._rpc_error = rpc_error
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _requests(self, request: Any) -> Any:
        yield request
        self._closed.wait()

    def _listen(self) -> None:
        try:
            for answer in self._call:
                found = [_event(event) for event in answer.events]
                with self._news:
                    self._events += found
                    self._seen = max([self._seen, *(event.revision for event in found)])
                    self._news.notify_all()
        except self._rpc_error:
            return  # closed, or etcd is gone

    def take(self, up_to: int = 0) -> list[Event]:
        with self._news:
            self._news.wait_for(lambda: self._seen >= up_to, timeout=3)
            found, self._events = self._events, []
            return found

    def close(self) -> None:
        self._closed.set()
        self._call.cancel()
        self._thread.join(timeout=5)


def _entry(kv: Any) -> Entry:
    return Entry(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version)


def _event(event: Any) -> Event:
    previous = _entry(event.prev_kv) if event.HasField("prev_kv") else None
    entry = None if event.type == EVENT_DELETE else _entry(event.kv)
    return Event(event.kv.key, entry, previous, event.kv.mod_revision)


Feed = _EtcdFeed | _PolledFeed
Store = EtcdStore | KineStore | MemoryStore
