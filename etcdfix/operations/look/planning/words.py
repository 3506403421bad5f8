"""What a broken object is, in a clause, and what holds for many of them at once."""

from __future__ import annotations

from typing import Final

from etcdfix.graph.assess import Assessment
from etcdfix.graph.grades import User
from etcdfix.graph.identity import ObjectRef
from etcdfix.graph.recreation.last_readable import LastSeen
from etcdfix.graph.recreation.recreation import TOKEN_TYPE, Recreation, shown
from etcdfix.graph.recreation.rules import MAKERS
from etcdfix.graph.secretusers import SecretUser, Stops
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


def what_it_is(assessment: Assessment, seen: LastSeen, recreation: Recreation) -> str:
    """Return what an object is and who uses it, in a clause that is safe for a terminal."""
    ref = assessment.object
    kind = shown(ref.kind or ref.resource or "a value of no known resource")
    secret = assessment.secret
    if secret is None:
        users = _users([user.object for user in assessment.users])
        return f"{kind}{users}"
    role = next((role for role in secret.groups if role in _KINDS_OF_USE), None)
    if seen.type:
        which = _TYPES.get(seen.type, f"type {shown(seen.type)}")
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
    return f"Secret ({which}){_users([user.object for user in secret.users])}"


def users_of(assessment: Assessment) -> tuple[int, int]:
    """Return how many objects use another, and how many of them its absence stops."""
    secret = assessment.secret
    if secret is None:
        return len({user.object for user in assessment.users}), len(
            {user.object for user in assessment.users if _needs(user)}
        )
    return len({user.object for user in secret.users}), len({u.object for u in secret.users if _stops(u)})


def _needs(user: User) -> bool:
    return not user.use.optional and not user.use.heuristic


def _stops(user: SecretUser) -> bool:
    return user.stops is Stops.YES


def _users(objects: list[ObjectRef]) -> str:
    """Name the first users; those that are no pods first, since they speak for their pods."""
    distinct = sorted(set(objects), key=lambda ref: (ref.resource == "pods", ref.key))
    if not distinct:
        return ""
    named = ", ".join(f"{shown(ref.resource)} {shown(ref.name)}" for ref in distinct[:_NAMED_USERS])
    more = f" and {len(distinct) - _NAMED_USERS} more" if len(distinct) > _NAMED_USERS else ""
    return f", used by {named}{more}"
