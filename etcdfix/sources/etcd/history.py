"""Every kept revision of one key, and every kept value that is no longer current, by watching the past.

API: etcd 3.4 and later, ``Watch/Watch``. A watch that starts below the compacted revision is cancelled and told
that revision. A watch does not say when it has caught up; the answer to a progress request does, in two ways:
from 3.5.8 on it comes only once every event has been sent, and is withheld before that; older servers answer at
once, while events may still be on their way (they look for them ten times a second,
``server/storage/mvcc/watchable_store.go``). So progress is asked for again and again, and older servers must
have answered for more than a second without an event.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.wire.etcd import EVENT_DELETE, RANGE, message

_PROGRESS_PAUSE_SECONDS: Final = 0.1

_QUIET_ANSWERS: Final = 2
_QUIET_ANSWERS_OUT_OF_ORDER: Final = 15
"""Answers to progress requests, without an event between them, after which nothing more is expected."""

_FIRST_IN_ORDER: Final = (3, 5, 8)

History = Iterator[tuple[int, Any | None]]


def watch_history(
    client: EtcdClient, key: bytes, *, until: int, last: int, timeout_seconds: float
) -> History:
    """Yield (main revision, record or None for a tombstone) of one key, oldest first.

    Raises:
        CallFailed: Nobody could answer, the watch ended early, or ``until`` has been compacted.
    """
    compacted = _compacted_before(client, key, until, timeout_seconds)
    if compacted:
        found = client.call(RANGE, message("RangeRequest")(key=key, revision=compacted))
        for value in found.kvs:
            yield value.mod_revision, value
            if value.mod_revision == last:
                return
        if compacted == until:
            return
    requests = WatchRequests(key, compacted + 1, ask_progress=not last)
    for event in _events(client, requests, until=until, timeout_seconds=timeout_seconds):
        revision = event.kv.mod_revision
        if revision > until:
            return
        yield revision, (None if event.type == EVENT_DELETE else event.kv)
        if revision == last:
            return


def watch_superseded(
    client: EtcdClient, bounds: tuple[bytes, bytes], *, until: int, timeout_seconds: float
) -> Iterator[Any]:
    """Yield every record that is still kept and stood no more at a revision, in the order in which each was replaced.

    What was not changed since the compaction is current; so each of the others is the previous value of an event.

    Raises:
        CallFailed: Nobody could answer, the watch ended early, a previous value did not come with its event, or
            ``until`` has been compacted.
    """
    key, range_end = bounds
    compacted = _compacted_before(client, key, until, timeout_seconds)
    if compacted == until:
        return
    requests = WatchRequests(key, compacted + 1, ask_progress=True, range_end=range_end, previous=True)
    for event in _events(client, requests, until=until, timeout_seconds=timeout_seconds):
        if event.kv.mod_revision > until:
            return
        if event.HasField("prev_kv"):
            yield event.prev_kv
        elif event.type == EVENT_DELETE or event.kv.version > 1:
            raise _compacted("etcd did not give a previous value: compacted in the meantime")


def watch_written(client: EtcdClient, *, since: int, until: int, timeout_seconds: float) -> Iterator[Any]:
    """Yield the event of each write after a revision, in their order, until everything up to another one has come.

    All of etcd is watched: every revision is the write of at least one key, so the event of a revision shows that
    nothing up to it is still to come. What came beyond it in the same answer, which holds whole revisions, is yielded
    too.

    Raises:
        CallFailed: Nobody could answer, the watch ended early, or what was written has been compacted.
    """
    if since >= until:
        return
    requests = WatchRequests(b"\0", since + 1, ask_progress=False, range_end=b"\0")
    with contextlib.closing(client.watch(iter(requests), timeout_seconds=timeout_seconds)) as answers:
        try:
            for answer in answers:
                if answer.canceled:
                    raise _compacted("etcd compacted what was written before it was told")
                yield from answer.events
                if answer.events and answer.events[-1].kv.mod_revision >= until:
                    return
        finally:
            requests.end()


def compacted_revision(client: EtcdClient, key: bytes, timeout_seconds: float) -> int:
    """Return the compacted revision, the oldest that can be read; 0 when nothing was compacted.

    Whether, a read at the first revision tells; which, only a watch from there.

    Raises:
        CallFailed: Nobody could answer, or the watch ended early.
    """
    try:
        client.call(RANGE, message("RangeRequest")(key=key, revision=1, keys_only=True))
    except CallFailed as failed:
        if failed.failure.kind is not FailureKind.COMPACTED:
            raise
    else:
        return 0
    requests = WatchRequests(key, 1, ask_progress=False)
    with contextlib.closing(client.watch(iter(requests), timeout_seconds=timeout_seconds)) as answers:
        try:
            return next(int(answer.compact_revision) for answer in answers if answer.canceled)
        finally:
            requests.end()


def _compacted_before(client: EtcdClient, key: bytes, until: int, timeout_seconds: float) -> int:
    compacted = compacted_revision(client, key, timeout_seconds)
    if compacted > until:
        raise _compacted(f"etcd has compacted everything before revision {compacted}")
    return compacted


def _compacted(what: str) -> CallFailed:
    return CallFailed(Failure(FailureKind.COMPACTED, what))


def _events(
    client: EtcdClient, requests: WatchRequests, *, until: int, timeout_seconds: float
) -> Iterator[Any]:
    """Yield events until nothing more is expected up to ``until``; a caller who knows the last one stops itself."""
    enough = _QUIET_ANSWERS if _answers_in_order(client.current_version()) else _QUIET_ANSWERS_OUT_OF_ORDER
    quiet = 0
    with contextlib.closing(client.watch(iter(requests), timeout_seconds=timeout_seconds)) as answers:
        try:
            for answer in answers:
                if answer.canceled:
                    raise _compacted("etcd ended the watch: compacted in the meantime")
                if answer.events:
                    quiet = 0
                    yield from answer.events
                elif not answer.created and answer.header.revision >= until:
                    quiet += 1
                    if quiet >= enough:
                        return
        finally:
            requests.end()


def _answers_in_order(version: str) -> bool:
    """Whether a progress answer of this etcd cannot overtake events; not, where the version is unknown."""
    parts = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    return parts is not None and tuple(map(int, parts.groups())) >= _FIRST_IN_ORDER


class WatchRequests:
    """What goes up the stream: one watch, then, if wanted, progress requests until the end."""

    def __init__(
        self,
        key: bytes,
        start: int,
        *,
        ask_progress: bool,
        range_end: bytes = b"",
        previous: bool = False,
    ) -> None:
        # Of a range many large events can come together: in fragments none is too large for a message.
        self._create = message("WatchCreateRequest")(
            key=key, range_end=range_end, start_revision=start, prev_kv=previous, fragment=previous
        )
        self._pause_seconds = _PROGRESS_PAUSE_SECONDS if ask_progress else None
        self._ended = threading.Event()

    def end(self) -> None:
        """Let the watch end: nothing more goes up."""
        self._ended.set()

    def __iter__(self) -> Iterator[Any]:
        yield message("WatchRequest")(create_request=self._create)
        while not self._ended.wait(self._pause_seconds):
            yield message("WatchRequest")(progress_request=message("WatchProgressRequest")())
