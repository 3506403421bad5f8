"""The first line of a scan's report, for who does not see the report."""

from __future__ import annotations

from collections.abc import Callable, Collection

from etcdfix.model import Outcome
from etcdfix.report.base import Reporter
from etcdfix.report.head import found_line
from etcdfix.report.model import Conclusion, Finding, Header, SharedWords


class SummingUp(Reporter):
    """Hands everything on, and tells in the end what the table would begin with.

    Args:
        inner: Writes the report.
        told: Takes what was found, in one line of counts, in the end.
    """

    def __init__(self, inner: Reporter, told: Callable[[str], object]) -> None:
        self._told = told
        self._inner = inner
        self._header: Header | None = None
        self._warned = 0

    def heed(self, outcomes: Collection[str]) -> None:
        """Hand on which outcomes make the exit code."""
        self._inner.heed(outcomes)

    def begin(self, header: Header) -> None:
        """Keep the header, and hand it on."""
        self._header = header
        self._inner.begin(header)

    def finding(self, finding: Finding) -> None:
        """Hand on a finding."""
        self._count(finding)
        self._inner.finding(finding)

    def finding_of_lost_key(self, finding: Finding, shared: SharedWords) -> None:
        """Hand on a finding of a lost key: no warning is one."""
        self._inner.finding_of_lost_key(finding, shared)

    def _count(self, finding: Finding) -> None:
        self._warned += finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}

    def end(self, conclusion: Conclusion) -> None:
        """Hand on the conclusion."""
        assert self._header is not None  # begin() comes first
        self._inner.end(conclusion)
        self._told(
            found_line(
                self._header,
                conclusion.summary,
                conclusion.incomplete_reasons,
                interrupted=conclusion.interrupted,
                warnings=self._warned,
                shown="there",
            )
        )
