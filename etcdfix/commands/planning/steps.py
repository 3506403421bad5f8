"""What to do about many broken objects, in order: nothing that can wait before what cannot.

What nobody misses is deleted first, what the cluster depends on last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.graph.model import Risk
from etcdfix.graph.recreation_rules import ComesBack
from etcdfix.model import Outcome
from etcdfix.report.advice.finding import undetermined_way
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.model import Remedy
from etcdfix.report.plan import PlanGroup, PlanStep
from etcdfix.report.plan_entry import Decision, PlanEntry, decision_on, is_breaking
from etcdfix.report.rows import Rows
from etcdfix.report.sorted_rows import SortedRows
from etcdfix.text import commands
from etcdfix.text.commands import Command, Part, RunOptions
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import Cause

_MOST_NAMED: Final = 5
_STAGES: Final = [ComesBack.NOT_NEEDED, ComesBack.BY_ITSELF, ComesBack.AFTER_A_STEP, ComesBack.NO]
_RISKS: Final = [risk.value for risk in Risk]


def in_order(drafts: Iterable[PlanEntry]) -> Sequence[PlanEntry]:
    """Return entries in their order, each with its turn.

    Raises:
        SourceError: They are many, and there is no room for them.
    """
    rows = SortedRows(PlanEntry)
    for entry in drafts:
        rows.add(_turn(entry), entry)
    everything = rows.finish()

    def read() -> Iterator[PlanEntry]:
        for turn, entry in enumerate(everything, start=1):
            msgspec.structs.force_setattr(entry, "order", turn)  # of a row that was read just now
            yield entry

    return Rows(len(everything), read)


def _turn(entry: PlanEntry) -> bytes:
    """Return what decides an object's turn: harmless first, then what is in use, what the cluster depends on last."""
    stage = _STAGES.index(ComesBack(entry.comes_back))
    unproven = entry.outcome == Outcome.UNDETERMINED or bool(entry.refused)
    # In use, and nobody makes it again: its users wait from its deletion until a person has made it.
    missed = entry.users > 0 and stage > _STAGES.index(ComesBack.BY_ITSELF)
    places = bytes([is_breaking(entry), unproven, missed, stage, _RISKS.index(entry.risk)])
    return places + entry.users.to_bytes(8) + entry.key.encode() + b"\x00"


def steps_for(
    entries: Sequence[PlanEntry], groups: Sequence[PlanGroup], report: str, run: RunOptions
) -> list[PlanStep]:
    """Return the steps; none where nothing is broken."""
    if not entries:
        return []
    return [
        PlanStep(title, text, [line for each in found if (line := each.line(run))])
        for title, text, *found in _steps(entries, groups, ("--from-report", report), run)
    ]


_Step = tuple[str, str, *tuple[Command, ...]]
"""Title, text and commands."""


def _step(title: str, text: str, *found: Command) -> _Step:
    return title, text, *found


def _steps(
    entries: Sequence[PlanEntry], groups: Sequence[PlanGroup], words: Sequence[str], run: RunOptions
) -> Iterator[_Step]:
    yield _step(
        "Do not restart the API servers",
        "Their memory may still hold the keys and the objects. A restart throws both away.",
    )
    # A plugin may only have to answer first, and damage is not in memory for long.
    lost = any(group.declaration and group.outcome != Outcome.UNDETERMINED for group in groups)
    anew = " A plan that knows them (--rescued DIR) has API servers write them anew." if lost else ""
    yield _step(
        "Save what API servers hold in memory",
        "One deletion ends that for all objects of a kind. It is refused until they are saved (--rescued DIR), or you "
        f"accept that. Keep the files as you keep the Secrets themselves.{anew}",
        *([commands.rescue(words)] if lost else []),
    )
    for group in groups:
        kept = recovered_configuration([Cause(group.cause)], group.transformer, run) if group.cause else None
        if kept is not None:
            text = f"{kept.note} What one of them opens is not lost: plan again with it."
            yield kept.action, text, kept.command
            break
    patterns = _patterns(group for group in groups if group.declaration)
    if patterns:
        yield _step(
            "Look for the encryption key",
            f"{patterns}: that is the key or the configuration, not the objects. With a key that you find you need no "
            "plan. Their deletion is refused until you declare the key lost.",
            commands.scan(reading=[Part.CONFIGURATION]),
        )
    silent: Counter[Remedy] = Counter()
    for group in groups:
        if group.outcome == Outcome.UNDETERMINED:
            silent[kms_step(group.cause, run)] += group.count
    for way, count in silent.items():
        text = f"Nothing is proven of {counted(count, 'object')}, and most likely all is well. Plan again after that."
        yield way.action, text, way.command
    yield from _copies(entries, words, run)
    others = _patterns(group for group in groups if not group.declaration)
    if others:
        yield _step(
            "Find out what happened to many values",
            f"{others}: the advice of the groups says what to suspect. Delete none of them before you know.",
            commands.scan("-o", "yaml"),
        )
    store = "Copy the database of kine" if run.of_kine else "Take a snapshot of etcd"
    yield _step(
        f"{store}, and keep it",
        "A key may turn up later.",
        commands.save_copy(run, "before-deletions.db"),
    )
    yield "Delete in the order of this plan, one key after the other", _deletions(entries, run)
    yield "Scan again", "Nothing of this plan may be left.", commands.scan()


def _copies(entries: Sequence[PlanEntry], words: Sequence[str], run: RunOptions) -> Iterator[_Step]:
    saved, worst = 0, None
    fixes: Counter[str] = Counter()
    first_fixes: list[Command] = []
    for entry in entries:
        saved += bool(entry.save)
        # What has a later turn is missed more; of what is not proven, nothing is lost yet.
        if entry.save and (worst is None or entry.outcome != Outcome.UNDETERMINED):
            worst = entry
        if decision_on(entry).decision == Decision.FIX:
            fixes[entry.source.partition(":")[0]] += 1
            if len(first_fixes) < _MOST_NAMED:
                first_fixes.append(Command(text=entry.fix))
    if worst is not None:
        # A file compacts nothing, and nothing can be put back into it.
        soon = "API servers have it compacted away every 5 minutes: save all of them now, or take a snapshot."
        if run.of_a_file:
            soon = "A live etcd may have compacted it: keep this file."
        if run.of_a_file and not run.of_kine:
            soon += f" etcdfix fix KEY --from snapshot:{run.file} puts it back from there."
        told = f"A readable revision of {counted(saved, 'object')} is kept (save in the plan). {soon}"
        yield "Save earlier revisions", f"{told} The worst loss:", Command(text=worst.save)
    if fixes:
        places = ", ".join(f"{count} from {place}" for place, count in fixes.most_common())
        told = f"{counted(fixes.total(), 'object')}: {places} (from in the plan). The first dry runs:"
        yield "Put back what has a copy, before anything is deleted", told, *first_fixes
    yield _step(
        "Look for every other copy",
        "It may be in etcd's write-ahead log, older snapshots or backups. To put one back is better than to delete. "
        "Drop the options that you have no file for.",
        commands.copies(*words, options=[Part.OTHER_PLACES]),
    )


def kms_step(cause: str | None, run: RunOptions) -> Remedy:
    """Return what comes first for values of which nothing is proven, since KMS did not open them."""
    way = undetermined_way({cause or ""}, (), run)
    assert way is not None  # there is a cause
    return way


def _deletions(entries: Iterable[PlanEntry], run: RunOptions) -> str:
    by_hand = breaking = 0
    for entry in entries:
        by_hand += entry.comes_back == ComesBack.NO
        breaking += is_breaking(entry)
    last = f", and last {counted(breaking, 'object')} that the cluster may depend on" if breaking else ""
    how = "Each command is a dry run: leave --dry-run out when what it shows is right."
    if run.of_kine:
        how = "etcdfix deletes nothing in kine: an API server does. etcdfix explain shows the request."
    hand = ""
    if by_hand:
        hand = (
            f" Nobody makes {counted(by_hand, 'object')} again: have a manifest or a copy of each in hand before you "
            "delete it, and create it after that."
        )
    order = "First what comes back by itself (see that it does), then what nobody uses, then what is in use"
    return f"{order}{last}. {how}{hand}"


def _patterns(groups: Iterable[PlanGroup]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for group in groups:
        if group.advice and group.outcome != Outcome.UNDETERMINED:
            counts[group.transformer, group.opened] += group.count
    return "; ".join(
        f"{counted(count, 'object')} under {transformer or 'unknown envelopes'}, where {opened or 'none'} open"
        for (transformer, opened), count in counts.most_common(_MOST_NAMED)
    )
