"""Who may do what: the users of a stand-in API server, and RBAC as far as it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from etcdfix.model.model import GroupResource

ADMINS = "system:masters"
AUTHENTICATED = "system:authenticated"
_RBAC = "rbac.authorization.k8s.io"


class User(NamedTuple):
    """Somebody with a token."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def info(self) -> dict[str, Any]:
        """As a SelfSubjectReview shows it."""
        uid = {"uid": self.uid} if self.uid else {}
        return {"username": self.name, **uid, "groups": [*self.groups, AUTHENTICATED]}


ANONYMOUS = User("system:anonymous")


class Question(NamedTuple):
    """What somebody wants to do."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Decision(NamedTuple):
    """Whether they may, and why."""

    allowed: bool
    reason: str = ""


Objects = Callable[[GroupResource], Iterable[Mapping[str, Any]]]


def decide(user: User, asked: Question, objects: Objects) -> Decision:
    """Decide as RBAC does: members of system:masters may do all, else a role says so."""
    if ADMINS in user.groups:
        return Decision(True)
    troubles = []
    for binding in objects(GroupResource(_RBAC, "clusterrolebindings")):
        found = _by_binding(user, asked, binding, objects, "ClusterRoleBinding")
        if found.allowed:
            return found
        troubles.append(found.reason)
    if asked.namespace:
        for binding in objects(GroupResource(_RBAC, "rolebindings")):
            if binding["metadata"]["namespace"] == asked.namespace:
                found = _by_binding(user, asked, binding, objects, "RoleBinding")
                if found.allowed:
                    return found
                troubles.append(found.reason)
    # Why RBAC could not tell is part of a refusal; that no rule fits is not.
    return Decision(False, ", ".join(filter(None, troubles)))


def _by_binding(
    user: User, asked: Question, binding: Mapping[str, Any], objects: Objects, kind: str
) -> Decision:
    subject = next((s for s in binding.get("subjects", []) if _is(user, s)), None)
    if subject is None:
        return Decision(False)
    ref, place = binding["roleRef"], binding["metadata"].get("namespace", "")
    roles = objects(GroupResource(_RBAC, f"{ref['kind'].lower()}s"))
    known = False
    for role in roles:
        same_place = ref["kind"] == "ClusterRole" or role["metadata"].get("namespace") == place
        is_meant = role["metadata"]["name"] == ref["name"] and same_place
        known = known or is_meant
        if is_meant and any(_covers(rule, asked) for rule in role.get("rules") or []):
            name = f"{binding['metadata']['name']}/{place}" if place else binding["metadata"]["name"]
            reason = (
                f'RBAC: allowed by {kind} "{name}" of {ref["kind"]} "{ref["name"]}" '
                f'to {subject["kind"]} "{subject["name"]}"'
            )
            return Decision(True, reason)
    missing = f'RBAC: {ref["kind"].lower()}.{_RBAC} "{ref["name"]}" not found'
    return Decision(False, "" if known else missing)


def _is(user: User, subject: Mapping[str, Any]) -> bool:
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    return subject["kind"] == "Group" and subject["name"] in {*user.groups, AUTHENTICATED}


def _covers(rule: Mapping[str, Any], asked: Question) -> bool:
    names = rule.get("resourceNames") or []
    return (
        bool({"*", asked.verb} & set(rule.get("verbs", [])))
        and bool({"*", asked.group} & set(rule.get("apiGroups", [])))
        and bool({"*", asked.resource} & set(rule.get("resources", [])))
        and (not names or asked.name in names)
    )
