"""Who uses an object, how, and, for a Secret, whether its absence stops them.

That is what KEP-2639 wanted to protect Secrets for. It was abandoned and no release has its controller; its list of
users is the right one all the same, and ``secret.kubernetes.io/skip-secret-protection: "yes"`` and the two finalizers
may be found on real Secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from etcdfix.graph.index import FINISHED, ImpactIndex
from etcdfix.graph.model import ObjectRef, SecretState, Stops, User
from etcdfix.graph.uses import SECRETS, SNAPSHOT_GROUP, Role, Use

PROTECTION_FINALIZERS: Final = (
    "kubernetes.io/secret-protection",
    "snapshot.storage.kubernetes.io/secret-protection",
)

_ROLES: Final = tuple(Role)

# Users that the KEP's controllers look at.
_PROTECTING: Final = frozenset({
    ("", "pods"), ("", "persistentvolumes"), ("", "persistentvolumeclaims"),
    (SNAPSHOT_GROUP, "volumesnapshots"), (SNAPSHOT_GROUP, "volumesnapshotcontents"),
})  # fmt: skip
# Roles whose absence stops the next start of the user, or leaks storage; for the others it depends.
_STOPPING: Final = frozenset({
    Role.ENV, Role.ENV_FROM, Role.VOLUME, Role.PROJECTED_VOLUME, Role.VOLUME_PLUGIN, Role.CSI_EPHEMERAL,
    Role.CONTROLLER_PUBLISH, Role.NODE_STAGE, Role.NODE_PUBLISH, Role.CONTROLLER_EXPAND, Role.NODE_EXPAND,
    Role.CONTROLLER_MODIFY, Role.PROVISIONER, Role.PROVISIONER_DELETION, Role.SNAPSHOTTER, Role.SNAPSHOTTER_LIST,
    Role.GROUP_SNAPSHOTTER, Role.GROUP_SNAPSHOTTER_GET, Role.SNAPSHOT_DELETION,
})  # fmt: skip


def users_of(index: ImpactIndex, node: int) -> tuple[User, ...]:
    """Return who uses an object, by role, key and field; whether its absence stops them, for a Secret."""
    secret = _is_secret(index, node)
    found = (
        User(
            index.ref(edge.source),
            edge.use.role,
            edge.use.path,
            optional=edge.use.optional,
            heuristic=edge.use.heuristic,
            stops=_stops(index, edge.source, edge.use) if secret else None,
        )
        for edge in index.users(node)
    )
    roles = by_role(sorted(found, key=lambda one: (one.object.key, one.path)))
    return tuple(one for members in roles.values() for one in members)


def by_role(users: Iterable[User]) -> dict[Role, tuple[User, ...]]:
    """Return users by role, roles in the order of :class:`~etcdfix.graph.uses.Role`."""
    found: dict[Role, list[User]] = {}
    for user in users:
        found.setdefault(user.role, []).append(user)
    return {role: tuple(found[role]) for role in _ROLES if role in found} if found else {}


def secret_state(index: ImpactIndex, node: int) -> SecretState | None:
    """Return what KEP-2639 asks of a Secret; None for anything else."""
    if not _is_secret(index, node):
        return None
    opted_out = node in index.unprotected
    holding = any(
        (directory.group, directory.resource) in _PROTECTING and not index.flags[user] & FINISHED
        for user in (edge.source for edge in index.users(node))
        for directory in (index.place(user)[0],)
    )
    return SecretState(
        type=index.types.get(node, ""),
        protected=holding and not opted_out,
        opted_out=opted_out,
        warnings=_warnings(index, node, index.ref(node)),
    )


def _is_secret(index: ImpactIndex, node: int) -> bool:
    return index.place(node)[0].path == SECRETS


def _stops(index: ImpactIndex, user: int, use: Use) -> Stops:
    if use.optional or use.role is Role.TOKEN_LIST or index.flags[user] & FINISHED:
        return Stops.NO
    return Stops.YES if use.role in _STOPPING and not use.heuristic else Stops.PERHAPS


def _warnings(index: ImpactIndex, secret: int, ref: ObjectRef) -> tuple[str, ...]:
    warnings: list[str] = []
    type_ = index.types.get(secret, "")
    warnings += [
        f"it is the token of ServiceAccount {index.ref(edge.target).name}: whoever holds a copy is locked out"
        for edge in index.uses(secret)
        if edge.use.role is Role.TOKEN_OF and type_ in ("", "kubernetes.io/service-account-token")
    ]
    if ref.namespace == "kube-system" and ref.name.startswith("bootstrap-token-"):
        warnings.append("a bootstrap token: nodes join with it (kubeadm), which no object shows")
    elif type_ == "bootstrap.kubernetes.io/token":
        warnings.append("a bootstrap token outside kube-system: nothing uses it")
    if ref.name.startswith("sh.helm.release.v1."):
        warnings.append("a Helm release: helm forgets this revision of it, nothing else refers to it")
    return tuple(warnings)
