"""Puts a copy of an object back: the best that no rule refuses, or the one that is named.

A copy is found and judged as everywhere (:mod:`etcdfix.copies`, :mod:`etcdfix.remediation.offers`). What the live
cluster alone can tell is checked here, by the list of checks of its way. Only a person brings back what somebody
deleted, and only a person chooses between copies that nothing but their contents tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from etcdfix.copies.model import THE_VALUE, Copy, Place, Wanted, Way, digest_of
from etcdfix.errors import EtcdfixError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Outcome, StoredValue
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.change import Change, Confirmer, carry_out
from etcdfix.remediation.checks.copy import (
    SameStart,
    nothing_protected_from_a_file,
    of_this_cluster,
    of_this_object,
    proven_repair,
    still_there,
)
from etcdfix.remediation.checks.present import lease, may_make_room, nothing_there, places, room, writable
from etcdfix.remediation.checks.sealing import seal_contents
from etcdfix.remediation.checks.situation import Check, Situation, run_checks
from etcdfix.remediation.choice import Chosen, FixRequest, choose
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.datastore import KeyReading
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.memory.ground import open_ground
from etcdfix.remediation.memory.held import Held
from etcdfix.remediation.memory.patch import patch_from_memory
from etcdfix.remediation.preflight.api_servers import require_api
from etcdfix.remediation.preflight.cluster import Cluster, check_cluster
from etcdfix.remediation.preflight.noencryption import encrypted, looks_enveloped
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.remediation.preflight.surroundings import FRESH
from etcdfix.remediation.preflight.target import (
    check_expectations,
    moved_meanwhile,
    require_configuration,
    require_there,
)
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination

OVER: Final[tuple[Check, ...]] = (of_this_cluster, of_this_object, may_make_room, room)
"""Over a value that goes."""
WHERE_NOTHING_IS: Final[tuple[Check, ...]] = (
    of_this_cluster, of_this_object, nothing_protected_from_a_file, still_there, nothing_there, room,
)  # fmt: skip
PUT_RIGHT: Final[tuple[Check, ...]] = (of_this_object, proven_repair, writable)
"""Over the value that it is made of."""
SEAL_ANEW: Final[tuple[Check, ...]] = (of_this_object, writable)
"""Likewise, under a candidate key."""


WHOLE: Final = "read back: it opens, and the object is whole"
"""All is well: it is told after the change of one key, and no warning of a run."""


def run_fix(
    cluster: Cluster,
    request: FixRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Situation, Chosen], None],
    preview_held: Callable[[Held, int], None] = lambda _held, _unread: None,
    candidates: Mapping[Path, Examiner] | None = None,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Put a copy back, or find out whether one could be; ``preview_held`` shows what an API server will write.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    key, named = request.key, request.named

    def from_memory() -> ChangeOutcome:
        rescued = next(iter(request.places.rescued), None)
        kind = str(cluster.examiner.layout.locate(key)[0].group_resource)
        with open_ground(cluster, request, rescued, request.run, step, resource=kind) as ground:
            return patch_from_memory(ground, request, key, confirmer, preview=preview_held)

    if named is not None and named.place is Place.MEMORY:
        return from_memory()
    require_api(request.api, request.accepted)
    require_configuration(cluster)
    step("check: landmarks")
    landmarks = cluster.now.landmarks(cluster.examiner.layout, target=key)
    step("check: read the key")
    reading = cluster.now.read_key(key)
    if named is not None and named.place in THE_VALUE:
        require_there(cluster, key, reading.stored)
    if reading.stored is not None:
        check_expectations(reading.stored, request.accepted)
    elif request.expected is not None:
        raise refuse(
            Rule.GONE,
            f"{display(key)} was deleted after the plan was made; only a person brings back what somebody deleted",
            hint="find out who deleted it; to bring it back all the same, fix it by itself",
        )
    elif request.accepted.expect_mod_revision is not None or request.accepted.expect_value_sha256:
        raise refuse(
            Rule.GONE,
            f"{display(key)} does not exist",
            hint="leave what is expected of the present value out",
        )
    step("check: cluster")
    identity = check_cluster(cluster, request.accepted, request.record_paths.directories)
    step("check: what stands there")
    present = _look_at(cluster, request, reading, progress)
    if request.expected is not None and reading.stored is not None:
        step("check: plan")
        request.expected.check_stored(reading.stored, identity)
        if present.alike is not None and present.found is not None:  # else who makes room for it looks around
            request.expected.check_verdict(present.found)
    step("check: copies")
    wanted, chosen, backup = choose(cluster, request, reading, present.found, identity, candidates or {})
    copy = chosen.offer.copy
    require_api(
        request.api, request.accepted, always=f"--from {copy.source}" if copy.place is Place.OBJECT else ""
    )
    if copy.way is Way.PATCH:
        return from_memory()
    if copy.repair is not None and present.starts is not None:
        present.starts.check(copy.repair)
    stored = copy.stored
    situation = Situation(
        cluster=cluster,
        request=request,
        run=request.run,
        landmarks=landmarks,
        reading=reading,
        identity=identity,
        wanted=wanted,
        copy=copy,
        examined=cluster.examiner.apart().examine(stored) if stored is not None else None,
        alike=present.alike,
        other_key=request.other if copy.place is Place.KEY else b"",
        warnings=[*(backup.doubts if backup is not None else ()), *_past_state(wanted, copy)],
        progress=progress,
        step=step,
    )
    run_checks(checks_of(situation), situation)
    outcome = carry_out(
        cluster,
        request,
        _change(situation),
        confirmer,
        preview=lambda: preview(situation, chosen),
        step=step,
    )
    if outcome.result is not Result.FIXED:
        return outcome
    step("read back")
    doubtful, told = _read_back(situation, outcome)
    return msgspec.structs.replace(outcome, doubtful=doubtful, warnings=(*outcome.warnings, told))


def checks_of(one: Situation) -> tuple[Check, ...]:
    """Return the checks of a way, in their order."""
    if one.copy.place in THE_VALUE:
        found = PUT_RIGHT if one.copy.place is Place.BIT else SEAL_ANEW
    else:
        found = WHERE_NOTHING_IS if one.present is None else OVER
    if one.copy.way is Way.SEAL:
        at = found.index(of_this_object) + 1 if one.present is None else len(found)
        found = (*found[:at], seal_contents, *found[at:])
    return (*found, lease, places)


def _change(one: Situation) -> Change:
    value, copy = one.value, one.copy
    assert value is not None  # what an API server writes is another change
    unreadable = one.replaced if one.present is not None else None
    declared = bool(getattr(unreadable, "declared_lost", False))
    how = (
        f"{copy.repair.words} (proof: {copy.repair.proof})"
        if copy.repair is not None
        else f"from {copy.where}"
    )
    sealed = f", sealed with {one.sealed.transformer}" if one.sealed is not None else ""
    return Change(
        verb=Verb.FIX,
        way=copy.way,
        found=one.found,
        reading=one.reading,
        identity=one.identity,
        servers=one.servers,
        landmarks=one.landmarks,
        rests_on=one.rests_on,
        replaced=one.replaced,
        counts=one.alike.counts if one.alike is not None else {},
        declared_lost=declared,
        value=value,
        value_sha256=digest_of(value) if one.present is None else "",
        lease=one.lease,
        detail=f"{how}{sealed}; now {digest_of(value)}",
    )


class _Present(NamedTuple):
    """What stands at the key; where a bit may be put right, what the others came to."""

    found: Examination | None = None
    alike: Alike | None = None
    starts: SameStart | None = None


_AS_IT_IS: Final = {
    Outcome.READABLE: (
        Rule.READABLE, "the value is readable: nothing has to be put back",
        "what differs can be changed through the API: kubectl edit",
    ),
    Outcome.INCONSISTENT: (
        Rule.INCONSISTENT, "the API server accepts the value as it is, so it is not changed behind its back",
        "change it through the API: kubectl edit, or kubectl replace",
    ),
    Outcome.NOT_AN_OBJECT: (
        Rule.NOT_AN_OBJECT, "the key holds no object of the API", "leave it: it is bookkeeping, or not Kubernetes'",
    ),
}  # fmt: skip


def _look_at(cluster: Cluster, request: FixRequest, reading: KeyReading, progress: Progress) -> _Present:
    key, stored, place = request.key, reading.stored, request.named.place if request.named else None
    if stored is None:
        return _Present()
    if cluster.no_encryption and looks_enveloped(stored.value):
        raise encrypted(key)
    found = cluster.examiner.examine(stored)
    _require_broken(found)
    if place is Place.CANDIDATE and found.opened:
        raise refuse(
            Rule.READABLE,
            f"today's configuration opens {display(key)} ({found.verdict.message})",
            hint="another encryption key does not change what is wrong inside it; see etcdfix explain",
        )
    if place not in {None, Place.BIT}:
        return _Present(found)
    starts = SameStart(key, stored.value)
    around = (cluster.surroundings or FRESH).look(
        cluster, reading, found, progress, see=starts.see, graph=False
    )
    if around.alike.target is None:
        raise moved_meanwhile(key)
    _require_broken(around.alike.target)
    return _Present(around.alike.target, around.alike, starts)


def _require_broken(found: Examination) -> None:
    if found.verdict.outcome in _AS_IT_IS:
        rule, why, hint = _AS_IT_IS[found.verdict.outcome]
        raise refuse(rule, f"{display(found.stored.key)}: {why}", hint=hint)


_CONFLICTS: Final = {
    "pods": "its node, or a controller, may have replaced it meanwhile",
    "leases.coordination.k8s.io": "whoever holds it now may lose it",
    "endpointslices.discovery.k8s.io": "it may name Pods that are gone",
    "persistentvolumes": "its volume may be bound or deleted meanwhile",
    "persistentvolumeclaims": "its volume may be bound elsewhere meanwhile",
    "services": "its address and ports may be in use elsewhere meanwhile",
}


def _past_state(wanted: Wanted, copy: Copy) -> list[str]:
    conflict = _CONFLICTS.get(str(wanted.resource)) if copy.place not in THE_VALUE else None
    return [f"a past state of {wanted.resource} may conflict: {conflict}"] if conflict else []


def _read_back(one: Situation, outcome: ChangeOutcome) -> tuple[bool, str]:
    try:
        now: StoredValue | None = one.cluster.now.read_key(one.key).stored
        if now is None or now.mod_revision != outcome.revision:
            return False, "not read back: the key was written or deleted again since; look at it"
        found = one.cluster.examiner.apart().examine(now)
    except EtcdfixError as exc:
        return True, f"not read back: {exc.message}"
    if now.value == one.value and found.verdict.outcome is Outcome.READABLE:
        return False, WHOLE
    told = f"READ BACK, AND IT IS NOT AS IT WAS WRITTEN ({found.verdict.outcome}): undo it, and look at etcd's members"
    return True, told
