"""The first lines of a report: what was found, how bad that is, what not to do, and the one command to run next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.advice.whole import plugin_problems, undetermined_problem
from etcdfix.report.counts import NewFindings
from etcdfix.report.group_words import objects_by_kind
from etcdfix.report.model import LostKey, Summary
from etcdfix.report.tally import MAX_NAMES
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted, fit
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.severity import Stake, headline, restart_warning, stake_of

if TYPE_CHECKING:
    from etcdfix.report.scan import ScanReport

_MOST_NAMED = 3
_WIDTH = 100
_MOST_NAME = 60
_MOST_KEY = 20


class Stakes:
    """Gathers what is at stake with values that pass: there are few kinds of it, so its memory is small.

    Args:
        past: They stand in a snapshot, or at a past revision.
    """

    def __init__(self, *, past: bool = False) -> None:
        self._past = past
        self._stakes: dict[Stake, None] = {}
        self._undetermined: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._stakes or self._undetermined)

    def add(self, found: Examination) -> None:
        """Take one value."""
        stake = stake_of(found)
        if stake is not None and len(self._stakes) < MAX_NAMES:
            self._stakes[stake] = None
        elif found.verdict.outcome is Outcome.UNDETERMINED and found.verdict.cause is not None:
            self._undetermined[found.verdict.cause] = None

    @property
    def at_stake(self) -> str:
        """What is at stake, in one line; "" for nothing."""
        return headline([*self._stakes], [*self._undetermined], past=self._past)

    @property
    def do_not_restart(self) -> str:
        """Why no API server should be restarted; "" where nothing speaks against it."""
        return restart_warning([*self._stakes], [*self._undetermined], past=self._past)

    def lines(self) -> Iterator[str]:
        """Return both, safe to print."""
        return map(safe_text, filter(None, [self.at_stake, self.do_not_restart]))


def stakes_of(values: Iterable[Examination], *, past: bool = False) -> Stakes:
    """Return what is at stake with some values, which may stand in a snapshot."""
    stakes = Stakes(past=past)
    for found in values:
        stakes.add(found)
    return stakes


def found_line(report: ScanReport) -> str:
    """Return what a scan found, in one line of counts."""
    summary, scope, reasons = report.summary, report.scope, report.incomplete_reasons
    lacks = counts_as_incomplete(summary, reasons)
    start = "INTERRUPTED: " if report.interrupted else "INCOMPLETE: " if lacks else ""
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
            return f"{start}nothing is wrong with the {counted(objects, 'object')} examined{place}"
        if summary.warnings:
            warned = f"{counted(summary.warnings, 'warning')} (-o wide)"
            return f"NOTHING IS PROVEN WRONG with {counted(objects, 'object')}{place}, {warned}"
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


def counts_as_incomplete(summary: Summary, reasons: Sequence[str]) -> bool:
    """Say whether what a report lacks makes its exit code: not what was undecided before, and the baseline knows."""
    if summary.new is msgspec.UNSET or summary.new.undetermined:
        return bool(reasons)
    return lost_midway(summary, reasons)


def lost_midway(summary: Summary, reasons: Sequence[str]) -> bool:
    """Say whether something in scope was not seen, beside what was seen and nobody could decide."""
    return not {undetermined_problem(summary), *plugin_problems(summary.kms)}.issuperset(reasons)


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
