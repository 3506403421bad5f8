"""Every revision of one etcd key that is still kept: what each is, what changed, and how it is brought back.

The revisions come oldest first, as etcd gives them, and each is examined as it passes; what is kept of it is small, so
memory does not grow with the size of values. Each is examined by itself: what other values under its encryption key say
of the key is for ``explain``, which looks at them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Confidence, KeptRevision, Outcome, ReadableRevision, StoredValue
from etcdfix.operations.look.field_changes import Comparable, field_changes
from etcdfix.operations.look.history_log import KeyLog, ObjectNow, written
from etcdfix.readable_revision import reads, tells_apart
from etcdfix.report.advice.change import readable_way, save_command
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.head import stakes_of
from etcdfix.report.history import (
    Event,
    HistoryLog,
    HistoryReport,
    HistoryRevision,
)
from etcdfix.report.model import Remedy
from etcdfix.report.objects import Form, Viewer
from etcdfix.report.origin import report_origin
from etcdfix.rules import Rule
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text import commands
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_CHANGES: Final = 100
_MOST_SEARCHED: Final = 20
"""So many revisions that do not open are searched for what was damaged; each can take a second."""


class HistoryRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is shown.

    Attributes:
        key: Complete etcd key.
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
    log: KeyLog | None = None,
) -> KeyLook[HistoryReport]:
    """Examine every kept revision of a key, up to the revision that the source is read at.

    Args:
        source: Which keeps them.
        request: Which key, and how its values are read.
        plugins: The KMS plugins to ask; None to ask none.
        progress: Counts the revisions for a display.
        log: etcd's write-ahead log, to tell what is not kept any more; None for none.

    Raises:
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    uid = examiner.kube_system_uid(source)
    present = source.get(request.key)
    gathered = Revisions(examiner, request, present)
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
        logged = log.look(
            request.key,
            examiner,
            kept=frozenset(gathered.kept),
            now=gathered.now,
            object_now=gathered.object_now,
            run=request.run,
            most=request.most,
        )
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
    gathered: Revisions,
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
    revisions = gathered.revisions()
    return HistoryReport(
        **report_origin(source.describe(), request.configuration, uid),
        key=display(key),
        key_base64=key_base64(key),
        exists=last is not None and last.stored is not None,
        compacted_revision=_compacted(source, reasons),
        count=gathered.count,
        deletions=gathered.deletions,
        oldest_mod_revision=gathered.oldest,
        older_versions=gathered.older_versions,
        readable=gathered.readable,
        unreadable=gathered.failed,
        undetermined=gathered.undetermined,
        newest_readable=gathered.newest_readable or None,
        left_out=gathered.count - len(revisions),
        at_stake=stakes.at_stake,
        do_not_restart=stakes.do_not_restart,
        next=_next(gathered, revisions, request) or _next_of_log(gathered, logged),
        revisions=revisions,
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


def _next(gathered: Revisions, revisions: list[HistoryRevision], request: HistoryRequest) -> Remedy | None:
    """Return what to do first; None where the key reads, or is gone and nothing of it can be brought back."""
    now = gathered.now
    if now is not None and now.verdict.outcome not in {*FAILED, Outcome.UNDETERMINED, Outcome.INCONSISTENT}:
        return None
    newest = next((one for one in revisions if one.get and not one.present), None)
    if newest is not None and newest.restore:
        put_back = "put back the newest revision that reads: a dry run first"
        action = put_back.capitalize() if now is not None else f"If it should not be gone, {put_back}"
        return Remedy(action, newest.restore, newest.restore_note)
    if newest is not None and (now is None or request.run.of_kine):
        return Remedy(
            "Save the newest revision that reads, before it is compacted", newest.save, newest.restore_note
        )
    if now is None:
        return None
    return Remedy(
        "See why the present value cannot be read, and every way out", commands.explain(request.key)
    )


def _next_of_log(gathered: Revisions, logged: HistoryLog | None) -> Remedy | None:
    """Return how the newest value of the log that reads is put back, where the key holds nothing."""
    if logged is None or gathered.now is not None:
        return None
    newest = next((one for one in logged.writes if one.restore), None)
    if newest is None:
        return None
    sure = "" if newest.confidence is Confidence.CERTAIN else f"It is {newest.confidence}: {newest.doubt}. "
    return Remedy(
        "If it should not be gone, put back the newest value in the log that reads: a dry run first",
        newest.restore,
        f"{sure}{newest.restore_note}".strip(),
    )


class _Seen(NamedTuple):
    """What is remembered of the revision before: to compare, and to know whether an object goes on."""

    digest: bytes
    comparable: Comparable | None
    uid: str


class _Entry(msgspec.Struct):
    """A revision as it is told, and what is decided once all have been seen.

    Attributes:
        told: As far as it is known when it passes.
        generation: Create revision; 0 for a deletion.
        readable: It could be put back.
        leased: It had a lease.
        uid: Of the object, "" for unknown.
    """

    told: HistoryRevision
    generation: int = 0
    readable: bool = False
    leased: bool = False
    uid: str = ""


class Revisions:
    """Takes revisions as they pass, oldest first, and tells of the newest ones.

    Args:
        examiner: Says what each value is; what it learns here speaks for no value of another run.
        request: How many are told, and what commands repeat.
        present: What the key holds at the revision that is read.

    Attributes:
        now: The last value, where it is not deleted.
        last: The newest revision.
        kept: mod revisions of all of them.
    """

    def __init__(self, examiner: Examiner, request: HistoryRequest, present: StoredValue | None) -> None:
        self._examiner = examiner.apart()
        self._examiner.kept = examiner.kept  # they are all of one etcd key
        self._shown = Viewer(self._examiner)
        self._whole = Viewer(self._examiner, reveal=True)
        self._request = request
        self._present = present
        self._entries: deque[_Entry] = deque(maxlen=request.most)
        self._before: _Seen | None = None
        self._place: Examination | None = None
        self._searched = 0
        self._begins = 0
        self.count = self.deletions = self.readable = self.undetermined = 0
        self.older_versions = self.newest_readable = self.failed = self.oldest = 0
        self._newest_uid = ""
        self._newest_generation = self._generation = 0
        self.now: Examination | None = None
        self.last: KeptRevision | None = None
        self.kept: set[int] = set()

    def add(self, kept: KeptRevision) -> None:
        """Examine one revision, and take note of it.

        Raises:
            KMSPending: Only while plugins defer.
        """
        last = self.last
        if last is not None and last.revision == kept.revision:
            return  # a salvaged file may hold a page twice
        if self._entries:
            before = self._entries[-1]
            before.told = msgspec.structs.replace(before.told, stands_until=kept.revision.main - 1)
        self.count += 1
        self.kept.add(kept.revision.main)
        self.oldest = self.oldest or kept.revision.main
        self.last = kept
        self.now = None
        if kept.stored is None:
            self.deletions += 1
            self._entries.append(_Entry(HistoryRevision(mod_revision=kept.revision.main, event=Event.DELETE)))
            return
        self._put(kept.stored)
        if kept.from_old_value:
            entry = self._entries[-1]
            entry.told = msgspec.structs.replace(entry.told, from_old_value=True)

    def _put(self, stored: StoredValue) -> None:
        found = self._examine(stored)
        self.now = self._place = found
        digest = hashlib.sha256(stored.value).digest()
        before = self._before
        if stored.create_revision != (self._entries[-1].generation if self._entries else 0):
            if before is None:
                self.older_versions = max(stored.version - 1, 0)
            goes_on = before is not None and stored.version == 1 and digest == before.digest
            if not (goes_on and tells_apart(stored.value)):
                self._begins = stored.create_revision
        comparable = self._comparable(found)
        uid = (found.decoded.uid if found.decoded is not None else None) or b""
        seen = _Seen(digest, comparable, uid.decode("utf-8", "replace"))
        readable = reads(found)
        if readable:
            self.readable += 1
            self.newest_readable = stored.mod_revision
            self._newest_uid, self._newest_generation = seen.uid, stored.create_revision
        elif found.verdict.outcome is Outcome.UNDETERMINED:
            self.undetermined += 1
        elif found.verdict.outcome in {*FAILED, Outcome.INCONSISTENT}:
            self.failed += 1
        told = self._told(found, digest, seen, before)
        self._entries.append(_Entry(told, stored.create_revision, readable, bool(stored.lease), seen.uid))
        self._before = seen
        self._generation = stored.create_revision

    def _examine(self, stored: StoredValue) -> Examination:
        found = self._examiner.examine(stored)
        is_present = self._present is not None and stored.mod_revision == self._present.mod_revision
        if found.verdict.outcome not in FAILED or not (is_present or self._searched < _MOST_SEARCHED):
            return found
        self._searched += 1
        return self._examiner.examine(stored, thorough=True)

    def _comparable(self, found: Examination) -> Comparable | None:
        """Return the object to compare with others; None where it is not whole."""
        if found.verdict.outcome not in {Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT}:
            return None
        whole = self._whole.show(found)
        if whole.form is not Form.OBJECT:
            return None
        return Comparable.of(whole.document, self._shown.show(found).document)

    def _told(
        self,
        found: Examination,
        digest: bytes,
        seen: _Seen,
        before: _Seen | None,
    ) -> HistoryRevision:
        told = HistoryRevision(
            **written(found),
            mod_revision=found.stored.mod_revision,
            event=Event.PUT,
            create_revision=found.stored.create_revision,
            version=found.stored.version,
            stale=found.stale,
        )
        if before is None:
            why = "it was created here" if found.stored.version == 1 else "nothing older is kept"
        elif before.digest == digest:
            return msgspec.structs.replace(told, changes=[])
        elif seen.comparable is None or before.comparable is None:
            why = "one of the two cannot be read as a whole object"
        else:
            changes, more = field_changes(before.comparable, seen.comparable, most=_MOST_CHANGES)
            return msgspec.structs.replace(told, changes=changes, changes_left_out=more)
        return msgspec.structs.replace(told, not_compared=why)

    def revisions(self) -> list[HistoryRevision]:
        """Return the newest revisions, the newest first, each with its commands; once all were added."""
        told = []
        for entry in reversed(self._entries):
            one = entry.told
            if one.event is Event.PUT:
                one = self._with_commands(entry)
            told.append(one)
        return told

    def _with_commands(self, entry: _Entry) -> HistoryRevision:
        told, key = entry.told, self._request.key
        same, at = self._same_object(entry), told.stands_until or 0
        get = restore = save = NO_COMMAND
        note = ""
        if told.outcome not in {*FAILED, Outcome.UNDETERMINED}:
            get = commands.get(key, revision=at)
        if entry.readable:
            restore, note = self._restore(entry, same)
            if not restore and at:
                assert self._place is not None  # a value was put
                save = save_command(key, self._place.directory.group_resource, at)
        return msgspec.structs.replace(
            told, same_object=same, get=get, save=save, restore=restore, restore_note=note
        )

    def _same_object(self, entry: _Entry) -> bool | None:
        """Say whether a value is one of the object that is there now, or was there last."""
        if entry.uid and self._newest_uid and self._newest_generation >= self._begins:
            return entry.uid == self._newest_uid
        return True if entry.generation >= self._begins else None

    @property
    def object_now(self) -> ObjectNow:
        """What is known of the object that is there now, or was there last; once all were added."""
        known = self._newest_generation >= self._begins
        return ObjectNow(self._newest_uid if known else "", self._generation)

    def _restore(self, entry: _Entry, same: bool | None) -> tuple[Command, str]:
        """Return what puts a readable value back, no command where nothing does; and what to know, or why not."""
        told, run, key, now = entry.told, self._request.run, self._request.key, self.now
        granted = "" if run.told_of_encryption else GRANTED.strip()
        why = self._why_not(told, same)
        if why:
            return NO_COMMAND, why
        if run.of_a_file:
            words = ("--from-snapshot", run.file)
            return commands.restore(words, key, accepted=[Rule.UNLISTED_SOURCE]), (
                "On the live etcd, where the etcd key must be absent; --replace-mod-revision N replaces a value there "
                f"that may be deleted. {granted}"
            ).strip()
        at = told.stands_until or 0
        if now is None:
            if entry.leased:
                return NO_COMMAND, "it had a lease, which may have run out: save it"
            return commands.restore(("--from-revision", str(at)), key), granted
        if now.verdict.outcome not in FAILED:
            return NO_COMMAND, (
                f"the present value is {now.verdict.outcome}, and only what may be deleted is replaced; change it "
                "through the API"
            )
        way = readable_way(now, ReadableRevision(at, told.mod_revision, True, entry.leased), run)
        if way.verb != WayKind.PUT_BACK:
            return NO_COMMAND, "the present value may not be replaced as things are: save this one"
        return way.command, way.note

    def _why_not(self, told: HistoryRevision, same: bool | None) -> str:
        """Return why a revision cannot be put back, whatever stands at its key now; "" for nothing."""
        run = self._request.run
        if run.of_kine:
            return "etcdfix writes nothing to kine: save it, and put it back through an API server"
        if run.of_a_file:
            if told.stands_until is not None or run.revision:
                return "a restore from a snapshot takes the newest value in it: save this one"
            salvaged = "--salvage" in run.source
            return "a salvaged file is no source for a change: save what it shows" if salvaged else ""
        if run.of_the_past:
            return "what the etcd key holds now was not looked at: leave --revision out"
        if told.stands_until is None:
            return "it is there already"
        if same is None:
            return "nothing shows that the object is the same: save it, and compare before you use it"
        return "" if same else "it is of another object: save it, and compare before you use it"
