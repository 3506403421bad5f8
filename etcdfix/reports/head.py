"""The first lines of a report: what was found, how bad that is, what not to do, and the one command to run next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etcdfix.reports.base import counted
from etcdfix.reports.model import Header, Remedy, Summary
from etcdfix.reports.next_steps import first_way_out
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.severity import Stake, headline, restart_warning

_MOST_CAUSES = 2
_WIDTH = 80


def head_lines(at_stake: str, do_not_restart: str, following: Remedy | None) -> Iterator[str]:
    """Yield what is at stake, what not to do, and what to do next, all of it safe to print."""
    if at_stake:
        yield safe_text(at_stake)
    if do_not_restart:
        yield safe_text(do_not_restart)
    if following is not None:
        yield f"Next: {safe_text(following.action)}"
        if following.command:
            yield f"  {safe_text(following.command)}"


def head_of(
    stakes: Sequence[Stake], undetermined: Sequence[str], remedies: Sequence[Remedy]
) -> Iterator[str]:
    """Yield the same of what is at stake, the causes of what could not be judged, and ordered ways out."""
    yield from head_lines(
        headline(stakes, undetermined), restart_warning(stakes, undetermined), first_way_out(remedies)
    )


def found_line(header: Header, summary: Summary, reasons: Sequence[str], *, interrupted: bool) -> str:
    """Return what a scan found, in one line of counts.

    Args:
        header: Says what was looked at.
        summary: All counts.
        reasons: Why it is not complete; empty where it is.
        interrupted: A signal ended it.
    """
    start = "INTERRUPTED: " if interrupted else "INCOMPLETE: " if reasons else ""
    scope = header.scope
    narrow = bool(scope.prefixes or scope.resources or scope.namespaces)
    where = " in scope" if narrow else ""
    if header.source.type == "snapshot":
        where += " of the snapshot" if narrow else " in the snapshot"
    if summary.keys == summary.not_objects:
        why = safe_text(reasons[0]) if reasons else "no object is in this scope"
        return f"NOTHING WAS EXAMINED: {why}."
    failed = summary.decrypt_failures + summary.decode_failures
    bad = failed + summary.inconsistent
    if not bad and not summary.undetermined:
        if start:
            seen = f"{counted(summary.keys, 'key')} seen{where}"
            return f"{start}nothing is wrong with the {seen}; not all were seen."
        rest = "; the rest was not looked at" if narrow else ""
        return f"NOTHING IS WRONG with {counted(summary.readable, 'object')}{where}{rest}."
    of = f"of {counted(summary.keys, 'key')}{where}"
    if not bad:
        return f"{start}{summary.undetermined} {of} could not be judged ({_causes(summary, 'undetermined')})."
    text = f"{start}{bad} {of} {_verb(failed, summary.inconsistent, bad)}"
    if summary.undetermined:
        text += f", {summary.undetermined} not judged"
    if summary.known_findings:
        text += f", {summary.known_findings} known from the baseline"
    if summary.key_loss:
        lost = summary.key_loss[0]
        more = f", {len(summary.key_loss) - 1} more lost" if len(summary.key_loss) > 1 else ""
        return f"{text}: {lost.failures} of {lost.of} under {safe_text(lost.transformer)}{more}."
    causes = _causes(summary, "decrypt-failure", "decode-failure", "inconsistent")
    return f"{text} ({causes})." if len(text) + len(causes) + 4 <= _WIDTH else f"{text}."


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
