"""What etcd's write-ahead log tells of one etcd key, for ``history``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from etcdfix.copies.log import Log
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
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


@contextmanager
def same_log(
    directories: Sequence[Path],
    source: Source,
    reading: Reading,
    older: Sequence[Path] = (),
    *,
    progress: Progress = no_progress,
) -> Iterator[Log]:
    """Give the log, opened: it is of the history of what is stored now.

    Raises:
        OtherHistory: Nothing shows that it is.
        SourceError: The log, or a snapshot, cannot be read.
    """
    for path in older:
        SnapshotSource(path).close()  # what a person named can be read, or it is no history
    examiner = Examiner.of_cluster(source, reading)
    with Log(directories, source, examiner, older=older, progress=progress) as log:
        log.require()
        yield log


def look_into_log(
    log: Log, key: bytes, examiner: Examiner, *, kept: set[int], most: int
) -> HistoryLog | None:
    """Tell the newest ``most`` writes of a key; None where the log knows nothing of it.

    Args:
        log: Of the history of what is stored now.
        key: Complete etcd key.
        examiner: Says what each value is.
        kept: mod revisions that etcd keeps of it.
        most: So many writes are told.

    Raises:
        SourceError: The log cannot be read any more.
    """
    examiner = examiner.apart()
    told: deque[LoggedRevision] = deque(maxlen=most)
    known = False
    count = 0
    for write in log.writes(key):
        known = True
        if not write.refused:
            count += 1
            told.append(_told(write, examiner, kept))
    if not known:
        return None
    return HistoryLog(
        directories=[display(bytes(directory)) for directory in log.directories],
        agreement=log.about,
        replayed=log.replayed,
        left_out=count - len(told),
        writes=[*reversed(told)],
        notes=log.notes,
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
                "after_revision": None,
                "before_revision": None,
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
        "transformer": finding.transformer,
        "key_fingerprint": finding.key_fingerprint,
        "kms_key_id_sha256": finding.kms_key_id_sha256 or None,
        "uid": bounded(uid.decode("utf-8", "replace")),
        "value_sha256": finding.value_sha256,
    }
