"""A write-ahead log that is held against what is stored now: for every command that tells or takes a value of it.

A log always agrees with the ``snap/db`` beside it, of whatever cluster both are. So that file, and each older snapshot,
is held against the datastore itself before anything is replayed from it; and where the file beside a log is of another
history, so is the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from etcdfix.closing import Closing
from etcdfix.copies.model import Sameness
from etcdfix.copies.same_history import history_of, may_have_rotted
from etcdfix.errors import OtherHistory, SourceError, SourceLocked
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import StoredValue
from etcdfix.report.origin import shown_word
from etcdfix.sources.base import Source
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.log import WriteAheadLog, database_beside
from etcdfix.sources.wal.model import Kinship

_FITS: Final = {
    Kinship.SAME_HISTORY: Sameness.SAME,
    Kinship.OTHER_HISTORY: Sameness.OTHER,
    Kinship.NOT_COMPARED: Sameness.UNKNOWN,
}


class JudgedLog(Closing):
    """The logs of one or several members, opened and judged. Close it, or use it as a context manager.

    Args:
        directories: ``member/wal`` of each member.
        source: What is stored now.
        examiner: Of the source; what it sees of the files speaks for nothing else.
        older_snapshots: Of the same history, perhaps: a log can be replayed from one.

    Attributes:
        history: What they did. Nothing of it may be offered where ``fit`` is ``other``.
        fit: Whether the log is of the history of what is stored now.
        why: What tells, a clause.
        databases: The files beside the logs that are of the history of what is stored now.
        running: A running etcd holds the file beside a log.
        notes: Which files it was not replayed with, and why.

    Raises:
        SourceError: A log cannot be read.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        source: Source,
        examiner: Examiner,
        *,
        older_snapshots: Sequence[Path] = (),
        progress: Progress = no_progress,
    ) -> None:
        self.notes: list[str] = []
        self.databases: list[SnapshotSource] = []
        self.running = False
        self._source, self._examiner, self._progress = source, examiner.apart(), progress
        self._of_other = ""
        with ExitStack() as stack:
            self.log = stack.enter_context(WriteAheadLog.open(*directories))
            beside = [path for path in map(database_beside, directories) if path is not None]
            others = self._fitting(beside, older_snapshots, stack)
            self.history: LogHistory = self.log.history(
                source,
                others=others,
                reads=self._reads,
                reached=self._reached(),
            )
            stack.callback(self.history.close)
            self._stack = stack.pop_all()
        agreement = self.history.agreement
        self.fit = Sameness.OTHER if self._of_other else _FITS[agreement.kinship]
        self.why = self._of_other or agreement.sentence
        if self.history.overrun:
            self.notes.append(self.history.overrun)

    def close(self) -> None:
        """Let go of the files."""
        self._stack.close()

    def require_same_history(self) -> None:
        """Refuse a log of another history: nothing of it is offered.

        Raises:
            OtherHistory: Nothing shows that it is of the history of what is stored, or the file beside it is not.
        """
        if self._of_other:
            raise OtherHistory(
                f"{', '.join(self.log.description.directories)}: {self._of_other}",
                hint="name the log of a member of this very cluster, not of a restored copy or of a clone",
            )
        self.log.require_same_history(self.history)

    @property
    def problems(self) -> list[str]:
        """Why not everything was seen, one sentence each."""
        return [f"write-ahead log: {each}" for each in (*self.log.problems, *self.history.problems)]

    def _fitting(
        self, beside: Iterable[Path], older: Iterable[Path], stack: ExitStack
    ) -> list[SnapshotSource]:
        """Return the files that are of the history of what is stored; take note of the others."""
        found: list[SnapshotSource] = []
        for path in beside:
            try:
                database = stack.enter_context(SnapshotSource(path))
                history, why = self._judge(database)
            except SourceError as exc:
                self.running = self.running or isinstance(exc, SourceLocked)
                self.notes.append(f"not read beside it: {exc.message}")
                continue
            if history is Sameness.SAME:
                self.databases.append(database)
            elif history is Sameness.OTHER:
                self._of_other = f"snap/db beside it is of another history: {why}"
        for path in older:
            try:
                snapshot = stack.enter_context(SnapshotSource(path))
                if self._judge(snapshot)[0] is Sameness.SAME:
                    found.append(snapshot)
            except SourceError as exc:
                self.notes.append(f"not read beside it: {exc.message}")
        return [*self.databases, *found]

    def _reached(self) -> int:
        """Return the revision to which the live etcd has come; asked when the log is open: nothing in it can be newer.

        0 where a file is read, which may be older than the log.
        """
        if not isinstance(self._source, LiveSource):
            return 0
        reached = self._source.reached_revision()
        here, wrote = self._source.describe(), self.log.description.cluster_id
        if not wrote or not here.cluster_id or wrote == here.cluster_id:
            return reached
        self.notes.append(
            f"a member of cluster {wrote} wrote it, and this etcd is cluster {here.cluster_id}: no more than what came "
            "before a restore can be of both"
        )
        return here.revision or reached  # that was before this look began

    def _reads(self, stored: StoredValue) -> bool:
        return not may_have_rotted(self._examiner.examine(stored))

    def _judge(self, file: SnapshotSource) -> tuple[Sameness, str]:
        uid = self._examiner.kube_system_uid(self._source)
        history, why = history_of(self._source, file, self._examiner, uid=uid, progress=self._progress)
        if history is not Sameness.SAME:
            self.notes.append(f"not replayed with {shown_word(str(file.describe().path))}: {why}")
        return history, why
