"""The published struct of a scan, and what a person sees of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.model.model import GroupResource, Outcome
from etcdfix.report.document import (
    Case,
    CaseState,
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
    ToWide,
    whole_case,
    why_incomplete,
    wide_table,
)
from etcdfix.report.document import Status as DocumentStatus
from etcdfix.report.groups import objects_by_kind, what_is_wrong, what_to_do, where
from etcdfix.report.model import (
    COUNTED,
    Counts,
    Finding,
    FindingGroup,
    LostKey,
    NewFindings,
    ScanHeader,
    Status,
    Summary,
)
from etcdfix.text.commands import Command, RunOptions
from etcdfix.text.times import seconds_between
from etcdfix.text.words import counted, fit

_MOST_NAMED = 3
_WIDTH = 100
_MOST_NAME = 60
_MOST_KEY = 20


def found_line(report: ScanReport) -> str:
    """Return what a scan found, in one line of counts."""
    summary, scope, reasons = report.summary, report.scope, report.incomplete_reasons
    start = "INTERRUPTED: " if report.interrupted else "INCOMPLETE: " if report.counts_as_incomplete else ""
    narrow = bool(scope.prefixes or scope.resources or scope.namespaces)
    place = _place(report, narrow=narrow)
    objects = summary.keys - summary.not_objects
    if not objects:
        return f"NOTHING WAS EXAMINED: {reasons[0] if reasons else 'no object is in this scope'}"
    if summary.new is not msgspec.UNSET and (summary.new.findings or summary.known_findings):
        return f"{start}{_against_baseline(summary.known_findings, summary.new)}{place}"
    bad = summary.decrypt_failures + summary.decode_failures + summary.inconsistent
    if not bad and not summary.undetermined:
        if start:
            part = "" if report.interrupted else "not everything was read; "
            return f"{start}{part}nothing is wrong with the {counted(objects, 'object')} examined{place}"
        if summary.warnings or report.source.warning:
            warned = f", {counted(summary.warnings, 'warning')}" if summary.warnings else ""
            if summary.readable_until:
                warned = f", for API servers up to {summary.readable_until}"
            return f"NOTHING IS PROVEN WRONG with {counted(objects, 'object')}{place}{warned}"
        rest = "; the rest was not examined" if narrow else ""
        return f"NOTHING WRONG FOUND in {counted(objects, 'object')}{place}{rest}"
    of = f"of {counted(objects, 'object')}{place if narrow else ''}"
    if not bad:
        text = f"{start}{summary.undetermined} {of} could not be judged"
        return _with_kinds(text, [(one.group, one.resource, one.undetermined) for one in summary.by_resource])
    text = f"{start}{bad} {of} {_verb(bad - summary.inconsistent, summary.inconsistent, bad)}"
    if summary.undetermined:
        text += f", {summary.undetermined} not judged"
    return _with_kinds(
        text,
        [
            (one.group, one.resource, one.decrypt_failures + one.decode_failures + one.inconsistent)
            for one in summary.by_resource
        ],
    )


def _with_kinds(text: str, counts: Sequence[tuple[str, str, int]]) -> str:
    kinds = (objects_by_kind(counts, most) for most in (3, 2, 1))
    return next((f"{text}: {kind}" for kind in kinds if kind and len(text) + len(kind) + 2 <= _WIDTH), text)


def _place(report: ScanReport, *, narrow: bool) -> str:
    scope, kind = report.scope, report.source.type
    place = " in scope" if narrow else ""
    if scope.namespaces:
        named = [fit(name, _MOST_NAME) for name in scope.namespaces[:_MOST_NAMED]]
        more = f" and {len(scope.namespaces) - len(named)} more" if len(scope.namespaces) > len(named) else ""
        noun = "namespace" if len(scope.namespaces) == 1 else "namespaces"
        place += f" ({noun} {', '.join(named)}{more})"
    if kind == "etcd":
        return place
    return f"{place} {'of' if narrow else 'in'} the {'file of kine' if kind == 'kine' else 'snapshot'}"


def lost_keys_line(summary: Summary) -> str:
    """Return the names of the encryption keys that are missing or wrong; "" where there are none."""
    keys = summary.key_loss
    if not keys:
        return ""
    first, *others = [f"{fit(key.transformer, _MOST_KEY)} ({key.failures}{_of(key)}" for key in keys[:2]]
    named = ", ".join([f"{first} objects)", *(f"{other})" for other in others)])
    if len(keys) == 1:
        return f"An encryption key is missing or wrong: {named}."
    more = f" and {len(keys) - 2} more" if len(keys) > 2 else ""
    return f"{len(keys)} encryption keys are missing or wrong: {named}{more}."


def _of(key: LostKey) -> str:
    return f" of {key.of}" if key.of != key.failures else ""


def _against_baseline(known: int, new: NewFindings) -> str:
    if not new.findings:
        return f"nothing new ({known} known)"
    more = f" and {new.findings - 1} more" if new.findings > 1 else ""
    return f"{new.findings} NEW: {fit(new.first or '', _MOST_NAME)}{more} ({known} known)"


def _verb(failed: int, inconsistent: int, bad: int) -> str:
    if not inconsistent:
        return "cannot be read"
    are = "is" if bad == 1 else "are"
    return f"{are} broken" if failed else f"{are} inconsistent"


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


class ScanReport(ScanHeader, frozen=True, kw_only=True):
    """What a scan found, in the order in which it is written as a stream."""

    findings: list[Finding]
    statuses: list[Status]
    summary: Summary
    complete: bool
    reached_end: bool
    incomplete_reasons: list[str]
    finished_at: str
    interrupted: bool = False

    def document(self) -> Document:
        """Return what was found, how bad that is, the one thing to do next, and the groups of findings."""
        summary = self.summary
        stakes = (lost_keys_line(summary), summary.at_stake, summary.do_not_restart, self.source.warning)
        following = summary.next
        return Document(
            status=DocumentStatus(self._state(), found_line(self)),
            about=self.about(),
            stakes=[line for line in stakes if line][:3],
            next=Step(following.action, following.command) if following else None,
            sections=[*self._sections()],
        )

    @property
    def counts_as_incomplete(self) -> bool:
        """Whether what it lacks makes its exit code: not what was undecided before, and the baseline knows."""
        new = self.summary.new
        if isinstance(new, msgspec.Struct) and not new.undetermined:
            return not self.reached_end
        return bool(self.incomplete_reasons)

    def _state(self) -> State:
        summary = self.summary
        if self.interrupted or self.counts_as_incomplete:
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
            warned = f"{summary.warnings} more with a warning" if summary.warnings else ""
            more = [
                ("warnings", warned),
                ("more", ToWide("-o wide lists keys")),
                ("more", "etcdfix explain KEY"),
            ]
        return Facts(
            facts=[
                ("objects", f"{counted(summary.keys - summary.not_objects, 'object')} examined{took}"),
                ("revision", f"revision {source.revision} of {fit(where_from, 60)}"),
                *more,
            ]
        )

    def _sections(self) -> Iterator[Section]:
        reasons = [one for one in self.incomplete_reasons if not one.startswith("undetermined: ")]
        groups = self.summary.groups
        if self.summary.keys == self.summary.not_objects:
            reasons = reasons[1:]  # the headline says the first
        if reasons:
            told = f"Not everything was examined: {fit(reasons[0], _MOST_OF_A_REASON, end=True)}"
            more = ToWide(f"{told} (+{len(reasons) - 1}: -o wide)", told)
            yield Prose(paragraphs=[more if len(reasons) > 1 else told])
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
    Column("OUTCOME", wide=True),
    Column("CAUSE", wide=True),
    Column("TRANSFORMER", wide=True),
    Column("MOD REVISION", kind=Kind.NUMBER, wide=True),
    Column("BYTES", kind=Kind.NUMBER, wide=True),
    Column("API SERVER", wide=True),
    Column("WHAT IS WRONG", folds=True),
    Column("KEY", kind=Kind.KEY),
)


def _wide_cells(group: FindingGroup) -> tuple[str, Command | None, str]:
    return group.severity or "", group.way.command if group.way is not None else None, group.example


def _wide_sections(report: ScanReport) -> Iterator[Section]:
    """Yield what stands in -o wide and in a page alone."""
    summary = report.summary
    for lost in summary.key_loss:
        what = f"{lost.failures} of {counted(lost.of, 'value')}"
        yield Steps(
            title=f"What to do about {lost.transformer}, which does not open {what}",
            steps=lost.remedies,
            wide=True,
        )
    yield Table(
        title="Keys" if summary.groups else "",
        columns=_KEYS,
        rows=[_key_row(finding) for finding in report.findings],
        total=summary.warnings + sum(group.count for group in summary.groups),
        noun="key",
        truncated=_TRUNCATED,
        wide=bool(summary.groups),
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
    source = report.source
    yield why_incomplete(report.incomplete_reasons)
    configuration = report.encryption_config
    segments = [f"from {one.from_key or 'the start'} at {one.revision}" for one in source.segments]
    yield Facts(
        title="Source",
        facts=[
            ("etcd", source.etcd_version or ""),
            ("file digest", " ".join(filter(None, (source.sha256, source.integrity, source.warning)))),
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
    if finding.cause is None and finding.evidence:
        first = finding.evidence[0]
        message = f"{first.check}: {first.detail or first.result}"
    if finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
        details = (f"{one.result}: {one.detail}" if one.detail else one.result for one in finding.evidence)
        message = "; ".join([message, *details])
    return (
        finding.outcome, finding.cause or "", fit(finding.transformer, 60), finding.mod_revision,
        finding.value_size, finding.apiserver, fit(message, 500), finding.key,
    )  # fmt: skip


WHOLE: Final = "everything in scope was examined"
FAILING: Final[Collection[str]] = frozenset(COUNTED)
"""Outcomes that make the exit code where nobody says."""


def finding_case(finding: Finding, run: RunOptions, failing: Collection[str] = FAILING) -> Case:
    """Return the case of one finding."""
    state, why = CaseState.FAILED, ""
    if finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
        state = CaseState.PASSED
    elif finding.baseline:
        state, why = CaseState.SKIPPED, "known (--baseline): "
    elif finding.outcome in COUNTED and finding.outcome not in failing:
        state, why = CaseState.SKIPPED, "not counted (--fail-on): "
    elif finding.outcome == Outcome.UNDETERMINED or finding.outcome not in COUNTED:
        state = CaseState.ERROR  # an unknown outcome counts as undetermined
    cause = finding.cause or finding.outcome
    return Case(
        name=finding.key,
        group=str(GroupResource(finding.group, finding.resource)) if finding.resource else "(no resource)",
        state=state,
        type=cause,
        message=f"{why}{cause}: {finding.message}",
        detail=[*_lines(finding, run)],
    )


def _lines(finding: Finding, run: RunOptions) -> Iterator[str]:
    facts = {
        "key": finding.key,
        "key in base64": finding.key_base64,
        "outcome": finding.outcome,
        "cause": f"{finding.cause} ({finding.confidence})" if finding.cause else "",
        "severity": finding.severity,
        "what is wrong": finding.message,
        "API server": f"{finding.apiserver} {finding.upstream_message}".rstrip(),
        "transformer": finding.transformer,
        "mod_revision": finding.mod_revision,
    }
    yield from (f"{name}: {value}" for name, value in facts.items() if value)
    yield from (f"evidence: {one.check}: {one.result} {one.detail}".rstrip() for one in finding.evidence)
    for way in finding.remedies[:1]:
        yield f"what to do: {way.action}"
        if line := way.command.line(run):
            yield f"command: {line}"


def scan_case(report: ScanReport, states: Collection[CaseState] = ()) -> Case:
    """Return the case of the scan itself; ``states`` are those of its findings."""
    summary, reasons = report.summary, report.incomplete_reasons
    whole = whole_case(WHOLE, reasons, complete=report.complete)
    known = bool(reasons) and report.reached_end and CaseState.ERROR not in states
    if whole.state is CaseState.ERROR and known:
        return msgspec.structs.replace(whole, state=CaseState.SKIPPED)
    if whole.state is CaseState.PASSED and summary.keys == summary.not_objects:
        message = "there is no object in this scope"
        return Case(name=WHOLE, state=CaseState.SKIPPED, type="nothing", message=message)
    return whole
