"""etcd's write-ahead log as a place where copies are: what was written lately, compacted or not.

Committed is not applied: how sure each write is, the log itself says, and nothing less than certain is a good copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.closing import Closing
from etcdfix.copies.model import Sameness
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress
from etcdfix.model import Confidence
from etcdfix.operations.judged_log import JudgedLog
from etcdfix.operations.look.copies_gather import ExaminedCopies, FoundCopy, Sought
from etcdfix.report.copies import CopyPlace, PlaceKind
from etcdfix.report.origin import shown_word
from etcdfix.sources.base import Source
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.text.words import counted

_MOST_WRITES: Final = 64
"""The newest ones of each etcd key are looked at; all of them are in memory at once."""


class LogPlace(Closing):
    """The logs of one or several members, opened for one search. Close it, or use it as a context manager.

    What may help to know what was applied is read beside: ``snap/db``, and older snapshots that were named.

    Raises:
        SourceError: A log cannot be read.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        source: Source,
        examiner: Examiner,
        older_snapshots: Sequence[Path],
        progress: Progress,
    ) -> None:
        self._directories = directories
        self._kept_from = source.compacted_revision()
        self._judged = JudgedLog(
            directories, source, examiner, older_snapshots=older_snapshots, progress=progress
        )
        self._history = self._judged.history
        self.problems = self._judged.problems

    def close(self) -> None:
        """Let go of the log."""
        self._judged.close()

    @property
    def place(self) -> CopyPlace:
        """What is published of it."""
        about = self._judged.log.description
        parts = [
            f"{counted(about.entries, 'entry').replace('entrys', 'entries')} up to index {about.last_index}",
            self._judged.why,
            f"replayed from {self._history.replayed}"
            if self._history.replayed
            else "nothing to replay from, so that no write is certain",
            *self._judged.notes,
        ]
        return CopyPlace(
            kind=PlaceKind.LOG,
            path=", ".join(shown_word(str(directory)) for directory in self._directories),
            searched=True,
            history=self._judged.fit,
            detail="; ".join(parts),
        )

    def deleted(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the etcd keys whose last write in the log may be a deletion."""
        return iter(()) if self._judged.fit is Sameness.OTHER else self._history.deleted(prefix)

    def search(
        self, sought: Iterable[Sought], place: int, examined: ExaminedCopies, add: Callable[[FoundCopy], None]
    ) -> None:
        """Look at the newest writes of each object.

        Raises:
            SourceError: The log cannot be read any more.
        """
        for one in sought if self._judged.fit is not Sameness.OTHER else ():
            writes = deque(self._history.writes(one.key), maxlen=_MOST_WRITES)
            effective = [write for write in writes if not write.refused]
            last = self._last_before_deletion(effective)
            puts = 0
            for write in reversed(effective):
                stored = write.stored()
                if stored is not None:
                    copy = msgspec.structs.replace(
                        examined.copy_of(stored, place),
                        entry=write.entry_index,
                        certainty=write.confidence,
                        doubt=write.doubt,
                        last=write is last,
                        later=puts,
                        path=shown_word(str(self._history.directory_of(write.entry_index))),
                    )
                    add(copy)
                puts += write.kind is WriteKind.PUT

    def _last_before_deletion(self, writes: Sequence[LoggedWrite]) -> LoggedWrite | None:
        """Return the value that was certainly deleted last; None where that is not known."""
        if len(writes) < 2 or writes[-1].kind is WriteKind.PUT:
            return None
        before, deletion = writes[-2:]
        if before.kind is not WriteKind.PUT or before.confidence is not Confidence.CERTAIN:
            return None
        if deletion.confidence is not Confidence.CERTAIN or self._kept_from is None:
            return None
        # What came after that, the datastore itself still keeps.
        return before if self._history.replayed_until(deletion.entry_index) >= self._kept_from else None
