"""The first lines of a report: what was found, how bad that is, what not to do, and the one command to run next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from etcdfix.report.advice.whole import plugin_problems, undetermined_problem
from etcdfix.report.counts import NewFindings
from etcdfix.report.group_words import objects_by_kind
from etcdfix.report.model import LostKey, Summary
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.report.scan import ScanReport

_MOST_NAMED = 3
_WIDTH = 100
_MOST_NAME = 60
_MOST_KEY = 20


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
