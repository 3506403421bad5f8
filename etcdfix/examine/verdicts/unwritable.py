"""What no API server can have written although it decodes whole: the bytes were changed after they were encrypted.

A name that is well-formed and not that of the etcd key proves nothing: the value may belong elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.model.model import Confidence, DecodedObject, GroupResource

_NAMESPACE: Final = re.compile(rb"[a-z0-9-]*")
_DNS_NAME: Final = re.compile(rb"[a-z0-9.-]*")
# A segment of a path: RBAC, events, certificate requests and others allow whatever else there is.
_SEGMENT: Final = re.compile(rb"[^/%]*")
_API_VERSION: Final = re.compile(r"[a-z0-9./-]*")
_KIND: Final = re.compile(r"[A-Za-z0-9-]*")
# Resources whose names have to be DNS subdomains, and always had to.
_OF_CORE: Final = frozenset(
    {
        "configmaps", "endpoints", "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes",
        "pods", "podtemplates", "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
    }
)  # fmt: skip
_GROUPS: Final = frozenset(
    {"apps", "autoscaling", "batch", "coordination.k8s.io", "discovery.k8s.io", "policy"}
)


def unwritable(decoded: DecodedObject, resource: GroupResource, *, custom: bool) -> Confidence | None:
    """Say how surely no API server can have written an object; None where one can."""
    named = custom or resource.group in _GROUPS or (not resource.group and resource.resource in _OF_CORE)
    name = _DNS_NAME if named else _SEGMENT
    names_fit = (
        name.fullmatch(decoded.name or b"")
        and _is_text(decoded.name or b"")
        and _NAMESPACE.fullmatch(decoded.namespace or b"")
    )
    type_fits = _API_VERSION.fullmatch(decoded.gvk.api_version) and _KIND.fullmatch(decoded.gvk.kind)
    wrong = {inconsistency.cause for inconsistency in decoded.inconsistencies}
    if not (names_fit and type_fits) or Cause.RAW_JSON_INVALID in wrong:
        return Confidence.CERTAIN
    return Confidence.LIKELY if Cause.INVALID_UTF8 in wrong else None


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
