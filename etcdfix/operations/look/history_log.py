"""What etcd's write-ahead log tells of one etcd key, for ``history``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Outcome
from etcdfix.operations.judged_log import JudgedLog
from etcdfix.operations.look.log_times import LogClock
from etcdfix.reports.finding import finding_from
from etcdfix.reports.history_model import Event, HistoryLog, LoggedRevision
from etcdfix.reports.model import ValueKind
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.plaintext import bounded

_EVENTS: Final = {
    WriteKind.PUT: Event.PUT,
    WriteKind.DELETE: Event.DELETE,
    WriteKind.LEASE_REVOCATION: Event.LEASE_REVOCATION,
}


class KeyLog:
    """The log, opened to look at one key. Close it, or use it as a context manager.

    Args:
        directories: ``member/wal`` of one member or of several.
        source: What is stored now.
        reading: How its values are read.
        older: Older snapshots of the same history: a log can be replayed from one.
        progress: Counts keys for a display.

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stack.close()

    def look(
        self,
        key: bytes,
        examiner: Examiner,
        *,
        kept: frozenset[int],
        now: Examination | None,
        again: RepeatedOptions,
        most: int,
    ) -> HistoryLog | None:
        """Tell the writes of a key; None where the log knows nothing of it.

        Args:
            key: Complete etcd key.
            examiner: Says what each value is.
            kept: mod revisions that etcd keeps of it.
            now: What the key holds; None for nothing.
            again: What commands repeat.
            most: So many writes are told, the newest.

        Raises:
            SourceError: The log cannot be read any more.
        """
        examiner = examiner.apart()
        clock = LogClock(self._history, examiner)
        told: deque[LoggedRevision] = deque(maxlen=most)
        count = refused = 0
        for write in self._history.writes(key):
            if write.refused:
                refused += 1
                continue
            count += 1
            told.append(self._told(write, examiner, kept, now, again))
        if not count and not refused:
            return None
        about, agreement = self._judged.log.description, self._history.agreement
        return HistoryLog(
            directories=[display(bytes(Path(directory))) for directory in about.directories],
            first_index=about.first_index,
            last_index=about.last_index,
            committed_index=about.committed_index,
            kinship=agreement.kinship.value,
            agreement=agreement.sentence,
            replayed=self._history.replayed,
            refused=refused,
            left_out=count - len(told),
            writes=[_timed(one, clock) for one in reversed(told)],
            notes=self._judged.notes,
        )

    def _told(
        self,
        write: LoggedWrite,
        examiner: Examiner,
        kept: frozenset[int],
        now: Examination | None,
        again: RepeatedOptions,
    ) -> LoggedRevision:
        stored = write.stored()
        found = examiner.examine(stored) if stored is not None else None
        finding = finding_from(found) if found is not None else None
        restore = ""
        if found is not None and found.verdict.outcome is Outcome.READABLE:
            restore = self._restore(write, now, again, is_kept=write.mod_revision in kept)
        uid = (found.decoded.uid if found is not None and found.decoded is not None else None) or b""
        return LoggedRevision(
            entry_index=write.entry_index,
            operation=write.operation,
            event=_EVENTS[write.kind],
            mod_revision=write.mod_revision,
            after_revision=write.after_revision,
            before_revision=write.before_revision,
            confidence=write.confidence,
            doubt=write.doubt,
            kept=write.mod_revision in kept,
            range_end=display(write.range_end) if write.range_end else "",
            keeps_value=write.keeps_value,
            user=bounded(write.user),
            lease=f"{write.lease:x}" if write.lease else None,
            outcome=found.verdict.outcome if found is not None else None,
            cause=finding.cause if finding is not None else None,
            message=finding.message if finding is not None else "",
            transformer=finding.transformer if finding is not None else "",
            key_fingerprint=finding.key_fingerprint if finding is not None else None,
            kms_key_id_sha256=finding.kms_key_id_sha256 if finding is not None else None,
            group_version_kind=(
                ValueKind(*map(bounded, found.gvk)) if found is not None and found.gvk is not None else None
            ),
            uid=bounded(uid.decode("utf-8", "replace")),
            value_size=finding.value_size if finding is not None else 0,
            value_sha256=finding.value_sha256 if finding is not None else None,
            restore=restore,
        )

    def _restore(
        self, write: LoggedWrite, now: Examination | None, again: RepeatedOptions, *, is_kept: bool
    ) -> str:
        """Return the dry run that puts a value back; "" where the key holds one that may not be replaced."""
        if is_kept or again.of_a_file or again.of_kine or again.of_the_past:
            return ""
        if now is not None and now.verdict.outcome not in FAILED:
            return ""
        directory = self._history.directory_of(write.entry_index)
        words = ("--from-wal", str(directory), "--entry", str(write.entry_index))
        replacing = now.stored.mod_revision if now is not None else 0
        return again.restore_from(words, write.key, replacing=replacing, unlisted=True)


def _timed(one: LoggedRevision, clock: LogClock) -> LoggedRevision:
    between = clock.between(one.entry_index)
    return msgspec.structs.replace(one, not_before=between.after, not_after=between.before)
