"""Two saved reports compared: what is new, gone or changed, in flat memory.

Findings stand in the order of their etcd keys, so both reports are read side by side.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import Outcome
from etcdfix.report.diff import (
    DiffCounts,
    DiffedFinding,
    DiffedReport,
    FindingDifference,
    ReportDiff,
    Unlike,
)
from etcdfix.report.model import ScanHeader, Scope
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.report.saved_report import ReportedFinding, ReportFile, in_order, open_report, problems_of
from etcdfix.text.safetext import safe_text

_NOT_COMPARED: Final = frozenset({Outcome.READABLE.value, Outcome.NOT_AN_OBJECT.value})
_CLUSTER: Final = "cluster (uid of kube-system)"
"""Where it differs, a finding is new or gone for that alone."""


class _Finding(ReportedFinding, frozen=True, kw_only=True, gc=False):
    mod_revision: int = 0
    value_sha256: str = ""
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    severity: str | None = None
    message: str = ""


_decode = msgspec.json.Decoder(_Finding).decode


def diff_reports(earlier: Path, later: Path) -> ReportDiff:
    """Return what the later report has that the earlier one has not, and the other way.

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
        found = _Differences()
        both = merge(_findings(first, is_later=False), _findings(second, is_later=True), key=itemgetter(0, 1))
        for key, rows in groupby(both, key=itemgetter(0)):
            by_side = {is_later: row for _key, is_later, row in rows}
            found.take(key, by_side.get(False), by_side.get(True))
        return ReportDiff(
            tool=TOOL,
            generated_at=timestamp(),
            earlier=before,
            later=after,
            unlike=unlike,
            counts=found.counts,
            complete=not reasons,
            incomplete_reasons=reasons,
            new=found.rows["new"].finish(),
            changed=found.rows["changed"].finish(),
            gone=found.rows["gone"].finish(),
        )


def _checked(path: Path, report: ReportFile) -> DiffedReport:
    """Read all of a report once: its findings stand in the order of their keys."""
    head = report.header
    outcomes: Counter[str] = Counter()
    for row in in_order(report, _decode):
        outcomes[row.outcome] += 1
    reasons = problems_of(report, outcomes)
    return DiffedReport(
        path=shown_word(str(path)),
        sha256=report.sha256,
        generated_at=head.generated_at,
        source_type=head.source.type,
        revision=head.source.revision,
        kube_system_uid=head.source.kube_system_uid,
        findings=sum(count for outcome, count in outcomes.items() if outcome not in _NOT_COMPARED),
        complete=not reasons,
        incomplete_reasons=reasons,
    )


def _findings(report: ReportFile, *, is_later: bool) -> Iterator[tuple[bytes, bool, _Finding]]:
    rows = (_decode(raw) for raw in report.findings)
    return ((row.etcd_key, is_later, row) for row in rows if row.outcome not in _NOT_COMPARED)


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


class _Differences:
    def __init__(self) -> None:
        self.counts = DiffCounts()
        self.rows = {change: SortedRows(FindingDifference) for change in ("new", "changed", "gone")}

    def take(self, key: bytes, before: _Finding | None, after: _Finding | None) -> None:
        """Count one key of which at least one report has a finding, and keep what differs."""
        changed: list[str] = []
        if before is not None and after is not None:
            fields = {"outcome": "outcome", "cause": "cause", "value_sha256": "value"}
            changed = [word for name, word in fields.items() if getattr(before, name) != getattr(after, name)]
            change = "changed" if changed else "same"
        else:
            change = "new" if before is None else "gone"
        setattr(self.counts, change, getattr(self.counts, change) + 1)
        row = after or before
        if change == "same" or row is None:
            return
        encoded = base64.b64encode(row.key_base64).decode() if row.key_base64 is not None else None
        place = {name: getattr(row, name) for name in ("key", "group", "resource", "namespace", "name")}
        self.rows[change].add(
            turn_of(key),
            FindingDifference(
                **place, key_base64=encoded, earlier=_said(before), later=_said(after), changed=changed
            ),
        )


def _said(row: _Finding | None) -> DiffedFinding | None:
    if row is None:
        return None
    return DiffedFinding(*(getattr(row, name) for name in DiffedFinding.__struct_fields__))
