"""Why a scan is not complete, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from etcdfix.reports.model import Remedy, Summary
from etcdfix.reports.next_steps import (
    awaited_plugins,
    next_way_out,
    plugin_problems,
    undetermined_problem,
)
from etcdfix.text.commands import RepeatedOptions


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan came.

    Attributes:
        problems: Why not everything could be shown; empty where it could.
        ended: What ended it early, "" where nothing did.
        lost_midway: The source was lost before the last key.
        below_prefix: Whether any key at all lies below the storage prefix.
        nothing_named_exists: Keys, key prefixes or namespaces were named, and none of them exists.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
        elsewhere: Other known storage prefixes under which keys lie beside those, most of them first.
    """

    problems: list[str]
    ended: str
    lost_midway: bool
    below_prefix: bool
    nothing_named_exists: bool
    suggested_prefixes: list[str]
    elsewhere: list[str]


def conclude(
    summary: Summary,
    first: Remedy | None,
    seen: Seen,
    *,
    prefix: str,
    words: Sequence[str],
    again: RepeatedOptions,
) -> list[str]:
    """Return why a report is not complete, nothing where it is; and write into the summary what to do next.

    Args:
        summary: All counts.
        first: The first way out of the worst that is wrong; None where nothing is.
        seen: How far the scan came.
        prefix: The storage prefix.
        words: The scope that was scanned, as words of a command.
        again: What a command must repeat.
    """
    reasons = [*seen.problems, *plugin_problems(awaited_plugins(summary))]
    if not seen.below_prefix:
        reasons.append(f"no key starts with {prefix}")
    elif seen.nothing_named_exists:
        reasons.append("no key matches the given name")
    if seen.ended:
        reasons.append(f"{seen.ended} before the end")
    undetermined = undetermined_problem(summary)
    if undetermined:
        reasons.append(undetermined)
    summary.next = next_way_out(
        summary,
        first,
        words,
        again,
        whole=not (seen.ended or seen.lost_midway or seen.problems),
        prefixes=None if seen.below_prefix else seen.suggested_prefixes,
        elsewhere=seen.elsewhere,
        prefix=prefix,
    )
    return reasons
