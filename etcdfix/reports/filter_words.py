"""What is said of filters: what they were, what they hide, and of which findings they could not decide."""

from __future__ import annotations

from collections.abc import Iterator

from etcdfix.reports.model import Filters, HiddenFindings, RevisionBound
from etcdfix.text.safetext import quote_command, safe_text
from etcdfix.text.words import counted


def filter_words(filters: Filters) -> str:
    """Return filters as they are typed."""
    words: list[str] = []
    for option, values in (
        ("--outcome", filters.outcomes),
        ("--cause", filters.causes),
        ("--severity", filters.severities),
    ):
        if values:
            words += [option, ",".join(values)]
    for option, bound in (("--newer-than", filters.newer_than), ("--older-than", filters.older_than)):
        if bound is not None:
            words += [option, bound.given]
    if filters.stale:
        words.append("--stale")
    if filters.sort_by:
        words += ["--sort-by", filters.sort_by]
    if filters.limit:
        words += ["--limit", str(filters.limit)]
    return quote_command(words)


def hidden_lines(filters: Filters, hidden: HiddenFindings) -> Iterator[str]:
    """Yield sentences, safe to print: what is not shown, and what is only for want of a time."""
    if hidden.findings:
        kinds = ", ".join(f"{safe_text(outcome)} {number}" for outcome, number in hidden.by_outcome.items())
        beyond = f", {hidden.beyond_limit} of them beyond the limit" if hidden.beyond_limit else ""
        are = "is" if hidden.findings == 1 else "are"
        yield (
            f"{counted(hidden.findings, 'finding')} {are} not shown ({kinds}){beyond}: {filter_words(filters)}. "
            "What is counted is everything."
        )
    elif filters.hides:
        yield f"No finding is hidden by {filter_words(filters)}."
    for option, bound in (("--newer-than", filters.newer_than), ("--older-than", filters.older_than)):
        if bound is not None and bound.time:
            yield f"{option} {safe_text(bound.given)} is {safe_text(bound.time)}: {_known(bound)}."
    if hidden.time_unknown:
        yield (
            f"Of {counted(hidden.time_unknown, 'finding')} it is not known whether the value was written before or "
            "after that: shown."
        )


def _known(bound: RevisionBound) -> str:
    if bound.before is None and bound.after is None:
        return "which revision etcd had then is not known, so nothing is hidden for its age"
    parts = []
    if bound.before is not None:
        parts.append(f"values up to mod revision {bound.before} are older")
    if bound.after is not None:
        parts.append(
            f"those from {bound.after} on are newer" if parts else f"values from {bound.after} on are newer"
        )
    return f"{', '.join(parts)}, by the times that objects state"
