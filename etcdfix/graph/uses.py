"""In which ways one object uses another, and the table of fields that say so.

Each :class:`Rule` stands for one line of Kubernetes' own visitors.

Sources: ``pkg/api/v1/pod/util.go`` (``VisitPodSecretNames``, ``VisitPodConfigmapNames``),
``pkg/api/v1/persistentvolume/util.go`` (``VisitPVSecretNames``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.fields import Plain, at, text
from etcdfix.graph.kinds import Kinds, relative_key


class Use(msgspec.Struct, frozen=True, cache_hash=True, gc=False, array_like=True):
    """One way in which objects are used; many references share one value.

    Attributes:
        path: Field that says so, as a path of JSON names, ``[]`` for every element.
        optional: The field itself says that the target may be absent.
        heuristic: It is likely, not certain: the look of a custom resource's field says so.
        unscoped: The namespace or the name is left open: its target stands for all that :func:`open_keys` leads to it.
    """

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
        target: Directory of the target; "" where ``apiGroup`` and ``kind`` beside the name tell it.
        optional: Its field that tolerates absence, "".
        namespace: Its field with the target's namespace, "".
        otherwise: Namespace where that field is empty: ``object``, ``claim`` (``claimRef.namespace``) or ``nowhere``;
            ``cluster`` for targets without a namespace.
        uid: Its field with the target's uid, "".
        kind: Only where its field ``kind`` says this; "" for any.
    """

    path: str
    name: str
    target: str
    optional: str = ""
    namespace: str = ""
    otherwise: str = "object"
    uid: str = ""
    kind: str = ""


SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
CLAIMS, VOLUMES, NODES, STORAGE_CLASSES = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "minions",
    "storageclasses",
)

ANY: Final = "*"
"""Stands in the key of an unscoped use's target for every namespace, or every name; none is called like that."""


def open_keys(relative: bytes) -> tuple[bytes, ...]:
    """Return the keys of unscoped uses that may mean an object in a namespace: ``secrets/*/db``, ``secrets/shop/*``."""
    above, _, name = relative.rpartition(b"/")
    directory, between, _ = above.rpartition(b"/")
    return (b"%b/*/%b" % (directory, name), above + b"/*", directory + b"/*/*") if between else ()


ANNOTATIONS: Final = "metadata.annotations"
NODE_FIELD: Final = "spec.nodeName"
TOKEN_LIST: Final = "secrets[].name"  # noqa: S105 - no password
"""Where a ServiceAccount lists its tokens."""
SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
GROUP_SNAPSHOT_GROUP: Final = "groupsnapshot.storage.k8s.io"
_PV_DELETION: Final = "volume.kubernetes.io/provisioner-deletion-secret-"
_TOKEN_ACCOUNT: Final = "kubernetes.io/service-account."  # noqa: S105 - the prefix of two annotations
_CONTAINERS = ("containers[]", "initContainers[]", "ephemeralContainers[]")

POD_RULES: tuple[Rule, ...] = (
    *(
        rule
        for c in _CONTAINERS
        for rule in (
            Rule(f"{c}.envFrom[].secretRef", "name", SECRETS, "optional"),
            Rule(f"{c}.envFrom[].configMapRef", "name", CONFIG_MAPS, "optional"),
            Rule(f"{c}.env[].valueFrom.secretKeyRef", "name", SECRETS, "optional"),
            Rule(f"{c}.env[].valueFrom.configMapKeyRef", "name", CONFIG_MAPS, "optional"),
        )
    ),
    Rule("imagePullSecrets[]", "name", SECRETS),
    Rule("volumes[].secret", "secretName", SECRETS, "optional"),
    Rule("volumes[].configMap", "name", CONFIG_MAPS, "optional"),
    Rule("volumes[].projected.sources[].secret", "name", SECRETS, "optional"),
    Rule("volumes[].projected.sources[].configMap", "name", CONFIG_MAPS, "optional"),
    Rule("volumes[].azureFile", "secretName", SECRETS),
    *(
        Rule(f"volumes[].{plugin}.secretRef", "name", SECRETS)
        for plugin in ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
    ),
    Rule("volumes[].csi.nodePublishSecretRef", "name", SECRETS),
    Rule("volumes[].persistentVolumeClaim", "claimName", CLAIMS),
    Rule("", "serviceAccountName", SERVICE_ACCOUNTS),
    Rule("", "serviceAccount", SERVICE_ACCOUNTS),
    Rule("", "nodeName", NODES, otherwise="cluster"),
)

VOLUME_RULES: tuple[Rule, ...] = (
    Rule("azureFile", "secretName", SECRETS, "", "secretNamespace", "claim"),
    *(
        Rule(f"{plugin}.secretRef", "name", SECRETS, "", "namespace", "claim")
        for plugin in ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
    ),
    *(
        Rule(f"{plugin}.secretRef", "name", SECRETS, "", "namespace", "nowhere")
        for plugin in ("cinder", "storageos")
    ),
    *(
        Rule(f"csi.{field}SecretRef", "name", SECRETS, "", "namespace", "nowhere")
        for field in ("controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand")
    ),
    Rule("claimRef", "name", CLAIMS, "", "namespace", "nowhere", "uid"),
)


def _of_snapshot(group: str, word: str) -> tuple[Rule, ...]:
    contents, title = f"{group}/{word.lower()}contents", word[:1].upper() + word[1:]
    return tuple(
        Rule(path, field, contents, otherwise="cluster")
        for path, field in (("status", f"bound{title}ContentName"), ("spec.source", f"{word}ContentName"))
    )


# Group and kind -> its rules beside those of pods' templates. Those of snapshots are custom resources.
RULES: dict[tuple[str, str], tuple[Rule, ...]] = {
    ("", "PersistentVolume"): (
        *(rule._replace(path=f"spec.{rule.path}") for rule in VOLUME_RULES),
        Rule(
            ANNOTATIONS, f"{_PV_DELETION}name", SECRETS, "", f"{_PV_DELETION}namespace",
            "nowhere",
        ),
    ),
    ("", "PersistentVolumeClaim"): (
        Rule("spec", "volumeName", VOLUMES, otherwise="cluster"),
        Rule("spec.dataSource", "name", ""),
        Rule("spec.dataSourceRef", "name", ""),
    ),
    ("storage.k8s.io", "VolumeAttachment"): (
        Rule("spec.source", "persistentVolumeName", VOLUMES, otherwise="cluster"),
        *(rule._replace(path=f"spec.source.inlineVolumeSpec.{rule.path}") for rule in VOLUME_RULES),
    ),
    ("", "ServiceAccount"): (
        Rule("secrets[]", "name", SECRETS),
        Rule("imagePullSecrets[]", "name", SECRETS),
    ),
    ("", "Secret"): (
        Rule(
            ANNOTATIONS, f"{_TOKEN_ACCOUNT}name", SERVICE_ACCOUNTS, uid=f"{_TOKEN_ACCOUNT}uid"
        ),
    ),
    ("", "Node"): tuple(
        Rule(
            f"{place}.configMap", "name", CONFIG_MAPS, "", "namespace", "nowhere", "uid"
        )
        for place in (
            "spec.configSource", "status.config.active", "status.config.assigned", "status.config.lastKnownGood",
        )
    ),
    ("networking.k8s.io", "Ingress"): (
        Rule("spec.tls[]", "secretName", SECRETS),
        Rule("spec.defaultBackend.resource", "name", ""),
        Rule("spec.rules[].http.paths[].backend.resource", "name", ""),
    ),
    **dict.fromkeys(
        (("rbac.authorization.k8s.io", "RoleBinding"), ("rbac.authorization.k8s.io", "ClusterRoleBinding")),
        (Rule("subjects[]", "name", SERVICE_ACCOUNTS, "", "namespace", kind="ServiceAccount"),),
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        Rule(
            "spec.rules[].subjects[].serviceAccount", "name", SERVICE_ACCOUNTS, "", "namespace", "nowhere"
        ),
    ),
    ("certificates.k8s.io", "PodCertificateRequest"): (
        Rule("spec", "serviceAccountName", SERVICE_ACCOUNTS, uid="serviceAccountUID"),
    ),
    (SNAPSHOT_GROUP, "VolumeSnapshot"): (
        *_of_snapshot(SNAPSHOT_GROUP, "volumeSnapshot"),
        Rule("spec.source", "persistentVolumeClaimName", CLAIMS),
    ),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshot"): _of_snapshot(GROUP_SNAPSHOT_GROUP, "volumeGroupSnapshot"),
    **dict.fromkeys(
        ((SNAPSHOT_GROUP, "VolumeSnapshotContent"), (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshotContent")),
        tuple(
            Rule(ANNOTATIONS, f"{base}name", SECRETS, "", f"{base}namespace", "nowhere")
            for prefix in ("snapshot", "groupsnapshot")
            for base in (f"{prefix}.storage.kubernetes.io/deletion-secret-",)
        ),
    ),
}  # fmt: skip

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
    """Rules arranged by field, so that an object is walked once; ``paths`` are all fields that they look at."""

    def __init__(self, rules: Iterable[Rule], below: str = "") -> None:
        self._root = _Branch()
        self._claim = ""
        self.paths: list[str] = []
        for rule in rules:
            path = ".".join(part for part in (below, rule.path) if part)
            full = f"{path}.{rule.name}" if path else rule.name
            if path == ANNOTATIONS:
                full = f"{path}[{rule.name}]"
                self.paths.append(path)
            else:
                extra = (rule.optional, rule.namespace, rule.uid, "kind" if rule.kind else "")
                beside = extra if rule.target else ("apiGroup", "kind", "namespace")
                self.paths += [full, *(f"{path}.{field}" for field in beside if field)]
            if rule.path.endswith("claimRef"):
                self._claim = f"{path}.namespace"
            branch = self._root
            for name in path.replace("[]", "").split(".") if path else ():
                branch = branch.children.setdefault(name, _Branch())
            required = Use(full)
            branch.rules.append((rule, required, msgspec.structs.replace(required, optional=True)))

    def find(self, plain: Plain, namespace: str, kinds: Kinds | None = None) -> list[Reference]:
        """Return the references in an object; those that name a kind only where kinds are known."""
        found: list[Reference] = []
        claim = text(at(plain, self._claim)) if self._claim else ""
        _walk(plain, self._root, {"object": namespace, "claim": claim}, kinds, found)
        return found


def _walk(
    value: Any, branch: _Branch, namespaces: dict[str, str], kinds: Kinds | None, found: list[Reference]
) -> None:
    if type(value) is list:
        for item in value:
            _walk(item, branch, namespaces, kinds, found)
        return
    if type(value) is not dict:
        return
    for rule, required, optional in branch.rules:
        name = text(value.get(rule.name))
        if not name or name == ANY or (rule.kind and value.get("kind") != rule.kind):
            continue
        if not rule.target:
            directory = kinds and kinds.directory(text(value.get("apiGroup")), text(value.get("kind")))
            if directory:
                where = text(value.get("namespace")) or namespaces["object"]
                found.append(Reference(relative_key(directory, where, name), required))
            continue
        namespace = text(value.get(rule.namespace)) or namespaces.get(rule.otherwise, "")
        if not namespace and rule.otherwise != "cluster":
            continue
        use = optional if rule.optional and value.get(rule.optional) is True else required
        place = f"{rule.target}/{namespace}" if namespace else rule.target
        found.append(Reference(f"{place}/{name}", use, text(value.get(rule.uid)) if rule.uid else ""))
    children = branch.children
    if children:
        for key, item in value.items():
            child = children.get(key)
            if child is not None:
                _walk(item, child, namespaces, kinds, found)
