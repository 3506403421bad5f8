"""Puts a copy of an object back: the best that no rule refuses, the one that is named, or what a change replaced.

A copy is found and judged as everywhere (:mod:`etcdfix.copies`, :mod:`etcdfix.remediation.offers`). What the live
cluster alone can tell is asked by the checks of its way. An undo needs no encryption configuration, and nothing that is
unreadable: the audit log says that these bytes were at this key of this cluster, and that what stands there now is what
the change put. A backup whose log is lost or broken is put only where nothing is, with the digest that the change
printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Place, Wanted, Way
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import EtcdfixError, RefusedByRule
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.change import PUT, UNDO, Change, ChangeRequest, Chosen, Confirmer, carry_out
from etcdfix.remediation.choice import FixRequest, choose, of_backup
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.memory.patch import patch_from_memory
from etcdfix.remediation.present import Present

WHOLE: Final = "read back: it opens, and the object is whole"
"""All is well: it is told after the change of one key, and no warning of a run."""


def run_fix(
    cluster: Cluster,
    request: FixRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    candidates: Mapping[Path, Examiner] | None = None,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Put a copy back, or find out whether one could be; raises EtcdfixError."""
    named = request.named
    place = named.place if named is not None else None
    if place is not Place.MEMORY:
        present = Present(
            cluster, request.key, request, alone=place is Place.CANDIDATE, progress=progress, step=step
        )
        change = Change(
            Verb.FIX,
            present,
            request,
            choose=lambda asked: choose(asked, request, candidates or {}),
            made_of=place in THE_VALUE,
        )
        try:
            way = change.copy.way if present.configuration in {True, False} else None
        except RefusedByRule:  # it is among those that the checks list
            way = None
        if way is not Way.PATCH:
            outcome = carry_out(PUT, change, confirmer, preview=preview)
            return _read_back(change, outcome, step) if outcome.result is Result.FIXED else outcome
    return patch_from_memory(cluster, request, request.key, confirmer, preview=preview, step=step)


def _read_back(change: Change, outcome: ChangeOutcome, step: Step) -> ChangeOutcome:
    step("read back")
    cluster, doubtful = change.present.cluster, False
    try:
        now: StoredValue | None = cluster.now.read_key(change.present.key).stored
        if now is None or now.mod_revision != outcome.revision:
            told = "not read back: the key was written or deleted again since; look at it"
        else:
            found, told = cluster.examiner.independent_copy().examine(now), WHOLE
            doubtful = now.value != change.value or found.verdict.outcome is not Outcome.READABLE
            if doubtful:
                told = f"READ BACK, AND IT IS NOT AS IT WAS WRITTEN ({found.verdict.outcome}): undo it"
    except EtcdfixError as exc:
        doubtful, told = True, f"not read back: {exc.message}"
    return msgspec.structs.replace(outcome, doubtful=doubtful, warnings=(*outcome.warnings, told))


class UndoRequest(ChangeRequest, frozen=True, kw_only=True):
    """One change to undo; ``value_sha256`` is ``sha256:<hex>`` that the value to put back must have, "" for any."""

    backup: Backup
    value_sha256: str = ""


def run_undo(
    cluster: Cluster,
    request: UndoRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Undo a change, or find out whether it could be; raises EtcdfixError."""
    backup, stored = request.backup, request.backup.content.stored
    present = Present(cluster, stored.key, request, alone=True, ours=True, step=step)
    copy, standing = of_backup(present, backup)
    wanted = Wanted.gone(stored.key, cluster.examiner.layout)
    change = Change(
        Verb.UNDO,
        present,
        request,
        choose=lambda _change: Chosen(copy, wanted, standing=standing),
        expected_digest=request.value_sha256,
    )
    return carry_out(UNDO, change, confirmer, preview=preview)
