"""What a scan says in the end, of a whole or of merged shards: why it is not complete, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from etcdfix.reports.first_step import Urgent
from etcdfix.reports.key_loss import LossRest, Place
from etcdfix.reports.model import Remedy, Summary
from etcdfix.reports.next_steps import next_way_out, plugin_problems
from etcdfix.reports.tally import TallyRest
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.words import counted


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a scan came.

    Attributes:
        problems: Why not everything could be shown; empty where it could.
        ended: What ended it early, "" where nothing did.
        lost_midway: The source was lost before the last key.
        below_prefix: Whether any key at all lies below the storage prefix.
        nothing_named_exists: Keys, key prefixes or namespaces were named, and none of them exists.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none lies below the prefix.
    """

    problems: list[str]
    ended: str
    lost_midway: bool
    below_prefix: bool
    nothing_named_exists: bool
    suggested_prefixes: list[str]


class ShardPart(msgspec.Struct, frozen=True, kw_only=True):
    """What ``report merge`` needs of a shard beside its summary; at the end of the shard's report, under ``part``.

    Attributes:
        findings: How many the report has.
        tally: What was counted and does not stand in the summary.
        losses: Values that may belong to lost encryption keys, by key.
        urgent: Which finding to act upon first, by the keys whose loss may explain it.
        seen: How far the scan of the shard came; nothing was decided yet about ``nothing_named_exists``.
        named: Keys or key prefixes were named, or namespaces of which none exists.
        prefixes: Of each of its first keys that hold no object, where none of all keys lies below the storage prefix:
            the prefix under which it would make sense, "" for none.
        words: The scope, as words of a command.
        again: What a command must repeat.
    """

    findings: int
    tally: TallyRest
    losses: list[LossRest]
    urgent: list[tuple[tuple[Place, ...], Urgent]]
    seen: Seen
    named: bool
    prefixes: list[str]
    words: list[str]
    again: RepeatedOptions


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
    reasons = [*seen.problems, *plugin_problems(summary.kms)]
    if not seen.below_prefix:
        reasons.append(f"no key starts with {prefix}")
    elif seen.nothing_named_exists:
        reasons.append("no key matches the given name")
    if seen.ended:
        reasons.append(f"{seen.ended} before the end")
    if summary.undetermined:
        reasons.append(f"undetermined: {counted(summary.undetermined, 'key')}")
    summary.next = next_way_out(
        summary,
        first,
        words,
        again,
        whole=not (seen.ended or seen.lost_midway or seen.problems),
        prefixes=None if seen.below_prefix else seen.suggested_prefixes,
    )
    return reasons
