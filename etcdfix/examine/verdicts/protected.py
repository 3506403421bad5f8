"""What the cluster depends on, by its place alone: no analysis makes it safe to delete."""

from __future__ import annotations

from typing import Final

from etcdfix.model.model import GroupResource

_RESOURCES: Final = frozenset(
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
_GROUPS: Final = frozenset({"rbac.authorization.k8s.io"})


def protected_reason(resource: GroupResource, namespace: str) -> str:
    """Say why everybody needs this object, whatever else is known of it; "" where that is not so."""
    if resource in _RESOURCES or resource.group in _GROUPS:
        return f"{resource} are what the cluster depends on"
    if namespace == "kube-system":
        return "everything in kube-system may be part of the control plane"
    return ""
