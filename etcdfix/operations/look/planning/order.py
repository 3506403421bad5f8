"""In which order many broken objects are acted upon: what nobody misses first, what the cluster stands on last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from etcdfix.graph.model import Risk
from etcdfix.graph.recreation_rules import ComesBack
from etcdfix.model import Confidence, Outcome
from etcdfix.reports.plan_model import PlanEntry

STAGES: Final = {
    ComesBack.NOT_NEEDED.value: 0,
    ComesBack.BY_ITSELF.value: 1,
    ComesBack.AFTER_A_STEP.value: 2,
    ComesBack.NO.value: 3,
}
_RISKS: Final = [risk.value for risk in Risk]


def is_guess(entry: PlanEntry) -> bool:
    """Say whether somebody may make an object again, but nothing that one should rely on says so."""
    return entry.recreate_confidence == Confidence.POSSIBLE


def is_breaking(entry: PlanEntry) -> bool:
    """Say whether the cluster itself may stand on an object, so that its deletion needs ``--accept-risk``."""
    return bool(entry.protected) or entry.risk == Risk.CLUSTER_BREAKING


def in_order(drafts: Iterable[PlanEntry]) -> list[PlanEntry]:
    """Return entries in their order, each with its turn.

    The first turns go to one object of each maker whose objects come back by themselves: whether they do is seen there.
    """
    entries = sorted(drafts, key=_turn)
    trials = _trials(entries)
    tried = {entry.key for entry in trials}
    entries = trials + [entry for entry in entries if entry.key not in tried]
    return [msgspec.structs.replace(entry, order=turn) for turn, entry in enumerate(entries, start=1)]


def trials(entries: Sequence[PlanEntry]) -> int:
    """Return how many of the first turns are one of each maker."""
    return len(_trials(entries))


def _trials(entries: Iterable[PlanEntry]) -> list[PlanEntry]:
    """Return the first entry of each maker whose objects come back by themselves, where nothing speaks against it."""
    found: dict[str, PlanEntry] = {}
    for entry in entries:
        comes_back = entry.comes_back == ComesBack.BY_ITSELF and not is_guess(entry)
        if comes_back and not is_breaking(entry) and entry.outcome != Outcome.UNDETERMINED:
            found.setdefault(entry.recreated_by, entry)
    return list(found.values())


def _turn(entry: PlanEntry) -> tuple[bool, bool, bool, int, int, int, str]:
    """Return what decides an object's turn: harmless first, then what is in use, what the cluster stands on last."""
    stage = STAGES[ComesBack.NO if is_guess(entry) else entry.comes_back]
    # In use, and nobody makes it again: its users wait from its deletion until a person has made it.
    missed = entry.users > 0 and stage > STAGES[ComesBack.BY_ITSELF]
    unproven = entry.outcome == Outcome.UNDETERMINED
    risk = _RISKS.index(entry.risk)
    return is_breaking(entry), unproven, missed, stage, risk, entry.users, entry.key
