"""Who uses an object, how, and, for a Secret, whether its absence stops them.

That is what KEP-2639 wanted to protect Secrets for. It was abandoned and no release has its controller; its list of
users is the right one all the same, and ``secret.kubernetes.io/skip-secret-protection: "yes"`` and the two finalizers
may be found on real Secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import ObjectRef, SecretState, Stops, User
from etcdfix.graph.tables import FINISHED
from etcdfix.graph.uses import SECRETS, Role, Use

PROTECTION_FINALIZERS: Final = (
    "kubernetes.io/secret-protection",
    "snapshot.storage.kubernetes.io/secret-protection",
)

_ROLES: Final = tuple(Role)

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


def users_of(index: ImpactIndex, node: int) -> tuple[User, ...]:
    """Return who uses an object, by role, key and field; what its absence does to them, for a Secret."""
    edges = index.users(node)
    if not edges:  # so it is with most objects, and a plan asks it of every one
        return ()
    user = _secret_user if _is_secret(index, node) else _user
    found = (user(index, edge.source, edge.use) for edge in edges)
    roles = by_role(sorted(found, key=lambda one: (one.object.key, one.path)))
    return tuple(one for members in roles.values() for one in members)


def by_role(users: Iterable[User]) -> dict[Role, tuple[User, ...]]:
    """Return users by role, roles in the order of :class:`~etcdfix.graph.uses.Role`."""
    found: dict[Role, list[User]] = {}
    for user in users:
        found.setdefault(user.role, []).append(user)
    return {role: tuple(found[role]) for role in _ROLES if role in found} if found else {}


def secret_state(index: ImpactIndex, node: int, users: Iterable[User]) -> SecretState | None:
    """Return what KEP-2639 asks of a Secret; None for anything else."""
    if not _is_secret(index, node):
        return None
    opted_out = index.opted_out(node)
    holding = any((u.object.group, u.object.resource) in _PROTECTING and not u.finished for u in users)
    return SecretState(
        type=index.secret_type(node),
        protected=holding and not opted_out,
        opted_out=opted_out,
        warnings=_warnings(index, node, index.ref(node)),
    )


def _is_secret(index: ImpactIndex, node: int) -> bool:
    return index.place(node)[0].path == SECRETS


def _user(index: ImpactIndex, node: int, use: Use) -> User:
    return User(
        index.ref(node),
        use.role,
        use.path,
        optional=use.optional,
        template=use.template,
        heuristic=use.heuristic,
        in_pod_template=use.in_pod_template,
    )


def _secret_user(index: ImpactIndex, node: int, use: Use) -> User:
    finished = bool(index.flags(node) & FINISHED)
    stops, consequence = (_LIKELY if use.heuristic else _CONSEQUENCES).get(use.role, _GUESS)
    if use.optional:
        stops, consequence = Stops.NO, "optional: it starts without"
    elif finished:
        stops, consequence = Stops.NO, "it has run to its end"
    return msgspec.structs.replace(
        _user(index, node, use),
        finished=finished,
        stops=stops,
        consequence=consequence,
    )


def _warnings(index: ImpactIndex, secret: int, ref: ObjectRef) -> tuple[str, ...]:
    warnings: list[str] = []
    type_ = index.secret_type(secret)
    warnings += [
        f"it is the token of ServiceAccount {index.ref(edge.target).name}: whoever holds a copy is locked out"
        for edge in index.uses(secret)
        if edge.use.role is Role.TOKEN_OF
    ]
    if ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        warnings.append("a bootstrap token: nodes join with it (kubeadm), which no object shows")
    elif type_ == "bootstrap.kubernetes.io/token":
        warnings.append("a bootstrap token outside kube-system: nothing uses it")
    if ref.name.startswith("sh.helm.release.v1."):
        warnings.append("a Helm release: helm forgets this revision of it, nothing else refers to it")
    return tuple(warnings)
