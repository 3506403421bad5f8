"""A live etcd as a source of stored values: everything is read at one revision, page by page.

The revision is the one that the first answer tells, and every later request names it, so that writes during a
scan are not seen. etcd keeps old revisions only until it compacts them. When that happens in the middle of a
scan, the scan goes on after the last key at a newer revision and says so (``segments``).

API: etcd 3.4 and later, ``KV/Range`` and ``Watch/Watch`` of ``api/etcdserverpb/rpc.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from etcdfix.errors import RevisionCompacted
from etcdfix.model import KeptRevision, Revision, StoredValue
from etcdfix.sources.base import Segment, SourceDescription
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient, Pending
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.history import watch_history
from etcdfix.sources.etcd.paging import PageSize, after, bounds_of
from etcdfix.wire.etcd import RANGE, message

_PAGE_EXTRA_SECONDS: Final = 15.0
"""Added to the command time-out for a page: 16 MB at one megabyte a second."""


def _ignore(_notice: str) -> None:
    return


class LiveSource:
    """The keys of a running etcd at one revision; implements :class:`etcdfix.sources.base.Source`.

    Args:
        connection: How to reach it.
        revision: Revision to read at; 0 for the newest at the time of the first read.
        on_notice: Told, in one sentence each, what a person should know while work goes on.

    Raises:
        ConfigurationError: An endpoint or a TLS file makes no sense.
        SourceUnreachable: No endpoint answered.
        SourceDenied: User, password or permission are wrong.
        ClusterMismatch: The endpoints belong to different clusters.
    """

    def __init__(
        self, connection: EtcdConnection, *, revision: int = 0, on_notice: Callable[[str], None] = _ignore
    ) -> None:
        self._connection = connection
        self._on_notice = on_notice
        self._asked_revision = revision
        self._revision = revision
        self._segments: list[Segment] = []
        self._single_revision = True
        self._problems: list[str] = []
        self._anything_read = False
        self._page = PageSize()
        self._client = EtcdClient(connection, on_notice=on_notice)

    # The protocol

    def describe(self) -> SourceDescription:
        """Say where the data comes from; segments grow while :meth:`current` runs."""
        return SourceDescription(
            type="etcd",
            path=None,
            endpoints=self._connection.endpoints,
            revision=self._revision,
            single_revision=self._single_revision,
            segments=tuple(self._segments),
            cluster_id=f"{self._client.cluster_id:x}" if self._client.cluster_id else None,
            sha256=None,
            etcd_version=self._client.current_version() or None,
        )

    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        """Yield the current value of every key that starts with ``prefix``, in byte order of the keys.

        A page that cannot be had from any endpoint ends the iteration and becomes a problem, once anything
        at all has been read.

        Raises:
            SourceUnreachable: Nobody answers, and nothing was read yet.
            SourceDenied: The user may not read the range, and nothing was read yet.
            RevisionCompacted: The revision asked for is gone, or does not exist yet.
            ClusterMismatch: An answer came from another cluster.
        """
        start, end = bounds_of(prefix)
        if not prefix and self._segments and self._segments[-1].from_key:
            # The scan proper begins: what was read before it, at older revisions, is no part of it.
            self._segments = [Segment("", self._revision)]
        pending: Pending | None = self._ask(start, end)
        try:
            while pending is not None:
                try:
                    found, size = self._client.answer(pending)
                except CallFailed as failed:
                    pending = None
                    again = self._recover(failed.failure, start)
                    if again is None:
                        return
                    start = again
                    pending = self._ask(start, end)
                    continue
                pending = None
                self._note_revision(found.header.revision, start)
                values = found.kvs
                if not values:
                    return
                self._page.learn(size, len(values))
                last = values[-1].key
                if found.more:
                    start = after(last)
                    pending = self._ask(start, end)
                for value in values:
                    yield StoredValue(
                        value.key,
                        value.value,
                        value.mod_revision,
                        value.create_revision,
                        value.version,
                        value.lease,
                    )
        finally:
            if pending is not None:
                pending.cancel()

    def get(self, key: bytes) -> StoredValue | None:
        """Return one key's value at the pinned revision, or None.

        Raises:
            SourceUnreachable: Nobody answers.
            SourceDenied: The user may not read the key.
            RevisionCompacted: The revision asked for is gone, or does not exist yet.
        """
        while True:
            request = message("RangeRequest")(key=key, revision=self._revision)
            try:
                found = self._client.call(RANGE, request)
            except CallFailed as failed:
                if failed.failure.kind is FailureKind.COMPACTED and not self._asked_revision:
                    self._revision = 0
                    continue
                raise self._as_error(failed.failure) from failed
            self._note_revision(found.header.revision, key)
            return _stored(found.kvs[0]) if found.kvs else None

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of ``key`` that is still kept, oldest first, up to the pinned one.

        etcd has no request for this. What lies above the compacted revision comes from a watch that starts
        there; what lay there at that moment comes from a read at that very revision.

        Raises:
            SourceUnreachable: Nobody answers, or the watch ended early.
            SourceDenied: The user may not read the key.
        """
        newest = self.get(key)
        try:
            for revision, value in watch_history(
                self._client,
                key,
                until=self._revision,
                last=newest.mod_revision if newest is not None else 0,
                timeout_seconds=self._connection.command_timeout_seconds + _PAGE_EXTRA_SECONDS,
            ):
                yield KeptRevision(Revision(revision, 0), _stored(value) if value is not None else None)
        except CallFailed as failed:
            raise self._as_error(failed.failure) from failed

    def estimate(self) -> int:
        """Return how many keys there are; 0 when etcd does not tell."""
        start, end = bounds_of(b"")
        request = message("RangeRequest")(key=start, range_end=end, count_only=True, revision=self._revision)
        try:
            return int(self._client.call(RANGE, request).count)
        except CallFailed:
            return 0

    @property
    def problems(self) -> list[str]:
        """Reasons why what was yielded is not everything."""
        return self._problems

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # Pages and what can happen to them

    def _ask(self, start: bytes, end: bytes) -> Pending:
        request = message("RangeRequest")(
            key=start, range_end=end, limit=self._page.limit, revision=self._revision
        )
        limit = self._connection.command_timeout_seconds + _PAGE_EXTRA_SECONDS
        return self._client.ask(RANGE, request, timeout_seconds=limit)

    def _note_revision(self, revision: int, start: bytes) -> None:
        self._anything_read = True
        if self._revision == 0:
            self._revision = revision
        if not self._segments:
            self._segments.append(Segment("", self._revision))
        elif self._segments[-1].revision != self._revision:
            self._single_revision = False
            self._segments.append(Segment(start.decode("utf-8", "backslashreplace"), self._revision))
            self._on_notice(
                f"etcd compacted the revision of this scan; it goes on at revision {self._revision}"
            )

    def _recover(self, failure: Failure, start: bytes) -> bytes | None:
        """Decide how a scan goes on after a page failed: from which key, or not at all (None).

        Raises:
            SourceError: Nothing was read yet, and nothing will be.
        """
        match failure.kind:
            case FailureKind.COMPACTED if not self._asked_revision:
                self._revision = 0
                return start
            case FailureKind.TOO_LARGE | FailureKind.TIMED_OUT if self._page.shrink():
                return start
            case FailureKind.TOO_LARGE:
                return self._skip_oversized(start)
            case _:
                if not self._anything_read:
                    raise self._as_error(failure)
                where = start.rstrip(b"\x00").decode("utf-8", "backslashreplace")
                self._problems.append(f"lost after key {where}: {failure.message}")
                return None

    def _skip_oversized(self, start: bytes) -> bytes | None:
        """Step over one key whose value alone is larger than an answer may be."""
        request = message("RangeRequest")(
            key=start, range_end=b"\x00", limit=1, keys_only=True, revision=self._revision
        )
        try:
            found = self._client.call(RANGE, request)
        except CallFailed as failed:
            self._problems.append(f"lost: {failed.failure.message}")
            return None
        if not found.kvs:
            return None
        key = found.kvs[0].key
        self._problems.append(
            f"key {key.decode('utf-8', 'backslashreplace')} was left out: its value is larger than we take"
        )
        return after(key)

    def _as_error(self, failure: Failure) -> Exception:
        if failure.kind is FailureKind.COMPACTED:
            return RevisionCompacted(
                f"revision {self._asked_revision} was compacted: {failure.message}",
                revision=self._asked_revision,
                hint="leave --revision out, or read a snapshot that was taken earlier",
            )
        if failure.kind is FailureKind.FUTURE_REVISION:
            newest = max((status.revision for status in self._client.statuses()), default=0)
            return RevisionCompacted(
                f"revision {self._asked_revision} does not exist yet; the newest is {newest}",
                revision=self._asked_revision,
                current=newest,
                hint="leave --revision out to read the newest",
            )
        return failure.as_error()


def _stored(value: Any) -> StoredValue:
    return StoredValue(
        value.key, value.value, value.mod_revision, value.create_revision, value.version, value.lease
    )
