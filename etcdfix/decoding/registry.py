"""Which kinds an API server's scheme knows, under which Go type, and into what they convert.

An API server decodes every *registered* version, served or not. What is known, and how well:

* Kubernetes 1.36: the group versions are those of a running server's scheme.
* Other releases: a kind counts as registered while ``k8s.io/api`` contains it. That is close and not exact: a
  scheme may drop a version earlier, keep it longer, or never have it.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from functools import cache

import msgspec

from etcdfix.decoding.errors import KindUnknown
from etcdfix.decoding.schema import clamp_minor, kind_rows, known_minors
from etcdfix.golang.goquote import go_quote
from etcdfix.model.model import GroupVersionKind

INTERNAL_VERSION = "__internal"


class SchemeName(StrEnum):
    """Schemes inside kube-apiserver, by the name that stands in their errors.

    The name is the source line that made the scheme (``naming.GetNameFromCallsite``), so it moves between
    releases and builds. The first two are those of 1.36, the third is from an older source.
    """

    KUBERNETES = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    APIEXTENSIONS = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55"
    AGGREGATOR = "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:32"


# The two groups that are not in the scheme of the built-ins.
_OWN_SCHEMES = {
    "apiextensions.k8s.io": SchemeName.APIEXTENSIONS,
    "apiregistration.k8s.io": SchemeName.AGGREGATOR,
}

# Registered, but their messages are not in the schema: such a value is refused at conversion anyway.
# (k8s.io/api/admission, k8s.io/api/imagepolicy; both present in all known releases.)
_WITHOUT_SCHEMA = (
    ("admission.k8s.io", "v1", "AdmissionReview"),
    ("admission.k8s.io", "v1beta1", "AdmissionReview"),
    ("imagepolicy.k8s.io", "v1alpha1", "ImageReview"),
)

# Go package of a group's internal types, where it is not the group's first label (pkg/apis/<package>).
_INTERNAL_PACKAGES = {
    "": "core",
    "events.k8s.io": "core",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "rbac.authorization.k8s.io": "rbac",
}

# Kinds whose internal type lives in another group's package (pkg/apis/{extensions,apps}/register.go).
# This is what lets an extensions/v1beta1 Deployment, stored long ago, decode under deployments/.
_MOVED = {
    ("apps", "Scale"): "autoscaling.Scale",
    ("extensions", "DaemonSet"): "apps.DaemonSet",
    ("extensions", "DaemonSetList"): "apps.DaemonSetList",
    ("extensions", "Deployment"): "apps.Deployment",
    ("extensions", "DeploymentList"): "apps.DeploymentList",
    ("extensions", "DeploymentRollback"): "apps.DeploymentRollback",
    ("extensions", "Ingress"): "networking.Ingress",
    ("extensions", "IngressList"): "networking.IngressList",
    ("extensions", "NetworkPolicy"): "networking.NetworkPolicy",
    ("extensions", "NetworkPolicyList"): "networking.NetworkPolicyList",
    ("extensions", "PodSecurityPolicy"): "policy.PodSecurityPolicy",
    ("extensions", "PodSecurityPolicyList"): "policy.PodSecurityPolicyList",
    ("extensions", "ReplicaSet"): "apps.ReplicaSet",
    ("extensions", "ReplicaSetList"): "apps.ReplicaSetList",
    ("extensions", "Scale"): "autoscaling.Scale",
}

# Conversions between different kinds (pkg/apis/core/v1/conversion.go): a v1 ReplicationController under
# replicasets/ is served as a ReplicaSet.
_CROSS_KIND = {(GroupVersionKind("", "v1", "ReplicationController"), "apps.ReplicaSet")}

# An internal type may be registered in several groups; missing type information is completed from the one
# that registered it first, and packages register in the order of their import path.
_FIRST_GROUP = {
    ("autoscaling", "Scale"): "apps",
    ("events.k8s.io", "Event"): "",
    ("events.k8s.io", "EventList"): "",
    ("networking.k8s.io", "Ingress"): "extensions",
    ("networking.k8s.io", "NetworkPolicy"): "extensions",
}


class RegisteredKind(msgspec.Struct, frozen=True, gc=False):
    """One kind that some known release registers.

    Attributes:
        message: Full name of its protobuf message; "" for the few that the schema does not describe.
        go_type: Go type as printed in errors (``v1.Secret``).
        since: First known Kubernetes minor that registers it.
        stored: Whether it has, had or may have a storage path; False for lists, reviews and options, which
            decode under a key but convert to nothing that a key promises.
    """

    gvk: GroupVersionKind
    message: str
    go_type: str
    since: int
    until: int
    stored: bool


@cache
def stored_kinds() -> tuple[tuple[str, str], ...]:
    """Return (apiVersion, kind) of everything that some known release may store, sorted."""
    rows = (row for row in kind_rows() if row.role == "stored")
    return tuple(sorted({(f"{row.group}/{row.version}".lstrip("/"), row.kind) for row in rows}))


class _Rows:
    """All releases' kinds of one scheme, indexed; shared by the registries of different releases."""

    def __init__(self, scheme: SchemeName) -> None:
        self.bound: dict[GroupVersionKind, RegisteredKind] = {}
        self.every_version: dict[str, tuple[str, int, int]] = {}
        self.unversioned: dict[str, tuple[str, int, int]] = {}
        self.versions: dict[tuple[str, str], list[RegisteredKind]] = defaultdict(list)
        self.internal: dict[tuple[str, str], list[RegisteredKind]] = defaultdict(list)
        for row in kind_rows():
            if row.role == "unversioned":
                self.unversioned[row.kind] = (row.message, row.since, row.until)
            elif row.role == "every-version":
                self.every_version[row.kind] = (row.message, row.since, row.until)
            elif _OWN_SCHEMES.get(row.group, SchemeName.KUBERNETES) is scheme:
                gvk = GroupVersionKind(row.group, row.version, row.kind)
                stored = row.role == "stored"
                self._add(_registered(gvk, row.message, row.since, row.until, stored=stored))
        if scheme is SchemeName.KUBERNETES:
            oldest, newest = known_minors()
            for group, version, kind in _WITHOUT_SCHEMA:
                gvk = GroupVersionKind(group, version, kind)
                self._add(RegisteredKind(gvk, "", f"{version}.{kind}", oldest, newest, stored=False))

    def _add(self, registered: RegisteredKind) -> None:
        group, version, kind = registered.gvk
        self.bound[registered.gvk] = registered
        self.versions[group, version].append(registered)
        self.internal[group, kind].append(registered)


def _registered(
    gvk: GroupVersionKind, message: str, since: int, until: int, *, stored: bool = False
) -> RegisteredKind:
    return RegisteredKind(gvk, message, ".".join(message.split(".")[-2:]), since, until, stored)


@cache
def _rows(scheme: SchemeName) -> _Rows:
    return _Rows(scheme)


class Registry:
    """The kinds that one API server release decodes, or that any known release decodes.

    Attributes:
        kubernetes_minor: The release's minor, None for all known releases together.
        scheme: Which of the server's schemes this is; its value stands in error messages.
    """

    def __init__(
        self, kubernetes_minor: int | None = None, scheme: SchemeName = SchemeName.KUBERNETES
    ) -> None:
        self.kubernetes_minor = None if kubernetes_minor is None else clamp_minor(kubernetes_minor)
        self.scheme = scheme
        self._rows = _rows(scheme)

    def lookup(self, group: str, version: str, kind: str) -> RegisteredKind | None:
        """Return what decodes ``kind`` of ``group``/``version``, or None where it is not registered.

        Kinds such as Status are found whatever the group and version say (``Scheme.New`` in
        ``apimachinery/pkg/runtime/scheme.go``), options kinds in every registered group version.
        """
        gvk = GroupVersionKind(group, version, kind)
        found = self._rows.bound.get(gvk)
        if found is not None:
            return found if self._registers(found.since, found.until) else None
        loose = self._rows.unversioned.get(kind)
        if loose is None and self._version_registered(group, version):
            loose = self._rows.every_version.get(kind)
        return None if loose is None else _registered(gvk, *loose)

    def internal_type(self, group: str, kind: str) -> str:
        """Return the Go type that a key of ``group`` and ``kind`` is decoded into: ``core.Secret``."""
        moved = _MOVED.get((group, kind))
        if moved is not None:
            return moved
        return f"{_INTERNAL_PACKAGES.get(group, group.partition('.')[0])}.{kind}"

    def internal_of(self, group: str, kind: str, expected_group: str, expected_kind: str) -> str:
        """Return the Go type of ``kind`` in the internal version of ``group``, "" where it has none.

        A key of ``expected_group`` and ``expected_kind`` proves that its own exists.
        """
        own = group in {expected_group, self.first_group(expected_group, expected_kind)}
        known = self._rows.internal.get((group, kind), ())
        if (own and kind == expected_kind) or any(self._registers(one.since, one.until) for one in known):
            return self.internal_type(group, kind)
        return ""

    def first_group(self, group: str, kind: str) -> str:
        """Return the group from which missing type information is completed under a key of this kind."""
        return _FIRST_GROUP.get((group, kind), group)

    def convertible(self, found: GroupVersionKind, group: str, kind: str) -> bool:
        """Tell whether an object of kind ``found`` converts to what a key of ``group`` and ``kind`` promises.

        ``found`` must be registered. Groups share internal types, so an extensions/v1beta1 Deployment is
        fine under apps' ``deployments``.
        """
        if found not in self._rows.bound:
            return False
        expected = self.internal_type(group, kind)
        return self.internal_type(found.group, found.kind) == expected or (found, expected) in _CROSS_KIND

    def readable_until(self, group: str, version: str, kind: str) -> str:
        """Return the last release that reads this kind (``1.35``), "" if the newest known one does.

        Also "" for a kind that no known release registers.
        """
        found = self._rows.bound.get(GroupVersionKind(group, version, kind))
        if found is None or found.until >= known_minors()[1]:
            return ""
        return f"1.{found.until}"

    def reason_unregistered(self, group: str, version: str, kind: str) -> str:
        """Return ``version-removed`` if an older known release reads the kind, else ``not-registered``."""
        found = self._rows.bound.get(GroupVersionKind(group, version, kind))
        if found is None or self.kubernetes_minor is None or found.until >= self.kubernetes_minor:
            return "not-registered"
        return "version-removed"

    def unregistered(self, group: str, version: str, kind: str) -> KindUnknown:
        """Return the API server's error for a kind that :meth:`lookup` does not find."""
        group_version = f"{group}/{version}" if group else version
        return KindUnknown(
            f"no kind {go_quote(kind)} is registered for version {go_quote(group_version)} "
            f"in scheme {go_quote(self.scheme)}",
            group_version=group_version,
            kind=kind,
            reason=self.reason_unregistered(group, version, kind),
            readable_until=self.readable_until(group, version, kind),
        )

    def without_internal(self, group: str, kind: str) -> str:
        """Return the API server's words for a kind that the internal version of its group does not have."""
        return (
            f"no kind {go_quote(kind)} is registered for the internal version of group {go_quote(group)} "
            f"in scheme {go_quote(self.scheme)}"
        )

    def _registers(self, since: int, until: int) -> bool:
        return self.kubernetes_minor is None or since <= self.kubernetes_minor <= until

    def _version_registered(self, group: str, version: str) -> bool:
        # metav1.AddToGroupVersion is called for "v1" in every scheme, and once per registered version.
        if (group, version) == ("", "v1"):
            return True
        kinds = self._rows.versions.get((group, version), ())
        return any(self._registers(one.since, one.until) for one in kinds)
