"""The published struct of a scan, and what a person sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import msgspec

from etcdfix.model import GroupResource
from etcdfix.report.advice.whole import undetermined_problem
from etcdfix.report.counts import Counts
from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Kind,
    Prose,
    Section,
    State,
    Step,
    Steps,
    Table,
    why_incomplete,
    wide_table,
)
from etcdfix.report.document import Status as DocumentStatus
from etcdfix.report.group_words import what_is_wrong, what_to_do, where
from etcdfix.report.head import counts_as_incomplete, found_line, lost_keys_line
from etcdfix.report.model import Finding, FindingGroup, ReportBaseline, Scope, SourcedReport, Status, Summary
from etcdfix.text.commands import Command
from etcdfix.text.times import seconds_between
from etcdfix.text.words import counted, fit

_ROWS: Final = 10
"""So many groups stand on the first screen."""
_LONG: Final = 10
"""A scan of fewer seconds does not say how many."""
_MOST_OF_A_REASON: Final = 58
_TRUNCATED: Final = "too many errors, the list is truncated"
_COUNTED: Final = Counts.__struct_fields__
_TRANSFORMER: Final = (
    "TRANSFORMER", "RULE", "ENCRYPTION KEY", "KEYS", "FAILING", "DAMAGED", "UNDETERMINED", "STALE",
    "FIRST MOD REVISION", "LAST",
)  # fmt: skip
_PLUGIN: Final = ("PROVIDER", "ENDPOINT", "STATE", "MESSAGE", "CALLS", "UNWRAPPED", "REFUSED", "UNANSWERED")


class ScanReport(SourcedReport, frozen=True, kw_only=True):
    """What a scan found, in the order in which it is written as a stream.

    ``baseline`` is left out where there was none. ``interrupted``: a signal ended the scan.
    """

    ROWS: ClassVar[str] = "findings"

    kind: str = "ScanReport"
    scope: Scope
    baseline: ReportBaseline | msgspec.UnsetType = msgspec.UNSET
    findings: list[Finding]
    statuses: list[Status]
    summary: Summary
    complete: bool
    incomplete_reasons: list[str]
    finished_at: str
    interrupted: bool = False

    def document(self) -> Document:
        """Return what was found, how bad that is, the one thing to do next, and the groups of findings."""
        summary = self.summary
        stakes = (lost_keys_line(summary), summary.at_stake, summary.do_not_restart)
        following = summary.next
        return Document(
            status=DocumentStatus(self._state(), found_line(self)),
            about=self.about(),
            stakes=[line for line in stakes if line],
            next=Step(following.action, following.command) if following else None,
            sections=[*self._sections()],
        )

    def _state(self) -> State:
        summary = self.summary
        if self.interrupted or counts_as_incomplete(summary, self.incomplete_reasons):
            return State.INCOMPLETE
        new = summary.new.findings if isinstance(summary.new, msgspec.Struct) else len(summary.groups)
        return State.FINDINGS if new else State.OK

    def about(self) -> Facts:
        """Return what was looked at, and how to see more."""
        summary, source = self.summary, self.source
        where_from = source.path if source.path is not None else ", ".join(source.endpoints or [])
        seconds = seconds_between(self.generated_at, self.finished_at)
        took = f" in {seconds} s" if seconds >= _LONG else ""
        more = []
        if summary.groups:
            names = summary.doubtful_names
            warned = f"{summary.warnings} more with a warning" if summary.warnings else ""
            doubtful = f"{counted(names.count, 'damaged key name')} possible" if names is not None else ""
            more = [
                ("warnings", warned),
                ("key names", doubtful),
                ("more", "-o wide lists keys"),
                ("one key", "etcdfix explain KEY"),
            ]
        return Facts(
            facts=[
                ("objects", f"{counted(summary.keys - summary.not_objects, 'object')} examined{took}"),
                ("revision", f"revision {source.revision} of {fit(where_from, 60)}"),
                *more,
            ]
        )

    def _sections(self) -> Iterator[Section]:
        reasons = [one for one in self.incomplete_reasons if one != undetermined_problem(self.summary)]
        groups = self.summary.groups
        if reasons:
            more = f" (+{len(reasons) - 1}: -o wide)" if len(reasons) > 1 else ""
            reason = fit(reasons[0], _MOST_OF_A_REASON, end=True)
            yield Prose(paragraphs=[f"Not everything was examined: {reason}{more}"])
        if groups:
            rows = [
                (group.count, what_is_wrong(group), where(group), what_to_do(group), *_wide_cells(group))
                for group in groups
            ]
            yield Table(
                columns=_GROUPS, rows=rows, noun="group", brief=_ROWS - 2 * bool(reasons), counted=0,
                sum=sum(group.count for group in groups),
            )  # fmt: skip
        yield from _wide_sections(self)


_GROUPS: Final = (
    Column("OBJECTS", kind=Kind.NUMBER),
    Column("WHAT IS WRONG", folds=True),
    Column("WHERE", folds=True),
    Column("WHAT TO DO", folds=True),
    Column("SEVERITY", wide=True),
    Column("COMMAND", kind=Kind.COMMAND, wide=True),
    Column("EXAMPLE", kind=Kind.KEY, wide=True),
)
_KEYS: Final = (
    Column("OUTCOME"),
    Column("CAUSE"),
    Column("TRANSFORMER"),
    Column("MOD REVISION", kind=Kind.NUMBER),
    Column("BYTES", kind=Kind.NUMBER),
    Column("API SERVER"),
    Column("WHAT IS WRONG", folds=True),
    Column("KEY", kind=Kind.KEY),
)


def _wide_cells(group: FindingGroup) -> tuple[str, Command | None, str]:
    return group.severity or "", group.way.command if group.way is not None else None, group.example


def _wide_sections(report: ScanReport) -> Iterator[Section]:
    """Yield what stands in -o wide and in a page alone."""
    summary = report.summary
    yield Table(
        title="Keys",
        columns=_KEYS,
        rows=[_key_row(finding) for finding in report.findings],
        total=summary.warnings + sum(group.count for group in summary.groups),
        noun="key",
        truncated=_TRUNCATED,
        wide=True,
    )
    for lost in summary.key_loss:
        what = f"{lost.failures} of {counted(lost.of, 'value')}"
        yield Steps(
            title=f"What to do about {lost.transformer}, which does not open {what}",
            steps=lost.remedies,
            wide=True,
        )
    resources = [
        (str(GroupResource(one.group, one.resource)), *(getattr(one, name) or None for name in _COUNTED))
        for one in summary.by_resource
    ]
    yield wide_table("By resource", ("RESOURCE", *map(str.upper, _COUNTED)), resources, "resource")
    causes = [(one.cause, one.outcome, one.count, one.example) for one in summary.by_cause]
    yield wide_table("By cause", ("CAUSE", "OUTCOME", "OBJECTS", "EXAMPLE"), causes)
    keys = [
        (fit(one.transformer, 60), ", ".join(one.resources), *msgspec.structs.astuple(one)[2:])
        for one in summary.by_transformer
    ]
    yield wide_table("By encryption key", _TRANSFORMER, keys, "encryption key")
    yield wide_table("KMS plugins", _PLUGIN, [msgspec.structs.astuple(one) for one in summary.kms], "plugin")
    yield from _notes(report)


def _notes(report: ScanReport) -> Iterator[Section]:
    summary, source = report.summary, report.source
    yield why_incomplete(report.incomplete_reasons)
    if summary.doubtful_names is not None:
        names = summary.doubtful_names
        text = f"{counted(names.count, 'key')} may have a damaged name. The first is {names.first}: {names.detail}."
        yield Prose(title="Damaged key names", paragraphs=[text], wide=True)
    configuration = report.encryption_config
    segments = [f"from {one.from_key or 'the start'} at {one.revision}" for one in source.segments]
    yield Facts(
        title="Source",
        facts=[
            ("etcd", source.etcd_version or ""),
            ("file digest", " ".join(filter(None, (source.sha256, source.integrity)))),
            ("cluster id", source.cluster_id or ""),
            ("kube-system uid", source.kube_system_uid or "unknown"),
            ("configuration", f"{configuration.path} ({configuration.sha256})" if configuration else "none"),
            ("revisions", "" if source.single_revision else "; ".join(segments)),
            ("made by", f"{report.tool.name} {report.tool.version} at {report.generated_at}"),
        ],
        wide=True,
    )


def _key_row(finding: Finding) -> tuple[str | int, ...]:
    message = f"{finding.message} (known)" if finding.baseline else finding.message
    return (
        finding.outcome, finding.cause or "", fit(finding.transformer, 60), finding.mod_revision,
        finding.value_size, finding.apiserver, fit(message, 500), finding.key,
    )  # fmt: skip
