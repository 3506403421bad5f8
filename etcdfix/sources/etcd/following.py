"""Everything that is written to etcd from a revision on, as it is written.

All of etcd is watched, whatever the storage prefix: every revision is the write of at least one key, so the event of a
revision shows that nothing up to it is still to come. No progress has to be asked for, which older servers answer while
events are on their way.

API: etcd 3.4 and later, ``Watch/Watch``. Without fragments, an answer holds whole revisions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from etcdfix.closing import Closing
from etcdfix.errors import RevisionCompacted
from etcdfix.model import StoredValue
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.history import WatchRequests
from etcdfix.sources.etcd.paging import bounds_of
from etcdfix.sources.rangepage import stored_of
from etcdfix.wire.etcd import EVENT_DELETE

_LONGEST_SECONDS: Final = 7 * 86_400.0
_MOST_LAG_SECONDS: Final = 30.0
"""So long an event that was written may take to come."""


class Following(Closing):
    """The writes of a running etcd, in their order; close it.

    Attributes:
        revision: Everything up to it has come.

    Raises:
        RevisionCompacted: ``start`` is gone.
        SourceError: The watch cannot be opened.
    """

    def __init__(self, client: EtcdClient, *, start: int) -> None:
        self.revision = start - 1
        self._waiting_since = time.monotonic()
        key, range_end = bounds_of(b"")
        self._requests = WatchRequests(key, start, range_end=range_end, ask_progress=False)
        self._answers = client.watch(
            iter(self._requests), timeout_seconds=_LONGEST_SECONDS, on_quiet=self._refuse_lag
        )
        try:
            self._next()  # it says that the watch was made
        except BaseException:
            self.close()
            raise

    def until(self, revision: int) -> Iterator[tuple[bytes, StoredValue | None, int]]:
        """Yield (key, what was put or None where it was deleted, revision) until everything up to a revision has come.

        What came beyond it in the same answer is yielded too.

        Raises:
            RevisionCompacted: etcd compacted what had not come yet.
            SourceError: The watch broke, or lags behind.
        """
        while self.revision < revision:
            for event in self._next().events:
                stored = None if event.type == EVENT_DELETE else stored_of(event.kv)
                at = event.kv.mod_revision
                yield event.kv.key, stored, at
                self.revision = max(self.revision, at)

    def _next(self) -> Any:
        self._waiting_since = time.monotonic()
        try:
            answer = next(self._answers)
        except CallFailed as failed:
            raise failed.failure.as_error() from failed
        if answer.canceled:
            raise RevisionCompacted(
                "etcd compacted writes that the watch had not told yet",
                revision=self.revision + 1,
                compacted=answer.compact_revision,
                current=answer.header.revision,
            )
        return answer

    def _refuse_lag(self) -> None:
        seconds = time.monotonic() - self._waiting_since
        if seconds > _MOST_LAG_SECONDS:
            text = f"what was written to etcd was not told by its watch for {seconds:.0f} s"
            raise CallFailed(Failure(FailureKind.UNREACHABLE, text))

    def close(self) -> None:
        """End the watch; a second call does nothing."""
        self._requests.end()
        self._answers.close()
