"""In which order broken objects have their turn, and what comes before all of them.

What nobody misses goes first, what the cluster depends on last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.graph.model import Risk
from etcdfix.graph.recreation import ComesBack
from etcdfix.model.model import Outcome
from etcdfix.report.advice.finding import undetermined_way
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.model import Remedy
from etcdfix.report.plan import PlanEntry, PlanGroup, PlanStep, is_breaking
from etcdfix.report.rows import Rows, SortedRows
from etcdfix.text import commands
from etcdfix.text.commands import Command, Part, RunOptions
from etcdfix.text.words import counted

_STAGES: Final = [ComesBack.NOT_NEEDED, ComesBack.BY_ITSELF, ComesBack.AFTER_A_STEP, ComesBack.NO]
_RISKS: Final = [risk.value for risk in Risk]


def in_order(drafts: Iterable[PlanEntry]) -> Sequence[PlanEntry]:
    """Return entries in their order, each with its turn; raises SourceError."""
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
    """Return what comes before any change; nothing where nothing is broken."""
    if not entries:
        return []
    steps = _steps(entries, groups, ("--from-report", report), run)
    return [PlanStep(title, text, command.line(run)) for title, text, command in steps]


def kms_step(cause: str | None, run: RunOptions) -> Remedy:
    """Return what comes first for values of which nothing is proven, since KMS did not open them."""
    way = undetermined_way({cause or ""}, (), run)
    assert way is not None  # there is a cause
    return way


def _steps(
    entries: Sequence[PlanEntry], groups: Sequence[PlanGroup], words: Sequence[str], run: RunOptions
) -> Iterator[tuple[str, str, Command]]:
    if any(group.declaration and group.outcome != Outcome.UNDETERMINED for group in groups):
        held = (
            "Do not restart them: that ends it at once, and one deletion ends it for all objects of a kind. Keep the "
            "files as you keep the Secrets themselves. A plan with --rescued DIR has API servers write these anew."
        )
        yield "Save what API servers hold in memory", held, commands.rescue(words)
        ways = [
            recovered_configuration([Cause(group.cause)], group.transformer, run)
            for group in groups
            if group.cause
        ]
        kept = next(filter(None, ways), None)
        if kept is not None:
            yield kept.action, f"{kept.note} What one of them opens is not lost: plan again.", kept.command
        found = "With a configuration that opens them you need no plan."
        yield "Look for the encryption key", found, commands.encryption_try(())
    if any(group.cause == Cause.VERSION_REMOVED for group in groups):
        page = Command(["etcdfix", "explain", Cause.VERSION_REMOVED])
        yield "Have an older API server rewrite what only it reads", "These values are whole.", page
    silent = (group.cause for group in groups if group.outcome == Outcome.UNDETERMINED)
    for way in dict.fromkeys(kms_step(cause, run) for cause in silent):
        yield (
            way.action,
            "Most likely all is well. Plan again after that.",
            way.command,
        )
    saved, worst = 0, None
    for entry in entries:  # on disk: one pass
        saved += bool(entry.save)
        # What has a later turn is missed more; of what is not proven, nothing is lost yet.
        if entry.save and (worst is None or entry.outcome != Outcome.UNDETERMINED):
            worst = entry
    if worst is not None:
        soon = "A live etcd may have compacted it: keep this file."
        if not run.of_a_file:
            soon = "API servers compact old revisions away every 5 minutes: save all of them now, or take a snapshot."
        told = f"A readable revision of {counted(saved, 'object')} is kept (save in the plan). {soon}"
        yield "Save earlier revisions", f"{told} The worst loss:", Command(text=worst.save)
    others = (
        "It may be in etcd's write-ahead log, older snapshots or backups. To put one back is better than to delete. "
        "Drop the options that you have no file for."
    )
    yield "Look for every other copy", others, commands.copies(*words, options=[Part.OTHER_PLACES])
    store = "Copy the database of kine" if run.of_kine else "Take a snapshot of etcd"
    yield f"{store}, and keep it", "A key may turn up later.", commands.save_copy(run, "before-deletions.db")
