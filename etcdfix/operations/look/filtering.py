"""Between a scan and its report: hands on the findings that fit the filters, and counts the others."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Final

import msgspec

from etcdfix.errors import SourceError
from etcdfix.operations.look.scan_filters import SortBy
from etcdfix.operations.look.sorted_rows import SortedRows, turn_of
from etcdfix.reports.base import Reporter
from etcdfix.reports.contradictions import key_in
from etcdfix.reports.model import Conclusion, Filters, Finding, Header, HiddenFindings, SharedWords
from etcdfix.verdicts.severity import Severity

_RANKS: Final = {severity.value: rank for rank, severity in enumerate(Severity)}
_LAST: Final = b"\xff"
_NUMBER_BYTES: Final = 8
_HIGHEST: Final = (1 << 8 * _NUMBER_BYTES) - 1


class FilteringReporter(Reporter):
    """Hands on the findings that fit, in the order that was asked for. The counts of the scan stay those of everything.

    Args:
        inner: Writes the report.
        filters: As the report has them.
    """

    def __init__(self, inner: Reporter, filters: Filters) -> None:
        self._inner = inner
        self._filters = filters
        self._hidden: Counter[str] = Counter()
        self._beyond_limit = 0
        self._time_unknown = 0
        self._handed_on = 0
        # Of kinds of findings, not of findings: there are few.
        self._shared: dict[str, SharedWords] = {}
        # Stale values that wait for a plugin come before what else waits, whatever their keys.
        self._sorted = SortedRows(Finding) if filters.sort_by or filters.stale else None

    @property
    def hidden(self) -> HiddenFindings:
        """What was not handed on; known at the end."""
        return HiddenFindings(
            self._hidden.total(), dict(sorted(self._hidden.items())), self._beyond_limit, self._time_unknown
        )

    def begin(self, header: Header) -> None:
        """Hand on the header, with the filters."""
        scope = msgspec.structs.replace(header.scope, filters=self._filters)
        self._inner.begin(msgspec.structs.replace(header, scope=scope))

    def finding(self, finding: Finding) -> None:
        """Hand on one that fits."""
        if not self._fits(finding):
            self._hidden[finding.outcome] += 1
        elif self._sorted is None:
            self._hand_on(finding)
        else:
            try:
                self._sorted.add(_turn(finding, self._filters.sort_by), finding)
            except SourceError as exc:
                raise OSError(errno.ENOSPC, exc.message) from exc

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        """Hand on one that belongs to a lost key and fits."""
        self._shared[shared.id] = shared
        self.finding(finding)

    def end(self, conclusion: Conclusion) -> None:
        """Hand on what had to be put in order, and the conclusion with the number of those that are hidden."""
        if self._sorted is not None:
            try:
                rows = self._sorted.finish()
            except SourceError as exc:
                raise OSError(errno.ENOSPC, exc.message) from exc
            for finding in rows:
                self._hand_on(finding)
        self._inner.end(msgspec.structs.replace(conclusion, hidden=self.hidden))

    def _hand_on(self, finding: Finding) -> None:
        if self._filters.limit and self._handed_on >= self._filters.limit:
            self._hidden[finding.outcome] += 1
            self._beyond_limit += 1
            return
        self._handed_on += 1
        if finding.shared is not None:
            self._inner.finding_of_lost_key(finding, self._shared[finding.shared])
        else:
            self._inner.finding(finding)

    def _fits(self, finding: Finding) -> bool:
        filters, revision = self._filters, finding.mod_revision
        newer, older = filters.newer_than, filters.older_than
        if (
            (filters.outcomes and finding.outcome not in filters.outcomes)
            or (filters.causes and finding.cause not in filters.causes)
            or (filters.severities and finding.severity not in filters.severities)
            or (filters.stale and not finding.stale)
            or (newer is not None and newer.before is not None and revision <= newer.before)
            or (older is not None and older.after is not None and revision >= older.after)
        ):
            return False
        self._time_unknown += (newer is not None and (newer.after is None or revision < newer.after)) or (
            older is not None and (older.before is None or revision > older.before)
        )
        return True


def _turn(finding: Finding, sort_by: str) -> bytes:
    """Return what decides the place of a finding: no turn begins with another one."""
    match SortBy(sort_by or SortBy.KEY):
        case SortBy.KEY:
            first = b""
        case SortBy.RESOURCE:
            first = turn_of(f"{finding.resource}.{finding.group}".encode())
        case SortBy.CAUSE:
            first = turn_of(finding.cause.encode() if finding.cause is not None else _LAST)
        case SortBy.SEVERITY:
            first = bytes([_RANKS.get(finding.severity or "", len(_RANKS))])
        case SortBy.SIZE:
            first = _downwards(finding.value_size)
        case SortBy.REVISION:
            first = _downwards(finding.mod_revision)
    return first + turn_of(key_in(finding.key, finding.key_base64))


def _downwards(number: int) -> bytes:
    return (_HIGHEST - max(number, 0)).to_bytes(_NUMBER_BYTES)  # a damaged file can hold any
