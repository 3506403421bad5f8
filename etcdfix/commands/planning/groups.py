"""Entries with one cause under one encryption key, and what holds for all of them."""

from __future__ import annotations

import msgspec

from etcdfix.commands.planning.gather import Broken
from etcdfix.commands.planning.steps import kms_step
from etcdfix.model import Outcome
from etcdfix.report.plan import PlanGroup
from etcdfix.report.plan_entry import declaration
from etcdfix.rules import acceptance
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import IDENTITY, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import (
    BY_NUMBERS,
    NOT_THE_KEY,
    THE_KEY,
    KeyCounter,
    KeyDoubt,
    Needed,
    needed_for,
)


class _Group(msgspec.Struct):
    """Broken objects with one cause under one encryption key: the first of them, and how many there are."""

    first: Examination
    count: int = 0


class Groups:
    """Counts broken objects as they pass."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Outcome, Cause | None, tuple[KeyName, ...]], _Group] = {}

    def add(self, broken: Broken) -> None:
        """Count one."""
        found = broken.found
        place = (found.verdict.outcome, found.verdict.cause, found.encryption_keys)
        group = self._groups.setdefault(place, _Group(found))
        group.count += 1

    def published(self, keys: KeyCounter, run: RunOptions) -> list[PlanGroup]:
        """Return the groups, the largest first."""
        groups = []
        for group in sorted(self._groups.values(), key=lambda group: -group.count):
            first = group.first
            doubts = keys.doubts_about(first)
            needed = needed_for(first, doubts)
            flag = declaration(first.transformer, first.kms_key_id_sha256) if needed.declaration else ""
            groups.append(
                PlanGroup(
                    first.verdict.outcome.value,
                    first.verdict.cause.value if first.verdict.cause else "",
                    first.transformer,
                    first.rule,
                    first.kms_key_id_sha256,
                    group.count,
                    max(keys.of(name).opened for name in first.encryption_keys),
                    doubts != {KeyDoubt.NONE},
                    advice_on(first, doubts, needed, run),
                    flag,
                )
            )
        return groups


def needs_of(found: Examination, needed: Needed) -> list[str]:
    declared = [declaration(found.transformer, found.kms_key_id_sha256)] if needed.declaration else []
    return [*declared, *map(acceptance, needed.risks)]


def advice_on(found: Examination, doubts: frozenset[KeyDoubt], needed: Needed, run: RunOptions) -> str:
    key = bool(doubts & THE_KEY)
    gone = "it"
    if needed.declaration:
        if found.verdict.outcome is Outcome.UNDETERMINED:
            text = kms_step(found.verdict.cause, run).action
            text, gone = f"nothing is proven: {text[0].lower()}{text[1:]}", "the key"
        elif deletability_of(found) is Deletability.DECLARABLE:
            text = "the configuration alone can cure this: find the key"
        elif KeyDoubt.IN_BETWEEN in doubts and not doubts & BY_NUMBERS:
            text = "the key may have had other bytes for a time: find them"
        else:
            text = "that is the key, not the objects: find it"
        return (
            f"{text}; only if {gone} is gone for ever: "
            f"{declaration(found.transformer, found.kms_key_id_sha256)}"
        )
    if key and found.transformer in {IDENTITY, ""}:
        return "many values do not open, and no key is to blame: find out what wrote them"
    if key:
        return "many values under its key do not open, and the key is there: find out why first"
    if doubts & NOT_THE_KEY:
        return "something happened to many values: find out what before anything is deleted"
    return ""
