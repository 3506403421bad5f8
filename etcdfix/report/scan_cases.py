"""The test cases of a scan: one for each finding, and one for each resource that can be read as a whole.

What makes the exit code makes a case red, and nothing else does: a broken value fails, one that could not be examined
is an error; what ``--baseline`` knows or ``--fail-on`` leaves out is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from etcdfix.model import GroupResource, Outcome
from etcdfix.report.cases import Case, CaseState, whole_case
from etcdfix.report.counts import COUNTED
from etcdfix.report.head import lost_midway
from etcdfix.report.model import Finding
from etcdfix.report.scan import ScanReport
from etcdfix.text.commands import RunOptions
from etcdfix.text.words import counted

WHOLE: Final = "everything in scope was examined"
READABLE: Final = "every value can be read"
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
        group=resource_name(finding.group, finding.resource),
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


def scan_cases(report: ScanReport, states: Collection[CaseState] = ()) -> Iterator[Case]:
    """Yield the cases of the report itself, without those of its findings."""
    summary, reasons = report.summary, report.incomplete_reasons
    all_seen = not lost_midway(summary, reasons)
    whole = whole_case(WHOLE, reasons, complete=report.complete)
    if whole.state is CaseState.ERROR and reasons and all_seen and CaseState.ERROR not in states:
        whole = msgspec.structs.replace(whole, state=CaseState.SKIPPED)
    elif whole.state is CaseState.PASSED and summary.keys == summary.not_objects:
        whole = Case(
            name=WHOLE, state=CaseState.SKIPPED, type="nothing", message="there is no object in this scope"
        )
    yield whole
    for one in summary.by_resource:
        if one.readable == one.keys:
            group = resource_name(one.group, one.resource)
            detail = [counted(one.keys, "key"), f"{one.stale} not written with today's write key"]
            case = Case(name=READABLE, group=group, detail=detail)
            if not all_seen:
                message = "not all keys in scope were examined"
                case = msgspec.structs.replace(
                    case, state=CaseState.SKIPPED, type="incomplete", message=message
                )
            yield case


def resource_name(group: str, resource: str) -> str:
    """Return what the cases of a resource belong to."""
    return str(GroupResource(group, resource)) if resource else "(no resource)"
