"""The test cases of a scan: one for each finding, and one for the scan itself.

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
    known = bool(reasons) and not lost_midway(summary, reasons) and CaseState.ERROR not in states
    if whole.state is CaseState.ERROR and known:
        return msgspec.structs.replace(whole, state=CaseState.SKIPPED)
    if whole.state is CaseState.PASSED and summary.keys == summary.not_objects:
        message = "there is no object in this scope"
        return Case(name=WHOLE, state=CaseState.SKIPPED, type="nothing", message=message)
    return whole
