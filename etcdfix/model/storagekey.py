"""Storage prefix and path <-> group, resource, namespace, name: the only place that knows etcd's layout.

Source of the layout: kube-apiserver 1.36, ``pkg/kubeapiserver/default_storage_factory_builder.go``,
``apiserver/pkg/server/storage/storage_factory.go`` and ``test/integration/etcd/data.go``. Built-in types
live under their lower-case plural *without* the API group, with five exceptions; custom resources, CRDs and
APIServices live under ``<group>/<plural>``. So a first path segment with a dot is an API group, and one
without is a built-in directory.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import GroupResource
from etcdfix.text.safetext import BOOTSTRAP, shown_key

DEFAULT_PREFIX = "/registry"


class StorageCodec(StrEnum):
    """Which codec of the API server reads the values of a resource: serializers, tried in a fixed order."""

    BUILTIN = "builtin"
    JSON_BUILTIN = "json-builtin"
    CUSTOM_RESOURCE = "custom-resource"
    ALLOCATOR = "allocator"
    NOT_AN_OBJECT = "not-an-object"
    UNKNOWN = "unknown"
    """No type that etcdfix knows. With a group: its resource is known, and an API server of its own writes it."""


NO_OBJECTS: Final = frozenset({StorageCodec.NOT_AN_OBJECT, StorageCodec.UNKNOWN, StorageCodec.ALLOCATOR})
"""No API server can be asked for what keys of these hold."""


class ResourcePrefix(msgspec.Struct, frozen=True, cache_hash=True):
    """The keys of one resource: a directory below the storage prefix, and what the API server keeps in it.

    Attributes:
        path: Relative to the storage prefix, no slashes at the ends (``services/specs``).
        group: API group used for look-ups in the encryption configuration; "" is the core group.
        resource: Plural resource.
        kind: Kind that a value here must convert to; "" where only a CRD can tell.
        namespaced: None where only a CRD can tell.
        codec: Who reads it.
        version: API version to name in a request for this resource, "" where only a CRD can tell.
        singular: What a CRD calls one of them; "" for its kind in lower case, as built-ins have it.
        short_names: What people type for it.
    """

    path: str
    group: str
    resource: str
    kind: str
    namespaced: bool | None
    codec: StorageCodec = StorageCodec.BUILTIN
    version: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()

    @property
    def group_resource(self) -> GroupResource:
        """Group and plural resource, as in the encryption configuration."""
        return GroupResource(self.group, self.resource)

    def api_path(self, namespace: str, name: str | None) -> str:
        """Return :func:`api_path` of an object here, or "" where the version is not known."""
        return api_path(self.group, self.version, self.resource, namespace, name)


def api_path(group: str, version: str, resource: str, namespace: str, name: str | None) -> str:
    """Return the path of one object in the Kubernetes API; of all in the namespace, or of all there are, for None.

    Returns:
        "" where a part is missing, or is one that no request can carry: it would name something else.

    Format:
        kube-apiserver 1.36, ``apimachinery/pkg/api/validation/path/name.go``: what may stand between two slashes.
    """
    needed = [version, resource, *filter(None, (group, namespace)), *([] if name is None else [name])]
    if any(not part or part in {".", ".."} or "/" in part or "%" in part for part in needed):
        return ""
    root = f"/apis/{quote(group)}/{quote(version)}" if group else f"/api/{quote(version)}"
    middle = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    collection = f"{root}{middle}/{quote(resource)}"
    return collection if name is None else f"{collection}/{quote(name, safe=':')}"


class StorageKey(NamedTuple):
    """A key taken apart. ``well_formed`` is False when the number of segments does not fit the resource."""

    directory: ResourcePrefix
    namespace: str
    name: str
    well_formed: bool = True


# group: "resource Kind [version]"; a leading "-" marks a cluster-scoped resource, "path=" an odd directory.
# The version is the one that 1.36 stores by default, v1 unless given.
_BUILTINS: dict[str, str] = {
    "": """configmaps ConfigMap, services/endpoints=endpoints Endpoints, events Event, limitranges LimitRange,
        -namespaces Namespace, -minions=nodes Node, persistentvolumeclaims PersistentVolumeClaim,
        -persistentvolumes PersistentVolume, pods Pod, podtemplates PodTemplate,
        controllers=replicationcontrollers ReplicationController, resourcequotas ResourceQuota,
        secrets Secret, serviceaccounts ServiceAccount, services/specs=services Service""",
    "admissionregistration.k8s.io": """-mutatingadmissionpolicies MutatingAdmissionPolicy v1beta1,
        -mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding v1beta1,
        -mutatingwebhookconfigurations MutatingWebhookConfiguration,
        -validatingadmissionpolicies ValidatingAdmissionPolicy,
        -validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding,
        -validatingwebhookconfigurations ValidatingWebhookConfiguration""",
    "apps": """controllerrevisions ControllerRevision, daemonsets DaemonSet, deployments Deployment,
        replicasets ReplicaSet, statefulsets StatefulSet""",
    "autoscaling": "horizontalpodautoscalers HorizontalPodAutoscaler v2",
    "batch": "cronjobs CronJob, jobs Job",
    "certificates.k8s.io": """-certificatesigningrequests CertificateSigningRequest,
        -clustertrustbundles ClusterTrustBundle v1beta1,
        podcertificaterequests PodCertificateRequest v1beta1""",
    "coordination.k8s.io": "leasecandidates LeaseCandidate v1beta1, leases Lease",
    "discovery.k8s.io": "endpointslices EndpointSlice",
    "flowcontrol.apiserver.k8s.io": """-flowschemas FlowSchema,
        -prioritylevelconfigurations PriorityLevelConfiguration""",
    "internal.apiserver.k8s.io": "-storageversions StorageVersion v1alpha1",
    "networking.k8s.io": """-ingressclasses IngressClass, ingress=ingresses Ingress,
        -ipaddresses IPAddress, networkpolicies NetworkPolicy, -servicecidrs ServiceCIDR""",
    "node.k8s.io": "-runtimeclasses RuntimeClass",
    "policy": "poddisruptionbudgets PodDisruptionBudget",
    "rbac.authorization.k8s.io": """-clusterrolebindings ClusterRoleBinding, -clusterroles ClusterRole,
        rolebindings RoleBinding, roles Role""",
    "resource.k8s.io": """-deviceclasses DeviceClass, -devicetaintrules DeviceTaintRule v1alpha3,
        resourceclaims ResourceClaim, resourceclaimtemplates ResourceClaimTemplate,
        -resourcepoolstatusrequests ResourcePoolStatusRequest v1alpha3, -resourceslices ResourceSlice""",
    "scheduling.k8s.io": "podgroups PodGroup v1alpha2, -priorityclasses PriorityClass, workloads Workload v1alpha2",
    "storage.k8s.io": """-csidrivers CSIDriver, -csinodes CSINode, csistoragecapacities CSIStorageCapacity,
        -storageclasses StorageClass, -volumeattachments VolumeAttachment,
        -volumeattributesclasses VolumeAttributesClass""",
    "storagemigration.k8s.io": "-storageversionmigrations StorageVersionMigration v1beta1",
}

# Typed by the API server, yet under <group>/<plural> and written as JSON.
_JSON_BUILTINS = {
    "apiextensions.k8s.io": "-customresourcedefinitions CustomResourceDefinition",
    "apiregistration.k8s.io": "-apiservices APIService",
}

# OpenShift's own API servers write below a prefix of their own, without the group, as kube-apiserver does with
# built-ins. Source: openshift-apiserver, ``restoptionsgetter.go``; oauth-apiserver, ``pkg/cmd/oauth-apiserver/cmd.go``.
OPENSHIFT_PREFIX = "/openshift.io/"
_OPENSHIFT = {
    "route.openshift.io": "routes=routes",
    "oauth.openshift.io": """-oauth/accesstokens=oauthaccesstokens, -oauth/authorizetokens=oauthauthorizetokens,
        -oauth/clients=oauthclients, -oauth/clientauthorizations=oauthclientauthorizations""",
    "user.openshift.io": "-useridentities=identities",
}

# What kubectl's users type; source: kubernetes, ``api/discovery/*.json``, ``shortNames``. Of no one release: the files
# were read at several commits, and a group that is missing here was not always looked up.
_SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "certificatesigningrequests": ("csr",),
    "configmaps": ("cm",),
    "cronjobs": ("cj",),
    "customresourcedefinitions": ("crd", "crds"),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "horizontalpodautoscalers": ("hpa",),
    "ingresses": ("ing",),
    "ipaddresses": ("ip",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "networkpolicies": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets": ("pdb",),
    "pods": ("po",),
    "priorityclasses": ("pc",),
    "replicasets": ("rs",),
    "replicationcontrollers": ("rc",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets": ("sts",),
    "storageclasses": ("sc",),
    "volumeattributesclasses": ("vac",),
}

CRD_PATH = "apiextensions.k8s.io/customresourcedefinitions"
API_SERVICE_PATH = "apiregistration.k8s.io/apiservices"

# Single keys, never encrypted: the raw storage factory that opens them has no transformer.
_ALLOCATORS = {
    "ranges/serviceips": "serviceipallocations",
    "ranges/secondaryserviceips": "serviceipallocations",
    "ranges/servicenodeports": "servicenodeportallocations",
}

# Bookkeeping of the API servers, not objects of the API.
_BOOKKEEPING = {
    "masterleases": "apiServerIPInfo",
    "peerserverleases": "apiServerPeerIPInfo",
    "health": "health",
}

_COMPACT_REV_KEY = b"compact_rev_key"


def _parsed(table: Mapping[str, str], codec: StorageCodec) -> Iterator[ResourcePrefix]:
    for group, text in table.items():
        for item in text.split(","):
            word, *known = item.split()
            path, _, resource = word.lstrip("-").rpartition("=")
            in_group = codec is StorageCodec.JSON_BUILTIN
            yield ResourcePrefix(
                path=path or (f"{group}/{resource}" if in_group else resource),
                group=group,
                resource=resource,
                kind=known[0] if known else "",
                namespaced=not word.startswith("-"),
                codec=codec,
                version=known[1] if known[1:] else "v1" if known else "",
                short_names=_SHORT_NAMES.get(resource, ()),
            )


@cache
def builtin_directories() -> tuple[ResourcePrefix, ...]:
    """Return every directory that a kube-apiserver of a known release uses for its own types."""
    return (
        *_parsed(_BUILTINS, StorageCodec.BUILTIN),
        *_parsed(_JSON_BUILTINS, StorageCodec.JSON_BUILTIN),
    )


@cache
def _by_path() -> dict[bytes, ResourcePrefix]:
    return {directory.path.encode(): directory for directory in builtin_directories()}


@cache
def _directories() -> frozenset[bytes]:
    """Return what is a directory or holds some, without a slash at its end: no LIST reads such a key."""
    paths = [directory.path for directory in builtin_directories()]
    return frozenset(
        name.encode() for name in (*paths, *(path.partition("/")[0] for path in paths), "ranges")
    )


@cache
def _openshift_by_path() -> dict[bytes, ResourcePrefix]:
    return {directory.path.encode(): directory for directory in _parsed(_OPENSHIFT, StorageCodec.UNKNOWN)}


NOT_AN_OBJECT = ResourcePrefix(
    path="", group="", resource="", kind="", namespaced=None, codec=StorageCodec.NOT_AN_OBJECT
)


def clean_prefix(etcd_prefix: str) -> str:
    """Return the storage prefix as the API server builds it: one leading slash, one trailing slash.

    ``registry``, ``/registry`` and ``//registry/`` all give ``/registry/``; ``/`` and "" give ``/``.
    """
    cleaned = posixpath.normpath("/" + etcd_prefix.strip("/"))
    return cleaned.replace("//", "/").rstrip("/") + "/"


def custom_directory(group: str, plural: str) -> ResourcePrefix:
    """Return the directory of a custom resource (or of an aggregated API server's type)."""
    return ResourcePrefix(
        path=f"{group}/{plural}",
        group=group,
        resource=plural,
        kind="",
        namespaced=None,
        codec=StorageCodec.CUSTOM_RESOURCE,
    )


class StorageLayout:
    """Takes keys apart below one storage prefix.

    Raises:
        ConfigurationError: The prefix is not UTF-8.
    """

    def __init__(self, etcd_prefix: str = DEFAULT_PREFIX) -> None:
        self.prefix = clean_prefix(etcd_prefix)
        try:
            self._root = self.prefix.encode()
        except UnicodeEncodeError as exc:
            raise ConfigurationError("--etcd-prefix is not UTF-8", hint="the default is /registry") from exc
        self._own = _openshift_by_path() if self.prefix == OPENSHIFT_PREFIX else {}

    def path(self, below: str | bytes = b"") -> bytes:
        """Return the etcd key, or the beginning of keys, at a path below the storage prefix; "" for the prefix."""
        return self._root + (below if isinstance(below, bytes) else word_bytes(below))

    def below(self, key: bytes) -> bytes | None:
        """Return the part of a key that follows the storage prefix; None where it does not lie below it."""
        return key[len(self._root) :] if key.startswith(self._root) else None

    def holds(self, key: bytes) -> bool:
        """Say whether a key lies below the storage prefix."""
        return key.startswith(self._root)

    def directories(self) -> tuple[ResourcePrefix, ...]:
        """Return every directory that is known below this prefix, custom resources' not among them."""
        return (*self._own.values(), *builtin_directories())

    def other_known_prefix(self, key: bytes) -> str:
        """Return the known storage prefix under which a key lies that is not below this one, else ""."""
        if self.holds(key):
            return ""
        others = (known for known in _OF_CLUSTERS if not self.prefix.startswith(known))
        return next((known for known in others if key.startswith(known.encode())), "")

    def under_other_prefixes(self, key: bytes) -> tuple[bytes, ...]:
        """Return the same key as it may have been called when its value was written.

        Below each storage prefix that is in use somewhere, and below the end of this one: a proxy may put a namespace
        of its own in front of what the API server says.
        """
        if not self.holds(key):
            return ()
        rest = key[len(self._root) :]
        parts = self._root.strip(b"/").split(b"/")
        ends = [b"/" + b"".join(part + b"/" for part in parts[start:]) for start in range(1, len(parts))]
        prefixes = dict.fromkeys([*ends, *(known.encode() for known in _KNOWN_PREFIXES)])
        return tuple(other + rest for other in prefixes if other != self._root)

    def directory_prefix(self, directory: ResourcePrefix) -> bytes:
        """Return the bytes that every key of a directory starts with, trailing slash included."""
        return self.path(f"{directory.path}/")

    def locate(self, key: bytes) -> tuple[ResourcePrefix, bytes]:
        """Return a key's directory and the bytes that keys of that directory share.

        The second value ends in a slash, or is the complete key for a single key that is no directory.
        Keys with the same shared bytes have the same directory, which makes a sorted scan cheap.
        """
        if key == _COMPACT_REV_KEY or not key.startswith(self._root):
            return NOT_AN_OBJECT, key
        if shown_key(key) != key:  # its parts would be shown as resource and name
            return NOT_AN_OBJECT, key
        segments = key[len(self._root) :].split(b"/", 2)
        first = display(segments[0])
        if first in _BOOKKEEPING or key[len(self._root) :] in _directories():
            return NOT_AN_OBJECT, key
        if first == "ranges":
            return self._allocator(display(b"/".join(segments))), key
        for path in (segments[0], b"/".join(segments[:2])):
            directory = self._own.get(path) or _by_path().get(path)
            if directory is not None and len(key) > len(self._root) + len(path):
                return directory, key[: len(self._root) + len(path) + 1]
        if "." in first and len(segments) > 2:
            shared = self._root + b"/".join(segments[:2]) + b"/"
            return custom_directory(first, display(segments[1])), shared
        return ResourcePrefix(
            path=first, group="", resource=first, kind="", namespaced=None, codec=StorageCodec.UNKNOWN
        ), key

    @staticmethod
    def _allocator(path: str) -> ResourcePrefix:
        resource = _ALLOCATORS.get(path)
        if resource is None:
            return ResourcePrefix(
                path=path, group="", resource="ranges", kind="", namespaced=None, codec=StorageCodec.UNKNOWN
            )
        return ResourcePrefix(
            path=path,
            group="",
            resource=resource,
            kind="RangeAllocation",
            namespaced=False,
            codec=StorageCodec.ALLOCATOR,
        )

    def split(self, key: bytes, located: tuple[ResourcePrefix, bytes] | None = None) -> StorageKey:
        """Return directory, namespace and name of a key.

        Args:
            key: Complete etcd key.
            located: What :meth:`locate` says of it, where that is known, maybe with a CRD's scope. A directory of
                unknown scope reads two segments as namespace and name.
        """
        directory, shared = located if located is not None else self.locate(key)
        namespaced = directory.namespaced
        if directory.codec is StorageCodec.NOT_AN_OBJECT:
            return StorageKey(directory, "", display(key))
        if shared == key and not key.endswith(b"/"):
            return StorageKey(directory, "", display(key.rpartition(b"/")[2]))
        rest = key[len(shared) :]
        namespace, slash, name = rest.partition(b"/")
        if namespaced is False or not slash:
            well_formed = namespaced is not True and b"/" not in rest and rest != b""
            return StorageKey(directory, "", display(rest), well_formed)
        well_formed = b"/" not in name and name != b"" and namespace != b""
        return StorageKey(directory, display(namespace), display(name), well_formed)


def display(text: bytes) -> str:
    r"""Return bytes as text for reports; what is not UTF-8 becomes ``\xNN``. Not safe for a terminal yet.

    Of an etcd key, what must not be shown is withheld (:func:`~etcdfix.text.safetext.shown_key`).
    """
    shown = shown_key(text) if BOOTSTRAP in text else text  # asked here too: several times for every object
    return shown.decode("utf-8", "backslashreplace")


def word_bytes(word: str) -> bytes:
    """Return a word of a command line as the bytes that it is made of, UTF-8 or not."""
    return word.encode("utf-8", "surrogateescape")


# Storage prefixes of distributions, and of clusters whose keys were copied.
_OF_CLUSTERS = ("/registry/", "/kubernetes.io/", OPENSHIFT_PREFIX)
_KNOWN_PREFIXES = (*_OF_CLUSTERS, "/kubernetes/", "/k8s/", "/")


def _likely_prefix(key: bytes) -> str:
    known = {directory.path.split("/")[0] for directory in builtin_directories() if "." not in directory.path}
    segments = key.decode("utf-8", "replace").split("/")
    # Every storage prefix starts with a slash, whatever was configured.
    at = next((number for number, name in enumerate(segments) if number and name in known), 0)
    return ("/".join(segments[:at]) or "/") if at and key.startswith(b"/") else ""


def likely_prefixes(keys: Iterable[bytes]) -> list[str]:
    """Return storage prefixes under which the given keys would make sense, most frequent first."""
    counts = Counter(prefix for prefix in map(_likely_prefix, keys) if prefix)
    return sorted(counts, key=lambda prefix: (-counts[prefix], prefix))
