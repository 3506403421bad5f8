"""Every kept revision of one key, by watching the past.

API: etcd 3.4 and later, ``Watch/Watch``. A watch that starts below the compacted revision is cancelled and told
that revision. Progress requests came with 3.4; their answer carries the revision up to which the watch is
complete, but only once it has caught up, so they are repeated.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any, Final

from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.wire.etcd import EVENT_DELETE, RANGE, message

_PROGRESS_ANSWERS: Final = 2
"""Answers to progress requests that must agree: before 3.5.8 the first could overtake events."""

History = Iterator[tuple[int, Any | None]]


def watch_history(
    client: EtcdClient, key: bytes, *, until: int, last: int, timeout_seconds: float
) -> History:
    """Yield (main revision, record or None for a tombstone) of one key, oldest first.

    Args:
        client: Connected.
        key: Complete key.
        until: Newest revision of interest.
        last: mod_revision of the key at ``until``, 0 when it does not exist there.
        timeout_seconds: For the whole watch.

    Raises:
        CallFailed: Nobody could answer, or the watch ended early.
    """
    compacted = _compacted_revision(client, key, timeout_seconds)
    if compacted:
        found = client.call(RANGE, message("RangeRequest")(key=key, revision=compacted))
        for value in found.kvs:
            yield value.mod_revision, value
            if value.mod_revision >= until or value.mod_revision == last:
                return
    for event in _events(client, key, compacted + 1, until=until, last=last, timeout_seconds=timeout_seconds):
        revision = event.kv.mod_revision
        if revision > until:
            return
        yield revision, (None if event.type == EVENT_DELETE else event.kv)
        if revision == last:
            return


def _compacted_revision(client: EtcdClient, key: bytes, timeout_seconds: float) -> int:
    """Return the compacted revision, 0 when nothing was compacted."""
    requests = _Requests(key, 1)
    try:
        for answer in client.watch(iter(requests), timeout_seconds=timeout_seconds):
            if answer.canceled:
                return int(answer.compact_revision)
            if answer.events or not answer.created:
                return 0
            requests.ask_progress()
    finally:
        requests.end()
    return 0


def _events(
    client: EtcdClient, key: bytes, start: int, *, until: int, last: int, timeout_seconds: float
) -> Iterator[Any]:
    requests = _Requests(key, start)
    quiet = 0
    try:
        for answer in client.watch(iter(requests), timeout_seconds=timeout_seconds):
            if answer.canceled:
                reason = answer.cancel_reason or "compacted meanwhile"
                raise CallFailed(Failure(FailureKind.UNREACHABLE, f"etcd ended the watch: {reason}"))
            if answer.events:
                quiet = 0
                yield from answer.events
            elif not answer.created and answer.header.revision >= until:
                quiet += 1
                if quiet >= _PROGRESS_ANSWERS and not last:
                    return
            requests.ask_progress()
    finally:
        requests.end()


class _Requests:
    """What goes up the stream: one watch, then progress requests as they are asked for."""

    def __init__(self, key: bytes, start: int) -> None:
        self._waiting: queue.SimpleQueue[Any | None] = queue.SimpleQueue()
        create = message("WatchCreateRequest")(key=key, start_revision=start)
        self._waiting.put(message("WatchRequest")(create_request=create))

    def ask_progress(self) -> None:
        self._waiting.put(message("WatchRequest")(progress_request=message("WatchProgressRequest")()))

    def end(self) -> None:
        self._waiting.put(None)

    def __iter__(self) -> Iterator[Any]:
        while (request := self._waiting.get()) is not None:
            yield request
