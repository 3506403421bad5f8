"""The main job: examine everything in scope and report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from etcdfix.commands.opening import first_keys, nothing_examined
from etcdfix.commands.scanning.pipeline import FindingPipeline
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.encryption.envelope import transformer_name
from etcdfix.examine.all import examine_all, no_progress
from etcdfix.examine.first_pass import FirstPass, Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.scope import beside, pages_in, resolved, searched_for
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.interruptions import interruptions_held
from etcdfix.model.model import Outcome
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import display, likely_prefixes
from etcdfix.report.advice.whole import first_step, undecided
from etcdfix.report.model import KMSPluginSummary, ScanHeader, Summary
from etcdfix.report.origin import TOOL, shown_configuration, shown_scope, shown_source, shown_word, timestamp
from etcdfix.report.render import Writer
from etcdfix.report.saved_report import Baseline
from etcdfix.report.scan import ScanReport
from etcdfix.sources.base import Source, has_keys
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

T = TypeVar("T")


class ScanRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what a scan looks at and how.

    Attributes:
        baseline: Findings that are known already.
    """

    scope: ScopeRequest = msgspec.field(default_factory=ScopeRequest)
    baseline: Baseline | None = None


class ScanResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan came to.

    Attributes:
        report: The report, without its findings.
        new: Unhealthy and undetermined keys that the baseline does not know, by outcome.
        problems: Why the source could not show everything.
        nothing: Why no key was seen: none lies below the storage prefix, or nothing that was named exists.
        denied: Keys outside the storage prefix that were named and may not be read.
    """

    report: ScanReport
    new: dict[Outcome, int]
    problems: list[str]
    nothing: SourceError | None = None
    ended: EndedEarly | None = None
    denied: list[str] = msgspec.field(default_factory=list)


def run_scan(
    source: Source,
    request: ScanRequest,
    writer: Writer,
    *,
    plugins: KMSPlugins | None = None,
    progress: Callable[..., Iterator[Any]] = no_progress,
    jobs: Jobs = 1,
) -> ScanResult:
    """Examine everything in scope and write what is found.

    Findings are written once every value was examined: only then is it known which encryption keys are lost.

    Args:
        source: Where the values are.
        request: What to look at.
        writer: Writes the report.
        plugins: None to ask none.
        progress: Is told by ``failed`` how many cannot be read.
        jobs: The result is the same for any number of processes.

    Raises:
        ConfigurationError: The scope names something that does not exist.
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    scope, ranges = resolved(request.scope, examiner, source)
    began, cluster = timestamp(), examiner.kube_system_uid(source)
    run = with_what_it_keeps(request.run, source)
    request = msgspec.structs.replace(request, scope=scope, run=run)
    differing = source.members_differ()
    denied: list[bytes] = []
    pipeline = FindingPipeline(source, examiner, request)
    ending = examine_all(
        examiner,
        pages_in(source, ranges, denied),
        pipeline.take,
        plain=pipeline.take_plain,
        first_pass=FirstPass(examiner, request, source, jobs) if jobs != 1 else None,
        targets=searched_for(ranges),
        progress=partial(progress, failed=lambda: pipeline.failed),
        witnesses=beside(source, examiner.layout, ranges),
        on_cut_short=pipeline.cut_short,
    )
    header = _header(source, request, began, cluster)

    def count_and_write() -> Summary:
        summary = pipeline.count()
        writer.begin(header)
        for finding in progress(pipeline.report(summary), "findings", pipeline.waiting):
            writer.row(finding)
        return summary

    summary, ended = _finish_despite_signal(count_and_write, ending.ended)
    summary.kms = _plugins_asked(plugins) if plugins is not None else []
    prefix = request.layout.prefix
    within = [key for key in denied if request.layout.holds(key)]
    problems = [
        *([differing] if differing else []),
        *source.problems,
        *ending.problems,
        *ending.lost,
        *(f"lost {display(key)}: permission denied" for key in within),
    ]
    # What could not be read is not absent.
    unseen = ended is not None or bool(ending.problems)
    below = summary.keys > summary.not_objects or unseen or has_keys(source, request.layout)
    elsewhere = [other for other, _ in pipeline.elsewhere.most_common()] if below else []
    problems += [
        f"{counted(pipeline.elsewhere[other], 'key')} under {other}, another storage prefix: not examined; scan with "
        f"--etcd-prefix {other.rstrip('/')} too"
        for other in elsewhere
    ]
    named = not summary.keys and not unseen and not problems and _nothing_named_exists(source, request)
    sample = [] if below else first_keys(source)
    summary.next = first_step(
        summary,
        pipeline.first_way,
        request.scope.words,
        request.run,
        whole=not (unseen or problems),
        damaged=bool(source.problems),
        prefixes=None if below else likely_prefixes(sample),
        elsewhere=elsewhere,
        prefix=prefix,
        differing=differing,
    )
    unread = [
        *([_no_key(prefix, sample)] if not below else []),
        *problems,
        *(["no key matches the given name"] if below and named else []),
        *([f"{ended.reason} before the end"] if ended is not None else []),
    ]
    reasons = [*unread, *undecided(summary)]
    nothing = None
    if not below:
        at = f" at revision {run.revision}" if run.revision else ""
        nothing = nothing_examined(source, request.layout, at=at)
    elif named:
        nothing = SourceError("NOTHING WAS EXAMINED: no key matches the given name")
    report = ScanReport(
        **{name: getattr(header, name) for name in header.__struct_fields__},
        findings=[],
        statuses=pipeline.statuses(),
        summary=summary,
        complete=not reasons,
        reached_end=not unread,
        incomplete_reasons=reasons,
        finished_at=timestamp(),
        interrupted=ended is not None,
    )
    _finish_despite_signal(
        partial(writer.end, report), ended
    )  # what comes too late to be told changes nothing
    return ScanResult(
        report=report,
        new=pipeline.new,
        problems=problems,
        nothing=nothing,
        ended=ended,
        denied=[display(key) for key in denied if key not in within],
    )


def _no_key(prefix: str, sample: list[bytes]) -> str:
    others = (
        f"; other keys are there, such as {fit(display(sample[0]), 60)}"
        if sample
        else ", and no other key is there"
    )
    return f"no key starts with {prefix}{others}"


def _finish_despite_signal(work: Callable[[], T], ended: EndedEarly | None) -> tuple[T, EndedEarly | None]:
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


def _plugins_asked(plugins: KMSPlugins) -> list[KMSPluginSummary]:
    return [
        KMSPluginSummary(
            transformer_name("kms", plugin.api_version, plugin.name),
            shown_word(plugin.endpoint),
            plugin.state,
            plugin.message,
            plugin.calls,
            plugin.answered,
            plugin.refused,
            plugin.failed,
        )
        for plugin in plugins.reports()
    ]


def _nothing_named_exists(source: Source, request: ScanRequest) -> bool:
    """Say of a scope in which no key was seen whether it names keys, or only namespaces that are not there."""
    scope, path = request.scope, request.layout.path
    return bool(scope.prefixes or scope.keys) or (
        bool(scope.namespaces)
        and all(source.get(path(f"namespaces/{namespace}")) is None for namespace in scope.namespaces)
    )


def _header(source: Source, request: ScanRequest, began: str, cluster: str | None) -> ScanHeader:
    description, baseline = source.describe(), request.baseline
    return ScanHeader(
        tool=TOOL,
        generated_at=began,
        source=shown_source(description, cluster),
        encryption_config=shown_configuration(request.configuration),
        scope=shown_scope(
            request.scope, request.layout, request.kubernetes_minor, limited_to=description.limited_to
        ),
        baseline=baseline.report if baseline is not None else msgspec.UNSET,
    )
