"""A gRPC server in this process that plays etcd: a few keys with their revisions, and a script for what goes wrong.

It knows Range, Status, MemberList, Authenticate and Watch. Whatever else is called is written down and refused.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from etcdfix.wire.etcd import (
    AUTHENTICATE,
    EVENT_DELETE,
    EVENT_PUT,
    MEMBER_LIST,
    READ_METHODS,
    STATUS,
    message,
)
from tests.support.etcd_proxy import RANGE, Refusal
from tests.support.stopping import Stopping

WATCH = "/etcdserverpb.Watch/Watch"

COMPACTED = Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
FUTURE_REVISION = Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
INVALID_TOKEN = Refusal("UNAUTHENTICATED", "etcdserver: invalid auth token")
PERMISSION_DENIED = Refusal("PERMISSION_DENIED", "etcdserver: permission denied")
WRONG_PASSWORD = Refusal("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password")
NO_AUTHENTICATION = Refusal("FAILED_PRECONDITION", "etcdserver: authentication is not enabled")
NO_LEADER = Refusal("UNAVAILABLE", "etcdserver: no leader")
TIMED_OUT = Refusal("DEADLINE_EXCEEDED", "Deadline Exceeded")


class Call(NamedTuple):
    """One call that arrived; ``token`` is None where none was sent."""

    path: str
    request: Any
    token: str | None


class Store:
    """Keys with all their revisions.

    Attributes:
        revision: The newest; 1 when nothing was written, as in etcd.
        compacted: Revisions below this one cannot be read.
    """

    def __init__(self, pairs: dict[bytes, bytes] | None = None) -> None:
        self.revision = 1
        self.compacted = 0
        self._changes: list[Any] = []
        for key, value in (pairs or {}).items():
            self.put(key, value)

    def put(self, key: bytes, value: bytes) -> int:
        """Write a pair; return the revision."""
        self.revision += 1
        old = self.at(self.revision - 1).get(key)
        record = message("KeyValue")(
            key=key,
            value=value,
            mod_revision=self.revision,
            create_revision=old.create_revision if old is not None else self.revision,
            version=old.version + 1 if old is not None else 1,
        )
        self._changes.append(message("Event")(type=EVENT_PUT, kv=record))
        return self.revision

    def delete(self, key: bytes) -> int:
        """Write a tombstone; return the revision."""
        self.revision += 1
        record = message("KeyValue")(key=key, mod_revision=self.revision)
        self._changes.append(message("Event")(type=EVENT_DELETE, kv=record))
        return self.revision

    def compact(self) -> int:
        """Compact everything before the newest revision, and return that."""
        self.compacted = self.revision
        return self.revision

    def at(self, revision: int) -> dict[bytes, Any]:
        """Every record that exists at a revision, in the order of the keys."""
        found: dict[bytes, Any] = {}
        for event in self._changes:
            if event.kv.mod_revision > revision:
                break
            if event.type == EVENT_DELETE:
                found.pop(event.kv.key, None)
            else:
                found[event.kv.key] = event.kv
        return dict(sorted(found.items()))

    def events(self, wanted: Any) -> list[Any]:
        """The changes that a watch asks for; with their previous values where those are not compacted."""
        found = []
        for change in self._changes:
            record = change.kv
            inside = record.key == wanted.key
            if wanted.range_end:
                inside = wanted.key <= record.key and (
                    wanted.range_end == b"\0" or record.key < wanted.range_end
                )
            if not inside or record.mod_revision < wanted.start_revision:
                continue
            event = message("Event")(type=change.type, kv=record)
            before = self.at(record.mod_revision - 1).get(record.key)
            if wanted.prev_kv and before is not None and record.mod_revision > self.compacted:
                event.prev_kv.CopyFrom(before)
            found.append(event)
        return found


Script = Callable[[Call], "Refusal | Any | None"]


class ScriptedEtcd(Stopping):
    """One member.

    Attributes:
        store: What it holds; several members may share it.
        script: Called with each call before it is answered. A :class:`Refusal` or a message goes back instead of
            the answer.
        users: Passwords by name; without any, authentication is not enabled.
        tokens: The tokens that count, newest last.
        lag_seconds: How long events and compaction keep a watch waiting.
        in_order: Progress answers wait for events, as from etcd 3.5.8 on; else they overtake them.
    """

    def __init__(
        self,
        store: Store | dict[bytes, bytes] | None = None,
        *,
        address: str = "127.0.0.1:0",
        cluster_id: int = 0xC1,
        learner: bool = False,
        version: str = "3.6.8",
        size: int = 4096,
        credentials: Any = None,
        errors: tuple[str, ...] = (),
    ) -> None:
        import grpc  # not at the top: the package sets variables that grpc reads when it is imported

        self.store = store if isinstance(store, Store) else Store(store)
        self.calls: list[Call] = []
        self.script: Script = lambda _call: None
        self.users: dict[str, str] = {}
        self.tokens: list[str] = []
        self.cluster_id = cluster_id
        self.lag_seconds = 0.0
        self.in_order = True
        self._learner = learner
        self._version = version
        self._size = size
        self._errors = errors
        self._grpc = grpc
        self._threads = ThreadPoolExecutor(max_workers=8)
        self._server = grpc.server(
            self._threads, options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)]
        )
        self._server.add_generic_rpc_handlers((self._handler(),))
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.endpoint = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """End all calls and stop listening; more than once is fine."""
        self._server.stop(None).wait()
        self._threads.shutdown()

    def requests(self, path: str) -> list[Any]:
        """What arrived for one method, in order."""
        return [call.request for call in self.calls if call.path == path]

    def ranges(self) -> list[Any]:
        """The RangeRequests, in order."""
        return self.requests(RANGE)

    def logins(self) -> int:
        """How often somebody logged in, or tried to."""
        return len(self.requests(AUTHENTICATE.path))

    def wait_for_ranges(self, count: int) -> None:
        """Wait until so many pages were asked for; fail after five seconds."""
        until = time.monotonic() + 5
        while len(self.ranges()) < count:
            assert time.monotonic() < until, f"{len(self.ranges())} Range requests, not {count}"
            time.sleep(0.005)

    def _handler(self) -> Any:
        played = self
        grpc: Any = self._grpc

        class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC comes without types: its classes are Any
            def service(self, handler_call_details: Any) -> Any:
                path = handler_call_details.method
                method = READ_METHODS.get(path)
                if method is None:
                    return grpc.stream_stream_rpc_method_handler(
                        lambda requests, context: played._refuse(path, requests, context)
                    )
                shape = {
                    "request_deserializer": message(method.request).FromString,
                    "response_serializer": lambda found: found.SerializeToString(),
                }
                if path == WATCH:
                    return grpc.stream_stream_rpc_method_handler(played._watch, **shape)
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: played._answer(path, request, context), **shape
                )

        return Anything()

    def _refuse(self, path: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._arrived(path, next(requests), context)
        context.abort(self._grpc.StatusCode.UNIMPLEMENTED, f"unknown method {path}")
        yield b""

    def _arrived(self, path: str, request: Any, context: Any) -> Call:
        call = Call(path, request, dict(context.invocation_metadata()).get("token"))
        self.calls.append(call)
        return call

    def _obey(self, refusal: Refusal, context: Any) -> None:
        context.abort(self._grpc.StatusCode[refusal.code], refusal.details)

    def _header(self) -> Any:
        return message("ResponseHeader")(
            cluster_id=self.cluster_id, member_id=1, revision=self.store.revision
        )

    def _answer(self, path: str, request: Any, context: Any) -> Any:
        call = self._arrived(path, request, context)
        scripted = self.script(call)
        if isinstance(scripted, Refusal):
            self._obey(scripted, context)
        if scripted is not None:
            return scripted
        if path == RANGE:
            found = self._range(call)
        elif path == STATUS.path:
            found = message("StatusResponse")(
                header=self._header(),
                version=self._version,
                isLearner=self._learner,
                dbSize=self._size,
                errors=self._errors,
            )
        elif path == AUTHENTICATE.path:
            found = self._log_in(request)
        elif path == MEMBER_LIST.path:
            member = message("Member")(ID=7, name="m7", clientURLs=["http://m7:2379"], isLearner=True)
            found = message("MemberListResponse")(header=self._header(), members=[member])
        else:
            found = Refusal("UNIMPLEMENTED", path)
        if isinstance(found, Refusal):
            self._obey(found, context)
        return found

    def _log_in(self, request: Any) -> Any:
        if not self.users:
            return NO_AUTHENTICATION
        if self.users.get(request.name) != request.password:
            return WRONG_PASSWORD
        self.tokens.append(f"token-{len(self.tokens) + 1}")
        return message("AuthenticateResponse")(header=self._header(), token=self.tokens[-1])

    def _range(self, call: Call) -> Any:
        request = call.request
        if self.users and (not self.tokens or call.token != self.tokens[-1]):
            return INVALID_TOKEN
        revision = request.revision or self.store.revision
        if revision < self.store.compacted:
            return COMPACTED
        if revision > self.store.revision:
            return FUTURE_REVISION
        end = request.range_end
        found = [
            record
            for key, record in self.store.at(revision).items()
            if (key == request.key if not end else key >= request.key and (end == b"\0" or key < end))
        ]
        shown = found[: request.limit or None]
        if request.count_only:
            shown = []
        if request.keys_only:
            shown = [
                message("KeyValue")(key=record.key, mod_revision=record.mod_revision) for record in shown
            ]
        return message("RangeResponse")(
            header=self._header(), kvs=shown, more=len(shown) < len(found), count=len(found)
        )

    def _watch(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def feed() -> None:
            with contextlib.suppress(Exception):
                for request in requests:
                    inbox.put(request)
            inbox.put(None)

        threading.Thread(target=feed, daemon=True).start()
        first = inbox.get()
        scripted = self.script(self._arrived(WATCH, first, context))
        if isinstance(scripted, Refusal):
            self._obey(scripted, context)
        if scripted is not None:
            # The whole conversation, from the script.
            yield from scripted
            return
        answer = message("WatchResponse")
        wanted = first.create_request
        yield answer(header=self._header(), created=True)
        due: float | None = time.monotonic() + self.lag_seconds
        while True:
            if due is not None and time.monotonic() >= due:
                due = None
                if wanted.start_revision < self.store.compacted:
                    yield answer(header=self._header(), canceled=True, compact_revision=self.store.compacted)
                elif events := self.store.events(wanted):
                    yield answer(header=self._header(), events=events)
            try:
                request = inbox.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            except queue.Empty:
                continue
            if request is None:
                return
            self._arrived(WATCH, request, context)
            if due is None or not self.in_order:
                yield answer(header=self._header())
