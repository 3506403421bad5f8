"""What a broken object is, in a clause, and what holds for many of them at once."""

from __future__ import annotations

from typing import Final

from etcdfix.graph.assess import Assessment
from etcdfix.graph.model import Stops
from etcdfix.graph.recreation import TOKEN_TYPE, Recreation, shown
from etcdfix.graph.recreation_rules import MAKERS
from etcdfix.graph.users import by_role
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence

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
