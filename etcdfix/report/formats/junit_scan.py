"""``-o junit`` of a scan: a case for each finding, and one for each resource that is wholly readable.

What makes the exit code makes the file red, and nothing else does: a broken value is a failure, one that could not be
examined an error; what ``--baseline`` knows, or ``--fail-on`` leaves out, is skipped. That not everything was examined
is an error whatever is left out, unless it is for such values alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import BinaryIO, Final

import msgspec

from etcdfix.model import GroupResource, Outcome
from etcdfix.report.base import Reporter
from etcdfix.report.formats.junit import Case, CaseState, JUnitDocument, whole_case
from etcdfix.report.formats.text import shown_transformer, steps
from etcdfix.report.head import counts_as_incomplete, found_line, head_lines, lost_midway
from etcdfix.report.model import Conclusion, Finding, Header, ResourceSummary
from etcdfix.text.times import seconds_between
from etcdfix.text.words import counted

NAME: Final = "etcdfix scan"
WHOLE: Final = "everything in scope was examined"
READABLE: Final = "every value can be read"
NO_RESOURCE: Final = "(no resource)"

_FAILURES: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT})


class JUnitReporter(Reporter):
    """Writes the document once the last key was seen; its cases wait on disk."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._document = JUnitDocument()
        self._header: Header | None = None
        self._counted: Collection[str] = _FAILURES | {Outcome.UNDETERMINED}
        self._warnings = 0
        self._undetermined = 0

    def heed(self, outcomes: Collection[str]) -> None:
        """Take which outcomes make the exit code."""
        self._counted = frozenset(outcomes)

    def begin(self, header: Header) -> None:
        """Keep the header: all of it stands before the first case, and the source's last word is not known yet."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Take one case."""
        state, why = self._state(finding)
        self._warnings += finding.outcome == Outcome.READABLE
        self._undetermined += state is CaseState.ERROR
        cause = finding.cause or finding.outcome
        self._document.add(
            resource_name(finding.group, finding.resource),
            Case(
                name=finding.key,
                state=state,
                type=cause,
                message=f"{why}{cause}: {finding.message}",
                lines=[*_finding_lines(finding)],
            ),
        )

    def _state(self, finding: Finding) -> tuple[CaseState, str]:
        """Return what becomes of a finding, and why it is not what it would be."""
        if finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
            return CaseState.PASSED, ""
        if finding.baseline:
            return CaseState.SKIPPED, "known (--baseline): "
        if finding.outcome in {outcome.value for outcome in Outcome} - set(self._counted):
            return CaseState.SKIPPED, "not counted (--fail-on): "
        # One that nobody knows is taken as undetermined, as reports ask of whoever reads them.
        return (CaseState.FAILURE if finding.outcome in _FAILURES else CaseState.ERROR), ""

    def end(self, conclusion: Conclusion) -> None:
        """Write the document."""
        assert self._header is not None  # begin() comes first
        summary = conclusion.summary
        all_seen = not lost_midway(summary, conclusion.incomplete_reasons)
        for resource in summary.by_resource:
            if resource.readable == resource.keys:
                self._document.add(
                    resource_name(resource.group, resource.resource), _readable(resource, all_seen=all_seen)
                )
        self._document.write(
            self._stream,
            name=NAME,
            at=self._header.generated_at,
            seconds=seconds_between(self._header.generated_at, conclusion.finished_at),
            properties=_properties(self._header, conclusion),
            cases=[self._whole(conclusion, all_seen=all_seen)],
            lines=[*self._said(self._header, conclusion)],
        )

    def _whole(self, conclusion: Conclusion, *, all_seen: bool) -> Case:
        """Return the case that says whether everything was seen and decided, but for what does not count."""
        reasons = conclusion.incomplete_reasons
        case = whole_case(WHOLE, reasons, complete=conclusion.complete)
        if case.state is CaseState.PASSED:
            examined = conclusion.summary.keys - conclusion.summary.not_objects
            if not examined:
                nothing = {
                    "state": CaseState.SKIPPED,
                    "type": "nothing",
                    "message": "no object is in this scope",
                }
                return msgspec.structs.replace(case, **nothing)
            return msgspec.structs.replace(case, lines=[counted(conclusion.summary.keys, "key")])
        counts = self._undetermined and counts_as_incomplete(conclusion.summary, reasons)
        left_out = bool(reasons) and all_seen and not counts
        return msgspec.structs.replace(case, state=CaseState.SKIPPED) if left_out else case

    def _said(self, header: Header, conclusion: Conclusion) -> Iterator[str]:
        summary = conclusion.summary
        yield found_line(
            header, summary, conclusion.incomplete_reasons,
            interrupted=conclusion.interrupted, warnings=self._warnings,
        )  # fmt: skip
        yield from head_lines(summary.at_stake, summary.do_not_restart, summary.next)
        for lost in summary.key_loss:
            yield f"{shown_transformer(lost.transformer)}: {lost.failures} of {lost.of} values do not open"
            yield from steps((one.action, one.command.text, one.note) for one in lost.remedies)


def _readable(resource: ResourceSummary, *, all_seen: bool) -> Case:
    stale = f", {resource.stale} not written with today's write key" if resource.stale else ""
    lines = [f"{counted(resource.keys, 'key')}{stale}"]
    if all_seen:
        return Case(name=READABLE, lines=lines)
    return Case(
        name=READABLE,
        state=CaseState.SKIPPED,
        type="incomplete",
        message="what was seen of it can be read, and not everything in scope was seen",
        lines=lines,
    )


def resource_name(group: str, resource: str) -> str:
    """Return what a suite is called."""
    return str(GroupResource(group, resource)) if resource else NO_RESOURCE


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"key: {finding.key}"
    if finding.key_base64:
        yield f"key in base64: {finding.key_base64}"
    cause = f", {finding.cause} ({finding.confidence})" if finding.cause else ""
    yield f"outcome: {finding.outcome}{cause}"
    if finding.severity:
        yield f"severity: {finding.severity}"
    yield f"what is wrong: {finding.message}"
    said = f": {finding.upstream_message}" if finding.upstream_message else ""
    yield f"API server: {finding.apiserver}{said}"
    if finding.transformer:
        yield f"transformer: {shown_transformer(finding.transformer)}"
    yield f"mod_revision: {finding.mod_revision}"
    for one in finding.evidence:
        yield f"evidence: {one.check}: {one.result}{f': {one.detail}' if one.detail else ''}"
    if finding.remedies:
        yield "ways out, the least destructive first:"
        yield from steps((one.action, one.command.text, one.note) for one in finding.remedies)


def _properties(header: Header, conclusion: Conclusion) -> dict[str, str]:
    source, configuration = conclusion.source, header.encryption_config
    where = source.path if source.path is not None else ", ".join(source.endpoints or [])
    shown = {
        "version": header.tool.version,
        "generated_at": header.generated_at,
        "finished_at": conclusion.finished_at,
        "scope": " ".join(header.scope.limits) or "everything",
        "complete": str(conclusion.complete).lower(),
        "severity": conclusion.summary.severity or "",
        "source_type": source.type,
        "source": where,
        "revision": str(source.revision),
        "kube_system_uid": source.kube_system_uid or "",
        "encryption_config_sha256": configuration.sha256 if configuration is not None else "",
        "baseline_sha256": header.baseline.sha256 if header.baseline is not None else "",
    }
    return {name: value for name, value in shown.items() if value}
