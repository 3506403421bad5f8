"""What to do about many broken objects, in order: nothing that can wait before what cannot."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from etcdfix.graph.recreation_rules import ComesBack
from etcdfix.operations.look.plan_entries import is_breaking, is_guess, trials
from etcdfix.reports.base import counted
from etcdfix.reports.plan_model import PlanEntry, PlanGroup, PlanStep, meaning
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import quote_command

_MOST_RESOURCES: Final = 10
_MOST_NAMED: Final = 5
_UNDETERMINED: Final = "undetermined"
_IDENTITY: Final = "identity"


def steps_for(
    entries: Sequence[PlanEntry],
    groups: Sequence[PlanGroup],
    lists: dict[tuple[str, str], str],
    again: RepeatedOptions,
) -> list[PlanStep]:
    """Return the steps; none where nothing is broken.

    Args:
        entries: In their order.
        groups: Of the entries.
        lists: ``(group, resource)`` to the path of its LIST in the API.
        again: What a command must repeat.
    """
    if not entries:
        return []
    return [*_before(entries, groups, lists, again), *_deletions(entries, again)]


def _before(
    entries: Sequence[PlanEntry],
    groups: Sequence[PlanGroup],
    lists: dict[tuple[str, str], str],
    again: RepeatedOptions,
) -> Iterator[PlanStep]:
    yield PlanStep(
        "Do not restart the API servers",
        "Their caches may still hold the keys and the objects; a restart throws both away.",
    )
    yield PlanStep(
        "Save what the caches hold",
        "From each API server in turn, by its own address. Keep the files as you would keep the Secrets themselves.",
        [
            quote_command(["kubectl", "get", "--raw", f"{lists[place]}?resourceVersion=0"])
            for place in list(lists)[:_MOST_RESOURCES]
        ],
    )
    silent = sum(group.count for group in groups if group.outcome == _UNDETERMINED)
    if silent:
        yield PlanStep(
            "Bring the KMS plugin back",
            f"Of {counted(silent, 'object')} nothing is proven: most likely they are in order. Scan and plan again.",
        )
    patterns = _patterns(groups)
    if patterns:
        yield PlanStep(
            "Look for the key",
            f"{patterns}: that is the key or the configuration, not the objects. A key that is found makes this plan "
            "needless; until it is declared lost, their deletion is refused.",
        )
    yield PlanStep(
        "Take a snapshot of etcd, and keep it",
        "A key may turn up later.",
        ["etcdctl snapshot save before-deletions.db"],
    )
    earlier = [e for e in entries if e.readable_revision and (is_guess(e) or e.comes_back == ComesBack.NO)]
    if earlier:
        first = earlier[0]
        yield PlanStep(
            "Put back earlier revisions before etcd compacts them",
            f"Of {counted(len(earlier), 'object')} that nobody makes again etcd kept a readable revision "
            "(readable_revision in the plan). To put one back is better than to delete it; add "
            "--accept-unlisted-source, since they are no backups of ours. The first of them:",
            [_restore(first, again)],
        )


def _deletions(entries: Sequence[PlanEntry], again: RepeatedOptions) -> Iterator[PlanStep]:
    sure = [entry for entry in entries if not is_guess(entry)]
    alone = [entry for entry in sure if entry.comes_back == ComesBack.BY_ITSELF]
    if alone:
        first = trials(entries)
        turns = "The first turn is one of them" if first == 1 else f"The first {first} turns are one of each"
        yield PlanStep(
            "See that those run who make objects again",
            f"{counted(len(alone), 'object')} should come back without you: {_makers(alone)}. "
            + (f"{turns}: delete that much, and wait until it is there again." if first else ""),
        )
    helped = [entry for entry in sure if entry.comes_back == ComesBack.AFTER_A_STEP]
    if helped:
        yield PlanStep(
            "Make ready what needs a step after the deletion",
            f"{counted(len(helped), 'object')}: {_makers(helped)}. Which step, the list of makers says (HOW).",
        )
    hand = [entry for entry in entries if is_guess(entry) or entry.comes_back == ComesBack.NO]
    if hand:
        used = sum(entry.users > 0 for entry in hand)
        guessed = sum(map(is_guess, hand))
        warning = f", {guessed} of them with a maker that is only guessed" if guessed else ""
        yield PlanStep(
            "Have the replacement of the others in hand BEFORE you delete them",
            f"{counted(len(hand), 'object')}, {used} of them in use{warning}: from a manifest, a saved cache, a "
            "snapshot that still opens. Nothing can be created under a name while the broken value is there, so "
            "create each right after its deletion.",
        )
    own = _own_words(entries)
    if own:
        yield PlanStep(
            "Decide what only you can say",
            f"The commands accept nothing for you: without these flags the deletion is refused. {own}.",
        )
    last = sum(map(is_breaking, entries))
    yield PlanStep(
        "Delete in the order of this plan, one key after the other",
        "First what comes back by itself, then what nobody uses, then what is in use"
        + (f", and last {counted(last, 'object')} that the cluster itself may stand on" if last else "")
        + ". Each command is a dry run; leave --dry-run out when what it shows is right. Each grade is that of one "
        "deletion while everything else is there: read the preview of each.",
    )
    yield PlanStep(
        "Scan again",
        "Nothing of this plan may be left.",
        [quote_command(["etcdfix", "scan", *again.source, *again.layout, *again.reading])],
    )


def _own_words(entries: Sequence[PlanEntry]) -> str:
    """Say which flags the commands lack, for how many objects, and what each declares."""
    counts = Counter(flag for entry in entries for flag in entry.needs).most_common()
    said = [
        f"{flag} for {counted(count, 'object')} ({meaning(flag)})" for flag, count in counts[:_MOST_NAMED]
    ]
    more = len(counts) - _MOST_NAMED
    return "; ".join(said) + (
        f"; and {counted(more, 'more flag')}, see the advice of the groups" if more > 0 else ""
    )


def _patterns(groups: Sequence[PlanGroup]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for group in groups:
        if group.advice and group.outcome != _UNDETERMINED and group.transformer not in {_IDENTITY, ""}:
            counts[group.transformer, group.opened] += group.count
    return "; ".join(
        f"{counted(count, 'object')} under {transformer}, where {opened or 'none'} open"
        for (transformer, opened), count in counts.most_common(_MOST_NAMED)
    )


def _makers(entries: Sequence[PlanEntry]) -> str:
    counts = Counter(entry.recreated_by for entry in entries).most_common()
    names = ", ".join(f"{name} {count}" for name, count in counts[:_MOST_NAMED])
    return names + (f", and {len(counts) - _MOST_NAMED} more" if len(counts) > _MOST_NAMED else "")


def _restore(entry: PlanEntry, again: RepeatedOptions) -> str:
    """Return the dry run that puts the readable revision in the place of the broken one, on a live etcd."""
    key = base64.b64decode(entry.key_base64) if entry.key_base64 is not None else entry.key.encode()
    return again.restore(key, entry.readable_revision, replacing=entry.mod_revision)
