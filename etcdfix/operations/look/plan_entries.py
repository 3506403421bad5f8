"""What a broken object is, in a clause, and in which order many are acted upon.

What nobody misses comes first, what the cluster stands on last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from etcdfix.graph.model import Assessment, Risk, Stops
from etcdfix.graph.recreation import TOKEN_TYPE, Recreation, shown
from etcdfix.graph.recreation_rules import MAKERS, ComesBack
from etcdfix.graph.users import by_role
from etcdfix.graph.uses import Role
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


_NAMED_USERS: Final = 2

# Way of use -> the Secret's likely type, and what it is.
_KINDS_OF_USE: Final[dict[Role, str]] = {
    Role.INGRESS_TLS: "TLS certificate",
    Role.IMAGE_PULL: "pull secret",
    Role.CONTROLLER_PUBLISH: "storage credentials",
    Role.NODE_STAGE: "storage credentials",
    Role.NODE_PUBLISH: "storage credentials",
    Role.CONTROLLER_EXPAND: "storage credentials",
    Role.NODE_EXPAND: "storage credentials",
    Role.PROVISIONER: "storage credentials",
    Role.PROVISIONER_DELETION: "storage credentials",
    Role.SNAPSHOTTER: "storage credentials",
    Role.SNAPSHOT_DELETION: "storage credentials",
}
_TYPES: Final = {
    TOKEN_TYPE: "service-account token",
    "kubernetes.io/tls": "TLS certificate",
    "kubernetes.io/dockerconfigjson": "pull secret",
    "kubernetes.io/dockercfg": "pull secret",
    "bootstrap.kubernetes.io/token": "bootstrap token",
    "helm.sh/release.v1": "Helm release",
}


def what_it_is(assessment: Assessment, recreation: Recreation) -> str:
    """Return what an object is and who uses it, in a clause that is safe for a terminal."""
    ref = assessment.object
    kind = shown(ref.kind or ref.resource or "a value of no known resource")
    users = _users(assessment)
    if assessment.secret is None:
        return f"{kind}{users}"
    role = next((role for role in by_role(assessment.users) if role in _KINDS_OF_USE), None)
    known = assessment.last_known
    if known.type:
        which = _TYPES.get(known.type, f"type {shown(known.type)}")
    elif recreation.recreated_by is MAKERS["token-controller"]:
        perhaps = "perhaps a " if recreation.confidence is Confidence.POSSIBLE else ""
        which = f"{perhaps}service-account token"
    elif recreation.recreated_by is MAKERS["helm-release"]:
        which = "Helm release"
    elif ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        which = "bootstrap token"
    elif role is not None:
        which = f"{_KINDS_OF_USE[role]}, by its use"
    else:
        which = "type not known"
    return f"Secret ({which}){users}"


def users_of(assessment: Assessment) -> tuple[int, int]:
    """Return how many objects use another, and how many of them its absence stops."""
    users = assessment.users
    if assessment.secret is None:
        needing = {user.object for user in users if not user.optional and not user.heuristic}
    else:
        needing = {user.object for user in users if user.stops is Stops.YES}
    return len({user.object for user in users}), len(needing)


def _users(assessment: Assessment) -> str:
    """Name the first users; those that are no pods first, since they speak for their pods."""
    objects = {user.object for user in assessment.users}
    distinct = sorted(objects, key=lambda ref: (ref.resource == "pods", ref.key))
    if not distinct:
        return ""
    named = ", ".join(f"{shown(ref.resource)} {shown(ref.name)}" for ref in distinct[:_NAMED_USERS])
    more = f" and {len(distinct) - _NAMED_USERS} more" if len(distinct) > _NAMED_USERS else ""
    return f", used by {named}{more}"
