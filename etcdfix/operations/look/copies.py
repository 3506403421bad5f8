"""Every copy that still exists of what cannot be read, or was deleted lately; nothing is changed.

What is sought is found in one pass over the datastore. A key was deleted lately where the datastore, or a log, still
knows a value of it and none stands there. Then each place is looked into for all of them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Ending, Progress, View, examine_all, no_progress
from etcdfix.examine_jobs import Helpers, Jobs
from etcdfix.model import Outcome, StoredValue
from etcdfix.operations.look.copies_assess import Assessor
from etcdfix.operations.look.copies_gather import Gathered, Sought, Wanted, digest_of, uid_of
from etcdfix.operations.look.copies_log import LogPlace
from etcdfix.operations.look.copies_places import Search
from etcdfix.operations.look.in_scope import beside, resolved, searched_for, shown_scope, values_in
from etcdfix.remediation.identify import identify
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.copies import CopiesReport, ObjectCopies, ObjectState
from etcdfix.report.head import Stakes
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin
from etcdfix.report.rows import Rows
from etcdfix.report.saved_report import SavedReport
from etcdfix.scope import KeyRange, ResolvedScope, ScopeRequest
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.pages import paged
from etcdfix.storagekey import StorageCodec, display, likely_prefixes
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination, PlainCount

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_HISTORIES: Final = 20
"""Keys of which a live etcd is asked for the history; each takes a tenth of a second."""
_SAMPLE: Final = 1000
# Nothing is known against these, and no copy tells more.
_NOT_SOUGHT: Final = frozenset({Cause.NO_CONFIGURATION, Cause.OWNER_UNKNOWN})


class CopiesRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is looked for, and where.

    Attributes:
        report: A scan's report, whose findings are looked for instead of the scope; None for none.
        logs: ``member/wal`` of each member whose write-ahead log is looked into.
    """

    scope: ScopeRequest = ScopeRequest()
    report: SavedReport | None = None
    logs: tuple[Path, ...] = ()
    older_snapshots: tuple[Path, ...] = ()
    records: RecordPaths = RecordPaths()
    api: APIAccess | None = None
    rescued: tuple[Path, ...] = ()


class CopiesResult(NamedTuple):
    """What was found, and what ended the look early.

    ``nothing_there``: nothing lies below the storage prefix, and nothing is known that did. Where Kubernetes' keys seem
    to be instead, ``suggested_prefixes`` says then.
    """

    report: CopiesReport
    ended: EndedEarly | None
    nothing_there: bool
    suggested_prefixes: list[str]


def find_copies(
    source: Source,
    request: CopiesRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> CopiesResult:
    """Look for copies of every object in scope that cannot be read or was deleted lately, and of each that is named.

    Raises:
        ConfigurationError: The scope names something that does not exist, or the report is of another cluster.
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    uid = examiner.kube_system_uid(source)
    scope, ranges = _resolved(request, examiner, source, uid)
    request = msgspec.structs.replace(request, scope=scope)
    look = _Look(source, request, examiner, ranges)
    search = Search(source, examiner, look.gathered, uid=uid, progress=progress)

    with ExitStack() as stack:
        log = None
        if request.logs:
            try:
                log = stack.enter_context(
                    LogPlace(request.logs, source, examiner, request.older_snapshots, progress)
                )
                look.know_deleted(log)
            except SourceError as exc:
                search.no_log(request.logs, exc.message)
        ending = look.seek(progress, jobs)
        ended = ending.ended
        try:
            with plugins.aside() if plugins is not None else nullcontext():
                if ended is None:
                    _search(search, source, request, examiner, log, by_history=look.by_history)
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
    look.gathered.finish()
    problems = [*source.problems, *ending.problems, *ending.lost, *look.problems, *search.problems]
    if ended is not None:
        problems.append(f"{ended.reason} before the end")
    assessor = Assessor(search.places, request.run, request.layout, source.describe().revision)
    report = _report(source, request, uid, look, search, assessor, problems)
    empty = look.nothing_there and not any(one.copies for one in report.objects)
    sample = islice(source.current(b""), _SAMPLE) if empty else ()
    return CopiesResult(report, ended, empty, likely_prefixes(stored.key for stored in sample))


def _search(
    search: Search,
    source: Source,
    request: CopiesRequest,
    examiner: Examiner,
    log: LogPlace | None,
    *,
    by_history: bool,
) -> None:
    search.own_revisions(by_history=by_history)
    if log is not None:
        search.log(log)
    for path in request.older_snapshots:
        search.older_snapshot(path)
    identity = identify(source, examiner, request.records.directories)
    search.backups(request.records, identity)
    for directory in request.rescued:
        search.rescued(directory, request.records, identity)
    if request.api is not None:
        search.api_servers(request.api, identity)


def _resolved(request: CopiesRequest, examiner: Examiner, source: Source, uid: str | None) -> ResolvedScope:
    report = request.report
    if report is None:
        return resolved(request.scope, examiner, source)
    if report.source.kube_system_uid != uid:
        raise ConfigurationError(
            f"the report is of the cluster whose kube-system has uid {report.source.kube_system_uid or 'unknown'}, "
            f"and here it is {uid or 'unknown'}",
            hint="name the etcd or the snapshot that was scanned, or scan this one",
        )
    return ResolvedScope(request.scope, [KeyRange(key, exact=True) for key in sorted(report.findings)])


class _Look:
    """Finds what is sought; ``by_history``: what the datastore keeps of an object is asked for one by one."""

    def __init__(
        self, source: Source, request: CopiesRequest, examiner: Examiner, ranges: Sequence[KeyRange]
    ) -> None:
        self._source = source
        self._request = request
        self._examiner = examiner
        self._ranges = ranges
        self._wanted = Wanted(ranges)
        named = request.report is None
        self._named = {wanted.prefix for wanted in ranges if wanted.exact} if named else set()
        self._unseen = {wanted.prefix for wanted in ranges if wanted.exact}
        # Values that are named, each of which is wanted: what is plain comes as counts, what an interruption leaves
        # does not come at all.
        self._unsaid: dict[bytes, StoredValue] = {}
        file = source.describe().type != "etcd"
        self._only_keys = all(wanted.exact for wanted in ranges)
        self.by_history = file or (self._only_keys and len(ranges) <= _MOST_HISTORIES)
        self.gathered = Gathered()
        self.problems: list[str] = []
        self.stakes = Stakes(past=request.run.of_the_past or file)
        self.unconfigured = 0
        self.expired = 0
        self.nothing_there = False
        self._seen = False

    def seek(self, progress: Progress, jobs: Jobs) -> Ending:
        """Look at everything in scope, and take note of what is sought."""
        if not self._only_keys or not self.by_history:
            self._know(progress)
        denied: list[bytes] = []
        values = self.gathered.noting_deleted(
            self._noting_named(values_in(self._source, self._ranges, denied)),
            lambda: not self._source.problems,
            self._deleted,
        )
        helpers = Helpers(self._examiner, self._request, self._source, jobs) if jobs != 1 else None
        ending = examine_all(
            self._examiner,
            paged(values),
            self._take,
            plain=self._take_plain,
            helpers=helpers,
            targets=searched_for(self._ranges),
            progress=progress,
            beyond=beside(self._source, self._request.layout, self._ranges),
        )
        for stored in [*self._unsaid.values()]:
            self._take(self._examiner.examine(stored))
        self.problems += [f"lost {display(key)}: permission denied" for key in denied if key in self._named]
        if ending.ended is None:
            for key in sorted(self._unseen.difference(denied)):
                if not self._is_only_a_prefix(key):
                    self.gathered.seek(Sought(key=key))
        if not self._seen and ending.ended is None and not ending.problems:
            self.nothing_there = not has_keys(self._source, self._request.layout)
        if self.unconfigured:
            self.problems.append(
                f"undetermined: {counted(self.unconfigured, 'value')} of which no encryption configuration was given, "
                "or no owner is known; they are not looked for"
            )
        return ending

    def know_deleted(self, log: LogPlace) -> None:
        """Take note of the etcd keys that a log says were deleted."""
        for key in log.deleted(b""):
            if key in self._wanted:
                self.gathered.know_key(key)

    def _know(self, progress: Progress) -> None:
        """Take note of every value that the datastore keeps besides the present ones; a file yields them again."""
        try:
            for stored in progress(self._source.superseded(), "earlier values", 0):
                if stored.key in self._wanted:
                    self.gathered.know(stored, again=self.by_history)
        except SourceError as exc:
            self.problems.append(f"earlier values could not be read to their end: {exc.message}")

    def _noting_named(self, values: Iterator[StoredValue]) -> Iterator[StoredValue]:
        for stored in values:
            self._unseen.discard(stored.key)
            if stored.key in self._named:
                self._unsaid[stored.key] = stored
            yield stored

    def _take_plain(self, _counts: Sequence[PlainCount]) -> None:
        self._seen = True

    def _take(self, found: Examination, _view: View | None = None) -> None:
        key, verdict = found.stored.key, found.verdict
        self._unsaid.pop(key, None)
        if verdict.outcome is Outcome.NOT_AN_OBJECT and key not in self._named:
            return
        self._seen = True
        if verdict.outcome not in FAILED and key not in self._named:
            if verdict.outcome is not Outcome.UNDETERMINED:
                return
            if verdict.cause in _NOT_SOUGHT:
                self.unconfigured += 1
                return
        if verdict.outcome in {*FAILED, Outcome.UNDETERMINED}:
            self.stakes.add(found)
        stored = found.stored
        bare = msgspec.structs.replace(found, stored=msgspec.structs.replace(stored, value=b""), decoded=None)
        sought = Sought(key=stored.key, found=bare, value_sha256=digest_of(stored.value), uid=uid_of(found))
        self.gathered.seek(sought)

    def _deleted(self, key: bytes, leased: bool) -> None:
        directory, _shared = self._examiner.layout.locate(key)
        if directory.codec is StorageCodec.NOT_AN_OBJECT and key not in self._unseen:
            return
        if leased and key not in self._unseen:  # events, above all: nobody deleted them
            self.expired += 1
            return
        self._unseen.discard(key)
        self.gathered.seek(Sought(key=key))

    def _is_only_a_prefix(self, key: bytes) -> bool:
        """Say whether a word that names no etcd key names others below it: then it was meant as a prefix."""
        below = key + b"/"
        if below not in self._wanted:
            return False
        there = next(iter(self._source.current(below)), None)
        return there is not None or self.gathered.knows_below(below)


def _report(
    source: Source,
    request: CopiesRequest,
    uid: str | None,
    look: _Look,
    search: Search,
    assessor: Assessor,
    problems: list[str],
) -> CopiesReport:
    gathered = look.gathered

    def objects() -> Iterator[ObjectCopies]:
        yield from map(assessor.assess, gathered.objects())

    states: Counter[ObjectState] = Counter()
    good = doubtful = 0
    first: Remedy | None = None
    for each in gathered.objects():
        found, one = each.sought.found, assessor.assess(each)
        states[one.state] += 1
        good += one.good > 0
        doubtful += not one.good and one.doubtful > 0
        if first is None and (one.good or (found is not None and found.repair is not None)):
            first = one.next
    reasons = [*dict.fromkeys(problems)]
    undetermined = states[ObjectState.UNDETERMINED]
    if undetermined:
        reasons.append(f"undetermined: {counted(undetermined, 'object')}")
    return CopiesReport(
        **report_origin(source.describe(), request.configuration, uid),
        scope=shown_scope(request.scope, request, limited_to=source.describe().limited_to),
        places=search.places,
        count=states.total(),
        unreadable=states[ObjectState.UNREADABLE],
        undetermined=undetermined,
        deleted=states[ObjectState.DELETED],
        with_good_copy=good,
        with_doubtful_copy=doubtful,
        without_copy=states.total() - good - doubtful,
        expired=look.expired,
        at_stake=look.stakes.at_stake,
        do_not_restart=look.stakes.do_not_restart,
        next=first,
        complete=not reasons,
        incomplete_reasons=reasons,
        objects=Rows(states.total(), objects),
    )
