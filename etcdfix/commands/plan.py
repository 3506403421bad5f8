"""From a scan report to a reviewed list: one pass over everything, then one look at each broken object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Final

import msgspec

from etcdfix.commands.planning.extraction import PLAN_EXTRACTION, PlanExtract, setup_of
from etcdfix.commands.planning.gather import Broken, Gathered
from etcdfix.commands.planning.steps import (
    STAGES,
    in_order,
    is_breaking,
    kms_step,
    steps_for,
    users_of,
    what_it_is,
)
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.errors import ConfigurationError, EndedEarly
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, View, examine_all, no_progress
from etcdfix.examine_jobs import Extracted, Helpers, Jobs
from etcdfix.graph.assess import assess
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action
from etcdfix.graph.recreation import Neighbours, Place, who_recreates
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.maybe_newer import SimilarValues
from etcdfix.model import Outcome, Repair
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.report.advice.change import repair_risks
from etcdfix.report.model import API_VERSION
from etcdfix.report.origin import TOOL, shown_configuration, shown_word, timestamp
from etcdfix.report.plan import DeletionPlan, PlanGroup, PlanMaker, PlanReport, PlanSource
from etcdfix.report.plan_entry import PlanEntry, decision_on, declaration
from etcdfix.report.planfile import sealed
from etcdfix.report.rows import Rows
from etcdfix.report.saved_report import SavedReport
from etcdfix.rules import Rule, acceptance
from etcdfix.sources.base import Indexed, Source
from etcdfix.text.commands import Part, RunOptions, delete
from etcdfix.text.safetext import quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import (
    IDENTITY,
    Deletability,
    deletability_of,
    is_repairable,
)
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import (
    BY_NUMBERS,
    NOT_THE_KEY,
    THE_KEY,
    KeyCounter,
    KeyDoubt,
    Needed,
    needed_for,
)
from etcdfix.verdicts.protected import protected_reason

_MOST_REASONS: Final = 8


def _now() -> datetime:
    return datetime.now(UTC)


class PlanRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what a plan holds.

    Attributes:
        newest: The source is read at its newest revision.
        plan_file: Where the plan will be, for its commands; "" where it is only shown.
    """

    report: SavedReport
    newest: bool = True
    plan_file: str = ""


def build_plan(
    source: Source,
    examiner: Examiner,
    request: PlanRequest,
    *,
    progress: Progress = no_progress,
    now: Callable[[], datetime] = _now,
    jobs: Jobs = 1,
    on_ended: Callable[[EndedEarly], object] = bool,
) -> DeletionPlan:
    """Make the plan; one that a signal or ``--timeout`` ends leaves out as undetermined what was not looked at by then.

    The result is the same for any number of jobs.

    Raises:
        KeyboardInterrupt: It was ended before anything was examined.
        ConfigurationError: The report is of another cluster, configuration or storage prefix.
        SourceError: The source cannot be read.
    """
    begun = now()
    request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, source))
    report = request.report
    uid = examiner.kube_system_uid(source)
    _check_same(report, uid, request, examiner)
    reader = ContentReader(examiner)
    keys, similar = KeyCounter(), SimilarValues(examiner)
    places = _places(examiner, report.findings)
    neighbours = Neighbours(places)
    description = source.describe()
    # A live etcd tells of earlier generations only by a watch for each key; a file has them at hand.
    file = description.type != "etcd"
    # Where only the present value is kept, there are none.
    has_earlier = source.has_several if file and isinstance(source, Indexed) else lambda _key: file
    groups = _Groups()
    makers: Counter[tuple[str, str, str]] = Counter()
    builder = IndexBuilder(examiner, source)
    seen = False
    extracted: Extracted[PlanExtract] = Extracted(
        examiner, PLAN_EXTRACTION, setup_of(builder.extraction_setup(), places)
    )
    helpers = Helpers(examiner, request, source, jobs, extracted=extracted) if jobs != 1 else None
    with closing(Gathered(report.findings)) as gathered:

        def take(found: Examination, _view: View) -> None:
            nonlocal seen
            seen = True
            own = extracted.of(found)
            builder.absorb(found, own.object)
            neighbours.absorb(found, own.neighbour)
            keys.add(found)
            similar.absorb(found, own.similarity)
            gathered.take(found, own.similarity)

        ended: EndedEarly | None = None
        problems = list(report.problems)
        entries: Sequence[PlanEntry] = ()

        def drafts(write: _Writer) -> Iterator[PlanEntry]:
            nonlocal ended
            for one in progress(gathered.broken(similar), "broken objects", gathered.broken_count):
                try:
                    entry = write.draft(one)
                except KeyboardInterrupt as exc:
                    ended = EndedEarly.of(exc)
                    gathered.leave_out_rest(one)
                    return
                groups.add(one)
                makers[entry.recreated_by, entry.comes_back, entry.recreate_how] += 1
                yield entry

        try:
            ending = examine_all(
                examiner, source.pages(b""), take, helpers=helpers, progress=progress, whole=True
            )
            gathered.leave_out_unseen(source.problems)
            index = builder.finish(source.problems)
            readable = ReadableRevisions.of_many(source, examiner, live=not file)
            # A deletion refuses a plan that cannot say which cluster it is of.
            named = f" {quote_command(['--plan', request.plan_file])}" if request.plan_file and uid else ""
            write = _Writer(
                index, source, examiner, reader, neighbours, keys, request, has_earlier, readable,
                named,
            )  # fmt: skip
            entries = in_order(drafts(write))
        except KeyboardInterrupt as exc:
            if not seen or ended is not None:
                raise
            ended = EndedEarly.of(exc)
            gathered.leave_out_all()
            groups, makers = _Groups(), Counter()
            problems += source.problems
        else:
            problems += dict.fromkeys([*source.problems, *index.problems, *ending.lost])
            if index.opaque:
                problems.append(f"{index.opaque} objects cannot be looked into")
            if index.truncated:
                problems.append(f"{index.truncated} objects have more references than are followed")
    if ended is not None:
        problems.append(f"{ended.reason} before the end")
        on_ended(ended)
    published_groups = groups.published(keys, request.run)
    steps = steps_for(entries, published_groups, shown_word(report.path), request.run)
    plan = DeletionPlan(
        api_version=API_VERSION,
        kind=PLAN_KIND,
        tool=TOOL,
        generated_at=timestamp(begun),
        source=PlanSource(
            description.type,
            shown_word(description.path) if description.path is not None else None,
            list(description.endpoints) if description.endpoints is not None else None,
            description.revision,
            request.newest and not file,
            description.cluster_id,
        ),
        kube_system_uid=uid,
        encryption_config=shown_configuration(request.configuration),
        etcd_prefix=examiner.layout.prefix.rstrip("/") or "/",
        kubernetes_version=examiner.assumed_release or None,
        report=PlanReport(shown_word(report.path), report.sha256, report.generated_at),
        complete=not problems,
        incomplete_reasons=problems,
        groups=published_groups,
        recreated_by=_makers(makers),
        steps=steps,
        not_in_report=gathered.not_in_report,
        left_out=gathered.left_out(),
        entries=entries,
        decisions=Rows(len(entries), lambda: map(decision_on, entries)),
    )
    return sealed(plan)


def _check_same(report: SavedReport, uid: str | None, request: PlanRequest, examiner: Examiner) -> None:
    """Refuse a report that speaks of something else."""
    if report.source.kube_system_uid != uid:
        raise ConfigurationError(
            f"the report is of the cluster whose kube-system has uid {report.source.kube_system_uid or 'unknown'}, "
            f"and here it is {uid or 'unknown'}",
            hint="name the etcd or the snapshot that was scanned, or scan this one",
        )
    theirs = report.encryption_config.sha256 if report.encryption_config is not None else "none"
    ours, name = "none", "here it"
    if request.configuration is not None:
        ours, name = request.configuration.sha256, request.configuration.path
    if theirs != ours:
        raise ConfigurationError(
            f"the report was made with the encryption configuration {theirs}, and {name} is {ours}",
            hint="scan again with the configuration that the API servers have now",
        )
    here = examiner.layout.prefix.rstrip("/") or "/"
    if report.scope.etcd_prefix != here:
        raise ConfigurationError(
            f"the report is of keys below {report.scope.etcd_prefix}, and here they are below {here}",
            hint=quote_command(["--etcd-prefix", report.scope.etcd_prefix]),
        )


def _places(examiner: Examiner, keys: Iterable[bytes]) -> set[Place]:
    places: set[Place] = set()
    match: bytes | tuple[()] = ()
    for key in keys:
        if not key.startswith(match):  # as for an examination, one directory after the other
            reader = examiner.readers.reader_for(key)
            match = reader.match
        where = examiner.layout.split(key, reader.directory, reader.shared, namespaced=reader.namespaced)
        places.add(Place(reader.directory.path, where.namespace))
    return places


class _Terms(msgspec.Struct, frozen=True):
    """What the deletion of an object asks for beyond its command, and why it is refused; "" where it is not."""

    needs: list[str]
    refused: str


class _Writer(msgspec.Struct, frozen=True):
    """Looks at one broken object after the other."""

    index: ImpactIndex
    source: Source
    examiner: Examiner
    reader: ContentReader
    neighbours: Neighbours
    keys: KeyCounter
    request: PlanRequest
    generations: Callable[[bytes], bool]
    readable: ReadableRevisions
    naming_plan: str
    terms_of_kind: dict[int, _Terms] = msgspec.field(default_factory=dict)

    def draft(self, broken: Broken) -> PlanEntry:
        """Return the entry of one object, without its turn."""
        found = broken.found
        stored = found.stored
        index = self.index
        node = index.find(stored.key)
        assert node is not None  # it was added
        assessment = assess(
            index,
            self.source,
            self.examiner,
            stored.key,
            reader=self.reader,
            generations=self.generations(stored.key),
            closed=stored if broken.closed else None,
        )
        assert assessment is not None  # same
        recreation = who_recreates(index, node, self.neighbours, assessment)
        users, stopped = users_of(assessment)
        cause = found.verdict.cause
        terms = self._terms_of(broken)
        repair = found.repair if is_repairable(found) else None
        entry = PlanEntry(
            order=0,
            key=assessment.object.key,
            key_base64=assessment.object.key_base64,
            group=found.directory.group,
            resource=found.directory.resource,
            namespace=found.namespace,
            name=found.name,
            mod_revision=stored.mod_revision,
            value_sha256=broken.value_sha256,
            outcome=found.verdict.outcome.value,
            cause=cause.value if cause is not None else "",
            transformer=found.transformer,
            kms_key_id_sha256=found.kms_key_id_sha256,
            what=what_it_is(assessment, recreation),
            users=users,
            users_stopped=stopped,
            cascade=assessment.collection.counts[Action.CASCADE_DELETED],
            recreated_by=recreation.recreated_by.name,
            recreate_confidence=recreation.confidence.value if recreation.confidence is not None else None,
            comes_back=recreation.recreated_by.comes_back.value,
            recreate_basis=recreation.basis,
            recreate_how=recreation.recreated_by.how,
            readable_revision=assessment.last_known.readable_at or self._sought(found),
            protected=protected_reason(found.directory.group_resource, found.namespace),
            risk=assessment.risk.value,
            reasons=list(assessment.reasons[:_MOST_REASONS]),
            needs=terms.needs,
            refused=terms.refused,
            command=self._command(found),
            repair=repair.words if repair is not None else "",
            repair_needs=_needs_of_repair(found, repair) if repair is not None else [],
        )
        if is_breaking(entry):
            entry = msgspec.structs.replace(entry, needs=[*entry.needs, acceptance(Rule.CLUSTER_BREAKING)])
        return entry

    def _terms_of(self, broken: Broken) -> _Terms:
        terms = self.terms_of_kind.get(broken.kind) if broken.kind is not None else None
        if terms is None:
            found = broken.found
            doubts = self.keys.doubts_about(found)
            needed = needed_for(found, doubts)
            refused = _advice(found, doubts, needed, self.request.run) if needed.refused else ""
            terms = _Terms(_needs(found, needed), refused)
            if broken.kind is not None:
                self.terms_of_kind[broken.kind] = terms
        return terms

    def _sought(self, found: Examination) -> int:
        revision = self.readable.of(found).revision
        return revision.at if revision and revision.same_object and not revision.leased else 0

    def _command(self, found: Examination) -> str:
        command = delete(found.stored.key).line(self.request.run)
        if not command:
            return ""
        possible = found.verdict.damage is Damage.POSSIBLE
        asking = f" {quote_command(self.request.run.part(Part.ASKING))}" if possible else ""
        return f"{command} --expect-mod-revision {found.stored.mod_revision}{asking}{self.naming_plan}"


class _Group(msgspec.Struct):
    """Broken objects with one cause under one encryption key: the first of them, and how many there are."""

    first: Examination
    count: int = 0


class _Groups:
    """Counts broken objects as they pass."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Outcome, Cause | None, tuple[KeyName, ...]], _Group] = {}
        self._of_kind: dict[int, _Group] = {}

    def add(self, broken: Broken) -> None:
        """Count one."""
        group = self._of_kind.get(broken.kind) if broken.kind is not None else None
        if group is None:
            found = broken.found
            place = (found.verdict.outcome, found.verdict.cause, found.encryption_keys)
            group = self._groups.setdefault(place, _Group(found))
            if broken.kind is not None:
                self._of_kind[broken.kind] = group
        group.count += 1

    def published(self, keys: KeyCounter, run: RunOptions) -> list[PlanGroup]:
        """Return the groups, the largest first."""
        groups = []
        for group in sorted(self._groups.values(), key=lambda group: -group.count):
            first = group.first
            doubts = keys.doubts_about(first)
            needed = needed_for(first, doubts)
            flag = declaration(first.transformer, first.kms_key_id_sha256) if needed.declaration else ""
            groups.append(
                PlanGroup(
                    first.verdict.outcome.value,
                    first.verdict.cause.value if first.verdict.cause else "",
                    first.transformer,
                    first.rule,
                    first.kms_key_id_sha256,
                    group.count,
                    max(keys.of(name).opened for name in first.encryption_keys),
                    doubts != {KeyDoubt.NONE},
                    _advice(first, doubts, needed, run),
                    flag,
                )
            )
        return groups


def _needs(found: Examination, needed: Needed) -> list[str]:
    declared = [declaration(found.transformer, found.kms_key_id_sha256)] if needed.declaration else []
    return [*declared, *map(acceptance, needed.risks)]


def _needs_of_repair(found: Examination, repair: Repair) -> list[str]:
    return [acceptance(rule) for rule in repair_risks(found, repair) if rule is not Rule.CLUSTER_BREAKING]


def _advice(found: Examination, doubts: frozenset[KeyDoubt], needed: Needed, run: RunOptions) -> str:
    key = bool(doubts & THE_KEY)
    gone = "it"
    if needed.declaration:
        if found.verdict.outcome is Outcome.UNDETERMINED:
            text = kms_step(found.verdict.cause, run).action
            text, gone = f"nothing is proven: {text[0].lower()}{text[1:]}", "the key"
        elif deletability_of(found) is Deletability.DECLARABLE:
            text = "the configuration alone can cure this: find the key"
        elif KeyDoubt.IN_BETWEEN in doubts and not doubts & BY_NUMBERS:
            text = "the key may have had other bytes for a time: find them"
        else:
            text = "that is the key, not the objects: find it"
        return (
            f"{text}; only if {gone} is gone for ever: "
            f"{declaration(found.transformer, found.kms_key_id_sha256)}"
        )
    if key and found.transformer in {IDENTITY, ""}:
        return "many values do not open, and no key is to blame: find out what wrote them"
    if key:
        return "many values under its key do not open, and the key is there: find out why first"
    if doubts & NOT_THE_KEY:
        return "something happened to many values: find out what before anything is deleted"
    return ""


def _makers(counts: Counter[tuple[str, str, str]]) -> list[PlanMaker]:
    return [
        PlanMaker(name, comes_back, count, how)
        for (name, comes_back, how), count in sorted(
            counts.items(), key=lambda item: (STAGES[item[0][1]], -item[1], item[0])
        )
    ]
