"""Saved reports beside each other: what is new between two, and those of many clusters as one, in flat memory."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.inputs.inputfile import NO_ROOM
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import Outcome
from etcdfix.report.diff import (
    DiffCounts,
    DiffedFinding,
    DiffedReport,
    FindingDifference,
    LeftOutReport,
    MergedReport,
    ReportDiff,
    ReportMerge,
    Unlike,
)
from etcdfix.report.model import COUNTED, Counts, ScanHeader, Scope
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.report.saved_report import (
    CUT,
    NoReport,
    ReportedFinding,
    ReportFile,
    contradictions,
    open_report,
    problems_of,
    reported,
)
from etcdfix.text.safetext import safe_text

_NOT_COMPARED: Final = frozenset({Outcome.READABLE.value, Outcome.NOT_AN_OBJECT.value})
_CHANGES: Final = ("new", "changed", "gone")
_CLUSTER: Final = "cluster (uid of kube-system)"
"""Where it differs, a finding is new or gone for that alone."""
_NOTHING_WRONG, _FINDINGS, _INCOMPLETE, _NO_REPORT = 0, 1, 3, 5


def diff_reports(earlier: Path, later: Path) -> ReportDiff:
    """Return what the later report has that the earlier one has not, and the other way.

    Findings stand in the order of their etcd keys, so both reports are read side by side.

    Raises:
        ConfigurationError: One of them cannot be read, is no report, or they cannot be compared.
        SourceError: There is no room for a temporary file.
    """
    with open_report(earlier) as first, open_report(later) as second:
        before, after = _checked(earlier, first), _checked(later, second)
        _refuse_unlike_scopes((before, first.header.scope), (after, second.header.scope))
        there, here = _circumstances(first.header), _circumstances(second.header)
        unlike = [Unlike(what, was, here[what]) for what, was in there.items() if here[what] != was]
        reasons = [
            reason.replace("the report", f"the {name} report", 1)
            for name, side in (("earlier", before), ("later", after))
            for reason in side.incomplete_reasons
        ]
        # Where it is not known of which cluster one is, that is said, and may well be the same.
        if any(one.what == _CLUSTER and one.earlier and one.later for one in unlike):
            reasons.append(f"the reports are not of the same {_CLUSTER}")
        counts, rows = DiffCounts(), SortedRows(FindingDifference)
        for was, now in _side_by_side(first, second):
            change, changed = _change(was, now)
            setattr(counts, change, getattr(counts, change) + 1)
            if change in _CHANGES and (row := now or was):
                difference = FindingDifference(
                    change=change,
                    changed=changed,
                    key=row.key,
                    key_base64=base64.b64encode(row.key_base64).decode() if row.key_base64 else None,
                    earlier=_diffed(was),
                    later=_diffed(now),
                )
                rows.add(bytes([_CHANGES.index(change)]) + turn_of(row.etcd_key), difference)
        return ReportDiff(
            tool=TOOL,
            generated_at=timestamp(),
            earlier=before,
            later=after,
            unlike=unlike,
            counts=counts,
            complete=not reasons,
            incomplete_reasons=reasons,
            differences=rows.finish(),
        )


def _checked(path: Path, report: ReportFile) -> DiffedReport:
    """Read all of a report once: its findings stand in the order of their keys."""
    outcomes = Counter(row.outcome for row in reported(report))
    reasons = problems_of(report, outcomes)
    return DiffedReport(
        path=shown_word(str(path)),
        sha256=report.sha256,
        generated_at=report.header.generated_at,
        source=report.header.source,
        findings=sum(count for outcome, count in outcomes.items() if outcome not in _NOT_COMPARED),
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def _side_by_side(
    earlier: ReportFile, later: ReportFile
) -> Iterator[tuple[ReportedFinding | None, ReportedFinding | None]]:
    """Yield what both reports say of each key that is compared."""
    both = merge(_rows(earlier, is_later=False), _rows(later, is_later=True), key=itemgetter(0, 1))
    for _key, rows in groupby(both, key=itemgetter(0)):
        by_side = {is_later: row for _, is_later, row in rows}
        yield by_side.get(False), by_side.get(True)


def _rows(report: ReportFile, *, is_later: bool) -> Iterator[tuple[bytes, bool, ReportedFinding]]:
    return ((row.etcd_key, is_later, row) for row in reported(report) if row.outcome not in _NOT_COMPARED)


def _change(was: ReportedFinding | None, now: ReportedFinding | None) -> tuple[str, list[str]]:
    if was is None or now is None:
        return "new" if was is None else "gone", []
    fields = {"outcome": "outcome", "cause": "cause", "value_sha256": "value"}
    changed = [word for name, word in fields.items() if getattr(was, name) != getattr(now, name)]
    return "changed" if changed else "same", changed


def _diffed(row: ReportedFinding | None) -> DiffedFinding | None:
    if row is None:
        return None
    return DiffedFinding(*(getattr(row, name) for name in DiffedFinding.__struct_fields__))


def _refuse_unlike_scopes(*sides: tuple[DiffedReport, Scope]) -> None:
    """Refuse two reports of which one looked where the other did not: what is there is neither new nor gone."""
    words = [_scope_words(scope) for _report, scope in sides]
    if words[0] == words[1]:
        return
    first, second = (
        safe_text(f"{side.path} of {said}") for (side, _), said in zip(sides, words, strict=True)
    )
    raise ConfigurationError(
        f"these reports cannot be compared: {first}, and {second}",
        hint="scan the same resources, key prefixes and namespaces below the same --etcd-prefix for both",
    )


def _scope_words(scope: Scope) -> str:
    """Return what was looked at; all below the storage prefix is everything: keys elsewhere are no objects."""
    prefixes = {prefix for prefix in scope.prefixes if prefix.rstrip("/") != scope.etcd_prefix.rstrip("/")}
    namespaces = [f"-n {name}" for name in sorted(set(scope.namespaces))]
    words = [*sorted(set(scope.resources)), *sorted(prefixes), *namespaces]
    whole = len(prefixes) < len(set(scope.prefixes)) or not words
    return f"{'everything' if whole else ' '.join(words)} below {scope.etcd_prefix}"


def _circumstances(head: ScanHeader) -> dict[str, str]:
    return {
        _CLUSTER: head.source.kube_system_uid or "",
        "encryption configuration (sha256)": getattr(head.encryption_config, "sha256", ""),
        "release (--kubernetes-version)": head.scope.kubernetes_version or "",
    }


def merge_reports(paths: Iterable[Path]) -> ReportMerge:
    """Read saved reports of scans, one after the other; a file that is no whole report is left out and named.

    Raises:
        OSError: There is no room for a copy of a report.
    """
    rows: list[MergedReport] = []
    left_out: list[LeftOutReport] = []
    for path in paths:
        name = shown_word(str(path))
        try:
            with open_report(path) as report:
                rows.append(_merged(report, name))
        except NoReport as exc:
            if isinstance(exc.__cause__, OSError) and exc.__cause__.errno in NO_ROOM:
                raise exc.__cause__ from exc
            left_out.append(LeftOutReport(name, exc.reason))
    worst = _NO_REPORT if not rows else _INCOMPLETE if left_out else max(row.exit_code for row in rows)
    return ReportMerge(tool=TOOL, generated_at=timestamp(), reports=rows, left_out=left_out, exit_code=worst)


def _merged(report: ReportFile, name: str) -> MergedReport:
    outcomes = Counter(row.outcome for row in reported(report))
    source, end = report.header.source, report.ending
    if end is None:
        raise msgspec.DecodeError(CUT)
    summary = end.summary
    wrongly = [*contradictions(outcomes, summary)]
    reasons = [*end.incomplete_reasons, *wrongly]
    wrong, undetermined = sum(getattr(summary, field) for field in COUNTED.values()), summary.undetermined
    if isinstance(summary.new, msgspec.Struct):
        wrong, undetermined = summary.new.findings, summary.new.undetermined
    incomplete = undetermined or wrongly or not end.reached_end or not (end.complete or reasons)
    return MergedReport(
        cluster=source.kube_system_uid or source.path or ", ".join(source.endpoints or []),
        report=name,
        generated_at=report.header.generated_at,
        complete=end.complete and not reasons,
        incomplete_reasons=reasons,
        counts=Counts(**{field: getattr(summary, field) for field in Counts.__struct_fields__}),
        severity=summary.severity,
        exit_code=_INCOMPLETE if incomplete else _FINDINGS if wrong else _NOTHING_WRONG,
    )
