"""The first lines of a report: what was found, how bad that is, what not to do, and the one command to run next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.advice.whole import plugin_problems, undetermined_problem
from etcdfix.report.base import fit
from etcdfix.report.model import Header, NewFindings, Remedy, Summary
from etcdfix.report.tally import MAX_NAMES
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.severity import Stake, headline, restart_warning, stake_of

_MOST_CAUSES = 2
_MOST_NAMED = 3
_WIDTH = 80
_MOST_NAME = 60


def head_lines(at_stake: str, do_not_restart: str, following: Remedy | None) -> Iterator[str]:
    """Yield what is at stake, what not to do, and what to do next, all of it safe to print."""
    if at_stake:
        yield safe_text(at_stake)
    if do_not_restart:
        yield safe_text(do_not_restart)
    if following is not None:
        yield f"Next: {safe_text(following.action)}"
        if following.command:
            yield f"  {safe_text(following.command.text)}"


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
        """Yield both, safe to print."""
        yield from head_lines(self.at_stake, self.do_not_restart, None)


def stakes_of(values: Iterable[Examination], *, past: bool = False) -> Stakes:
    """Return what is at stake with some values, which may stand in a snapshot."""
    stakes = Stakes(past=past)
    for found in values:
        stakes.add(found)
    return stakes


def found_line(
    header: Header,
    summary: Summary,
    reasons: Sequence[str],
    *,
    interrupted: bool,
    warnings: int = 0,
    shown: str = "below",
) -> str:
    """Return what a scan found, in one line of counts.

    Args:
        header: Says what was looked at.
        summary: All counts.
        reasons: Why it is not complete; empty where it is.
        interrupted: A signal ended it.
        warnings: How many keys have a warning and are not wrong.
        shown: Where these are shown.
    """
    new = summary.new
    lacks = counts_as_incomplete(summary, reasons)
    start = "INTERRUPTED: " if interrupted else "INCOMPLETE: " if lacks else ""
    scope = header.scope
    narrow = bool(scope.prefixes or scope.resources or scope.namespaces)
    where = " in scope" if narrow else ""
    if scope.namespaces:
        named = [safe_text(name) for name in scope.namespaces[:_MOST_NAMED]]
        more = f" and {len(scope.namespaces) - len(named)} more" if len(scope.namespaces) > len(named) else ""
        noun = "namespace" if len(scope.namespaces) == 1 else "namespaces"
        where += f" ({noun} {', '.join(named)}{more})"
    if header.source.type != "etcd":
        file = "file of kine" if header.source.type == "kine" else "snapshot"
        where += f" of the {file}" if narrow else f" in the {file}"
    if summary.keys == summary.not_objects:
        why = safe_text(reasons[0]) if reasons else "no object is in this scope"
        return f"NOTHING WAS EXAMINED: {why}."
    if new is not msgspec.UNSET and (new.findings or summary.known_findings):
        return f"{start}{_against_baseline(summary.known_findings, new, where)}."
    failed = summary.decrypt_failures + summary.decode_failures
    bad = failed + summary.inconsistent
    if not bad and not summary.undetermined:
        if start:
            seen = f"{counted(summary.keys - summary.not_objects, 'object')} seen{where}"
            return f"{start}nothing is wrong with the {seen}; not all were seen."
        if warnings:
            objects = counted(summary.readable, "object")
            return (
                f"NOTHING IS PROVEN WRONG with {objects}{where}; {counted(warnings, 'warning')}: see {shown}."
            )
        rest = "; the rest was not looked at" if narrow else ""
        return f"NOTHING WRONG FOUND in {counted(summary.readable, 'object')}{where}{rest}."
    of = f"of {counted(summary.keys, 'key')}{where}"
    if not bad:
        return f"{start}{summary.undetermined} {of} could not be judged{_in_brackets(summary)}."
    text = f"{start}{bad} {of} {_verb(failed, summary.inconsistent, bad)}"
    if summary.undetermined:
        text += f", {summary.undetermined} not judged"
    if summary.key_loss:
        lost = summary.key_loss[0]
        more = f", {len(summary.key_loss) - 1} more lost" if len(summary.key_loss) > 1 else ""
        return f"{text}: {lost.failures} of {lost.of} under {safe_text(fit(lost.transformer, _MOST_NAME))}{more}."
    causes = _causes(summary, "decrypt-failure", "decode-failure", "inconsistent")
    return f"{text} ({causes})." if len(text) + len(causes) + 4 <= _WIDTH else f"{text}."


def counts_as_incomplete(summary: Summary, reasons: Sequence[str]) -> bool:
    """Say whether what a report lacks makes its exit code: not what was undecided before, and the baseline knows."""
    if summary.new is msgspec.UNSET or summary.new.undetermined:
        return bool(reasons)
    return lost_midway(summary, reasons)


def lost_midway(summary: Summary, reasons: Sequence[str]) -> bool:
    """Say whether something in scope was not seen, beside what was seen and nobody could decide."""
    return not {undetermined_problem(summary), *plugin_problems(summary.kms)}.issuperset(reasons)


def _against_baseline(known: int, new: NewFindings, where: str) -> str:
    text = f"{new.findings} NEW: {safe_text(new.first or '')}" if new.findings else "nothing new"
    if new.findings > 1:
        text += f" and {new.findings - 1} more"
    all_of_them = '; -o json lists all: those without "baseline"' if new.findings > 1 else ""
    return f"{text} ({known} known){where}{all_of_them}"


def _in_brackets(summary: Summary) -> str:
    causes = _causes(summary, "undetermined")
    return f" ({causes})" if causes else ""


def _verb(failed: int, inconsistent: int, bad: int) -> str:
    if not inconsistent:
        return "cannot be read"
    are = "is" if bad == 1 else "are"
    return f"{are} unreadable or inconsistent" if failed else f"{are} inconsistent"


def _causes(summary: Summary, *outcomes: str) -> str:
    counts: dict[str, int] = {}
    for entry in summary.by_cause:
        if entry.outcome in outcomes:
            counts[entry.cause] = counts.get(entry.cause, 0) + entry.count
    if len(counts) == 1:
        return next(iter(counts))
    first = sorted(counts, key=lambda cause: -counts[cause])[:_MOST_CAUSES]
    text = ", ".join(f"{cause} {counts[cause]}" for cause in first)
    more = len(counts) - len(first)
    return text + (f", {counted(more, 'more cause')}" if more else "")
