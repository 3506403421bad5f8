"""What etcd's write-ahead log tells of one etcd key, for ``history``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from etcdfix.closing import Closing
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.operations.judged_log import JudgedLog
from etcdfix.report.finding import finding_from
from etcdfix.report.history import Event, HistoryLog, LoggedRevision
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.plaintext import bounded

_EVENTS: Final = {
    WriteKind.PUT: Event.PUT,
    WriteKind.DELETE: Event.DELETE,
    WriteKind.LEASE_REVOCATION: Event.LEASE_REVOCATION,
}


class KeyLog(Closing):
    """The log, opened to look at one key. Close it, or use it as a context manager.

    Attributes:
        problems: Why not everything was seen.

    Raises:
        OtherHistory: Nothing shows that it is of the history of what is stored now.
        SourceError: The log, or a snapshot, cannot be read.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        source: Source,
        reading: Reading,
        older: Sequence[Path] = (),
        *,
        progress: Progress = no_progress,
    ) -> None:
        for path in older:
            SnapshotSource(path).close()  # what a person named can be read, or it is no history
        examiner = Examiner.of_cluster(source, reading)
        with ExitStack() as stack:
            self._judged = stack.enter_context(
                JudgedLog(directories, source, examiner, older_snapshots=older, progress=progress)
            )
            self._judged.require_same_history()
            self._stack = stack.pop_all()
        self._history = self._judged.history
        self.problems = self._judged.problems

    def close(self) -> None:
        """Let go of the log."""
        self._stack.close()

    def look(
        self,
        key: bytes,
        examiner: Examiner,
        *,
        kept: set[int],
        most: int,
    ) -> HistoryLog | None:
        """Tell the writes of a key; None where the log knows nothing of it.

        Args:
            key: Complete etcd key.
            examiner: Says what each value is.
            kept: mod revisions that etcd keeps of it.
            most: So many writes are told, the newest.

        Raises:
            SourceError: The log cannot be read any more.
        """
        examiner = examiner.apart()
        told: deque[LoggedRevision] = deque(maxlen=most)
        count = 0
        refused = False
        for write in self._history.writes(key):
            if write.refused:
                refused = True
                continue
            count += 1
            told.append(_told(write, examiner, kept))
        if not count and not refused:
            return None
        return HistoryLog(
            directories=[
                display(bytes(Path(directory))) for directory in self._judged.log.description.directories
            ],
            agreement=self._history.agreement.sentence,
            replayed=self._history.replayed,
            left_out=count - len(told),
            writes=[*reversed(told)],
            notes=self._judged.notes,
        )


def _told(write: LoggedWrite, examiner: Examiner, kept: set[int]) -> LoggedRevision:
    stored = write.stored()
    found = examiner.examine(stored) if stored is not None else None
    return LoggedRevision(
        **(
            written(found)
            | {
                "entry_index": write.entry_index,
                "event": _EVENTS[write.kind],
                "mod_revision": write.mod_revision,
                "after_revision": write.after_revision,
                "before_revision": write.before_revision,
                "confidence": write.confidence,
                "doubt": write.doubt,
                "kept": write.mod_revision in kept,
                "lease": f"{write.lease:x}" if write.lease else None,
            }
        )
    )


def written(found: Examination | None) -> dict[str, Any]:
    """Return what is told of a written value; nothing for none."""
    if found is None:
        return {}
    finding = finding_from(found)
    uid = (found.decoded.uid if found.decoded is not None else None) or b""
    return {
        "lease": finding.lease or None,
        "outcome": found.verdict.outcome,
        "cause": finding.cause,
        "confidence": found.verdict.confidence if finding.cause is not None else None,
        "message": finding.message,
        "transformer": finding.transformer,
        "key_fingerprint": finding.key_fingerprint,
        "kms_key_id_sha256": finding.kms_key_id_sha256 or None,
        "uid": bounded(uid.decode("utf-8", "replace")),
        "value_size": finding.value_size,
        "value_sha256": finding.value_sha256,
    }
