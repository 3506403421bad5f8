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
from collections.abc import Generator, Iterator
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

    Args:
        client: Whom to ask.
        key: The etcd key.
        until: The newest revision that is wanted.
        last: The revision of its newest value, 0 where it has none.
        timeout_seconds: For the whole watch.

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
    create = message("WatchCreateRequest")(key=key, start_revision=compacted + 1)
    events = _events(
        client, create, until=last or until, timeout_seconds=timeout_seconds, by_progress=not last
    )
    for event in events:
        yield event.kv.mod_revision, (None if event.type == EVENT_DELETE else event.kv)


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
    # Many large events can come together: in fragments none is too large for a message.
    create = message("WatchCreateRequest")(
        key=key, range_end=range_end, start_revision=compacted + 1, prev_kv=True, fragment=True
    )
    for event in _events(client, create, until=until, timeout_seconds=timeout_seconds, by_progress=True):
        if event.HasField("prev_kv"):
            yield event.prev_kv
        elif event.type == EVENT_DELETE or event.kv.version > 1:
            raise _compacted("etcd did not give a previous value: compacted in the meantime")


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
    create = message("WatchCreateRequest")(key=key, start_revision=1)
    with contextlib.closing(_answers(client, create, timeout_seconds)) as answers:
        return next(int(answer.compact_revision) for answer in answers if answer.canceled)


def _compacted_before(client: EtcdClient, key: bytes, until: int, timeout_seconds: float) -> int:
    compacted = compacted_revision(client, key, timeout_seconds)
    if compacted > until:
        raise _compacted(f"etcd has compacted everything before revision {compacted}")
    return compacted


def _compacted(what: str) -> CallFailed:
    return CallFailed(Failure(FailureKind.COMPACTED, what))


def _events(
    client: EtcdClient, create: Any, *, until: int, timeout_seconds: float, by_progress: bool
) -> Iterator[Any]:
    """Yield events up to a revision; ``by_progress`` where there may be none at it, so that etcd is asked to tell."""
    enough = _QUIET_ANSWERS if _answers_in_order(client.current_version()) else _QUIET_ANSWERS_OUT_OF_ORDER
    quiet = 0
    pause_seconds = _PROGRESS_PAUSE_SECONDS if by_progress else None
    with contextlib.closing(_answers(client, create, timeout_seconds, pause_seconds)) as answers:
        for answer in answers:
            if answer.canceled:
                raise _compacted("etcd ended the watch: compacted in the meantime")
            for event in answer.events:
                if event.kv.mod_revision > until:
                    return
                yield event
            if answer.events:
                quiet = 0
                if event.kv.mod_revision == until and not answer.fragment:
                    return
            elif not answer.created and answer.header.revision >= until:
                quiet += 1
                if quiet >= enough:
                    return


def _answers_in_order(version: str) -> bool:
    """Whether a progress answer of this etcd cannot overtake events; not, where the version is unknown."""
    parts = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    return parts is not None and tuple(map(int, parts.groups())) >= _FIRST_IN_ORDER


def _answers(
    client: EtcdClient, create: Any, timeout_seconds: float, pause_seconds: float | None = None
) -> Generator[Any, None, None]:
    """Yield what one watch brings; with a pause, progress is requested as often."""
    ended = threading.Event()

    def requests() -> Iterator[Any]:
        yield message("WatchRequest")(create_request=create)
        while not ended.wait(pause_seconds):
            yield message("WatchRequest")(progress_request=message("WatchProgressRequest")())

    with contextlib.closing(client.watch(requests(), timeout_seconds=timeout_seconds)) as answers:
        try:
            yield from answers
        finally:
            ended.set()
