"""Every revision of one etcd key that is still kept: what each is.

The revisions come oldest first, as etcd gives them, and each is examined as it passes; what is kept of it is small, so
memory does not grow with the size of values. Each is examined by itself: what other values under its encryption key say
of the key is for ``explain``, which looks at them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from etcdfix.copies.log import Log
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import KeptRevision, Outcome, StoredValue
from etcdfix.operations.look.history_log import look_into_log, written
from etcdfix.readable_revision import reads
from etcdfix.report.head import stakes_of
from etcdfix.report.history import Event, HistoryLog, HistoryReport, HistoryRevision
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text import commands
from etcdfix.text.safetext import key_base64, key_word
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_SEARCHED: Final = 20
"""So many revisions that do not open are searched for what was damaged; each can take a second."""


class HistoryRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is shown.

    Attributes:
        most: So many revisions, the newest, are told one by one.
    """

    key: bytes
    most: int = 100


R = TypeVar("R")


class KeyLook(msgspec.Struct, Generic[R], frozen=True):
    """What a look at one key came to.

    Attributes:
        report: None where nothing is stored under the key, and nothing is kept of it.
        problems: Why not everything could be read.
        ended: What ended the look early; None where nothing did.
    """

    report: R | None
    problems: list[str]
    ended: EndedEarly | None = None


def look_into_history(
    source: Source,
    request: HistoryRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    log: Log | None = None,
) -> KeyLook[HistoryReport]:
    """Examine every kept revision of a key, up to the revision that the source is read at.

    Raises:
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    uid = examiner.kube_system_uid(source)
    present = source.get(request.key)
    gathered = _Revisions(examiner, request, present)
    ended: EndedEarly | None = None
    lost: list[str] = []
    try:
        for kept in progress(kept_revisions(source, request.key), "revisions", 0):
            gathered.add(kept)
    except KeyboardInterrupt as exc:
        ended = EndedEarly.of(exc)
        lost.append(f"{ended.reason} before the end")
    except SourceError as exc:
        if not gathered.count and present is None:
            raise
        lost.append(f"the history could not be read to its end: {exc.message}")
    logged = None
    if log is not None and ended is None:
        logged = look_into_log(log, request.key, examiner, kept=gathered.kept, most=request.most)
    problems = [*source.problems, *lost, *(log.problems if log is not None else ())]
    if not gathered.count and logged is None:
        return KeyLook(None, problems, ended)
    return KeyLook(_report(source, request, gathered, uid, problems, logged), problems, ended)


def kept_revisions(source: Source, key: bytes) -> Iterator[KeptRevision]:
    """Yield what is kept of a key, oldest first, up to the revision that the source is read at.

    Raises:
        SourceError: It cannot be read.
    """
    description = source.describe()
    for kept in source.history(key):
        # A file holds what is newer, too. An etcd may have compacted the revision, and is read at a later one then.
        if description.type != "etcd" and kept.revision.main > description.revision:
            return
        yield kept


def _report(
    source: Source,
    request: HistoryRequest,
    gathered: _Revisions,
    uid: str | None,
    problems: list[str],
    logged: HistoryLog | None,
) -> HistoryReport:
    key = request.key
    last = gathered.last
    reasons = list(problems)
    if gathered.undetermined:
        reasons.append(f"undetermined: {counted(gathered.undetermined, 'revision')}")
    stakes = stakes_of([gathered.now] if gathered.now is not None else [], past=request.run.of_the_past)
    return HistoryReport(
        **report_origin(source.describe(), request.configuration, uid),
        key=display(key),
        key_base64=key_base64(key),
        exists=last is not None and last.stored is not None,
        compacted_revision=_compacted(source, reasons),
        count=gathered.count,
        older_versions=gathered.older_versions or 0,
        readable=gathered.readable,
        unreadable=gathered.failed,
        undetermined=gathered.undetermined,
        left_out=gathered.count - len(gathered.entries),
        at_stake=stakes.at_stake,
        do_not_restart=stakes.do_not_restart,
        next=_next(gathered, request.key, logged),
        revisions=[*reversed(gathered.entries)],
        log=logged,
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def _compacted(source: Source, reasons: list[str]) -> int | None:
    try:
        return source.compacted_revision()
    except SourceError as exc:
        reasons.append(f"from where on etcd keeps revisions could not be told: {exc.message}")
        return None


def _next(gathered: _Revisions, key: bytes, logged: HistoryLog | None) -> Remedy | None:
    """Return where each copy is told with the command that puts it back; None where the key reads."""
    now = gathered.now
    if now is not None and now.verdict.outcome not in {*FAILED, Outcome.UNDETERMINED, Outcome.INCONSISTENT}:
        return None
    logs = [word for path in (logged.directories if logged is not None else ()) for word in ("--wal", path)]
    action = "See every copy, and the command that puts it back"
    return Remedy(
        action if now is not None else f"If it should not be gone: {action.lower()}",
        commands.copies(key_word(key), options=logs),
    )


class _Revisions:
    """Takes revisions as they pass, oldest first."""

    def __init__(self, examiner: Examiner, request: HistoryRequest, present: StoredValue | None) -> None:
        self._examiner = examiner.apart()
        self._examiner.kept = examiner.kept  # they are all of one etcd key
        self._present = present
        self.entries: deque[HistoryRevision] = deque(maxlen=request.most)
        self._searched = 0
        self.count = self.readable = self.undetermined = self.failed = 0
        self.older_versions: int | None = None
        self.now: Examination | None = None
        self.last: KeptRevision | None = None
        self.kept: set[int] = set()

    def add(self, kept: KeptRevision) -> None:
        """Examine one revision, and take note of it."""
        last = self.last
        if last is not None and last.revision == kept.revision:
            return  # a salvaged file may hold a page twice
        if self.entries:
            self.entries[-1] = msgspec.structs.replace(self.entries[-1], stands_until=kept.revision.main - 1)
        self.count += 1
        self.kept.add(kept.revision.main)
        self.last = kept
        self.now = None
        if kept.stored is None:
            self.entries.append(HistoryRevision(mod_revision=kept.revision.main, event=Event.DELETE))
            return
        stored = kept.stored
        self.now = found = self._examine(stored)
        if self.older_versions is None:
            self.older_versions = max(stored.version - 1, 0)
        if reads(found):
            self.readable += 1
        elif found.verdict.outcome is Outcome.UNDETERMINED:
            self.undetermined += 1
        elif found.verdict.outcome in {*FAILED, Outcome.INCONSISTENT}:
            self.failed += 1
        self.entries.append(
            HistoryRevision(
                **written(found),
                mod_revision=stored.mod_revision,
                event=Event.PUT,
                version=stored.version,
                from_old_value=kept.from_old_value,
            )
        )

    def _examine(self, stored: StoredValue) -> Examination:
        found = self._examiner.examine(stored)
        is_present = self._present is not None and stored.mod_revision == self._present.mod_revision
        if found.verdict.outcome not in FAILED or not (is_present or self._searched < _MOST_SEARCHED):
            return found
        self._searched += 1
        return self._examiner.examine(stored, thorough=True)
