"""A live etcd as a source of stored values: everything is read at one revision, page by page.

The revision is the one that the first answer tells, and every later request names it, so that writes during a
scan are not seen. etcd keeps old revisions only until it compacts them. When that happens in the middle of a
scan, the scan goes on after the last key at a newer revision and says so (``segments``).

API: etcd 3.4 and later, ``KV/Range`` and ``Watch/Watch`` of ``api/etcdserverpb/rpc.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import ProblemList, Segment, Source, SourceDescription, tell_nobody
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.etcd.client import EtcdClient, Pending
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.hashes import members_differ
from etcdfix.sources.etcd.history import (
    compacted_revision,
    watch_history,
    watch_superseded,
)
from etcdfix.sources.etcd.paging import PageSize, RangeEnd, after, bounds_of
from etcdfix.sources.keyvalue import stored_of
from etcdfix.sources.pages import Page, RangePage
from etcdfix.text.notes import Note
from etcdfix.wire.etcd import RANGE, message

_PAGE_EXTRA_SECONDS: Final = 15.0
"""Added to the command time-out for a page (16 MB at one megabyte a second) while etcd answers small requests."""

_LESS_AFTER_A_TIME_OUT: Final = 8
"""A page that took too long is divided by this: three time-outs in a row lead to single keys."""

_WATCH_ATTEMPTS: Final = 3
"""A compaction or a lost member before the first revision has come makes it start afresh, this often in all."""

_SUPERSEDED_SECONDS: Final = 600.0
"""For everything that was written since the compaction: a busy cluster writes for ten minutes before it compacts."""


_T = TypeVar("_T")


class LiveSource(Source):
    """The keys of a running etcd at one revision.

    Whatever asks etcd raises ``SourceUnreachable`` where nobody answers, ``SourceDenied`` where the user may not
    read that, ``RevisionCompacted`` where the revision is gone or does not exist yet, and ``ClusterMismatch`` where
    another cluster answers.

    Args:
        connection: How to reach it.
        revision: Revision to read at; 0 for the newest at the time of the first read.
        storage_prefix: Where the user may not read everything, a look at everything is one at this prefix.
        on_notice: Told, in one sentence each, what a person should know while work goes on.
        of_member: Id of the member whose own copy is read: serializably, and no other member's answer counts. 0 for
            what the cluster agreed on. The history of a key is that of the cluster in either case.

    Attributes:
        client: The connection, for questions that are not about keys.

    Raises:
        ConfigurationError: An endpoint or a TLS file makes no sense.
        SourceUnreachable: No endpoint answered.
        SourceDenied: User, password or permission are wrong.
        ClusterMismatch: The endpoints belong to different clusters.
    """

    def __init__(
        self,
        connection: EtcdConnection,
        *,
        revision: int = 0,
        storage_prefix: bytes = b"",
        on_notice: Callable[[str], None] = tell_nobody,
        of_member: int = 0,
    ) -> None:
        self.endpoints = connection.endpoints
        self._page_seconds = connection.command_timeout_seconds + _PAGE_EXTRA_SECONDS
        self._of_member = of_member
        self._on_notice = on_notice
        self._asked_revision = revision
        self._revision = revision
        self._segments: list[tuple[bytes, int]] = []
        self._problems = ProblemList()
        self._anything_read = False
        self._page = PageSize()
        self._everything = b""
        self._limits_told = False
        self.client = EtcdClient(connection, on_notice=on_notice)
        if storage_prefix:
            try:
                self._everything = b"" if self._may_read_all() else storage_prefix
            except BaseException:
                self.close()
                raise

    # The protocol

    def describe(self) -> SourceDescription:
        """Say where the data comes from; segments grow while :meth:`current` runs."""
        return SourceDescription(
            type="etcd",
            endpoints=self.endpoints,
            # 0 after a compaction, until the next answer; what was read was read at the last one.
            revision=self._revision or (self._segments[-1][1] if self._segments else 0),
            segments=tuple(Segment(display(key), revision) for key, revision in self._segments),
            cluster_id=f"{self.client.cluster_id:x}" if self.client.cluster_id else None,
            etcd_version=self.client.current_version() or None,
            limited_to=display(self._everything),
        )

    def pages(self, prefix: bytes) -> Iterator[Page]:
        """Yield the current value of every key that starts with ``prefix``, in byte order of the keys.

        A page that cannot be had from any endpoint ends the iteration and becomes a problem, once anything
        at all has been read. Where the user may read no more than the storage prefix, no prefix at all means that one,
        and a notice says so.
        """
        if not prefix and self._everything:
            prefix = self._everything
            self._tell_limits()
        first, end = bounds_of(prefix)
        start, reach = first, RangeEnd(end)
        pending: Pending | None = self._ask(start, reach.guess)
        try:
            while pending is not None:
                if pending.request.revision != self._revision:
                    # Another read met a compaction meanwhile; one source is one revision.
                    pending.cancel()
                    pending = self._ask(start, reach.guess)
                try:
                    found, raw = self.client.answer(pending)
                    self._require_member(found)
                except CallFailed as failed:
                    pending = None
                    reach.widen()
                    again = self._recover(failed.failure, prefix, start)
                    if again is None:
                        return
                    start = again
                    pending = self._ask(start, reach.guess)
                    continue
                pending = None
                values = found.kvs
                if start == first:
                    self._note_revision(found.header.revision, prefix, whole_range=True)
                else:
                    self._note_revision(found.header.revision, values[0].key if values else start)
                whole = reach.guess == end
                if values and found.more:
                    last = values[-1].key
                    start = after(last)
                    self._page.learn(len(raw), len(values))
                    # What has no cluster id is not etcd, and kine takes the end of a range for that of a prefix.
                    if found.header.cluster_id:
                        reach.learn(values[0].key, last, len(values), found.count, self._page.limit)
                    pending = self._ask(start, reach.guess)
                elif not whole:
                    # Not from the bound on: what follows the last key that was seen leaves out none.
                    start = after(values[-1].key) if values else start
                    reach.widen()
                    pending = self._ask(start, reach.guess)
                page = RangePage(raw, values)
                del found, raw, values  # the page may let go of either
                if len(page):
                    yield page
        finally:
            if pending is not None:
                pending.cancel()

    def get(self, key: bytes) -> StoredValue | None:
        """Return one key's value at the pinned revision, or None."""
        while True:
            try:
                found = self._read(key=key)
            except CallFailed as failed:
                if not self._moves_on(failed.failure):
                    raise self._as_error(failed.failure) from failed
            else:
                self._note_revision(found.header.revision, key)
                return stored_of(found.kvs[0]) if found.kvs else None

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return what a key held just before a main revision; None where it held nothing, or etcd compacted it."""
        found = self._kept_at(key, revision - 1) if revision > 1 else None  # 0 would mean the newest
        return stored_of(found.kvs[0]) if found is not None and found.kvs else None

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        """Say whether the change before this one should still be kept under the same key, and is not."""
        if stored.version < 2 or stored.mod_revision < 2:
            return False
        found = self._kept_at(stored.key, stored.mod_revision - 1, keys_only=True)
        return found is not None and not found.kvs

    def _kept_at(self, key: bytes, revision: int, *, keys_only: bool = False) -> Any | None:
        with self._own_errors():
            try:
                return self.client.call(
                    RANGE, message("RangeRequest")(key=key, revision=revision, keys_only=keys_only)
                )
            except CallFailed as failed:
                if failed.failure.kind is not FailureKind.COMPACTED:
                    raise
                return None

    def compacted_revision(self) -> int | None:
        """Return the oldest revision that etcd keeps; 0 where nothing was compacted."""
        with self._own_errors():
            return compacted_revision(self.client, self._everything or b"\0", self._page_seconds)

    def members_differ(self) -> str:
        """Say which members among the endpoints hold other data; each reads for that all that it has."""
        asked = len(self.endpoints) > 1 and self._revision and self.client.cluster_id
        return members_differ(self.client, self._revision) if asked else ""

    def move_to(self, revision: int) -> None:
        """Read at a newer revision from here on, as a source does that is opened then."""
        self._revision = revision
        self._segments = []

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of ``key`` that is still kept, oldest first, up to the pinned one.

        etcd has no request for this. What lies above the compacted revision comes from a watch that starts
        there; what lay there at that moment comes from a read at that very revision.
        """

        def watch() -> Iterator[tuple[int, Any | None]]:
            newest = self.get(key)
            last = newest.mod_revision if newest is not None else 0
            return watch_history(
                self.client, key, until=self._revision, last=last, timeout_seconds=self._page_seconds
            )

        for revision, value in self._begun_afresh(watch):
            yield KeptRevision(Revision(revision, 0), stored_of(value) if value is not None else None)

    def superseded(self) -> Iterator[StoredValue]:
        """Yield every value that is still kept and is no longer the current one of its key."""

        def watch() -> Iterator[Any]:
            bounds, until = bounds_of(self._everything), self.describe().revision
            return watch_superseded(self.client, bounds, until=until, timeout_seconds=_SUPERSEDED_SECONDS)

        yield from map(stored_of, self._begun_afresh(watch))

    def _begun_afresh(self, watch: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """Yield what a watch brings; where it breaks before anything has come, begin it again, a few times."""
        with self._own_errors():
            for left in reversed(range(_WATCH_ATTEMPTS)):
                begun = False
                try:
                    for each in watch():
                        begun = True
                        yield each
                except CallFailed as failed:
                    again = failed.failure.kind in _ANOTHER_ATTEMPT or self._moves_on(failed.failure)
                    if begun or not again or not left:
                        raise
                else:
                    return

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Look up, inside, what no report rests on: a compaction moves neither revision nor segments of the read."""
        before = self._revision, self._segments, self._on_notice
        self._segments, self._on_notice = [*self._segments], tell_nobody
        try:
            yield
        finally:
            self._revision, self._segments, self._on_notice = before

    def reached_revision(self) -> int:
        """Return the revision to which etcd has come by now, whatever the source is pinned to.

        A majority of the members is asked: it is not less than what any of them had agreed on before.
        """
        request = message("RangeRequest")(key=self._everything or b"\0", count_only=True)
        with self._own_errors():
            return int(self.client.call(RANGE, request).header.revision)

    def estimate(self) -> int:
        """Return how many keys there are; 0 when etcd does not tell."""
        start, end = bounds_of(self._everything)
        request = message("RangeRequest")(key=start, range_end=end, count_only=True, revision=self._revision)
        try:
            return int(self.client.call(RANGE, request).count)
        except CallFailed:
            return 0

    @property
    def problems(self) -> list[str]:
        """Reasons why what was yielded is not everything."""
        return self._problems.sentences()

    def close(self) -> None:
        """End all connections."""
        self.client.close()

    # What may be read

    def _may_read_all(self) -> bool:
        """Ask whether the user may read every key: etcd refuses a range as a whole, and before it looks for any key."""
        start, end = bounds_of(b"")
        # At the first revision there is nothing; where that is compacted, the answer is just as good.
        request = message("RangeRequest")(key=start, range_end=end, limit=1, keys_only=True, revision=1)
        try:
            self.client.call(RANGE, request)
        except CallFailed as failed:
            if failed.failure.kind in {FailureKind.UNREACHABLE, FailureKind.SILENT, FailureKind.ENDED}:
                raise self._as_error(failed.failure) from failed
            return failed.failure.kind is not FailureKind.DENIED
        return True

    def _tell_limits(self) -> None:
        if not self._limits_told:
            self._limits_told = True
            below = display(self._everything)
            self._on_notice(f"permission denied outside {below}: only keys that start with it are read")

    def _request(self, **fields: Any) -> Any:
        return message("RangeRequest")(serializable=bool(self._of_member), revision=self._revision, **fields)

    def _read(self, **fields: Any) -> Any:
        found = self.client.call(RANGE, self._request(**fields))
        self._require_member(found)
        return found

    def _require_member(self, found: Any) -> None:
        """See that the member answered whose copy is read: an address may lead to several."""
        member = found.header.member_id
        if self._of_member not in {0, member}:
            text = f"{self.endpoints[0]}: member {member:x} answers there, and not {self._of_member:x}"
            raise CallFailed(Failure(FailureKind.UNREACHABLE, text))

    def _ask(self, start: bytes, end: bytes) -> Pending:
        request = self._request(key=start, range_end=end, limit=self._page.limit)
        return self.client.ask(RANGE, request, timeout_seconds=self._page_seconds)

    def _note_revision(self, revision: int, key: bytes, *, whole_range: bool = False) -> None:
        """Take note of an answer: it pins the revision if none is, and may begin a segment."""
        self._anything_read = True
        if self._revision == 0:
            self._revision = revision
        moved = bool(self._segments) and self._segments[-1][1] != self._revision
        if moved:
            self._on_notice(
                f"etcd compacted the revision of this scan; it goes on at revision {self._revision}"
            )
        if moved or whole_range:
            while self._segments and self._segments[-1][0] >= key:
                self._segments.pop()
        if not self._segments:
            self._segments.append((b"", self._revision))
        elif self._segments[-1][1] != self._revision:
            self._segments.append((key, self._revision))

    def _moves_on(self, failure: Failure) -> bool:
        """Go on at the newest revision where that helps: ours was compacted, and nobody asked for that very one."""
        helps = failure.kind is FailureKind.COMPACTED and not self._asked_revision and self._revision != 0
        self._revision = 0 if helps else self._revision
        return helps

    def _recover(self, failure: Failure, prefix: bytes, start: bytes) -> bytes | None:
        """Decide how a scan goes on after a page failed: from which key, or not at all (None)."""
        if self._moves_on(failure):
            return start
        if failure.kind is FailureKind.TIMED_OUT and self._page.shrink(_LESS_AFTER_A_TIME_OUT):
            self._on_notice(Note(f"{failure.message}; asking for fewer keys at a time: {self._page.limit}"))
            return start
        if failure.kind is FailureKind.TOO_LARGE and self._page.shrink():
            return start
        self._give_up(failure, prefix, start)
        return None

    def _give_up(self, failure: Failure, prefix: bytes, start: bytes) -> None:
        """Write down what is lost of a range, or raise if nothing at all was read so far."""
        if not self._anything_read:
            raise self._as_error(failure)
        where = f"everything below {display(prefix)}" if prefix else "everything"
        if start != bounds_of(prefix)[0]:
            where = (
                f"after key {display(start[:-1])}"  # the start of a page is the key before it and a zero byte
            )
        self._problems.add(f"lost {where}: {failure.message}")

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as failed:
            raise self._as_error(failed.failure) from failed

    def _as_error(self, failure: Failure) -> SourceError:
        revision = self._asked_revision or self._revision
        if failure.kind is FailureKind.COMPACTED:
            return RevisionCompacted(
                f"revision {revision} was compacted: {failure.message}",
                revision=revision,
                hint="leave --revision out, or read a snapshot that was taken earlier",
            )
        # Without a wish it is our own pinned revision, which some members just do not have yet.
        if failure.kind is FailureKind.FUTURE_REVISION and self._asked_revision:
            newest = max((status.revision for status in self.client.statuses()), default=0)
            return RevisionCompacted(
                f"revision {revision} does not exist yet; the newest is {newest}",
                revision=revision,
                current=newest,
                hint="leave --revision out to read the newest",
            )
        return failure.as_error()


# What another member or a new token may cure.
_ANOTHER_ATTEMPT: Final = frozenset({FailureKind.UNREACHABLE, FailureKind.TOKEN_REFUSED})
