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
from etcdfix.graph.kinds import Kinds
from etcdfix.graph.model import OwnerReference
from etcdfix.graph.uses import (
    ANNOTATIONS,
    ANY,
    CLAIMS,
    GROUP_SNAPSHOT_GROUP,
    NODES,
    POD_CARRIERS,
    POD_RULES,
    RULES,
    SECRETS,
    SNAPSHOT_GROUP,
    STORAGE_CLASSES,
    Reference,
    Role,
    RuleTree,
    Use,
)
from etcdfix.model.storagekey import builtin_directories, custom_directory

# Replicas of a StatefulSet whose claims are named one by one.
_MOST_ORDINALS: Final = 1000
_ADMISSION = "admissionregistration.k8s.io"
POLICIES: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
}
"""Kinds of admission policies with their plural resources."""
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


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
    """Where the references of one object are read: its own place, what other objects say, directories by kind."""

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


_BUILTIN_PATHS: Final = {directory.path: directory for directory in builtin_directories()}
_NODE: Final = Use(Role.NODE, "spec.nodeName")
_EPHEMERAL: Final = Use(Role.EPHEMERAL_CLAIM, "spec.volumes[].ephemeral")
_CLAIM_TEMPLATE: Final = Use(Role.CLAIM_TEMPLATE, "spec.volumeClaimTemplates[].metadata.name")
_CLASS_OF_CLAIM: Final = Use(Role.STORAGE_CLASS, "spec.storageClassName")
_OF_AZURE: Final = Use(Role.VOLUME_PLUGIN, "spec.csi", heuristic=True)
_PARAMETER: Final = Use(Role.POLICY_PARAMETER, "spec.paramRef.name")
_UNSCOPED_PARAMETER: Final = Use(Role.POLICY_PARAMETER, "spec.paramRef.name", unscoped=True)
_SELECTED_PARAMETER: Final = Use(
    Role.POLICY_PARAMETER, "spec.paramRef.selector", heuristic=True, unscoped=True
)


def _pod(plain: Plain, scene: Scene) -> Iterator[Reference]:
    for volume in items(at(plain, "spec.volumes")):
        if type(volume) is dict and "ephemeral" in volume and text(volume.get("name")):
            claim = f"{scene.name}-{volume['name']}"
            yield Reference(f"{CLAIMS}/{scene.namespace}/{claim}", _EPHEMERAL)


def pod_references(plain: Plain, namespace: str) -> list[Reference]:
    """Return what a Pod uses, whatever its own name is."""
    return _KINDS["", "Pod"].rules.find(plain, namespace)


def names_own_claims(pod: Plain) -> bool:
    """Tell whether a Pod has generic ephemeral volumes, whose claims bear the Pod's name."""
    return any("ephemeral" in volume for volume in map(mapping, items(at(pod, "spec.volumes"))))


def node_reference(node: str) -> Reference:
    """Return the reference of a Pod to the node it runs on."""
    return Reference(f"{NODES}/{node}", _NODE)


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
    namespace, claimed = text(claim.get("namespace")), text(claim.get("name"))
    class_name = text(at(plain, "spec.storageClassName")) or text(_annotations(plain).get(_BETA_CLASS))
    if class_name:
        yield Reference(f"{STORAGE_CLASSES}/{class_name}", _CLASS_OF_CLAIM)
        # What deleting the volume needs stands in no field of it: it is worked out again from the class.
        tokens = claim_tokens(namespace, claimed, scene.name, None)
        templates = [t for t in scene.known.storage_classes.get(class_name, ()) if t.role is Role.PROVISIONER]
        yield from _from_templates(templates, tokens)
    for place, name in azure_secrets(mapping(at(plain, "spec.csi")), namespace):
        yield Reference(f"{SECRETS}/{place}/{name}", _OF_AZURE)


def _claim(plain: Plain, scene: Scene) -> Iterator[Reference]:
    spec = mapping(plain.get("spec"))
    volume = text(spec.get("volumeName"))
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


def _from_templates(
    templates: Iterable[SecretTemplate], tokens: Tokens, of: str = "StorageClass"
) -> Iterator[Reference]:
    for template in templates:
        resolved = template.resolve(tokens.names, tokens.namespaces)
        if resolved is not None:
            namespace, name = resolved
            path = f"{of} {template.path}"
            yield Reference(f"{SECRETS}/{namespace}/{name}", Use(template.role, path))


def _literal(templates_of: Callable[[dict[str, Any]], Iterable[SecretTemplate]]) -> Handler:
    def read(plain: Plain, _: Scene) -> Iterator[Reference]:
        for template in templates_of(mapping(plain.get("parameters"))):
            if template.literal:
                use = Use(template.role, template.path)
                yield Reference(f"{SECRETS}/{template.namespace}/{template.name}", use)

    return read


def _snapshot(word: str, planned: str) -> Handler:
    title, plural = word[:1].upper() + word[1:], word.lower()

    def read(plain: Plain, scene: Scene) -> Iterator[Reference]:
        spec = mapping(plain.get("spec"))
        bound = text(at(plain, f"status.bound{title}ContentName"))
        content = bound or text(at(spec, f"source.{word}ContentName")) or f"{planned}-{scene.uid}"
        class_name = text(spec.get(f"{word}ClassName"))
        templates = scene.known.snapshot_classes.get(f"{plural}classes/{class_name}", ())
        tokens = snapshot_tokens(scene.namespace, scene.name, content, _annotations(plain))
        return _from_templates(templates, tokens, f"{title}Class")

    return read


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
_WEBHOOKS: Final = (
    "webhooks[].name", "webhooks[].clientConfig.service", "webhooks[].rules", "webhooks[].failurePolicy",
)  # fmt: skip


class _Kind(NamedTuple):
    """How the references of a kind are found: by rules, and by a function; ``fields`` matter beside those of rules."""

    rules: RuleTree
    more: Handler | None = None
    fields: tuple[str, ...] = ()

    def read(self, plain: Plain, scene: Scene) -> list[Reference]:
        found = self.rules.find(plain, scene.namespace, scene.kinds)
        return [*found, *self.more(plain, scene)] if self.more is not None else found


_MORE: Final[dict[tuple[str, str], tuple[Handler | None, tuple[str, ...]]]] = {
    ("", "Pod"): (_pod, (
        "spec.volumes[].name", "spec.volumes[].ephemeral.volumeClaimTemplate.metadata.name", "status.phase",
    )),
    ("apps", "StatefulSet"): (_stateful_set, (
        "spec.replicas", "spec.ordinals.start", "spec.volumeClaimTemplates[].metadata.name",
    )),
    ("", "PersistentVolume"): (_volume, (
        "spec.storageClassName", "spec.csi.driver", "spec.csi.volumeHandle", "spec.csi.volumeAttributes",
    )),
    ("", "PersistentVolumeClaim"): (_claim, (ANNOTATIONS, "spec.storageClassName")),
    ("storage.k8s.io", "StorageClass"): (_literal(storage_templates), ("parameters",)),
    ("", "Secret"): (None, ("type",)),
    ("", "Node"): (None, ("status.conditions[].type", "status.conditions[].status")),
    ("", "Namespace"): (None, ("spec.finalizers", "status.phase", "status.conditions")),
    ("", "Service"): (None, ("spec.type",)),
    ("", "Endpoints"): (None, ("subsets[].addresses[].ip",)),
    ("discovery.k8s.io", "EndpointSlice"): (None, (
        "metadata.labels", "endpoints[].addresses", "endpoints[].conditions.ready",
    )),
    **{
        (_ADMISSION, f"{kind}Binding"): (_policy_binding(plural), ("spec.policyName", "spec.paramRef"))
        for kind, plural in POLICIES.items()
    },
    **{(_ADMISSION, kind): (None, ("spec.paramKind",)) for kind in POLICIES},
    **{(_ADMISSION, f"{kind}WebhookConfiguration"): (None, _WEBHOOKS) for kind in ("Mutating", "Validating")},
    # Custom resources: all of such an object is read.
    (SNAPSHOT_GROUP, "VolumeSnapshot"): (_snapshot("volumeSnapshot", "snapcontent"), ()),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshot"): (_snapshot("volumeGroupSnapshot", "groupsnapcontent"), ()),
    (SNAPSHOT_GROUP, "VolumeSnapshotClass"): (_literal(snapshot_templates), ()),
    (GROUP_SNAPSHOT_GROUP, "VolumeGroupSnapshotClass"): (_literal(snapshot_templates), ()),
}  # fmt: skip
_TREES: Final = {
    **{place: RuleTree(POD_RULES, below) for place, below in POD_CARRIERS.items()},
    **{place: RuleTree(rules) for place, rules in RULES.items()},
}
_KINDS: Final = {
    place: _Kind(_TREES.get(place) or RuleTree(()), *_MORE.get(place, ())) for place in (*_TREES, *_MORE)
}
_NO_KIND: Final = _Kind(RuleTree(()))


def replica_mask() -> Mask:
    """Return the mask of Pods without what differs between replicas: the names of their volumes."""
    pod = _KINDS["", "Pod"]
    return mask_of((*_METADATA_PATHS, *pod.rules.paths, *pod.fields[1:]))


def mask_for(group: str, kind: str) -> Mask:
    """Return the mask of all fields that matter for a kind: its references, owners, finalizers, deletion."""
    if kind == "ControllerRevision":  # a template of pods or anything else: as it was stored, all of it
        return mask_of((*_METADATA_PATHS, "data"))
    found = _KINDS.get((group, kind), _NO_KIND)
    return mask_of((*_METADATA_PATHS, *found.rules.paths, *found.fields))


def handler_for(group: str, kind: str) -> Callable[[Plain, Scene], list[Reference]] | None:
    """Return what reads the references of a kind; None for kinds that refer to nothing that is followed."""
    found = _KINDS.get((group, kind))
    return found.read if found is not None and (found.more is not None or found.rules.paths) else None
