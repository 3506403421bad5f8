"""etcd's write-ahead log: what was written lately, compacted or not.

Committed is not applied: etcd may have refused what stands in its log. So the log says how sure each write is. It also
always agrees with the ``snap/db`` beside it, of whatever cluster both are. So that file, and each older snapshot, is
held against the datastore before anything is replayed from it; where the file beside a log is of another history, so is
the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.copies.finder import Finder, LookedInto, OtherHistory
from etcdfix.copies.model import Copy, LogProof, Place, Sameness, Wanted, examined_copy
from etcdfix.copies.snapshots import history_of, may_have_rotted
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import Keeps
from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity, Confidence, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.sources.errors import SourceLocked
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.text.safetext import safe_text

MOST_WRITES: Final = 64
"""So many of the newest writes of a key are looked at; all of them are in memory at once."""

_EVER: Final = 1 << 63
_SAMENESS: Final = {True: Sameness.SAME, False: Sameness.OTHER, None: Sameness.UNKNOWN}
_NOT_A_VALUE: Final = {
    WriteKind.PUT: "a write that keeps the value before it",
    WriteKind.DELETE: "a deletion",
    WriteKind.LEASE_REVOCATION: "the end of a lease, which deleted the key",
}


class Log(Finder):
    """Looks into the log of one member.

    Args:
        directory: ``member/wal`` of a member, or a copy of it.
        source: What is stored now: the log must be of its history.
        examiner: Of the source; what it sees of the files speaks for nothing else.
        entry: Raft index: only this write is wanted; 0 for any.
        older: Snapshots of the same history, perhaps: a log can be replayed from one.
        kept: Tells what the source keeps; None to ask it.
        progress: Counts keys for a display.

    Attributes:
        history: Whether the log is of the history of what is stored now; of another one it yields nothing.
        about: How it compares with what is stored now, one sentence; "" where it could not be read.
        notes: What else to know of it: which files it was not replayed with, and why.
        why_not: Why the named entry is no copy, once it was looked for; "" where it is one.
    """

    name = "write-ahead logs"

    def __init__(
        self,
        directory: Path,
        source: Source,
        examiner: Examiner,
        *,
        entry: int = 0,
        older: Sequence[Path] = (),
        kept: Keeps | None = None,
        progress: Progress = no_progress,
    ) -> None:
        super().__init__()
        self._directory, self._shown = directory, safe_text(str(directory))
        self._source, self._examiner, self._entry = source, examiner.independent_copy(), entry
        self._keeps, self._progress = kept or source, progress
        self._uid: str | None = None
        self._cluster = ClusterIdentity()
        self._running = False
        self._kept = (b"", 0, 0)
        self._kept_from: int | None = None
        self._played: LogHistory | None = None
        self._failure: SourceError | None = None
        self._stack = ExitStack()
        self.history = Sameness.UNKNOWN
        self.about = self.why_not = self._of_other = ""
        self.notes: list[str] = []
        try:
            with self._stack as stack:
                self._open(stack, older)
                self._stack = stack.pop_all()
        except SourceError as exc:
            self._failure = exc
            self.problems.append(exc.message)
        looked = LookedInto(
            place=Place.LOG,
            path=self._shown,
            searched=self._failure is None,
            history=self.history,
            detail=self._failure.message if self._failure is not None else self._detail(),
        )
        self.looked = [looked]

    def close(self) -> None:
        """Let go of the files."""
        self._stack.close()

    def require(self) -> None:
        """Refuse a log of which nothing can be told.

        Raises:
            OtherHistory: Nothing shows that it is of the history of what is stored, or the file beside it is not.
            SourceError: It could not be read.
        """
        if self._failure is not None:
            raise self._failure
        if self.history is Sameness.OTHER:
            raise OtherHistory(
                f"{self._shown}: nothing shows that this log is of the history of what is"
                f" stored now: {self.about}",
                hint="name the log of a member of this very cluster, not of a restored copy or of a clone; as long as"
                " etcd refuses writes (NOSPACE), its newest writes show nothing",
            )

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the newest writes of a key, the newest first; or the one that was named.

        Those before a write that reads, and of which that is not certain, are doubtful: a person has to choose.

        Raises:
            SourceError: The log cannot be read any more.
        """
        writes = deque(self._looked_at(wanted.key), maxlen=None if self._entry else MOST_WRITES)
        if self._entry and self._played is not None:
            self.why_not = self._no_value(wanted.key, writes)
        later, perhaps, uid = 0, 0, wanted.life.uid
        every = wanted.every or self._entry
        for write in reversed(writes):
            if write.refused:
                continue
            stored = write.stored()
            copy = self._copy_of(write, stored, writes, wanted) if stored is not None else None
            if copy is not None and (every or copy.value_sha256 != wanted.value_sha256):
                if perhaps:
                    why = (
                        f"entry {perhaps} may be a later write: it is not certain that etcd applied that one"
                    )
                    copy = msgspec.structs.replace(copy, doubt="; ".join(filter(None, (copy.doubt, why))))
                elif copy.reads and copy.sure is not Confidence.CERTAIN and copy.uid in {"", uid or copy.uid}:
                    perhaps = write.entry_index
                yield msgspec.structs.replace(copy, later_writes=later)
                if self._entry:
                    return
            later += write.kind is WriteKind.PUT

    def _looked_at(self, key: bytes) -> Iterator[LoggedWrite]:
        """Yield the writes of a key; where an entry is named, the others without their values."""
        for write in self.writes(key):
            named = self._entry in {0, write.entry_index}
            yield write if named else msgspec.structs.replace(write, value=None)

    def writes(self, key: bytes) -> Iterator[LoggedWrite]:
        """Yield every write of a key, the oldest first, also deletions, and what etcd refused.

        Nothing of a log of another history; of one that could not be compared nothing is more than possible.

        Raises:
            SourceError: The log cannot be read any more.
        """
        if self._played is None or self.history is Sameness.OTHER:
            return
        for write in self._played.writes(key):
            if self.history is Sameness.SAME:
                yield write
            else:
                yield msgspec.structs.replace(write, confidence=Confidence.POSSIBLE, doubt=self.about)

    def keys(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the etcd keys that the log names, in byte order."""
        if self._played is not None and self.history is not Sameness.OTHER:
            yield from self._played.keys(prefix)

    def deleted(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the etcd keys whose last write in the log may be a deletion."""
        if self._played is not None and self.history is not Sameness.OTHER:
            yield from self._played.deleted(prefix)

    # --- one write

    def _no_value(self, key: bytes, writes: Iterable[LoggedWrite]) -> str:
        named = [write for write in writes if write.entry_index == self._entry]
        where = f"entry {self._entry} of the log in {self._shown}"
        if not named:
            return f"{where} is no write of {display(key)}"
        if any(write.value is not None and not write.refused for write in named):
            return ""
        what = "refused by etcd" if named[-1].refused else _NOT_A_VALUE[named[-1].kind]
        return f"{where} is {what}: it holds no value of {display(key)}"

    def _copy_of(
        self, write: LoggedWrite, stored: StoredValue, writes: Sequence[LoggedWrite], wanted: Wanted
    ) -> Copy:
        assert self._played is not None
        copy = examined_copy(
            self._examiner.examine(stored),
            Place.LOG,
            f"entry {write.entry_index} of the write-ahead log in {self._shown}",
            f"log:{self._directory}#{write.entry_index}",
        )
        certain = write.confidence is Confidence.CERTAIN
        until = self._played.agreed_until(write.entry_index)
        deleted_at = _deleted_at(writes, write) if certain and wanted.found is None else 0
        kept_lease = "it kept the lease that the key had, which is not in it" if write.lease is None else ""
        return msgspec.structs.replace(
            copy,
            sure=write.confidence,
            doubt="; ".join(filter(None, (write.doubt, kept_lease))),
            history=self.history,
            cluster=self._cluster_of(write),
            log=LogProof(
                entry=write.entry_index,
                # What is certain was replayed from a known state of this very history.
                create_revision=write.create_revision or 0 if certain else 0,
                deleted_at=deleted_at if deleted_at and self._was_last(wanted.key, deleted_at, until) else 0,
            ),
        )

    def _was_last(self, key: bytes, deleted_at: int, until: int) -> bool:
        """Say whether nothing was at a key since its log has it deleted: up to a revision the log tells, then etcd."""
        if self._kept[0] != key:
            self._kept = (key, *self._kept_of(key))
        _, newest, kept_from = self._kept
        return newest <= deleted_at and kept_from <= until

    def _kept_of(self, key: bytes) -> tuple[int, int]:
        """Return the newest revision of a key that etcd keeps, and from which revision on it keeps everything."""
        try:
            newest = max((kept.revision.main for kept in self._keeps.history(key)), default=0)
            if self._kept_from is None or self._keeps is self._source:
                self._kept_from = self._source.compacted_revision()  # asked last: etcd may compact in between
        except SourceError as exc:
            problem = f"what etcd keeps could not be read: {exc.message}"
            self.problems += [problem] if problem not in self.problems else []
            return _EVER, _EVER
        return newest, self._kept_from if self._kept_from is not None else _EVER

    def _cluster_of(self, write: LoggedWrite) -> ClusterIdentity | None:
        assert self._played is not None
        if self.history is not Sameness.SAME or self._cluster.is_known:
            return self._cluster
        same_id = self._log.cluster_id == self._source.describe().cluster_id
        before = write.entry_index <= self._played.agreement.safe
        if self._running and same_id and (before or write.confidence is not Confidence.POSSIBLE):
            return None  # what is stored now was written after it; behind that, a clone may have written it
        return ClusterIdentity()

    # --- of which history the log is

    def _open(self, stack: ExitStack, older: Sequence[Path]) -> None:
        self._log = stack.enter_context(WriteAheadLog(self._directory))
        self._uid = self._examiner.kube_system_uid(self._source)
        beside = self._directory.parent / "snap" / "db"
        databases = self._fitting(stack, [beside] if beside.is_file() else [], beside=True)
        others = [*databases, *self._fitting(stack, older, beside=False)]
        played = self._played = stack.enter_context(
            LogHistory(
                self._log,
                self._source,
                others,
                reads=lambda stored: not may_have_rotted(self._examiner.examine(stored)),
                reached=self._reached(),
            )
        )
        self.history = Sameness.OTHER if self._of_other else _SAMENESS[played.agreement.same]
        self.about = self._of_other or played.agreement.sentence
        if self.history is Sameness.SAME and databases:
            self._cluster = ClusterIdentity.by_uid(self._examiner.kube_system_uid(databases[0]) or "")
        if played.overrun:
            self.notes.append(played.overrun)
        problems = [*self._log.problems, *played.problems]
        if self.history is Sameness.OTHER:
            problems = [f"it is of another history, so nothing of it is told: {self.about}"]
        self.problems += [f"write-ahead log: {problem}" for problem in problems]

    def _fitting(self, stack: ExitStack, paths: Sequence[Path], *, beside: bool) -> list[SnapshotSource]:
        """Return the files that are of the history of what is stored; take note of the others."""
        found: list[SnapshotSource] = []
        for path in paths:
            try:
                file = stack.enter_context(SnapshotSource(path))
                history, why = history_of(
                    self._source, file, self._examiner, uid=self._uid, progress=self._progress
                )
            except SourceError as exc:
                self._running = self._running or (beside and isinstance(exc, SourceLocked))
                self.notes.append(f"not read beside it: {exc.message}")
                continue
            if history is Sameness.SAME:
                found.append(file)
                continue
            self.notes.append(f"not replayed with {safe_text(str(path))}: {why}")
            if beside and history is Sameness.OTHER:
                self._of_other = f"snap/db beside it is of another history: {why}"
        return found

    def _reached(self) -> int:
        """Return the revision to which the live etcd has come; asked when the log is open: nothing in it can be newer.

        0 where a file is read, which may be older than the log.
        """
        from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - grpc is slow to import

        if not isinstance(self._source, LiveSource):
            return 0
        reached = self._source.reached_revision()
        here, wrote = self._source.describe(), self._log.cluster_id
        if not wrote or not here.cluster_id or wrote == here.cluster_id:
            return reached
        self.notes.append(
            f"a member of cluster {wrote} wrote it, and this etcd is cluster {here.cluster_id}: no more than what came "
            "before a restore can be of both"
        )
        return here.revision or reached  # that was before this look began

    def _detail(self) -> str:
        replayed = self._played.replayed if self._played is not None else ""
        base = (
            f"replayed from {replayed}" if replayed else "nothing to replay from, so that no write is certain"
        )
        return "; ".join([f"its newest entry has index {self._log.last}", self.about, base, *self.notes])


def _deleted_at(writes: Sequence[LoggedWrite], chosen: LoggedWrite) -> int:
    """Return the revision of the deletion that ended a write's generation, where all since is certain; else 0."""
    place = (chosen.entry_index, chosen.operation)
    later = [write for write in writes if (write.entry_index, write.operation) > place]
    if not later or any(write.confidence is not Confidence.CERTAIN for write in later):
        return 0
    *puts, last = later
    of_it = all(
        write.kind is WriteKind.PUT and write.create_revision == chosen.create_revision for write in puts
    )
    return last.mod_revision or 0 if of_it and last.kind is not WriteKind.PUT else 0
