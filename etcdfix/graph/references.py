"""Outgoing references of one object: its owners, and everything that it uses by name.

What stands in the field of a built-in or of a snapshot is certain; for other custom resources there is
:mod:`etcdfix.graph.heuristic_references`. StorageClasses and snapshot classes name Secrets by template.

Sources: the CSI side-cars external-provisioner (``pkg/controller/controller.go``, ``getSecretReference``) and
external-snapshotter (``pkg/utils/util.go``, ``GetSecretReference``), as their documentation describes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.fields import Mask, Plain, at, items, mapping, mask_of, text
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.kinds import Kinds
from etcdfix.graph.model import OwnerReference
from etcdfix.graph.uses import (
    ANNOTATIONS,
    ANY,
    CLAIMS,
    CONFIG_MAPS,
    GROUP_SNAPSHOT_GROUP,
    POD_CARRIERS,
    POD_RULES,
    RULES,
    SECRETS,
    SNAPSHOT_GROUP,
    STORAGE_CLASSES,
    Reference,
    RuleTree,
    Use,
)

# Replicas of a StatefulSet whose claims are named one by one.
_MOST_ORDINALS: Final = 1000
_ADMISSION: Final = "admissionregistration.k8s.io"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_EPHEMERAL: Final = Use("spec.volumes[].ephemeral")
_CLAIM_TEMPLATE: Final = Use("spec.volumeClaimTemplates[].metadata.name")
_OF_AZURE: Final = Use("spec.csi", heuristic=True)
_CLASS_OF_CLAIM: Final = Use("spec.storageClassName")


_PREFIX: Final = "csi.storage.k8s.io/"
_TOKEN: Final = re.compile(r"\$\{([^}]*)\}")
_ANY_OPERATION: Final = (f"{_PREFIX}secret-name", f"{_PREFIX}secret-namespace")

# Operation -> what the parameters with name and namespace were called once; today they are called after the operation.
_OF_STORAGE: Final = {
    "provisioner": "csiProvisioner",
    "controller-publish": "csiControllerPublish",
    "node-stage": "csiNodeStage",
    "node-publish": "csiNodePublish",
    **dict.fromkeys(("controller-expand", "node-expand", "controller-modify"), ""),
}
_OF_SNAPSHOTS: Final = ("snapshotter", "snapshotter-list", "group-snapshotter", "group-snapshotter-get")


class SecretTemplate(msgspec.Struct, frozen=True):
    """A Secret that a class names; ``path`` is the field that holds the name. Both texts may hold ``${…}``."""

    operation: str
    name: str
    namespace: str
    path: str

    def resolve(self, names: Mapping[str, str], namespaces: Mapping[str, str]) -> tuple[str, str] | None:
        """Return (namespace, name), None where a token cannot be filled in."""
        name, namespace = _fill(self.name, names), _fill(self.namespace, namespaces)
        return (namespace, name) if name and namespace else None


Tokens = tuple[Mapping[str, str], Mapping[str, str]]
"""What templates can be filled in with: for a Secret's name, and for its namespace."""


def claim_tokens(namespace: str, name: str, volume: str, annotations: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a PersistentVolumeClaim."""
    namespaces = {"pv.name": volume, "pvc.namespace": namespace}
    return {**namespaces, "pvc.name": name, **_annotation_tokens("pvc", annotations)}, namespaces


def snapshot_tokens(namespace: str, name: str, content: str, annotations: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a VolumeSnapshot (or VolumeGroupSnapshot)."""
    namespaces: dict[str, str] = {}
    names: dict[str, str] = {}
    for kind in ("volumesnapshot", "volumegroupsnapshot"):
        namespaces |= {f"{kind}content.name": content, f"{kind}.namespace": namespace}
        names |= {f"{kind}.name": name, **_annotation_tokens(kind, annotations)}
    return {**namespaces, **names}, namespaces


def _annotation_tokens(kind: str, annotations: Mapping[str, Any]) -> dict[str, str]:
    return {f"{kind}.annotations['{k}']": v for k, v in annotations.items() if isinstance(v, str)}


def _fill(template: str, tokens: Mapping[str, str]) -> str:
    """Return a template filled in; "" where a token is not known or empty."""
    whole = all(tokens.get(token) for token in _TOKEN.findall(template))
    return _TOKEN.sub(lambda match: tokens[match[1]], template) if whole else ""


def storage_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a StorageClass names."""
    found: list[SecretTemplate] = []
    for operation, old in _OF_STORAGE.items():
        pairs = (_pair(operation), (f"{old}SecretName", f"{old}SecretNamespace"), _ANY_OPERATION)
        pair = next((pair for pair in pairs if parameters.get(pair[0])), None)
        found += _template(operation, pair, parameters) if pair is not None else ()
    return tuple(found)


def snapshot_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a VolumeSnapshotClass or VolumeGroupSnapshotClass names."""
    return tuple(
        found for operation in _OF_SNAPSHOTS for found in _template(operation, _pair(operation), parameters)
    )


def _pair(operation: str) -> tuple[str, str]:
    return f"{_PREFIX}{operation}-secret-name", f"{_PREFIX}{operation}-secret-namespace"


def _template(
    operation: str, pair: tuple[str, str], parameters: Mapping[str, Any]
) -> Iterator[SecretTemplate]:
    name, namespace = parameters.get(pair[0]), parameters.get(pair[1])
    if isinstance(name, str) and isinstance(namespace, str) and name and namespace:
        yield SecretTemplate(operation, name, namespace, f"parameters[{pair[0]}]")


class Known(msgspec.Struct):
    """What objects say that others refer through.

    Secrets that classes name: by name of the StorageClass, and by ``resource/name`` of the snapshot class. Directories
    of the parameters of an admission policy, by ``resource/name``: that of Secrets, of ConfigMaps, or none.
    """

    storage_classes: dict[str, tuple[SecretTemplate, ...]] = msgspec.field(default_factory=dict)
    snapshot_classes: dict[str, tuple[SecretTemplate, ...]] = msgspec.field(default_factory=dict)
    policy_parameters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Scene(NamedTuple):
    """Where the references of one object are read: its own place, what classes say, directories by kind."""

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


def _pod(plain: Plain, scene: Scene) -> Iterator[Reference]:
    for volume in items(at(plain, "spec.volumes")):
        if type(volume) is dict and "ephemeral" in volume and text(volume.get("name")):
            claim = f"{scene.name}-{volume['name']}"
            yield Reference(f"{CLAIMS}/{scene.namespace}/{claim}", _EPHEMERAL)


def _stateful_set(plain: Plain, scene: Scene) -> Iterator[Reference]:
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
    # Some drivers are told of a Secret where no rule looks for one.
    attributes = {"volumeAttributes": at(plain, "spec.csi.volumeAttributes")}
    yield from heuristic_references(attributes, text(claim.get("namespace")))
    yield from _azure_files(plain, text(claim.get("namespace")))
    class_name = text(at(plain, "spec.storageClassName")) or text(_annotations(plain).get(_BETA_CLASS))
    if class_name:
        yield Reference(f"{STORAGE_CLASSES}/{class_name}", _CLASS_OF_CLAIM)
        # What deleting the volume needs stands in no field of it: it is worked out again from the class.
        tokens = claim_tokens(text(claim.get("namespace")), text(claim.get("name")), scene.name, {})
        yield from _from_templates(_of_class(scene, class_name, bound=True), tokens)


def _azure_files(plain: Plain, claim_namespace: str) -> Iterator[Reference]:
    """Yield where Azure's file driver looks for the key of a storage account of which no field names the Secret.

    The driver's ``volumeHandle`` is ``<resource group>#<account>#<share>#…``.
    """
    if text(at(plain, "spec.csi.driver")) != "file.csi.azure.com":
        return
    attributes = mapping(at(plain, "spec.csi.volumeAttributes"))
    told = {key.lower(): text(value) for key, value in attributes.items()}
    account = told.get("storageaccount") or "".join(text(at(plain, "spec.csi.volumeHandle")).split("#")[1:2])
    name = told.get("secretname") or (f"azure-storage-account-{account}-secret" if account else "")
    # The driver's own default is the namespace of the claim or "default", by release.
    places = [told["secretnamespace"]] if "secretnamespace" in told else [claim_namespace, "default"]
    for namespace in dict.fromkeys(filter(None, places)) if name else ():
        yield Reference(f"{SECRETS}/{namespace}/{name}", _OF_AZURE)


def _claim(plain: Plain, scene: Scene) -> Iterator[Reference]:
    volume, annotations = text(at(plain, "spec.volumeName")), _annotations(plain)
    class_name = text(annotations.get(_BETA_CLASS)) or text(at(plain, "spec.storageClassName"))
    if class_name:
        yield Reference(f"{STORAGE_CLASSES}/{class_name}", _CLASS_OF_CLAIM)
        tokens = claim_tokens(scene.namespace, scene.name, volume or f"pvc-{scene.uid}", annotations)
        yield from _from_templates(_of_class(scene, class_name, bound=bool(volume)), tokens)


def _of_class(scene: Scene, name: str, *, bound: bool) -> Iterator[SecretTemplate]:
    """Yield the Secrets of a StorageClass that a claim needs; a volume that it is bound to has copies of most."""
    for template in scene.known.storage_classes.get(name, ()):
        if template.operation == "provisioner" or not bound:
            yield template


def policy_parameters(plain: Plain) -> tuple[str, ...]:
    """Return the directory of an admission policy's parameters, where these are Secrets or ConfigMaps."""
    kind = mapping(at(plain, "spec.paramKind"))
    core = {"Secret": (SECRETS,), "ConfigMap": (CONFIG_MAPS,)} if kind.get("apiVersion") == "v1" else {}
    return core.get(text(kind.get("kind")), ())


def _policy_binding(resource: str) -> Handler:
    def read(plain: Plain, scene: Scene) -> Iterator[Reference]:
        reference = mapping(at(plain, "spec.paramRef"))
        name, namespace = text(reference.get("name")), text(reference.get("namespace"))
        policy = f"{resource}/{text(at(plain, 'spec.policyName'))}"
        # Of a policy that was not read: one of both, and only where an object is named.
        known = scene.known.policy_parameters.get(policy)
        guess = (CONFIG_MAPS, SECRETS) if name else ()
        field = "name" if name else "selector"
        for directory in guess if known is None else known if field in reference else ():
            heuristic, unscoped = known is None or not name, not (name and namespace)
            use = Use(f"spec.paramRef.{field}", heuristic=heuristic, unscoped=unscoped)
            yield Reference(f"{directory}/{namespace or ANY}/{name or ANY}", use)

    return read


def _from_templates(
    templates: Iterable[SecretTemplate], tokens: Tokens, of: str = "StorageClass "
) -> Iterator[Reference]:
    for template in templates:
        resolved = template.resolve(*tokens)
        if resolved is not None:
            use = Use(f"{of}{template.path}")
            yield Reference(f"{SECRETS}/{'/'.join(resolved)}", use)


def _literal(templates_of: Callable[[dict[str, Any]], Iterable[SecretTemplate]]) -> Handler:
    return lambda plain, _: _from_templates(templates_of(mapping(plain.get("parameters"))), ({}, {}), "")


def _snapshot(word: str, planned: str) -> Handler:
    title, plural = word[:1].upper() + word[1:], word.lower()

    def read(plain: Plain, scene: Scene) -> Iterator[Reference]:
        bound = text(at(plain, f"status.bound{title}ContentName"))
        content = bound or text(at(plain, f"spec.source.{word}ContentName")) or f"{planned}-{scene.uid}"
        class_name = text(at(plain, f"spec.{word}ClassName"))
        templates = scene.known.snapshot_classes.get(f"{plural}classes/{class_name}", ())
        tokens = snapshot_tokens(scene.namespace, scene.name, content, _annotations(plain))
        return _from_templates(templates, tokens, f"{title}Class ")

    return read


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
_TREES: Final = {
    **{place: RuleTree(POD_RULES, below) for place, below in POD_CARRIERS.items()},
    **{place: RuleTree(rules) for place, rules in RULES.items()},
}
# What no rule can say.
_HANDLERS: Final[dict[tuple[str, str], Handler]] = {
    ("", "Pod"): _pod,
    ("apps", "StatefulSet"): _stateful_set,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("storage.k8s.io", "StorageClass"): _literal(storage_templates),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _policy_binding("mutatingadmissionpolicies"),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _policy_binding("validatingadmissionpolicies"),
    (SNAPSHOT_GROUP, "VolumeSnapshot"): _snapshot("volumeSnapshot", "snapcontent"),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshot"): _snapshot("volumeGroupSnapshot", "groupsnapcontent"),
    (SNAPSHOT_GROUP, "VolumeSnapshotClass"): _literal(snapshot_templates),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshotClass"): _literal(snapshot_templates),
}
_WEBHOOK_FIELDS: Final = tuple(
    f"webhooks[].{field}" for field in ("name", "clientConfig.service", "rules", "failurePolicy")
)
# Fields that matter beside those of rules. All of a custom resource is read.
_FIELDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): (
        "spec.volumes[].name", "spec.volumes[].ephemeral.volumeClaimTemplate.metadata.name", "status.phase",
    ),
    ("apps", "StatefulSet"): (
        "spec.replicas", "spec.ordinals.start", "spec.volumeClaimTemplates[].metadata.name",
    ),
    ("apps", "ControllerRevision"): ("data",),  # a template of pods or anything else: as it was stored, all of it
    ("", "PersistentVolume"): (
        "spec.storageClassName", "spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.volumeAttributes",
    ),
    ("", "PersistentVolumeClaim"): (ANNOTATIONS, "spec.storageClassName"),
    ("storage.k8s.io", "StorageClass"): ("parameters",),
    ("", "Node"): ("status.conditions[].type", "status.conditions[].status"),
    ("", "Namespace"): ("spec.finalizers", "status.phase", "status.conditions"),
    ("", "Service"): ("spec.type",),
    ("", "Endpoints"): ("subsets[].addresses[].ip",),
    ("discovery.k8s.io", "EndpointSlice"): (
        "metadata.labels", "endpoints[].addresses", "endpoints[].conditions.ready",
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): ("spec.paramKind",),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): ("spec.policyName", "spec.paramRef"),
    (_ADMISSION, "ValidatingAdmissionPolicy"): ("spec.paramKind",),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): ("spec.policyName", "spec.paramRef"),
    (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOK_FIELDS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOK_FIELDS,
}  # fmt: skip


def mask_for(group: str, kind: str) -> Mask:
    """Return the mask of all fields that matter for a kind: its references, owners, finalizers, deletion."""
    fields = _FIELDS.get((group, kind), ())
    tree = _TREES.get((group, kind)) if fields != ("data",) else None
    return mask_of((*_METADATA_PATHS, *(tree.paths if tree is not None else ()), *fields))


def handler_for(group: str, kind: str) -> Handler | None:
    """Return what reads the references of a kind; None for kinds that refer to nothing that is followed."""
    tree, more = _TREES.get((group, kind)), _HANDLERS.get((group, kind))
    if tree is None:
        return more

    def read(plain: Plain, scene: Scene) -> list[Reference]:
        found = tree.find(plain, scene.namespace, scene.kinds)
        return [*found, *more(plain, scene)] if more is not None else found

    return read
