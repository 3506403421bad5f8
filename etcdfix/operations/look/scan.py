"""The main job: examine everything in scope and report it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from etcdfix.claims import KEY_NAME_CHECK, PREDECESSOR_CHECK
from etcdfix.encryption.envelope import transformer_name
from etcdfix.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.examine import PLAIN, Examiner, Reading
from etcdfix.examine_all import Beyond, Progress, View, examine_all, no_progress
from etcdfix.examine_jobs import Helpers, Jobs, started_early
from etcdfix.interruptions import interruptions_held
from etcdfix.model import Evidence, Outcome, ReadableRevision, ServerBehaviour, key_id_digest
from etcdfix.operations.look.concluding import conclude
from etcdfix.operations.look.encryption.bootstrap_values import with_what_it_keeps
from etcdfix.operations.look.in_scope import pages_in, shown_scope
from etcdfix.operations.look.shards import ShardRequest, beyond, pages_of, shown_shard, span_of
from etcdfix.readable_revision import ReadableRevisions, Sought
from etcdfix.reports.alike import Alike, OneOfMany, shown_digest, with_evidence
from etcdfix.reports.base import Reporter
from etcdfix.reports.baseline import Baseline
from etcdfix.reports.earlier_revision import readable_way
from etcdfix.reports.finding import finding_from, is_finding, status_cause
from etcdfix.reports.first_step import FirstStep
from etcdfix.reports.key_loss import KeyLosses, Place, places_of
from etcdfix.reports.model import (
    Conclusion,
    Finding,
    Header,
    KMSPluginSummary,
    KMSSummary,
    MayBeLost,
    Remedy,
    Shard,
    Summary,
)
from etcdfix.reports.next_steps import first_way_out
from etcdfix.reports.origin import TOOL, shown_configuration, shown_source, shown_word, timestamp
from etcdfix.reports.remedies import ways_out
from etcdfix.reports.shard import Seen, ShardPart
from etcdfix.reports.tally import CAP, Tally
from etcdfix.reports.ways import Way, WayKind
from etcdfix.scope import KeyRange, ScopeRequest, resolve_scope
from etcdfix.sources.base import Divisible, Source, has_keys
from etcdfix.sources.pages import Page
from etcdfix.spool import Spool
from etcdfix.storagekey import ResourcePrefix, StorageLayout, display, likely_prefix, likely_prefixes
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.judge import Verdict
from etcdfix.verdicts.kinds import MOST_KINDS, may_be_one_of_many
from etcdfix.verdicts.severity import Rank, stake_of

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

T = TypeVar("T")

FAILING: Final = (
    Outcome.DECRYPT_FAILURE,
    Outcome.DECODE_FAILURE,
    Outcome.INCONSISTENT,
    Outcome.UNDETERMINED,
)
"""Outcomes that make the exit code of a scan, if nobody chose among them."""
SAMPLE: Final = 200
"""So many keys that hold no object tell where the others may be."""
# Causes of a value that may lie under a name that is not its own.
_NAME_IN_DOUBT = frozenset(
    {
        Cause.IDENTITY_MISMATCH,
        Cause.VALUE_MOVED,
        Cause.ASSOCIATED_DATA_UNKNOWN,
        Cause.AUTHENTICATION_FAILED,
        Cause.OWNER_UNKNOWN,
    }
)
# Each is a question to etcd; of many keys in one state, these tell enough.
_MOST_PREDECESSORS = 1000
_ENDED: Final = Sought(None, "the scan was ended early")
_READABLE_CHECK = "earlier-revision"
_MERGE = Remedy(
    "Merge the reports of all shards: only the whole tells what to do first",
    "etcdfix report merge shard-*.json",
    "For this the report has to be saved with -o json or -o jsonl.",
)


class ScanRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what a scan looks at and how.

    Attributes:
        scope: Resources, prefixes, namespaces.
        max_causes: Cap of each Status.
        baseline: Findings that are known already.
        same_again: Options that a command in a remedy must repeat.
        reveal_key_ids: Show KMS key ids themselves beside their digests.
        shard: Only this part of it, for ``report merge``; None for all of it.
    """

    scope: ScopeRequest = msgspec.field(default_factory=ScopeRequest)
    max_causes: int = CAP
    baseline: Baseline | None = None
    same_again: RepeatedOptions = msgspec.field(default_factory=RepeatedOptions)
    reveal_key_ids: bool = False
    shard: ShardRequest | None = None


class ScanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan came to.

    Attributes:
        summary: All counts.
        complete: Everything in scope was seen and decided.
        new: Unhealthy and undetermined keys that the baseline does not know, by outcome.
        problems: Why the source could not show everything; empty when it could.
        denied: Keys outside the storage prefix that were named and may not be read.
        below_prefix: Whether any key at all lies below the storage prefix.
        nothing_named_exists: Keys, key prefixes or namespaces were named, and none of them exists.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
        ended: What ended it early; None where nothing did.
    """

    summary: Summary
    complete: bool
    new: dict[Outcome, int]
    problems: list[str]
    below_prefix: bool
    nothing_named_exists: bool
    suggested_prefixes: list[str]
    ended: EndedEarly | None = None
    denied: list[str] = msgspec.field(default_factory=list)


class _Held(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A finding that waits for its turn, or for the word on its encryption key: findings stand in key order.

    Attributes:
        rank: How bad it is, the worst lowest; None where nothing is proven wrong.
        first: Its first way out; None for none.
        first_of_many: The same where so many fail together that none may be written over.
        lost_with: Of a shard: encryption keys whose loss may be why the value does not open.
    """

    key: bytes
    directory: ResourcePrefix
    finding: Finding
    rank: Rank | None = None
    first: Remedy | None = None
    first_of_many: Remedy | None = None
    lost_with: tuple[Place, ...] = ()


_Waiting = _Held | OneOfMany


class _Gathering:
    """What comes out of the examinations: counts, findings for the reporter, and what the exit code needs."""

    def __init__(self, source: Source, examiner: Examiner, request: ScanRequest, reporter: Reporter) -> None:
        self._source = source
        live = not request.same_again.of_a_file
        self._readable = ReadableRevisions.of_many(source, examiner, live=live)
        self.readable_revisions = 0
        self.readable_not_sought = 0
        self._predecessors_asked = 0
        self._trees: dict[bytes, bool] = {}
        namespace = request.scope.namespaces[0] if len(request.scope.namespaces) == 1 else ""
        self.tally = Tally(
            past=request.same_again.of_the_past or source.describe().type != "etcd",
            max_causes=request.max_causes,
            list_prefix=_list_prefix(request.layout, namespace),
            reveal_key_ids=request.reveal_key_ids,
        )
        self.not_object_sample: list[bytes] = []
        self.new = dict.fromkeys(FAILING, 0)
        self._request = request
        self._reporter = reporter
        self._held: Spool[_Waiting] = Spool(_Waiting)
        self.out_of_order = False
        self._losses = KeyLosses(request.same_again)
        # From the first finding on that may belong to a lost key: whether it is lost is known at the end.
        self._undecided: Spool[_Waiting] = Spool(_Waiting)
        # Of a shard nobody knows at its end either.
        self._deciding = request.shard is None
        self._alike = Alike()
        self._with_told: dict[tuple[Verdict, Evidence], Verdict] = {}
        self._first_step = FirstStep()
        self.findings = 0

    def close(self) -> None:
        """Forget what was held back."""
        self._held.close()
        self._undecided.close()

    def report_until(self, key: bytes | None) -> None:
        """Report the findings that were held back, those with keys before this one; None for all."""
        while self._held.count:
            held = self._held.peek()
            if key is not None and held.key > key:
                return
            self._held.drop()
            self._report(held)

    def _report(self, held: _Waiting) -> None:
        if self._deciding and (isinstance(held, OneOfMany) or self._undecided.count):
            try:
                self._undecided.append(held)
            except OSError:  # then each keeps its own remedies, which hold all the same
                self._deciding = False
                self._decide(())
            else:
                return
        self._publish(self._whole(held))

    def _decide(self, lost: Collection[Place]) -> None:
        """Publish what waited; what belongs to a lost key has no remedies of its own."""
        kinds = self._alike.kinds_of(lost)
        listed = set(kinds)
        for held in self._undecided.drain():
            if isinstance(held, OneOfMany) and held.kind in kinds:
                finding, shared = self._alike.published(held)
                if held.kind in listed and not self._list_cause(self._alike.directory(held.kind), finding):
                    listed.discard(held.kind)  # no other one of its kind will be
                self._reporter.finding_of_lost_key(finding, shared)
            else:
                self._publish(self._whole(held))

    def _whole(self, held: _Waiting) -> _Held:
        """Return a finding with the remedies of its value alone."""
        if isinstance(held, _Held):
            return held
        whole = self._held_of(self._alike.examination(held), held.readable, baseline=held.baseline)
        finding = msgspec.structs.replace(
            whole.finding, value_size=held.value_size, value_sha256=shown_digest(held)
        )
        return msgspec.structs.replace(whole, finding=finding)

    def _list_cause(self, directory: ResourcePrefix, finding: Finding) -> bool:
        """List what the API server would show for a finding; say whether it could show any more like it."""
        if finding.apiserver != ServerBehaviour.CORRUPT or not self.tally.lists_more(directory):
            return False
        shown = status_cause(finding)
        if shown is not None:
            self.tally.list_cause(directory, shown)
        return True

    def _publish(self, held: _Held) -> None:
        finding = held.finding
        self._list_cause(held.directory, finding)
        if held.rank is not None and finding.remedies:
            self._first_step.add(finding, held.rank, held.first, held.first_of_many, held.lost_with)
        self.findings += 1
        self._reporter.finding(finding)

    def end(self) -> tuple[Summary, Remedy | None]:
        """Publish all that waited; return all counts, and the first way out of the worst that is wrong."""
        self.report_until(None)
        for alike in self._alike.counted:
            self.tally.add_more(
                alike.found,
                alike.more,
                first_mod_revision=alike.first_mod_revision,
                last_mod_revision=alike.last_mod_revision,
                first_key=alike.first_key,
            )
        summary = self.tally.summary()
        lost = self._losses.lost(summary.by_transformer) if self._request.shard is None else {}
        self._decide(lost)
        summary.key_loss = [
            msgspec.structs.replace(key.entry, shared=self._alike.shared(place) if self._deciding else [])
            for place, key in lost.items()
        ]
        return summary, self._first_step.way_out(summary, lost)

    def part(self, seen: Seen, sample: Sequence[bytes], *, named: bool) -> ShardPart:
        """Return what a merge needs of this shard.

        Args:
            seen: How far it came.
            sample: Its first keys that hold no object.
            named: Keys or key prefixes were named, or namespaces of which none exists.
        """
        return ShardPart(
            findings=self.findings,
            tally=self.tally.rest(),
            losses=self._losses.rest(),
            urgent=self._first_step.rest(),
            seen=seen,
            named=named,
            prefixes=[] if seen.below_prefix else [likely_prefix(key) for key in sample],
            words=[*map(shown_word, self._request.scope.words)],
            again=_shown(self._request.same_again),
        )

    def take(self, found: Examination, view: View) -> None:
        """Count one examination, and report it where there is something to say.

        A finding is held back while others, with earlier keys, are still open.
        """
        if found.verdict is PLAIN:  # it waited for a plugin
            self.tally.add(found)
            return
        if view.draining and self._held.count and is_finding(found):
            self.report_until(found.stored.key)
        found = self._without_neighbour(found)
        outcome = found.verdict.outcome
        if not is_finding(found):
            self.tally.add(found)
            if outcome is Outcome.NOT_AN_OBJECT and len(self.not_object_sample) < SAMPLE:
                self.not_object_sample.append(found.stored.key)
            return
        baseline = self._request.baseline
        known = baseline is not None and baseline.knows(found)
        if known:
            self.tally.known_findings += 1
        elif outcome in self.new:
            self.new[outcome] += 1
        sought = _ENDED if view.ended else self._readable.of(found)
        record = self._record(found, sought, baseline=known)
        if not view.draining and not self.out_of_order and view.waiting:
            try:
                self._held.append(record)
            except OSError:
                self.out_of_order = True
            else:
                return
        self._report(record)

    def _record(self, found: Examination, sought: Sought, *, baseline: bool) -> _Waiting:
        """Count a finding, and return what is kept of it until it is its turn."""
        own = self._warnings_of_name(found)
        readable = sought.revision
        told = self._told_of_earlier(sought)
        if readable is not None:
            own = (*own, told) if told is not None else own
        elif told is not None:
            found = self._with_more(found, told)
        places, one, new = places_of(found), None, True
        if places and self._deciding:
            one = self._alike.one(found, own=own, readable=readable, baseline=baseline)
            new = one is None or self._alike.is_first(one)
        if new:  # of a kind that is known, all are counted at the end
            self.tally.add(found)
        if places and (new or readable is not None):
            self._note_loss(found, places, readable)
        if one is not None:
            return one
        held = self._held_of(with_evidence(found, own), readable, baseline=baseline)
        if self._request.shard is None or not places or not may_be_one_of_many(found):
            return held
        keys = MayBeLost([key for _, _, key in places], len(own))
        return msgspec.structs.replace(
            held, finding=msgspec.structs.replace(held.finding, may_be_lost=keys), lost_with=places
        )

    def _note_loss(
        self, found: Examination, places: tuple[Place, ...], readable: ReadableRevision | None
    ) -> None:
        stake = stake_of(found)
        saved = None
        if readable is not None:
            saved = readable_way(found, readable, self._request.same_again, refused=True).remedy
        if stake is not None:
            self._losses.add(found, places, stake, saved)

    def _held_of(self, found: Examination, readable: ReadableRevision | None, *, baseline: bool) -> _Held:
        """Return a finding with the remedies of its value alone, whoever else fails."""
        again = self._request.same_again
        ways = ways_out(found, again, readable=readable)
        of_many = ways
        if readable is not None:
            saved = readable_way(found, readable, again, refused=True).remedy
            of_many = [Way(saved, WayKind.SAVE) if way.kind is WayKind.PUT_BACK else way for way in ways]
        stake = stake_of(found)
        return _Held(
            found.stored.key,
            found.directory,
            finding_from(found, ways, baseline=baseline),
            stake.rank if stake is not None else None,
            first_way_out(ways),
            first_way_out(of_many),
        )

    def _without_neighbour(self, found: Examination) -> Examination:
        """Take the warning from a key of a tree of its own: another cluster's prefix may be one bit away from ours."""
        verdict, key = found.verdict, found.stored.key
        if verdict.outcome is not Outcome.NOT_AN_OBJECT or not verdict.evidence:
            return found
        start = key[: len(self._request.layout.prefix_bytes)]
        if start not in self._trees:
            try:
                self._trees[start] = len(list(islice(self._source.current(start), 2))) > 1
            except SourceError:  # as below
                self._trees[start] = True
        if not self._trees[start]:
            return found
        return msgspec.structs.replace(found, verdict=msgspec.structs.replace(verdict, evidence=()))

    def _warnings_of_name(self, found: Examination) -> tuple[Evidence, ...]:
        """Warn of a key whose name nothing bears out: it should have been changed before, and was not."""
        if found.stored.version == 1 or self._predecessors_asked >= _MOST_PREDECESSORS:
            return ()
        verdict = found.verdict
        doubtful = verdict.cause in _NAME_IN_DOUBT or any(e.check == KEY_NAME_CHECK for e in verdict.evidence)
        if not doubtful:
            return ()
        self._predecessors_asked += 1
        try:
            if not self._source.lacks_predecessor(found.stored):
                return ()
        except SourceError:  # the scan itself says what it cannot read
            return ()
        warning = Evidence(
            PREDECESSOR_CHECK,
            "missing",
            f"version {found.stored.version or 'unknown'}, and nothing stood under this name before mod_revision "
            f"{found.stored.mod_revision}: the name of the key itself may be damaged",
        )
        return (warning,)

    def _with_more(self, found: Examination, told: Evidence) -> Examination:
        """Return an examination with what was said of its earlier revisions; of many that is one and the same."""
        place = found.verdict, told
        verdict = self._with_told.get(place)
        if verdict is None:
            verdict = with_evidence(found, (told,)).verdict
            if len(self._with_told) < MOST_KINDS:
                self._with_told[place] = verdict
        return msgspec.structs.replace(found, verdict=verdict)

    def _told_of_earlier(self, sought: Sought) -> Evidence | None:
        """Say whether etcd still keeps an earlier revision of a value that reads, or that this was not looked for."""
        if sought.revision is not None:
            self.readable_revisions += 1
            readable = sought.revision
            return Evidence(
                _READABLE_CHECK,
                "readable" if readable.same_object else "readable, perhaps of another object",
                f"mod_revision {readable.mod_revision} is kept, and stands at revision {readable.at}",
            )
        if not sought.not_sought:
            return None
        self.readable_not_sought += 1
        return Evidence(_READABLE_CHECK, "not looked for", f"{sought.not_sought}; etcdfix explain KEY looks")


def run_scan(
    source: Source,
    request: ScanRequest,
    reporter: Reporter,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> ScanResult:
    """Examine everything in scope and hand it to the reporter.

    Values that wait for a KMS plugin are examined, and reported, after all others.

    Args:
        source: Where the values are.
        request: What to look at.
        reporter: Where the results go.
        plugins: The KMS plugins to ask; None to ask none.
        progress: Counts the values for a display.
        jobs: How many processes examine values; the result is the same for any number.

    Raises:
        ConfigurationError: The scope names something that does not exist.
        SourceError: Nothing could be read.
    """
    everything = request.scope.everything and request.shard is None
    with started_early(source, jobs, everything=everything) as early:
        examiner = Examiner.of_cluster(source, request, plugins)
        ranges = resolve_scope(request.scope, request.layout, examiner.readers.custom_directories())
        cluster = examiner.kube_system_uid(source)
        request = msgspec.structs.replace(request, same_again=with_what_it_keeps(request.same_again, source))
        denied: list[bytes] = []
        pages, others, shard = _what_to_examine(source, ranges, request.shard, denied)
        reporter.begin(_header(source, request, cluster, shard))
        with contextlib.closing(_Gathering(source, examiner, request, reporter)) as gathering:
            tally, not_object_sample = gathering.tally, gathering.not_object_sample
            ending = examine_all(
                examiner,
                pages,
                gathering.take,
                plain=tally.add_plain,
                helpers=Helpers(examiner, request, source, jobs, early=early) if jobs != 1 else None,
                progress=progress,
                beyond=others,
            )
            (summary, first), ended = _uncut(gathering.end, ending.ended)
            midway = ending.problems
    kms = _kms_summary(tally, plugins)
    summary.kms = kms
    summary.readable_revisions = gathering.readable_revisions
    summary.readable_revisions_not_sought = gathering.readable_not_sought
    within = [key for key in denied if key.startswith(request.layout.prefix_bytes)]
    problems = [
        *source.problems,
        *midway,
        *ending.lost,
        *(f"lost {display(key)}: permission denied" for key in within),
    ]
    if gathering.out_of_order:
        problems.append("findings are not all in the order of their keys: no room in the temporary directory")
    # What could not be read is not absent.
    unseen = ended is not None or bool(midway)
    own = list(not_object_sample)
    below = summary.keys > summary.not_objects or unseen or _may_hold_keys(source, request, not_object_sample)
    missing = not summary.keys and not unseen and not problems
    named = missing and (
        bool(request.scope.prefixes or request.scope.keys) or _no_such_namespace(source, request)
    )
    seen = Seen(
        problems=problems,
        ended=ended.reason if ended is not None else "",
        lost_midway=bool(midway),
        below_prefix=below,
        nothing_named_exists=named and request.shard is None,  # it may exist in another shard
        suggested_prefixes=[] if below else likely_prefixes(not_object_sample),
    )
    reasons = conclude(
        summary,
        first,
        seen,
        prefix=request.layout.prefix,
        words=request.scope.words,
        again=request.same_again,
    )
    part = None
    if request.shard is not None:
        part = gathering.part(seen, own, named=named)
        summary.next = _MERGE
    description = source.describe()
    conclusion = Conclusion(
        source=shown_source(description, cluster),
        statuses=tally.statuses(),
        summary=summary,
        complete=not reasons,
        incomplete_reasons=reasons,
        finished_at=timestamp(),
        interrupted=ended is not None,
        part=part,
    )
    _uncut(partial(reporter.end, conclusion), ended)  # what comes too late to be told changes nothing
    return ScanResult(
        summary=summary,
        complete=not reasons,
        new=gathering.new,
        problems=problems,
        below_prefix=below,
        nothing_named_exists=seen.nothing_named_exists,
        suggested_prefixes=seen.suggested_prefixes,
        ended=ended,
        denied=[display(key) for key in denied if key not in within],
    )


def _what_to_examine(
    source: Source, ranges: Sequence[KeyRange], wanted: ShardRequest | None, denied: list[bytes]
) -> tuple[Iterator[Page], Beyond | None, Shard | None]:
    """Return the values to examine, those of other shards that may decide about them, and the shard as reports have it.

    Raises:
        ConfigurationError: A shard was asked for of what may change meanwhile.
    """
    if wanted is None:
        return pages_in(source, ranges, denied), None, None
    if not isinstance(source, Divisible):
        raise ConfigurationError(
            "--shard needs a file: what is read from a live etcd or from kine is not the same for every shard",
            hint="save a snapshot, and divide that: etcdctl snapshot save FILE",
        )
    span = span_of(source, ranges, wanted)
    return pages_of(source, ranges, span), beyond(source, ranges, span), shown_shard(wanted, span)


def _shown(again: RepeatedOptions) -> RepeatedOptions:
    """Return the words of commands as text that JSON can hold."""
    fields = msgspec.structs.asdict(again)
    shown = {
        name: tuple(map(shown_word, words)) for name, words in fields.items() if isinstance(words, tuple)
    }
    return msgspec.structs.replace(again, **shown)


def _uncut(work: Callable[[], T], ended: EndedEarly | None) -> tuple[T, EndedEarly | None]:
    """Do what would leave half a report behind; return also how the command was told to end, before or meanwhile.

    Told a second time, it ends at once.
    """
    if ended is not None:
        return work(), ended
    done: list[T] = []
    try:
        with interruptions_held(only_first=True):
            done.append(work())
    except KeyboardInterrupt as exc:
        if not done:
            raise
        return done[0], EndedEarly.of(exc)
    return done[0], None


def _kms_summary(tally: Tally, plugins: KMSPlugins | None) -> KMSSummary | None:
    keys = tally.kms_keys()
    asked = plugins.reports() if plugins is not None else ()
    if not keys and not asked:
        return None
    return KMSSummary(
        plugins.max_rate if plugins is not None else None,
        [
            KMSPluginSummary(
                transformer_name("kms", plugin.api_version, plugin.name),
                shown_word(plugin.endpoint),
                plugin.state,
                plugin.message,
                plugin.calls,
                plugin.answered,
                plugin.refused,
                plugin.failed,
                key_id_digest(plugin.write_key_id) or None,
            )
            for plugin in asked
        ],
        keys,
    )


def _may_hold_keys(source: Source, request: ScanRequest, not_object_sample: list[bytes]) -> bool:
    """Look whether the storage prefix holds anything or cannot be read; if not, gather keys that tell where."""
    prefix = request.layout.prefix_bytes
    if any(key.startswith(prefix) for key in not_object_sample) or has_keys(source, request.layout):
        return True
    if not not_object_sample:
        not_object_sample += [stored.key for stored in islice(source.current(b""), SAMPLE)]
    return False


def _no_such_namespace(source: Source, request: ScanRequest) -> bool:
    base = request.layout.prefix_bytes + b"namespaces/"
    return bool(request.scope.namespaces) and all(
        source.get(base + namespace.encode("utf-8", "surrogateescape")) is None
        for namespace in request.scope.namespaces
    )


def _list_prefix(layout: StorageLayout, namespace: str) -> Callable[[ResourcePrefix], str]:
    def prefix(directory: ResourcePrefix) -> str:
        base = display(layout.directory_prefix(directory))
        return f"{base}{namespace}/" if namespace and directory.namespaced is not False else base

    return prefix


def _header(source: Source, request: ScanRequest, cluster: str | None, shard: Shard | None) -> Header:
    description = source.describe()
    return Header(
        tool=TOOL,
        generated_at=timestamp(),
        source=shown_source(description, cluster),
        encryption_config=shown_configuration(request.configuration),
        scope=shown_scope(request.scope, request, limited_to=description.limited_to, shard=shard),
        baseline=request.baseline.report if request.baseline is not None else None,
    )
