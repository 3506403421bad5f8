"""Every write to one etcd key that is still kept: what each is, and which fields it changed.

The revisions come oldest first, as etcd gives them, and each is examined as it passes; what is kept of it is small, so
memory does not grow with the size of values. Each is examined by itself; only the present value is judged with
the other values under its encryption key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from etcdfix.copies.log import Log
from etcdfix.examine.all import Progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Confidence, KeptRevision, Outcome, digest_of
from etcdfix.report.explain import History, KeptWrite
from etcdfix.report.objects import Form, Viewer
from etcdfix.sources.base import Source
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import fit

_MOST: Final = 100
"""So many writes are told, the newest; all are examined and counted."""
_MOST_SEARCHED: Final = 20
"""So many revisions that do not open are searched for what was damaged; each can take a second."""
_ALWAYS_CHANGE: Final = ("resourceVersion", "managedFields", "generation")
_MOST_FIELDS: Final = 8
_LONGEST_PATH: Final = 120
_MISSING: Final = object()
_Path = tuple[str | int, ...]


def history_of(
    source: Source,
    examiner: Examiner,
    key: bytes,
    logs: Iterable[Log],
    problems: list[str],
    progress: Progress,
    *,
    whole: bool,
) -> History:
    """Examine every kept revision of a key, up to the revision that the source is read at, and every write of the logs.

    Args:
        source: Which keeps them.
        examiner: Examines the revisions.
        key: Complete etcd key.
        logs: Write-ahead logs; one of another history has nothing to tell.
        problems: Takes why not everything could be read.
        progress: Counts revisions for a display.
        whole: Tell each; else they are only counted.
    """
    told = _Revisions(examiner, whole=whole)
    compacted: int | None = None
    logged: list[KeptWrite] = []
    try:
        for kept in progress(_kept_revisions(source, key), "revisions", 0):
            told.add(kept)
        compacted = source.compacted_revision() if whole else None
        # The logs of two members hold the same entries.
        writes = {
            (write.entry_index, write.operation): write
            for log in logs
            for write in deque((one for one in log.writes(key) if not one.refused), maxlen=_MOST)
        }
        logged = [_logged(writes[place], examiner) for place in sorted(writes)[-_MOST:]]
    except SourceError as exc:
        problems.append(f"the history could not be read to its end: {exc.message}")
    last = 0
    turns = [(one.mod_revision or 0, 0, one) for one in told.writes]
    for turn, one in enumerate((one for one in logged if one.mod_revision not in told.kept), start=1):
        last = one.mod_revision or last  # those of unknown revision stand where they stand in the log
        turns.append((last, turn, one))
    return History(
        compacted_revision=compacted,
        count=len(told.kept),
        deleted_at=told.deleted_at,
        older_versions=told.older_versions or 0,
        readable=told.readable,
        left_out=len(told.kept) - len(told.writes) if whole else 0,
        writes=[one for *_, one in sorted(turns, key=lambda each: each[:2], reverse=True)],
    )


def _kept_revisions(source: Source, key: bytes) -> Iterator[KeptRevision]:
    description = source.describe()
    last = None
    for kept in source.history(key):
        # A file holds what is newer, too. An etcd may have compacted the revision, and is read at a later one then.
        if description.type != "etcd" and kept.revision.main > description.revision:
            return
        if kept.revision != last:  # a salvaged file may hold a page twice
            yield kept
        last = kept.revision


def _logged(write: LoggedWrite, examiner: Examiner) -> KeptWrite:
    stored, entry = write.stored(), f"log entry {write.entry_index}"
    told = (
        _written(examiner.independent_copy().examine(stored))
        if stored is not None
        else KeptWrite(mod_revision=None)
    )
    return msgspec.structs.replace(
        told,
        mod_revision=write.mod_revision,
        place=entry if write.confidence is Confidence.CERTAIN else f"{entry}, {write.confidence}",
        deletes=write.kind is not WriteKind.PUT,
        doubt=write.doubt,
    )


def _written(found: Examination) -> KeptWrite:
    verdict, stored = found.verdict, found.stored
    return KeptWrite(
        mod_revision=stored.mod_revision,
        version=stored.version,
        outcome=verdict.outcome,
        cause=verdict.cause.value if verdict.cause is not None else None,
        transformer=found.transformer,
        uid=found.uid,
        value_sha256=digest_of(stored.value),
    )


class _Revisions:
    """Takes revisions as they pass, oldest first."""

    def __init__(self, examiner: Examiner, *, whole: bool) -> None:
        self._tells = whole
        self._examiner = examiner.independent_copy()
        self._examiner.kept = examiner.kept  # they are all of one etcd key
        self._whole, self._masked = Viewer(self._examiner, reveal=True), Viewer(self._examiner)
        self._before: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._searched = self.readable = 0
        self.writes: deque[KeptWrite] = deque(maxlen=_MOST)
        self.kept: set[int] = set()
        self.deleted_at: int | None = None
        self.older_versions: int | None = None

    def add(self, kept: KeptRevision) -> None:
        """Examine one revision, and take note of it."""
        revision, stored = kept.revision.main, kept.stored
        if self.writes:
            self.writes[-1] = msgspec.structs.replace(self.writes[-1], stands_until=revision - 1)
        self.kept.add(revision)
        self.deleted_at = revision if stored is None else None
        if not self._tells:
            return
        if stored is None:
            self._before = None  # what comes next is another object
            self.writes.append(KeptWrite(mod_revision=revision, deletes=True))
            return
        found = self._examiner.examine(stored)
        if found.verdict.outcome in FAILED and self._searched < _MOST_SEARCHED:
            self._searched += 1
            found = self._examiner.examine(stored, thorough=True)
        if self.older_versions is None:
            self.older_versions = max(stored.version - 1, 0)
        self.readable += found.verdict.outcome is Outcome.READABLE
        doubt = "kine keeps it beside the next revision alone" if kept.from_old_value else ""
        write = msgspec.structs.replace(_written(found), doubt=doubt, changed=self._changed(found))
        self.writes.append(write)

    def _changed(self, found: Examination) -> list[str] | None:
        """Return the fields that differ from the readable value before; None where there is nothing to compare."""
        if found.verdict.outcome is not Outcome.READABLE:
            return None
        shown = self._whole.show(found)
        if shown.form is not Form.OBJECT:
            return None
        before, self._before = self._before, (_comparable(shown.document), self._masked.show(found).document)
        if before is None:
            return None
        (old, old_masked), (new, new_masked) = before, self._before
        # Names that are not in what may be shown are told by their size.
        names = {*_names(old_masked), *_names(new_masked)}
        differing = [f"{_shown_path(path, names)} ({change})" for path, change in _differing(old, new)]
        more = len(differing) - _MOST_FIELDS
        return differing if more <= 0 else [*differing[:_MOST_FIELDS], f"{more} more"]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what every write changes."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document
    kept = {name: what for name, what in metadata.items() if name not in _ALWAYS_CHANGE}
    return {**document, "metadata": kept}


def _names(document: dict[str, Any]) -> Iterator[str]:
    waiting: list[Any] = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _differing(before: Any, after: Any) -> Iterator[tuple[_Path, str]]:
    """Yield each place where two objects differ; not by recursion, since strangers decide how deep they are."""
    waiting: list[tuple[_Path, Any, Any]] = [((), before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old is _MISSING or new is _MISSING:
            yield path, "added" if old is _MISSING else "removed"
        elif isinstance(old, dict) and isinstance(new, dict):
            members = reversed(dict.fromkeys((*new, *old)))
            waiting += [((*path, name), old.get(name, _MISSING), new.get(name, _MISSING)) for name in members]
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            waiting += [((*path, at), old[at], new[at]) for at in reversed(range(len(old)))]
        elif type(old) is not type(new) or old != new:
            yield path, "changed"


def _shown_path(path: _Path, names: set[str]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in names:
            text += f".{safe_text(part)}" if text else safe_text(part)
        else:
            text += f".<name of {len(part.encode('utf-8', 'surrogatepass'))} bytes masked>"
    return fit(text, _LONGEST_PATH)
