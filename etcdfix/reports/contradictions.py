"""What a saved report says twice: its findings, held against what its summary says of them.

Where the two differ, the file was edited, or a part of it is lost.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import msgspec

from etcdfix.model import Outcome
from etcdfix.reports.base import fit
from etcdfix.reports.model import COUNTED
from etcdfix.text.safetext import WITHHELD, safe_text
from etcdfix.text.words import counted
from etcdfix.verdicts.severity import Severity

MOST_COUNTED: Final = 10**10
"""No etcd holds more keys; what a thousand entries of a million reports add up to is less than 2**64."""

MOST_REVISION: Final = 2**63 - 1
"""Of etcd."""

OUT_OF_ORDER: Final = "findings are not all in the order of their keys: no room in the temporary directory"
"""What a scan says of its findings where they are not."""

_CONTRADICTS: Final = "the report contradicts itself:"
_HEALTHY: Final = frozenset({Outcome.READABLE.value, Outcome.NOT_AN_OBJECT.value})
_ORDER: Final = [severity.value for severity in Severity]


class _Finding(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def key_base64(self) -> str | None: ...
    @property
    def outcome(self) -> str: ...
    @property
    def severity(self) -> str | None: ...
    @property
    def baseline(self) -> bool: ...


class _Counts(Protocol):
    keys: int
    readable: int
    decrypt_failures: int
    decode_failures: int
    inconsistent: int
    undetermined: int


class _Summary(_Counts, Protocol):
    not_objects: int
    known_findings: int
    severity: str | None
    do_not_restart: str


class SeenFindings:
    """Adds up the findings of a report as they pass.

    Attributes:
        counts: How many there are, by field of the summary.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._worst = len(_ORDER)
        self._known = 0
        self._before = b""
        self._misplaced = ""

    def take(self, finding: _Finding) -> str:
        """Look at one finding; return the field of the summary that counts it, "" where nothing is wrong with it.

        Raises:
            msgspec.ValidationError: Its key is not as a report has keys.
        """
        self._known += finding.baseline
        if not finding.key.endswith(WITHHELD):  # nobody can tell the place of what was withheld
            key = key_in(finding.key, finding.key_base64)
            if key <= self._before and not self._misplaced:
                self._misplaced = finding.key
            self._before = key
        self._worst = min(self._worst, _rank(finding.severity))
        if finding.outcome in _HEALTHY:
            return ""
        # Of a newer version; whoever reads a report takes what they do not know as undetermined.
        field = COUNTED.get(finding.outcome, "undetermined")
        self.counts[field] += 1
        return field

    def contradictions(self, summary: _Summary, *, in_order: bool) -> Iterator[str]:
        """Say what does not fit, once all were taken.

        Args:
            summary: That of the report.
            in_order: The findings have to be in the order of their etcd keys, and each key there once.
        """
        if in_order and self._misplaced:
            yield f"{_CONTRADICTS} {safe_text(fit(self._misplaced))} is not where it belongs among its findings"
        yield from contradictions(self.counts, {field: getattr(summary, field) for field in COUNTED.values()})
        if self._known != summary.known_findings:
            known = f"a baseline knew {counted(self._known, 'finding')}"
            yield f"{_CONTRADICTS} {known}, and it counts {summary.known_findings}"
        if summary.keys < by_outcome(summary) + summary.not_objects:
            yield f"{_CONTRADICTS} it counts {counted(summary.keys, 'key')}, and more by outcome"
        if self._worst != _rank(summary.severity):
            yield f"{_CONTRADICTS} its findings are not as severe as its summary says, or more so"
        if self._worst < _rank(Severity.ONE_OBJECT) and not summary.do_not_restart:
            yield f"{_CONTRADICTS} of its findings some speak against a restart of an API server, and it does not"


def contradictions(found: Mapping[str, int], told: Mapping[str, int]) -> list[str]:
    """Say where the findings are not those that the summary counts.

    Args:
        found: How many findings there are, by field of the summary.
        told: What the summary says.
    """
    return [
        f"{_CONTRADICTS} it has {found[field]} findings of {outcome}, and counts {told[field]}"
        for outcome, field in COUNTED.items()
        if found[field] != told[field]
    ]


def by_outcome(counts: _Counts) -> int:
    """Return how many objects there are by all outcomes together."""
    failed = counts.decrypt_failures + counts.decode_failures
    return counts.readable + failed + counts.inconsistent + counts.undetermined


def key_in(shown: str, encoded: str | None) -> bytes:
    """Return an etcd key as a report has it.

    Raises:
        msgspec.ValidationError: It is no base64, or no text.
    """
    try:
        return base64.b64decode(encoded, validate=True) if encoded is not None else shown.encode()
    except ValueError as exc:
        raise msgspec.ValidationError(f"a key of it is none: {exc}") from exc


def _rank(severity: str | None) -> int:
    """Return the worst as the smallest number, none as the largest; a word of a newer version is worse than all."""
    if severity is None:
        return len(_ORDER)
    return _ORDER.index(severity) if severity in _ORDER else -1
