"""From a scan report to a reviewed list: one pass over everything, then one look at each broken object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from etcdfix.commands.planning.broken import Broken, BrokenObjects
from etcdfix.commands.planning.entries import EntryWriter, Saved, advice_on
from etcdfix.commands.planning.steps import in_order, steps_for
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.rescued import read_index
from etcdfix.examine.all import Progress, examine_all, no_progress
from etcdfix.examine.first_pass import Extracted, FirstPass, Jobs
from etcdfix.examine.maybe_newer import SimilarValues
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readable_revision import ReadableRevisions
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyCounter, KeyDoubt, needed_for
from etcdfix.graph.cluster import IndexBuilder
from etcdfix.graph.contents import GRAPH_EXTRACTION, ContentReader, ObjectExtract
from etcdfix.model.errors import ConfigurationError, EndedEarly
from etcdfix.report.model import ReportBaseline
from etcdfix.report.origin import report_origin, shown_word, timestamp
from etcdfix.report.plan import DeletionPlan, PlanEntry, PlanGroup, decision_on, declaration
from etcdfix.report.planfile import sealed
from etcdfix.report.rows import Rows
from etcdfix.report.saved_report import SavedReport
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import quote_command


def _now() -> datetime:
    return datetime.now(UTC)


class PlanRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what a plan holds."""

    report: SavedReport
    newest: bool = True
    rescued: Path | None = None
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
    """Make the plan; one that a signal or ``--timeout`` ends leaves everything out as undetermined.

    The result is the same for any number of jobs. Raises KeyboardInterrupt, ConfigurationError or SourceError.
    """
    begun = now()
    request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, source))
    report, description, uid = request.report, source.describe(), examiner.kube_system_uid(source)
    _check_same(report, uid, request, examiner)
    keys, similar, reader = KeyCounter(), SimilarValues(examiner), ContentReader(examiner)
    saved = Saved(read_index(request.rescued).by_key() if request.rescued is not None else {}, uid)
    # A live etcd tells of earlier generations only by a watch for each key; a file has them at hand.
    file = description.type != "etcd"
    # Where only the present value is kept, there are none.
    has_earlier = source.has_several
    builder = IndexBuilder(examiner, source)
    extracted: Extracted[ObjectExtract | None] = Extracted(
        examiner, GRAPH_EXTRACTION, builder.extraction_setup()
    )
    first_pass = FirstPass(examiner, request, source, jobs, extracted=extracted) if jobs != 1 else None
    groups = _Groups()
    problems, seen = [*report.problems], False
    entries: Sequence[PlanEntry] = ()
    with closing(BrokenObjects(report.findings, similar, saved.has)) as gathered:

        def take(found: Examination) -> None:
            nonlocal seen
            seen = True
            builder.absorb(found, extracted.of(found))
            keys.add(found)
            gathered.take(found)

        def drafts(write: EntryWriter) -> Iterator[PlanEntry]:
            broken = gathered.broken(source.problems)
            for one in progress(broken, "broken objects", gathered.count):
                groups.add(one)
                yield write.draft(one)

        try:
            ending = examine_all(
                examiner, source.pages(b""), take, first_pass=first_pass, progress=progress, whole=True
            )
            index = builder.finish(source.problems)
            readable = ReadableRevisions.of_many(source, examiner, live=not file)
            # A deletion refuses a plan that cannot say which cluster it is of.
            named = f" {quote_command(['--plan', request.plan_file])}" if request.plan_file and uid else ""
            write = EntryWriter(
                index, source, examiner, reader, keys, gathered, request, has_earlier, readable, saved, named
            )
            entries = in_order(drafts(write))
        except KeyboardInterrupt as exc:
            if not seen:
                raise
            ended = EndedEarly.of(exc)
            on_ended(ended)
            gathered.leave_out_all()
            groups = _Groups()
            problems += [*source.problems, f"{ended.reason} before the end"]
        else:
            problems += dict.fromkeys([*source.problems, *index.problems, *ending.lost])
            if index.opaque:
                problems.append(f"{index.opaque} objects cannot be looked into")
            if index.truncated:
                problems.append(f"{index.truncated} objects have more references than are followed")
    published = groups.published(keys, request.run)
    plan = DeletionPlan(
        **report_origin(description, request.configuration, uid) | {"generated_at": timestamp(begun)},
        newest=request.newest and not file,
        etcd_prefix=examiner.layout.prefix.rstrip("/") or "/",
        kubernetes_version=examiner.assumed_release or None,
        report=ReportBaseline(shown_word(report.path), report.sha256, report.header.generated_at),
        complete=not problems,
        incomplete_reasons=problems,
        groups=published,
        steps=steps_for(entries, published, shown_word(report.path), request.run),
        not_in_report=gathered.not_in_report,
        left_out=gathered.left_out(),
        entries=entries,
        decisions=Rows(len(entries), lambda: map(decision_on, entries)),
    )
    return sealed(plan)


class _Groups:
    """Broken objects with one cause under one encryption key: the first of them, and how many there are."""

    def __init__(self) -> None:
        self._groups: dict[object, tuple[Examination, int]] = {}

    def add(self, broken: Broken) -> None:
        found = broken.found
        place = (found.verdict.outcome, found.verdict.cause, found.encryption_keys)
        first, count = self._groups.get(place, (found, 0))
        self._groups[place] = first, count + 1

    def published(self, keys: KeyCounter, run: RunOptions) -> list[PlanGroup]:
        """Return the groups, the largest first."""
        groups = []
        for first, count in sorted(self._groups.values(), key=lambda group: -group[1]):
            doubts = keys.doubts_about(first)
            declares = needed_for(first, doubts).declaration
            groups.append(
                PlanGroup(
                    first.verdict.outcome.value,
                    first.verdict.cause.value if first.verdict.cause else "",
                    first.transformer,
                    first.rule,
                    first.kms_key_id_sha256,
                    count,
                    max(keys.of(name).opened for name in first.encryption_keys),
                    doubts != {KeyDoubt.NONE},
                    advice_on(first, doubts, run),
                    declaration(first.transformer, first.kms_key_id_sha256) if declares else "",
                )
            )
        return groups


def _check_same(report: SavedReport, uid: str | None, request: PlanRequest, examiner: Examiner) -> None:
    """Refuse a report that speaks of something else."""
    if report.header.source.kube_system_uid != uid:
        raise ConfigurationError(
            f"the report is of cluster {report.header.source.kube_system_uid or 'unknown'}, not {uid or 'unknown'}",
            hint="name the etcd or the snapshot that was scanned, or scan this one",
        )
    given = report.header.encryption_config
    theirs = given.sha256 if given is not None else "none"
    ours, name = "none", "here it"
    if request.configuration is not None:
        ours, name = request.configuration.sha256, request.configuration.path
    if theirs != ours:
        why = f"the report was made with the encryption configuration {theirs}, and {name} is {ours}"
        raise ConfigurationError(why, hint="scan again with the configuration that the API servers have now")
    here = examiner.layout.prefix.rstrip("/") or "/"
    if report.header.scope.etcd_prefix != here:
        why = f"the report is of keys below {report.header.scope.etcd_prefix}, and here they are below {here}"
        raise ConfigurationError(why, hint=quote_command(["--etcd-prefix", report.header.scope.etcd_prefix]))
