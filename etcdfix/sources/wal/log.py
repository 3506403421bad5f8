"""The log of one member, or of several of one cluster, opened for reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from etcdfix.closing import Closing
from etcdfix.errors import OtherHistory
from etcdfix.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.wal.entries import LogEntries, MemberLog, join
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import Kinship, LogDescription

__all__ = ["LogHistory", "WriteAheadLog", "database_beside"]


def database_beside(directory: Path) -> Path | None:
    """Return ``member/snap/db`` beside a ``member/wal``; None where there is none."""
    found = directory.parent / "snap" / "db"
    return found if found.is_file() else None


class WriteAheadLog(Closing):
    """The write-ahead log of a member, or those of several members of one cluster.

    Opening reads all frames once: checksums, superseded entries, commits. ``history`` reads the entries that count.
    The end of each file is where it was when it was opened, so that a running etcd may write on.
    """

    def __init__(self, entries: LogEntries) -> None:
        self._entries = entries
        runs = entries.runs
        self.description = LogDescription(
            directories=tuple(map(str, entries.directories)),
            cluster_id=f"{entries.cluster_id:x}" if entries.cluster_id else "",
            first_index=runs[0].first if runs else 0,
            last_index=runs[-1].last if runs else 0,
            committed_index=entries.committed,
            entries=sum(len(run.places) for run in runs),
            superseded=entries.superseded,
            segments=len(entries.segments),
            gaps=tuple(entries.gaps()),
        )

    @classmethod
    def open(cls, *directories: Path) -> WriteAheadLog:
        """Open the log of each directory (``member/wal``), and join them.

        Raises:
            NotALog: No such directory, or no segment of a log in it.
            LogsDisagree: Two of them are not of one history.
            SourceError: A segment cannot be read.
        """
        logs: list[MemberLog] = []
        try:
            logs.extend(map(MemberLog, directories))
            return cls(join(logs))
        except BaseException:
            for log in logs:
                log.close()
            raise

    @property
    def problems(self) -> list[str]:
        """Damage that was walked around, and gaps, one sentence each."""
        gaps = [
            f"entries {gap.first} to {gap.last} of the log are missing ({gap.why})"
            for gap in self.description.gaps
        ]
        return [*self._entries.problems, *gaps]

    def history(
        self,
        present: Source | None,
        *,
        others: Sequence[Source] = (),
        reads: Callable[[StoredValue], bool] = lambda _: True,
        reached: int = 0,
    ) -> LogHistory:
        """Work out what each entry did.

        Args:
            present: What is stored now: a live etcd, or a later file. The newest writes of the log are compared with
                it; None leaves everything at most ``likely``.
            others: Database files of the same history, as the ``snap/db`` beside, or older snapshots. Each may be the
                base of a replay: where its ``consistent_index`` lies in the log. A log that begins with the cluster is
                replayed from the empty store.
            reads: Says whether a stored value can be read: one that cannot may have been changed on disk.
            reached: To which revision the live etcd had come after the log was opened; 0 for a file, which may be older
                than the log.

        Raises:
            SourceError: A source, or the log, cannot be read.
        """
        return LogHistory(self._entries, present, others, reads=reads, reached=reached)

    def require_same_history(self, history: LogHistory) -> None:
        """Refuse a log of another history: nothing of it is offered.

        Raises:
            OtherHistory: Nothing shows that it is of the history of what is stored.
        """
        if history.agreement.kinship is Kinship.OTHER_HISTORY:
            raise OtherHistory(
                f"{', '.join(self.description.directories)}: nothing shows that this log is of the history of what is"
                f" stored now: {history.agreement.sentence}",
                hint="name the log of a member of this very cluster, not of a restored copy; as long as etcd refuses"
                " writes (NOSPACE), its newest writes show nothing",
            )

    def close(self) -> None:
        """Let go of the files."""
        self._entries.close()
