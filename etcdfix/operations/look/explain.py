"""All that is known of one etcd key: its bytes, every attempt at them, what that rules out, and the ways out.

The values of the same resource are examined once, as a scan does it: what lies beside a value decides whether it is the
value or its encryption key that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.model import Sameness, Wanted
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, open_finders, problems_of
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Ending, Examining, Progress, View, examine_all, no_progress
from etcdfix.model import ClusterIdentity, Outcome, ReadableRevision, StoredValue
from etcdfix.operations.look.explain_parts import (
    attempts_on,
    damage_of,
    layout_of,
    repair_shown,
    with_repair,
)
from etcdfix.operations.look.history import KeyLook, kept_revisions
from etcdfix.readable_revision import ReadableRevisions, Sought
from etcdfix.remediation.offers import first_of, offers, ways_at_hand
from etcdfix.report.advice.change import Beside
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.advice.ways import WayKind, first_way, other_copies
from etcdfix.report.explain import ExplainReport, KeptRevisions, NotTheCause, Siblings
from etcdfix.report.finding import finding_from
from etcdfix.report.head import stakes_of
from etcdfix.report.origin import report_origin
from etcdfix.sources.base import Source
from etcdfix.sources.pages import ValuesPage
from etcdfix.storagekey import display
from etcdfix.text import commands
from etcdfix.text.commands import Command
from etcdfix.text.safetext import key_base64, key_word
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import FAILED, IDENTITY, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import THE_KEY, KeyCounter, KeyDoubt
from etcdfix.verdicts.observation import Observation
from etcdfix.verdicts.ruled_out import ruled_out

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_PLAIN_ENOUGH: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})
"""Of these nothing beside them tells more."""


class ExplainRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is told of a complete etcd key."""

    key: bytes


class _Beside(msgspec.Struct):
    """What the values under one encryption key came to."""

    keys: int = 0
    first: int = 0
    last: int = 0
    newest_opened: tuple[int, bytes] = (0, b"")

    def add(self, found: Examination) -> None:
        revision = found.stored.mod_revision
        self.keys += 1
        self.first = min(self.first or revision, revision)
        self.last = max(self.last, revision)
        if found.opened and found.verdict.outcome not in FAILED and revision > self.newest_opened[0]:
            self.newest_opened = (revision, found.stored.key)


class _Look:
    """Takes the values of a resource as they pass: the one in question, and what is under its encryption keys."""

    def __init__(self, examiner: Examiner, first: Examination) -> None:
        self._examiner = examiner
        self._names = first.encryption_keys
        self._stored = first.stored
        self._resource = first.directory.path
        self.counter = KeyCounter(first.stored, self._names)
        self._beside = {name: _Beside() for name in self._names}
        self.found: Examination | None = None
        self.seen: Observation | None = None
        self.others_lost = False  # of its kind, their encryption key

    def __call__(self, found: Examination, _view: View) -> None:
        """Take one value."""
        if found.directory.path != self._resource:
            return
        if found.stored.key == self._stored.key:
            self.found, self.seen = found, self._examiner.observation(found)
        elif deletability_of(found) is Deletability.DECLARABLE:
            self.others_lost = True
        self.counter.add(found)
        for name in found.encryption_keys:
            beside = self._beside.get(name)
            if beside is not None:
                beside.add(found)

    def siblings(self) -> Iterator[Siblings]:
        """Yield what the values under each of its encryption keys came to; once all were taken."""
        for name in self._names:
            beside, counts = self._beside[name], self.counter.of(name)
            revision, key = beside.newest_opened
            digest = name.key if name.key.startswith("sha256:") else None
            yield Siblings(
                rule=name.rule,
                transformer=name.transformer,
                key_fingerprint=name.key if name.key and digest is None else None,
                kms_key_id_sha256=digest,
                keys=beside.keys,
                opened=counts.opened,
                failed=counts.failed,
                damaged=counts.damaged,
                undetermined=counts.undetermined,
                first_mod_revision=beside.first,
                last_mod_revision=beside.last,
                newest_opened=display(key) if revision else None,
                doubt=self._doubt(name).value,
            )

    def _doubt(self, name: KeyName) -> KeyDoubt:
        found = self.found
        if found is None or name.transformer == IDENTITY or found.verdict.outcome not in FAILED:
            return KeyDoubt.NONE
        return min(self.counter.doubts_about(found), default=KeyDoubt.NONE)


def explain_key(
    source: Source,
    request: ExplainRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> KeyLook[ExplainReport]:
    """Say all that is known of one key, stored or deleted.

    Raises:
        SourceError: Nothing could be read.
    """
    stored = source.get(request.key)
    examiner = Examiner.of_cluster(source, request, plugins)
    uid = examiner.kube_system_uid(source)
    if stored is None:
        return _gone(source, request, examiner, uid, progress)
    found = examiner.examine(stored)
    look = _Look(examiner, found)
    ended: EndedEarly | None = None
    lost: list[str] = []
    if found.verdict.outcome not in _PLAIN_ENOUGH:
        ended, lost = _look_beside(source, examiner, look, stored, progress)
        found = look.found if look.found is not None else found
    seen = look.seen if look.seen is not None else examiner.observation(found)
    problems = [*source.problems, *lost]
    report = _report(source, request, examiner, look, found, seen, uid, problems, ended)
    return KeyLook(report, problems, ended)


def _look_beside(
    source: Source, examiner: Examiner, look: _Look, stored: StoredValue, progress: Progress
) -> tuple[EndedEarly | None, list[str]]:
    """Examine every value of the resource; the one in question alone where it is not among them any more."""
    _, shared = examiner.layout.locate(stored.key)
    try:
        pages = [ValuesPage([stored])] if shared == stored.key else source.pages(shared)
        ending = examine_all(examiner, pages, look, targets=(stored.key,), progress=progress)
        problems = list(ending.problems)
    except SourceError as exc:
        ending, problems = Ending(), [f"the values beside it could not be read: {exc.message}"]
    if ending.ended is not None:
        problems.append(f"{ending.ended.reason} before the end")
    if look.found is None and ending.ended is None:
        if not problems:
            problems.append(
                "the key went while its resource was read: the values beside it are of a later revision"
            )
        with Examining(examiner, targets=(stored.key,)) as run:
            for found in (*run.first([stored]), *run.drain()):
                look(found, View(examiner, run))
    return ending.ended, problems


def _report(
    source: Source,
    request: ExplainRequest,
    examiner: Examiner,
    look: _Look,
    found: Examination,
    seen: Observation | None,
    uid: str | None,
    problems: list[str],
    ended: EndedEarly | None,
) -> ExplainReport:
    run = with_what_it_keeps(request.run, source)
    reasons = list(problems)
    if found.verdict.outcome is Outcome.UNDETERMINED:
        reasons.append(f"undetermined: {found.verdict.message}")
    # Who ended the look does not want to wait for more.
    sought = ReadableRevisions(source, examiner).of(found) if ended is None else Sought(None)
    readable = sought.revision
    kept = _kept(source, request, sought, reasons) if ended is None else None
    found, no_repair = with_repair(examiner, found) if ended is None else (found, "")
    home = found.verdict.belongs_to
    beside = Beside(look.others_lost, home_taken=bool(home) and _is_there(source, home))
    ways = ways_out(found, run, offers=ways_at_hand(found, run, readable), beside=beside)
    withheld = _against_deletion(look, found) if any(way.verb == WayKind.DELETE for way in ways) else ""
    if withheld:
        ways = [way for way in ways if way.verb != WayKind.DELETE]
    finding = finding_from(found, ways)
    stakes = stakes_of([found], past=run.of_the_past)
    offset, field = damage_of(examiner, found)
    siblings = list(look.siblings()) if look.found is not None else []
    others = ruled_out(seen, found.verdict, searched=look.found is not None) if seen is not None else ()
    return ExplainReport(
        **_origin(source, request, uid),
        exists=True,
        at_stake=stakes.at_stake,
        do_not_restart=stakes.do_not_restart,
        next=first_way(ways),
        finding=finding,
        deletion_withheld=withheld,
        layout=layout_of(examiner, found),
        damage_offset=offset,
        damage_field=field,
        attempts=attempts_on(examiner, found, seen),
        ruled_out=[NotTheCause(one.cause.value, one.confidence, one.why) for one in others],
        repair=repair_shown(found),
        no_repair=no_repair,
        siblings=siblings,
        kept=kept,
        cause_page=Command(("etcdfix", "explain", finding.cause)) if finding.cause else None,
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def _is_there(source: Source, key: bytes) -> bool:
    try:
        return source.get(key) is not None
    except SourceError:  # nobody knows: what is printed says when it holds
        return False


def _origin(source: Source, request: ExplainRequest, uid: str | None) -> dict[str, Any]:
    origin = report_origin(source.describe(), request.configuration, uid)
    return {**origin, "key": display(request.key), "key_base64": key_base64(request.key)}


def _kept(
    source: Source, request: ExplainRequest, sought: Sought, reasons: list[str]
) -> KeptRevisions | None:
    """Count what is kept of the key, up to the revision that is read."""
    count = deletions = oldest = newest = 0
    try:
        for kept in kept_revisions(source, request.key):
            count += 1
            deletions += kept.stored is None
            newest = kept.revision.main
            oldest = oldest or newest
    except SourceError as exc:
        reasons.append(f"the history could not be read to its end: {exc.message}")
    if not count:
        return None
    return KeptRevisions(
        count=count,
        deletions=deletions,
        oldest_mod_revision=oldest,
        newest_mod_revision=newest,
        newest_readable=sought.revision,
        not_sought=sought.not_sought,
        command=commands.look("history", key_word(request.key)),
    )


def _against_deletion(look: _Look, found: Examination) -> str:
    """Say why the values beside a value speak against its deletion, which would be refused; "" where they do not."""
    if look.found is None or not look.counter.doubts_about(found) & THE_KEY:
        return ""
    counts = [look.counter.of(name) for name in found.encryption_keys]
    failed, opened = (max(each) for each in zip(*((c.failed, c.opened) for c in counts), strict=True))
    return (
        f"{failed} of {failed + opened} values of the resource under its encryption key cannot be read: that points at "
        "the key or the configuration, and a deletion would be refused"
    )


def _gone(
    source: Source, request: ExplainRequest, examiner: Examiner, uid: str | None, progress: Progress
) -> KeyLook[ExplainReport]:
    """Say what is kept of a key that holds nothing."""
    ended: EndedEarly | None = None
    reasons: list[str] = []
    kept: KeptRevisions | None = None
    wanted, copies = Wanted.gone(request.key, request.layout), []
    identity = ClusterIdentity.by_uid(uid or "")
    with open_finders(source, examiner, Places(progress=progress), uid=uid, identity=identity) as finders:
        try:
            kept = _kept(source, request, Sought(None), reasons)
            wanted = Wanted.gone(request.key, request.layout, life_of(source, examiner, request.key, None))
            copies = copies_of(wanted, finders)
        except SourceError as exc:
            reasons.append(f"the history could not be read to its end: {exc.message}")
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
            reasons.append(f"{ended.reason} before the end")
    first = first_of(offers(copies, wanted, request.run), request.key)
    reads = next((copy for copy in copies if copy.reads), None)
    readable = (
        ReadableRevision(
            reads.mod_revision, reads.mod_revision, reads.same_object is Sameness.SAME, bool(reads.lease)
        )
        if reads is not None
        else None
    )
    reasons += [*source.problems, *problems_of(finders)]
    undetermined = sum(copy.outcome is Outcome.UNDETERMINED for copy in copies)
    if undetermined:
        reasons.append(f"undetermined: {counted(undetermined, 'revision')}")
    if kept is None:
        return KeyLook(None, reasons, ended)
    report = ExplainReport(
        **_origin(source, request, uid),
        exists=False,
        deleted_at=kept.newest_mod_revision,
        next=first,
        kept=msgspec.structs.replace(kept, newest_readable=readable),
        remedies_when_gone=[
            *([first] if first is not None else []),
            other_copies(key_word(request.key)),
        ],
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return KeyLook(report, reasons, ended)
