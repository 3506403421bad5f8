"""Who uses a Secret, how, and whether its absence stops them: what KEP-2639 wanted to protect Secrets for.

The KEP was abandoned and no release has its controller; its list of users is the right one all the same, and
``secret.kubernetes.io/skip-secret-protection: "yes"`` and the two finalizers may be found on real Secrets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.graph.identity import ObjectRef
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.tables import FINISHED
from etcdfix.graph.uses import CLAIMS, SECRETS, VOLUMES, Role, Use

PROTECTION_FINALIZERS: Final = (
    "kubernetes.io/secret-protection",
    "snapshot.storage.kubernetes.io/secret-protection",
)

_MOST_BEHIND: Final = 100

# Users that the KEP's controllers look at.
_PROTECTING: Final = frozenset(
    {
        ("", "pods"),
        ("", "persistentvolumes"),
        ("", "persistentvolumeclaims"),
        ("snapshot.storage.k8s.io", "volumesnapshots"),
        ("snapshot.storage.k8s.io", "volumesnapshotcontents"),
    }
)


class Stops(StrEnum):
    """Whether the absence of the Secret stops a user."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


# Role -> whether absence stops the user, and what it means. What runs goes on: this is about the next start.
_CONSEQUENCES: Final[dict[Role, tuple[Stops, str]]] = {
    Role.ENV: (Stops.YES, "containers do not start: CreateContainerConfigError"),
    Role.ENV_FROM: (Stops.YES, "containers do not start: CreateContainerConfigError"),
    Role.VOLUME: (Stops.YES, "pods wait in ContainerCreating: FailedMount"),
    Role.PROJECTED_VOLUME: (Stops.YES, "pods wait in ContainerCreating: FailedMount"),
    Role.VOLUME_PLUGIN: (Stops.YES, "the volume is not mounted"),
    Role.CSI_EPHEMERAL: (Stops.YES, "the driver is not asked to mount the volume"),
    Role.IMAGE_PULL: (Stops.PERHAPS, "images of private registries are not pulled, others are"),
    Role.CONTROLLER_PUBLISH: (Stops.YES, "the volume is not attached to another node"),
    Role.NODE_STAGE: (Stops.YES, "the volume is not staged on a node"),
    Role.NODE_PUBLISH: (Stops.YES, "the volume is not mounted into pods"),
    Role.CONTROLLER_EXPAND: (Stops.YES, "the volume cannot grow"),
    Role.NODE_EXPAND: (Stops.YES, "the file system cannot grow"),
    Role.CONTROLLER_MODIFY: (Stops.YES, "the volume cannot be modified"),
    Role.PROVISIONER: (Stops.YES, "volumes are neither created nor deleted: storage leaks"),
    Role.PROVISIONER_DELETION: (Stops.YES, "the volume is not deleted: storage leaks"),
    Role.SNAPSHOTTER: (Stops.YES, "snapshots are not taken"),
    Role.SNAPSHOTTER_LIST: (Stops.YES, "the state of snapshots is not seen"),
    Role.GROUP_SNAPSHOTTER: (Stops.YES, "group snapshots are not taken"),
    Role.GROUP_SNAPSHOTTER_GET: (Stops.YES, "the state of group snapshots is not seen"),
    Role.SNAPSHOT_DELETION: (Stops.YES, "the snapshot is not deleted: storage leaks"),
    Role.INGRESS_TLS: (Stops.PERHAPS, "the controller serves its default certificate, or none"),
    Role.TOKEN_LIST: (Stops.NO, "the list of mountable Secrets has an entry that is gone"),
    Role.POLICY_PARAMETER: (Stops.PERHAPS, "parameterNotFoundAction decides: Allow, or Deny"),
    Role.DATA_SOURCE: (Stops.PERHAPS, "the volume populator finds no source"),
    Role.BACKEND: (Stops.PERHAPS, "the Ingress has a backend that is gone"),
}
_GUESS: Final = (Stops.PERHAPS, "its operator decides")
# The same where the use is likely only, of objects that no operator reads.
_LIKELY: Final[dict[Role, tuple[Stops, str]]] = {
    Role.VOLUME_PLUGIN: (
        Stops.PERHAPS,
        "the driver's usual Secret: without it, it must get the key from Azure",
    ),
    Role.POLICY_PARAMETER: (
        Stops.PERHAPS,
        "if its labels fit: parameterNotFoundAction decides, Allow or Deny",
    ),
}


class SecretUser(msgspec.Struct, frozen=True):
    """One object that uses a Secret in one way.

    Attributes:
        object: The user.
        role: What for.
        path: Field that says so.
        optional: The field says that the Secret may be absent.
        template: The Secret's name came out of a template of a class.
        heuristic: It is likely, not certain, see :class:`~etcdfix.graph.uses.Use`.
        carried: It is a template: pods made from it later are stopped.
        finished: A Pod that has run to its end.
        stops: Whether absence stops it.
        consequence: What absence does, in a clause.
        behind: Pods that use it through a claim and its volume, the first hundred.
        behind_count: How many there are.
    """

    object: ObjectRef
    role: Role
    path: str
    optional: bool
    template: bool
    heuristic: bool
    carried: bool
    finished: bool
    stops: Stops
    consequence: str
    behind: tuple[ObjectRef, ...] = ()
    behind_count: int = 0


class SecretUsers(msgspec.Struct, frozen=True):
    """Everything that is known to use one Secret.

    Attributes:
        secret: The Secret, which need not exist.
        exists: Whether its key is there.
        readable: Whether it can be read; else its own annotations and finalizers are not known.
        type: Its ``type``; "" where it is not known.
        groups: Users by role, roles in the order of :class:`~etcdfix.graph.uses.Role`, users by key.
        protected: KEP-2639 would hold a deletion back: pods, volumes or snapshots use it and nobody opted out.
        opted_out: It has the annotation ``secret.kubernetes.io/skip-secret-protection: "yes"``.
        protection_finalizers: Those of the KEP's finalizers that it has.
        other_finalizers: Its other finalizers.
        notes: What no reference can show.
        complete: Whether the index held everything; objects that cannot be read may use it unseen.
        unreadable_elsewhere: How many other objects cannot be read.
    """

    secret: ObjectRef
    exists: bool
    readable: bool
    type: str
    groups: dict[Role, tuple[SecretUser, ...]]
    protected: bool
    opted_out: bool
    protection_finalizers: tuple[str, ...]
    other_finalizers: tuple[str, ...]
    notes: tuple[str, ...]
    complete: bool
    unreadable_elsewhere: int

    @property
    def users(self) -> tuple[SecretUser, ...]:
        """All users, in the order of their roles."""
        return tuple(user for group in self.groups.values() for user in group)


def secret_users(index: ImpactIndex, secret: int) -> SecretUsers:
    """Return who uses a Secret.

    Args:
        index: Of the cluster.
        secret: Node of the Secret; a mere mention will do.

    Raises:
        ValueError: The node is no Secret.
    """
    ref = index.ref(secret)
    if (ref.group, ref.resource) != ("", SECRETS):
        raise ValueError(f"{ref} is no Secret")
    found = sorted((_user(index, edge.source, edge.use) for edge in index.users(secret)), key=_order)
    groups = {role: users for role in Role if (users := tuple(user for user in found if user.role is role))}
    finalizers = index.finalizers(secret)
    opted_out = index.opted_out(secret)
    holding = any((u.object.group, u.object.resource) in _PROTECTING and not u.finished for u in found)
    exists = index.exists(secret)
    broken = sum(index.unreadable_by_path().values())
    return SecretUsers(
        secret=ref,
        exists=exists,
        readable=exists and not index.unreadable(secret),
        type=index.secret_type(secret),
        groups=groups,
        protected=holding and not opted_out,
        opted_out=opted_out,
        protection_finalizers=tuple(f for f in PROTECTION_FINALIZERS if f in finalizers),
        other_finalizers=tuple(f for f in finalizers if f not in PROTECTION_FINALIZERS),
        notes=_notes(index, secret, ref),
        complete=not index.problems and not index.truncated and not index.opaque,
        unreadable_elsewhere=broken - index.unreadable(secret),
    )


def _order(user: SecretUser) -> tuple[str, str]:
    return user.object.key, user.path


def _user(index: ImpactIndex, node: int, use: Use) -> SecretUser:
    finished = bool(index.flags(node) & FINISHED)
    stops, consequence = (_LIKELY if use.heuristic else _CONSEQUENCES).get(use.role, _GUESS)
    if use.optional:
        stops, consequence = Stops.NO, "optional: it starts without"
    elif finished:
        stops, consequence = Stops.NO, "it has run to its end"
    behind = _behind(index, node)
    return SecretUser(
        index.ref(node),
        use.role,
        use.path,
        use.optional,
        use.template,
        use.heuristic,
        use.carried,
        finished,
        stops,
        consequence,
        tuple(sorted(index.ref(pod) for pod in behind[:_MOST_BEHIND])),
        len(behind),
    )


def _behind(index: ImpactIndex, node: int) -> list[int]:
    """Return the pods that use a volume, or a claim, for which a Secret is used."""
    directory, _, _ = index.place(node)
    if directory.path == CLAIMS:
        claims = [node]
    elif directory.path == VOLUMES:
        claims = [edge.target for edge in index.uses(node) if edge.use.role is Role.BOUND_CLAIM]
    else:
        return []
    roles = {Role.CLAIM, Role.EPHEMERAL_CLAIM}
    return list(
        dict.fromkeys(
            edge.source
            for claim in claims
            for edge in index.users(claim)
            if edge.use.role in roles and not edge.use.carried
        )
    )


def _notes(index: ImpactIndex, secret: int, ref: ObjectRef) -> tuple[str, ...]:
    notes: list[str] = []
    type_ = index.secret_type(secret)
    notes += [
        f"it is the token of ServiceAccount {index.ref(edge.target).name}: whoever holds a copy is locked out"
        for edge in index.uses(secret)
        if edge.use.role is Role.TOKEN_OF
    ]
    if ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        notes.append("a bootstrap token: nodes join with it (kubeadm), which no object shows")
    elif type_ == "bootstrap.kubernetes.io/token":
        notes.append("a bootstrap token outside kube-system: nothing uses it")
    if ref.name.startswith("sh.helm.release.v1."):
        notes.append("a Helm release: helm forgets this revision of it, nothing else refers to it")
    return tuple(notes)
