"""The rules that forbid a change, one word each, and what to do instead."""

from __future__ import annotations

from enum import StrEnum

from etcdfix.errors import RefusedByRule
from etcdfix.storagekey import Directory


class Rule(StrEnum):
    """Why a change is refused."""

    NOT_ONE_KEY = "not-one-key"
    SNAPSHOT_SOURCE = "snapshot-source"
    NO_CONFIGURATION = "no-configuration"
    GONE = "gone"
    EXPECTATION_DIFFERS = "expectation-differs"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"
    NOT_AN_OBJECT = "not-an-object"
    UNDETERMINED = "undetermined"
    NEVER_DELETABLE = "never-deletable"
    MEMBERS_DISAGREE = "members-disagree"
    MEMBER_UNCHECKED = "member-unchecked"
    CORRUPT_ALARM = "corrupt-alarm"
    NO_SPACE = "no-space"
    CURABLE_BY_CONFIGURATION = "curable-by-configuration"
    PATTERN = "pattern"
    DECLARATION = "declaration"
    UNKNOWN_CLUSTER = "unknown-cluster"
    OTHER_CLUSTER = "other-cluster"
    FLOOR = "cluster-breaking"
    MOVED = "moved"
    NOT_CONFIRMED = "not-confirmed"
    UNLISTED_SOURCE = "unlisted-source"
    NOT_READABLE = "not-readable"
    PRESENT = "present"
    LEASE_EXPIRED = "lease-expired"
    WRITE_KEY = "write-key"


CLUSTER_BREAKING = "cluster-breaking"
"""The risk that ``--accept-risk`` names."""

_FLOOR = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumes"),
        ("", "persistentvolumeclaims"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    }
)
_FLOOR_GROUPS = frozenset({"rbac.authorization.k8s.io"})


def refuse(rule: Rule, message: str, *, hint: str = "") -> RefusedByRule:
    """Return the refusal to raise."""
    return RefusedByRule(message, rule=rule.value, hint=hint)


def floor_reason(directory: Directory, namespace: str) -> str:
    """Say why everybody needs this object, whatever else is known of it; "" where that is not so.

    The static floor of the product contract: no analysis makes these safe.
    """
    group, resource = directory.group, directory.resource
    if (group, resource) in _FLOOR or group in _FLOOR_GROUPS:
        return f"{directory.group_resource} are what the cluster itself stands on"
    if namespace == "kube-system":
        return "everything in kube-system may be part of the control plane"
    return ""
