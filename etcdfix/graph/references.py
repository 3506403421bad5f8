"""Outgoing references of one object: its owners, and everything that it uses by name.

What stands in the field of a built-in or of a snapshot is certain; for other custom resources there is
:mod:`etcdfix.graph.heuristic_references`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.classes import (
    SecretTemplate,
    Tokens,
    azure_secrets,
    claim_tokens,
    snapshot_templates,
    snapshot_tokens,
    storage_templates,
)
from etcdfix.graph.fields import Mask, Plain, at, items, mapping, mask_of, text
from etcdfix.graph.kinds import Kinds, relative_key
from etcdfix.graph.model import OwnerReference
from etcdfix.graph.uses import (
    ANY,
    CERTIFICATE_REQUEST_RULES,
    CLAIMS,
    INGRESS_RULES,
    NODE_RULES,
    NODES,
    POD_CARRIERS,
    POD_RULES,
    SECRETS,
    SERVICE_ACCOUNT_RULES,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    VOLUME_RULES,
    VOLUMES,
    Reference,
    Role,
    RuleTree,
    Use,
)
from etcdfix.storagekey import builtin_directories, custom_directory

SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
GROUP_SNAPSHOT_GROUP: Final = "groupsnapshot.storage.k8s.io"

# Replicas of a StatefulSet whose claims are named one by one.
_MOST_ORDINALS: Final = 1000
_ADMISSION = "admissionregistration.k8s.io"
POLICIES: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
}
"""Kinds of admission policies with their plural resources."""
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_PV_DELETION = "volume.kubernetes.io/provisioner-deletion-secret-"
_TOKEN_ACCOUNT = "kubernetes.io/service-account."  # noqa: S105 - the prefix of two annotations


class Known(msgspec.Struct):
    """What must be known of other objects before references can be read.

    Attributes:
        storage_classes: Secrets that each StorageClass names.
        snapshot_classes: The same of VolumeSnapshotClasses and VolumeGroupSnapshotClasses, by ``resource/name``.
        policy_parameters: ``resource/name`` of an admission policy to the directory of its parameters' kind.
    """

    storage_classes: dict[str, tuple[SecretTemplate, ...]] = msgspec.field(default_factory=dict)
    snapshot_classes: dict[str, tuple[SecretTemplate, ...]] = msgspec.field(default_factory=dict)
    policy_parameters: dict[str, str] = msgspec.field(default_factory=dict)


class Scene(NamedTuple):
    """Where the references of one object are read.

    Attributes:
        namespace: Of the object; "" for none.
        name: Of the object.
        uid: Of the object; "" where it is not known.
        known: What other objects say.
        kinds: Directories by kind.
    """

    namespace: str
    name: str
    uid: str
    known: Known
    kinds: Kinds


Handler = Callable[[Plain, Scene], Iterable[Reference]]


def owners_of(plain: Plain) -> list[OwnerReference]:
    """Return an object's owner references; entries that are no objects are left out."""
    entries = items(mapping(plain.get("metadata")).get("ownerReferences"))
    return [
        OwnerReference(
            text(entry.get("apiVersion")),
            text(entry.get("kind")),
            text(entry.get("name")),
            text(entry.get("uid")),
            entry.get("controller") is True,
            entry.get("blockOwnerDeletion") is True,
        )
        for entry in entries
        if type(entry) is dict
    ]


# ------------------------------------------------------------------------------------- what each kind refers to


def _annotations(plain: Plain) -> dict[str, Any]:
    return mapping(at(plain, "metadata.annotations"))


_POD_TREES: Final = {place: RuleTree(POD_RULES, at) for place, at in POD_CARRIERS.items()}
_BUILTIN_PATHS: Final = {directory.path: directory for directory in builtin_directories()}
_VOLUME_TREE: Final = RuleTree(VOLUME_RULES, "spec")
_INLINE_VOLUME_TREE: Final = RuleTree(VOLUME_RULES, "spec.source.inlineVolumeSpec")
_INGRESS_TREE: Final = RuleTree(INGRESS_RULES, "spec")

_NODE: Final = Use(Role.NODE, "spec.nodeName")
_EPHEMERAL: Final = Use(Role.EPHEMERAL_CLAIM, "spec.volumes[].ephemeral")
_CLAIM_TEMPLATE: Final = Use(Role.CLAIM_TEMPLATE, "spec.volumeClaimTemplates[].metadata.name")
_CLASS_OF_CLAIM: Final = Use(Role.STORAGE_CLASS, "spec.storageClassName")
_VOLUME_OF_CLAIM: Final = Use(Role.BOUND_VOLUME, "spec.volumeName")
_OF_AZURE: Final = Use(Role.VOLUME_PLUGIN, "spec.csi", heuristic=True)
_ATTACHED: Final = Use(Role.ATTACHMENT, "spec.source.persistentVolumeName")
_DELETION_SECRET: Final = Use(Role.PROVISIONER_DELETION, f"metadata.annotations[{_PV_DELETION}name]")
_TOKEN_OF: Final = Use(Role.TOKEN_OF, f"metadata.annotations[{_TOKEN_ACCOUNT}name]")
_SUBJECT: Final = Use(Role.SUBJECT, "subjects[]")
_FLOW_SUBJECT: Final = Use(Role.SUBJECT, "spec.rules[].subjects[].serviceAccount")
_PARAMETER: Final = Use(Role.POLICY_PARAMETER, "spec.paramRef.name")
_UNSCOPED_PARAMETER: Final = Use(Role.POLICY_PARAMETER, "spec.paramRef.name", unscoped=True)
_SELECTED_PARAMETER: Final = Use(
    Role.POLICY_PARAMETER, "spec.paramRef.selector", heuristic=True, unscoped=True
)
_CONTENT_OF_SNAPSHOT: Final = Use(Role.BOUND_VOLUME, "status.boundVolumeSnapshotContentName")
_CLAIM_OF_SNAPSHOT: Final = Use(Role.SNAPSHOT_SOURCE, "spec.source.persistentVolumeClaimName")


def _pod(plain: Plain, scene: Scene) -> Iterator[Reference]:
    yield from pod_references(plain, scene.namespace)
    for volume in items(at(plain, "spec.volumes")):
        if type(volume) is dict and "ephemeral" in volume and text(volume.get("name")):
            claim = f"{scene.name}-{volume['name']}"
            yield Reference(f"{CLAIMS}/{scene.namespace}/{claim}", _EPHEMERAL)


def pod_references(plain: Plain, namespace: str) -> list[Reference]:
    """Return what a Pod uses, whatever its own name is."""
    return _POD_TREES["", "Pod"].find(plain, namespace)


def names_own_claims(spec: Plain) -> bool:
    """Tell whether a Pod's spec has generic ephemeral volumes, whose claims bear the Pod's name."""
    return any("ephemeral" in volume for volume in map(mapping, items(spec.get("volumes"))))


def node_reference(node: str) -> Reference:
    """Return the reference of a Pod to the node it runs on."""
    return Reference(f"{NODES}/{node}", _NODE)


def _stateful_set(plain: Plain, scene: Scene) -> Iterator[Reference]:
    yield from _POD_TREES["apps", "StatefulSet"].find(plain, scene.namespace)
    replicas, start = at(plain, "spec.replicas"), at(plain, "spec.ordinals.start")
    count = replicas if type(replicas) is int else 1
    first = start if type(start) is int else 0
    for template in items(at(plain, "spec.volumeClaimTemplates")):
        name = text(at(mapping(template), "metadata.name"))
        for ordinal in range(first, first + min(count, _MOST_ORDINALS)) if name else ():
            claim = f"{name}-{scene.name}-{ordinal}"
            yield Reference(f"{CLAIMS}/{scene.namespace}/{claim}", _CLAIM_TEMPLATE)


def _volume(plain: Plain, scene: Scene) -> Iterator[Reference]:
    claim = mapping(at(plain, "spec.claimRef"))
    namespace, claimed = text(claim.get("namespace")), text(claim.get("name"))
    yield from _VOLUME_TREE.find(plain, "", namespace)
    annotations = _annotations(plain)
    secret, where = annotations.get(f"{_PV_DELETION}name"), annotations.get(f"{_PV_DELETION}namespace")
    if text(secret) and text(where):
        yield Reference(f"{SECRETS}/{where}/{secret}", _DELETION_SECRET)
    class_name = text(at(plain, "spec.storageClassName")) or text(annotations.get(_BETA_CLASS))
    if class_name:
        yield Reference(f"{STORAGE_CLASSES}/{class_name}", _CLASS_OF_CLAIM)
        # What deleting the volume needs stands in no field of it: it is worked out again from the class.
        tokens = claim_tokens(namespace, claimed, scene.name, None)
        templates = [t for t in scene.known.storage_classes.get(class_name, ()) if t.role is Role.PROVISIONER]
        yield from _from_templates(templates, tokens)
    for place, name in azure_secrets(mapping(at(plain, "spec.csi")), namespace):
        yield Reference(f"{SECRETS}/{place}/{name}", _OF_AZURE)


def _attachment(plain: Plain, scene: Scene) -> Iterator[Reference]:
    source = mapping(at(plain, "spec.source"))
    name = text(source.get("persistentVolumeName"))
    if name:
        yield Reference(f"{VOLUMES}/{name}", _ATTACHED)
    namespace = text(at(source, "inlineVolumeSpec.claimRef.namespace"))
    yield from _INLINE_VOLUME_TREE.find(plain, scene.namespace, namespace)


def _claim(plain: Plain, scene: Scene) -> Iterator[Reference]:
    spec = mapping(plain.get("spec"))
    volume = text(spec.get("volumeName"))
    if volume:
        yield Reference(f"{VOLUMES}/{volume}", _VOLUME_OF_CLAIM)
    annotations = _annotations(plain)
    class_name = text(annotations.get(_BETA_CLASS)) or text(spec.get("storageClassName"))
    if class_name:
        yield Reference(f"{STORAGE_CLASSES}/{class_name}", _CLASS_OF_CLAIM)
        templates = scene.known.storage_classes.get(class_name, ())
        if volume:
            # Its volume holds copies of the others.
            templates = tuple(t for t in templates if t.role is Role.PROVISIONER)
        planned = volume or f"pvc-{scene.uid}"
        yield from _from_templates(templates, claim_tokens(scene.namespace, scene.name, planned, annotations))
    for field in ("dataSource", "dataSourceRef"):
        yield from _typed(mapping(spec.get(field)), scene, Use(Role.DATA_SOURCE, f"spec.{field}"))


def _from_templates(
    templates: Iterable[SecretTemplate], tokens: Tokens, of: str = "StorageClass"
) -> Iterator[Reference]:
    for template in templates:
        resolved = template.resolve(tokens.names, tokens.namespaces)
        if resolved is not None:
            namespace, name = resolved
            path = f"{of} {template.path}"
            yield Reference(f"{SECRETS}/{namespace}/{name}", Use(template.role, path))


def _typed(reference: dict[str, Any], scene: Scene, use: Use) -> Iterator[Reference]:
    name, kind = text(reference.get("name")), text(reference.get("kind"))
    directory = scene.kinds.directory(text(reference.get("apiGroup")), kind) if name else None
    if directory is not None:
        namespace = text(reference.get("namespace")) or scene.namespace
        yield Reference(relative_key(directory, namespace, name), use)


def _storage_class(plain: Plain, _: Scene) -> Iterator[Reference]:
    return _literal(storage_templates(mapping(plain.get("parameters"))))


def _snapshot_class(plain: Plain, _: Scene) -> Iterator[Reference]:
    return _literal(snapshot_templates(mapping(plain.get("parameters"))))


def _literal(templates: Iterable[SecretTemplate]) -> Iterator[Reference]:
    for template in templates:
        if template.literal:
            use = Use(template.role, template.path)
            yield Reference(f"{SECRETS}/{template.namespace}/{template.name}", use)


def _snapshot(plain: Plain, scene: Scene, *, group: bool = False) -> Iterator[Reference]:
    spec, status = mapping(plain.get("spec")), mapping(plain.get("status"))
    word = "volumeGroupSnapshot" if group else "volumeSnapshot"
    where, plural = (
        (GROUP_SNAPSHOT_GROUP, "volumegroupsnapshot") if group else (SNAPSHOT_GROUP, "volumesnapshot")
    )
    bound = text(status.get(f"bound{word[:1].upper()}{word[1:]}ContentName"))
    content = bound or text(at(spec, f"source.{word}ContentName"))
    if content:
        yield Reference(f"{where}/{plural}contents/{content}", _CONTENT_OF_SNAPSHOT)
    claim = text(at(spec, "source.persistentVolumeClaimName"))
    if claim:
        yield Reference(f"{CLAIMS}/{scene.namespace}/{claim}", _CLAIM_OF_SNAPSHOT)
    class_name = text(spec.get(f"{word}ClassName"))
    templates = scene.known.snapshot_classes.get(f"{plural}classes/{class_name}", ())
    planned = content or f"{'groupsnapcontent' if group else 'snapcontent'}-{scene.uid}"
    tokens = snapshot_tokens(scene.namespace, scene.name, planned, _annotations(plain))
    yield from _from_templates(templates, tokens, f"{word[:1].upper()}{word[1:]}Class")


def _group_snapshot(plain: Plain, scene: Scene) -> Iterator[Reference]:
    return _snapshot(plain, scene, group=True)


def _snapshot_content(plain: Plain, _: Scene) -> Iterator[Reference]:
    annotations = _annotations(plain)
    for prefix in ("snapshot", "groupsnapshot"):
        base = f"{prefix}.storage.kubernetes.io/deletion-secret-"
        name, namespace = text(annotations.get(f"{base}name")), text(annotations.get(f"{base}namespace"))
        if name and namespace:
            use = Use(Role.SNAPSHOT_DELETION, f"metadata.annotations[{base}name]")
            yield Reference(f"{SECRETS}/{namespace}/{name}", use)


def _ingress(plain: Plain, scene: Scene) -> Iterator[Reference]:
    yield from _INGRESS_TREE.find(plain, scene.namespace)
    spec = mapping(plain.get("spec"))
    default = mapping(at(spec, "defaultBackend.resource"))
    yield from _typed(default, scene, Use(Role.BACKEND, "spec.defaultBackend.resource"))
    use = Use(Role.BACKEND, "spec.rules[].http.paths[].backend.resource")
    for rule in items(spec.get("rules")):
        for path in items(at(mapping(rule), "http.paths")):
            yield from _typed(mapping(at(mapping(path), "backend.resource")), scene, use)


def _secret(plain: Plain, scene: Scene) -> Iterator[Reference]:
    if plain.get("type") != "kubernetes.io/service-account-token":
        return
    annotations = _annotations(plain)
    name = text(annotations.get(f"{_TOKEN_ACCOUNT}name"))
    if name:
        uid = text(annotations.get(f"{_TOKEN_ACCOUNT}uid"))
        yield Reference(f"{SERVICE_ACCOUNTS}/{scene.namespace}/{name}", _TOKEN_OF, uid)


def _role_binding(plain: Plain, scene: Scene) -> Iterator[Reference]:
    for subject in map(mapping, items(plain.get("subjects"))):
        name = text(subject.get("name"))
        namespace = text(subject.get("namespace")) or scene.namespace
        if subject.get("kind") == "ServiceAccount" and name and namespace:
            yield Reference(f"{SERVICE_ACCOUNTS}/{namespace}/{name}", _SUBJECT)


def _flow_schema(plain: Plain, _: Scene) -> Iterator[Reference]:
    for rule in map(mapping, items(at(plain, "spec.rules"))):
        for subject in map(mapping, items(rule.get("subjects"))):
            account = mapping(subject.get("serviceAccount"))
            name, namespace = text(account.get("name")), text(account.get("namespace"))
            if name and namespace and name != "*":
                yield Reference(f"{SERVICE_ACCOUNTS}/{namespace}/{name}", _FLOW_SUBJECT)


def _policy_binding(plural: str) -> Handler:
    def read(plain: Plain, scene: Scene) -> Iterator[Reference]:
        spec = mapping(plain.get("spec"))
        target = scene.known.policy_parameters.get(f"{plural}/{text(spec.get('policyName'))}")
        reference = mapping(spec.get("paramRef"))
        if not target or not reference:
            return
        name, namespace = text(reference.get("name")), text(reference.get("namespace"))
        # An empty selector selects everything; no name and no selector select nothing.
        if not name and "selector" not in reference:
            return
        where = f"{target}/" if _without_namespaces(target, scene.kinds) else f"{target}/{namespace or ANY}/"
        if not name:
            yield Reference(f"{where}{ANY}", _SELECTED_PARAMETER)
        else:
            # Without a namespace it is the one of each request: any of them.
            unscoped = where.endswith(f"/{ANY}/")
            yield Reference(f"{where}{name}", _UNSCOPED_PARAMETER if unscoped else _PARAMETER)

    return read


def _without_namespaces(path: str, kinds: Kinds) -> bool:
    found = _BUILTIN_PATHS.get(path)
    if found is None:
        found = kinds.custom(custom_directory(*path.split("/", 1)))
    return found.namespaced is False


_METADATA_PATHS: Final = (
    "metadata.ownerReferences[].apiVersion",
    "metadata.ownerReferences[].kind",
    "metadata.ownerReferences[].name",
    "metadata.ownerReferences[].uid",
    "metadata.ownerReferences[].controller",
    "metadata.ownerReferences[].blockOwnerDeletion",
    "metadata.finalizers",
    "metadata.deletionTimestamp",
)
_ANNOTATIONS: Final = "metadata.annotations"
_WEBHOOKS: Final = tuple(
    f"webhooks[].{part}"
    for part in (
        "name",
        "clientConfig.service",
        "rules",
        "failurePolicy",
        "namespaceSelector",
        "objectSelector",
        "matchConditions",
    )
)
_Kind = tuple[Handler | None, tuple[str, ...]]


def _follows(tree: RuleTree) -> _Kind:
    """Return how references are read that stand in the fields which a tree of rules names, and nowhere else."""

    def read(plain: Plain, scene: Scene) -> list[Reference]:
        return tree.find(plain, scene.namespace)

    return read, tuple(tree.paths)


_NODE_TREE: Final = _follows(RuleTree(NODE_RULES))

# Group and kind -> what reads its references, None where none is followed; and the fields that matter of it.
_KINDS: Final[dict[tuple[str, str], _Kind]] = {
    **{place: _follows(tree) for place, tree in _POD_TREES.items()},
    ("", "Pod"): (_pod, (
        *_POD_TREES["", "Pod"].paths,
        "spec.volumes[].name",
        "spec.volumes[].ephemeral.volumeClaimTemplate.metadata.name",
        "status.phase",
    )),
    ("apps", "StatefulSet"): (_stateful_set, (
        *_POD_TREES["apps", "StatefulSet"].paths,
        "spec.replicas",
        "spec.ordinals.start",
        "spec.volumeClaimTemplates[].metadata.name",
    )),
    # A template of pods or anything else: as it was stored, all of it.
    ("apps", "ControllerRevision"): (_follows(_POD_TREES["apps", "ControllerRevision"])[0], ("data",)),
    ("", "ServiceAccount"): _follows(RuleTree(SERVICE_ACCOUNT_RULES)),
    ("", "PersistentVolume"): (_volume, (
        *_VOLUME_TREE.paths,
        "spec.storageClassName",
        "spec.csi.driver",
        "spec.csi.volumeHandle",
        "spec.csi.volumeAttributes",
        _ANNOTATIONS,
    )),
    ("", "PersistentVolumeClaim"): (_claim, (
        _ANNOTATIONS,
        "spec.volumeName",
        "spec.storageClassName",
        *(f"spec.dataSource.{part}" for part in ("apiGroup", "kind", "name")),
        *(f"spec.dataSourceRef.{part}" for part in ("apiGroup", "kind", "name", "namespace")),
    )),
    ("storage.k8s.io", "VolumeAttachment"): (_attachment, (
        *_INLINE_VOLUME_TREE.paths,
        "spec.source.persistentVolumeName",
        "spec.source.inlineVolumeSpec.claimRef.namespace",
    )),
    ("storage.k8s.io", "StorageClass"): (_storage_class, ("parameters",)),
    ("networking.k8s.io", "Ingress"): (_ingress, (
        *_INGRESS_TREE.paths,
        *(f"spec.defaultBackend.resource.{part}" for part in ("apiGroup", "kind", "name")),
        *(f"spec.rules[].http.paths[].backend.resource.{part}" for part in ("apiGroup", "kind", "name")),
    )),
    ("", "Secret"): (_secret, ("type", _ANNOTATIONS)),
    ("", "Node"): (_NODE_TREE[0], (*_NODE_TREE[1], "status.conditions[].type", "status.conditions[].status")),
    ("", "Namespace"): (None, (
        "metadata.labels", "spec.finalizers", "status.phase", "status.conditions",
    )),
    ("", "Service"): (None, ("spec.type",)),
    ("", "Endpoints"): (None, ("subsets[].addresses[].ip",)),
    ("discovery.k8s.io", "EndpointSlice"): (None, (
        "metadata.labels", "endpoints[].addresses", "endpoints[].conditions.ready",
    )),
    ("rbac.authorization.k8s.io", "RoleBinding"): (_role_binding, ("subjects",)),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (_role_binding, ("subjects",)),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        _flow_schema, ("spec.rules[].subjects[].serviceAccount",),
    ),
    **{
        (_ADMISSION, f"{kind}Binding"): (
            _policy_binding(plural), ("spec.policyName", "spec.paramRef"),
        )
        for kind, plural in POLICIES.items()
    },
    **{(_ADMISSION, kind): (None, ("spec.paramKind",)) for kind in POLICIES},
    **{
        (_ADMISSION, f"{kind}WebhookConfiguration"): (None, _WEBHOOKS)
        for kind in ("Mutating", "Validating")
    },
    ("certificates.k8s.io", "PodCertificateRequest"): _follows(RuleTree(CERTIFICATE_REQUEST_RULES, "spec")),
    # Custom resources: all of such an object is read.
    (SNAPSHOT_GROUP, "VolumeSnapshot"): (_snapshot, ()),
    (SNAPSHOT_GROUP, "VolumeSnapshotClass"): (_snapshot_class, ()),
    (SNAPSHOT_GROUP, "VolumeSnapshotContent"): (_snapshot_content, ()),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshot"): (_group_snapshot, ()),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshotClass"): (_snapshot_class, ()),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshotContent"): (_snapshot_content, ()),
}  # fmt: skip


def replica_mask() -> Mask:
    """Return the mask of Pods without what differs between replicas: the names of their volumes."""
    wanted = [path for path in _KINDS["", "Pod"][1] if path != "spec.volumes[].name"]
    return mask_of((*_METADATA_PATHS, *wanted))


def mask_for(group: str, kind: str) -> Mask:
    """Return the mask of all fields that matter for a kind: its references, owners, finalizers, deletion."""
    return mask_of((*_METADATA_PATHS, *_KINDS.get((group, kind), (None, ()))[1]))


def handler_for(group: str, kind: str) -> Handler | None:
    """Return what reads the references of a kind; None for kinds that refer to nothing that is followed."""
    return _KINDS.get((group, kind), (None, ()))[0]
