"""In which ways one object uses another, and the table of fields that say so.

Each :class:`Rule` stands for one line of Kubernetes' own visitors.

Sources: ``pkg/api/v1/pod/util.go`` (``VisitPodSecretNames``, ``VisitPodConfigmapNames``),
``pkg/api/v1/persistentvolume/util.go`` (``VisitPVSecretNames``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec


class Role(StrEnum):
    """How a target is used."""

    ENV = "env"
    ENV_FROM = "env-from"
    VOLUME = "volume"
    PROJECTED_VOLUME = "projected-volume"
    VOLUME_PLUGIN = "volume-plugin"
    CSI_EPHEMERAL = "csi-ephemeral-volume"
    IMAGE_PULL = "image-pull"
    SERVICE_ACCOUNT = "service-account"
    NODE = "node"
    CLAIM = "claim"
    EPHEMERAL_CLAIM = "ephemeral-claim"
    CLAIM_TEMPLATE = "claim-template"
    CONTROLLER_PUBLISH = "controller-publish"
    NODE_STAGE = "node-stage"
    NODE_PUBLISH = "node-publish"
    CONTROLLER_EXPAND = "controller-expand"
    NODE_EXPAND = "node-expand"
    CONTROLLER_MODIFY = "controller-modify"
    PROVISIONER = "provisioner"
    PROVISIONER_DELETION = "provisioner-deletion"
    SNAPSHOTTER = "snapshotter"
    SNAPSHOTTER_LIST = "snapshotter-list"
    GROUP_SNAPSHOTTER = "group-snapshotter"
    GROUP_SNAPSHOTTER_GET = "group-snapshotter-get"
    SNAPSHOT_DELETION = "snapshot-deletion"
    BOUND_CLAIM = "bound-claim"
    BOUND_VOLUME = "bound-volume"
    ATTACHMENT = "attachment"
    STORAGE_CLASS = "storage-class"
    DATA_SOURCE = "data-source"
    TOKEN_LIST = "token-list"  # noqa: S105 - no password
    TOKEN_OF = "token-of"  # noqa: S105 - no password
    INGRESS_TLS = "ingress-tls"
    BACKEND = "backend"
    POLICY_PARAMETER = "policy-parameter"
    SUBJECT = "subject"
    CERTIFICATE_REQUEST = "certificate-request"
    NODE_CONFIGURATION = "node-configuration"
    SNAPSHOT_SOURCE = "snapshot-source"
    UNKNOWN = "unknown"


class Use(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One way in which objects are used; many references share one value.

    Attributes:
        role: What for.
        path: Field that says so, as a path of JSON names, ``[]`` for every element.
        optional: The field itself says that the target may be absent.
        heuristic: It is likely, not certain: the look of a custom resource's field says so, or the default of a driver,
            or labels that were not compared.
        unscoped: Namespace or name are left open: its target stands for all that :func:`unscoped_keys` leads to it.
    """

    role: Role
    path: str
    optional: bool = False
    heuristic: bool = False
    unscoped: bool = False


class Reference(NamedTuple):
    """One object uses another.

    Attributes:
        key: The other's key below the storage prefix.
        use: How it is used.
        uid: The uid that the field states, "" where it states none.
    """

    key: str
    use: Use
    uid: str = ""


class Rule(NamedTuple):
    """A field that names another object.

    Attributes:
        path: Object that holds the reference, below the place that a table belongs to.
        name: Its field with the target's name.
        target: Directory of the target.
        role: What for.
        optional: Its field that tolerates absence, "".
        namespace: Its field with the target's namespace, "".
        otherwise: Namespace where that field is empty: ``object``, ``claim`` (``claimRef.namespace``) or ``nowhere``;
            ``cluster`` for targets without a namespace.
        uid: Its field with the target's uid, "".
    """

    path: str
    name: str
    target: str
    role: Role
    optional: str = ""
    namespace: str = ""
    otherwise: str = "object"
    uid: str = ""


SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
CLAIMS, VOLUMES, NODES, STORAGE_CLASSES = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "minions",
    "storageclasses",
)

ANY: Final = "*"
"""Stands in the key of an unscoped use's target for every namespace, or every name; none is called like that."""


@lru_cache(maxsize=64)
def unscoped_keys(relative: bytes) -> tuple[bytes, ...]:
    """Return the keys by which an unscoped use may mean an object.

    For ``secrets/shop/db`` they are ``secrets/*/db`` (a name, in whatever namespace), ``secrets/shop/*`` and
    ``secrets/*/*`` (whatever has the labels); for ``things.example.com/kind/x`` one of them is ``…/kind/*``.
    """
    above, slash, name = relative.rpartition(b"/")
    directory, between, _ = above.rpartition(b"/")
    everything = ANY.encode()
    found = [b"%b/%b" % (above, everything)] if slash else []
    if between:
        found += [b"%b/%b/%b" % (directory, everything, last) for last in (name, everything)]
    return tuple(found)


_CONTAINERS = ("containers[]", "initContainers[]", "ephemeralContainers[]")

POD_RULES: tuple[Rule, ...] = (
    *(
        rule
        for c in _CONTAINERS
        for rule in (
            Rule(f"{c}.envFrom[].secretRef", "name", SECRETS, Role.ENV_FROM, "optional"),
            Rule(f"{c}.envFrom[].configMapRef", "name", CONFIG_MAPS, Role.ENV_FROM, "optional"),
            Rule(f"{c}.env[].valueFrom.secretKeyRef", "name", SECRETS, Role.ENV, "optional"),
            Rule(f"{c}.env[].valueFrom.configMapKeyRef", "name", CONFIG_MAPS, Role.ENV, "optional"),
        )
    ),
    Rule("imagePullSecrets[]", "name", SECRETS, Role.IMAGE_PULL),
    Rule("volumes[].secret", "secretName", SECRETS, Role.VOLUME, "optional"),
    Rule("volumes[].configMap", "name", CONFIG_MAPS, Role.VOLUME, "optional"),
    Rule("volumes[].projected.sources[].secret", "name", SECRETS, Role.PROJECTED_VOLUME, "optional"),
    Rule("volumes[].projected.sources[].configMap", "name", CONFIG_MAPS, Role.PROJECTED_VOLUME, "optional"),
    Rule("volumes[].azureFile", "secretName", SECRETS, Role.VOLUME_PLUGIN),
    *(
        Rule(f"volumes[].{plugin}.secretRef", "name", SECRETS, Role.VOLUME_PLUGIN)
        for plugin in ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
    ),
    Rule("volumes[].csi.nodePublishSecretRef", "name", SECRETS, Role.CSI_EPHEMERAL),
    Rule("volumes[].persistentVolumeClaim", "claimName", CLAIMS, Role.CLAIM),
    Rule("", "serviceAccountName", SERVICE_ACCOUNTS, Role.SERVICE_ACCOUNT),
    Rule("", "serviceAccount", SERVICE_ACCOUNTS, Role.SERVICE_ACCOUNT),
    Rule("", "nodeName", NODES, Role.NODE, otherwise="cluster"),
)

VOLUME_RULES: tuple[Rule, ...] = (
    Rule("azureFile", "secretName", SECRETS, Role.VOLUME_PLUGIN, "", "secretNamespace", "claim"),
    *(
        Rule(f"{plugin}.secretRef", "name", SECRETS, Role.VOLUME_PLUGIN, "", "namespace", "claim")
        for plugin in ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
    ),
    *(
        Rule(f"{plugin}.secretRef", "name", SECRETS, Role.VOLUME_PLUGIN, "", "namespace", "nowhere")
        for plugin in ("cinder", "storageos")
    ),
    *(
        Rule(f"csi.{field}SecretRef", "name", SECRETS, role, "", "namespace", "nowhere")
        for field, role in (
            ("controllerPublish", Role.CONTROLLER_PUBLISH),
            ("nodeStage", Role.NODE_STAGE),
            ("nodePublish", Role.NODE_PUBLISH),
            ("controllerExpand", Role.CONTROLLER_EXPAND),
            ("nodeExpand", Role.NODE_EXPAND),
        )
    ),
    Rule("claimRef", "name", CLAIMS, Role.BOUND_CLAIM, "", "namespace", "nowhere", "uid"),
)

SERVICE_ACCOUNT_RULES: tuple[Rule, ...] = (
    Rule("secrets[]", "name", SECRETS, Role.TOKEN_LIST),
    Rule("imagePullSecrets[]", "name", SECRETS, Role.IMAGE_PULL),
)

INGRESS_RULES: tuple[Rule, ...] = (Rule("tls[]", "secretName", SECRETS, Role.INGRESS_TLS),)

NODE_RULES: tuple[Rule, ...] = tuple(
    Rule(
        f"{place}.configMap", "name", CONFIG_MAPS, Role.NODE_CONFIGURATION, "", "namespace", "nowhere", "uid"
    )
    for place in (
        "spec.configSource", "status.config.active", "status.config.assigned", "status.config.lastKnownGood",
    )
)  # fmt: skip

CERTIFICATE_REQUEST_RULES: tuple[Rule, ...] = (
    Rule("", "serviceAccountName", SERVICE_ACCOUNTS, Role.CERTIFICATE_REQUEST, uid="serviceAccountUID"),
)

# Group and kind -> path to the pod spec. Groups of the past hold the same kinds.
POD_CARRIERS: dict[tuple[str, str], str] = {
    ("", "Pod"): "spec",
    ("", "PodTemplate"): "template.spec",
    ("", "ReplicationController"): "spec.template.spec",
    ("apps", "ReplicaSet"): "spec.template.spec",
    ("apps", "Deployment"): "spec.template.spec",
    ("apps", "StatefulSet"): "spec.template.spec",
    ("apps", "DaemonSet"): "spec.template.spec",
    ("batch", "Job"): "spec.template.spec",
    ("batch", "CronJob"): "spec.jobTemplate.spec.template.spec",
    ("apps", "ControllerRevision"): "data.spec.template.spec",
}


class _Branch:
    __slots__ = ("children", "rules")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.rules: list[tuple[Rule, Use, Use]] = []


class RuleTree:
    """Rules arranged by field, so that an object is walked once."""

    def __init__(self, rules: Iterable[Rule], at: str = "") -> None:
        self._root = _Branch()
        self.paths: list[str] = []
        for rule in rules:
            path = ".".join(part for part in (at, rule.path) if part)
            full = f"{path}.{rule.name}" if path else rule.name
            self.paths.append(full)
            self.paths += [f"{path}.{extra}" for extra in (rule.optional, rule.namespace, rule.uid) if extra]
            branch = self._root
            for name in path.replace("[]", "").split(".") if path else ():
                branch = branch.children.setdefault(name, _Branch())
            required = Use(rule.role, full)
            branch.rules.append((rule, required, msgspec.structs.replace(required, optional=True)))

    def find(self, plain: Any, namespace: str, claim_namespace: str = "") -> list[Reference]:
        """Return the references in an object."""
        found: list[Reference] = []
        _walk(plain, self._root, {"object": namespace, "claim": claim_namespace}, found)
        return found


def _walk(value: Any, branch: _Branch, namespaces: dict[str, str], found: list[Reference]) -> None:
    if type(value) is list:
        for item in value:
            _walk(item, branch, namespaces, found)
        return
    if type(value) is not dict:
        return
    for rule, required, optional in branch.rules:
        name = value.get(rule.name)
        if type(name) is not str or not name:
            continue
        namespace = value.get(rule.namespace) if rule.namespace else None
        if type(namespace) is not str or not namespace:
            namespace = namespaces.get(rule.otherwise, "")
            if not namespace and rule.otherwise != "cluster":
                continue
        use = optional if rule.optional and value.get(rule.optional) is True else required
        uid = value.get(rule.uid) if rule.uid else None
        place = f"{rule.target}/{namespace}" if namespace else rule.target
        found.append(Reference(f"{place}/{name}", use, uid if type(uid) is str else ""))
    children = branch.children
    if children:
        for key, item in value.items():
            child = children.get(key)
            if child is not None:
                _walk(item, child, namespaces, found)
