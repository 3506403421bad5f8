"""What the etcd user and the kubeconfig's user may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from etcdfix.apiserver.authorization import VERBS, authorize_all, check_cluster
from etcdfix.apiserver.client import Access, RefusalReason, open_access, require_done
from etcdfix.apiserver.servers import DEFAULT_TIMEOUT_SECONDS, APIAccess
from etcdfix.commands.doctoring.check import fail, ok, told_by, unknown, warn
from etcdfix.errors import AuthorizationRefused, EtcdfixError, KubeconfigInvalid, KubernetesClientMissing
from etcdfix.model import ClusterIdentity
from etcdfix.report.doctor import Check, State
from etcdfix.side_by_side import run_within
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.paging import bounds_of
from etcdfix.storagekey import display
from etcdfix.text.commands import Command
from etcdfix.text.words import fit
from etcdfix.wire.etcd import (
    PERMISSION_READ,
    PERMISSION_READWRITE,
    PERMISSION_WRITE,
    ROLE_GET,
    USER_GET,
    message,
)

Range = tuple[bytes, bytes | None]
"""From a key to another, which is not part of it; None for no end."""

_ROOT: Final = "root"
_MOST_ROLES: Final = 100
_NO_END: Final = b"\0"
_READS: Final = {PERMISSION_READ, PERMISSION_READWRITE}
_WRITES: Final = {PERMISSION_WRITE, PERMISSION_READWRITE}
_LOOK: Final = "try the kubeconfig: kubectl --kubeconfig FILE get --raw /readyz"
_ASK_ROOT: Final = "ask etcd as its user root"


def check_etcd_user(client: EtcdClient, prefix: bytes) -> Iterator[Check]:
    """Yield what the etcd user that was named may read and write."""
    user = client.connection.user or ""
    shown = fit(user, 100)
    if not client.logged_in:
        what = (
            f"etcd has no authentication enabled: user {shown} is not used, and any client may do everything"
        )
        yield warn("etcd-user", what, "leave --user out, or enable authentication")
        return
    try:
        roles = list(client.call(USER_GET, message("AuthUserGetRequest")(name=user)).roles)
        if _ROOT in roles:
            yield ok("etcd-user", f"user {shown} has the role root: it may read and write everything")
            return
        granted = [
            permission
            for role in roles[:_MOST_ROLES]
            for permission in client.call(ROLE_GET, message("AuthRoleGetRequest")(role=role)).perm
        ]
    except CallFailed as failed:
        what = f"etcd does not tell what user {shown} may do: {failed.failure.message}"
        ask = Command(("etcdctl", "user", "get", "--detail", "--", user))
        yield unknown("etcd-user", what, _ASK_ROOT, ask)
        return
    if len(roles) > _MOST_ROLES:
        yield unknown("etcd-user", f"user {shown} has {len(roles)} roles: too many to ask for", _ASK_ROOT)
        return
    yield from _judge(shown, prefix, _ranges(granted, _READS), _ranges(granted, _WRITES), roles)


def _judge(
    user: str, prefix: bytes, read: Sequence[Range], write: Sequence[Range], roles: Sequence[str]
) -> Iterator[Check]:
    below = display(prefix)
    start, end = bounds_of(prefix)
    limits: Range = start, None if end == _NO_END else end
    role = roles[0] if roles else "ROLE"

    def grant(kind: str) -> Command:
        return Command(("etcdctl", "role", "grant-permission", "--prefix=true", "--", role, kind, below))

    if covers(read, (_NO_END, None)):
        yield ok("etcd-user", f"user {user} may read everything")
    elif covers(read, limits):
        yield ok("etcd-user", f"user {user} may read what starts with {below}, and not everything")
    else:
        what = f"user {user} may not read all that starts with {below}"
        yield fail("etcd-user", what, "grant it", grant("read"))
    if covers(write, limits):
        yield ok("etcd-user", f"user {user} may write what starts with {below}")
    else:
        what = f"user {user} may not write all that starts with {below}: etcd would deny every change"
        yield warn("etcd-user", what, "grant it to whoever changes something", grant("readwrite"))


def _ranges(permissions: Sequence[Any], kinds: set[int]) -> list[Range]:
    return [
        (b"" if found.key == _NO_END else found.key, None if found.range_end == _NO_END else found.range_end)
        for found in permissions
        if found.permType in kinds and found.range_end
    ]


def covers(granted: Sequence[Range], wanted: Range) -> bool:
    """Say whether ranges together hold all of another."""
    at, end = wanted
    for begin, stop in sorted(granted, key=lambda one: one[0]):
        if begin > at:
            return False
        if stop is None:
            return True
        at = max(at, stop)
        if end is not None and at >= end:
            return True
    return False


def check_kubeconfig(api: APIAccess, cluster: ClusterIdentity | None) -> Iterator[Check]:
    """Yield whether the API server answers, is of this cluster, and lets its user do what a deletion wants."""
    seconds = DEFAULT_TIMEOUT_SECONDS
    try:
        access = open_access(
            str(api.kubeconfig), api.context, timeout_seconds=seconds, request_seconds=seconds / 3
        )
        with closing(access):
            (said,) = run_within([lambda: list(_ask(access, cluster))], seconds)
            yield from require_done(said, seconds)
    except (KubernetesClientMissing, KubeconfigInvalid, AuthorizationRefused) as exc:
        yield _refused(exc)


def _refused(exc: EtcdfixError) -> Check:
    return told_by("kubeconfig", State.FAIL, exc, otherwise=_LOOK)


def _ask(access: Access, cluster: ClusterIdentity | None) -> Iterator[Check]:
    server = access.server(access.url)
    told = f"the API server at {server.address}"
    if cluster is None or not cluster.is_known:
        what = f"nothing in etcd tells whether {told} is of this cluster"
        yield unknown("kubeconfig", what, "see what is said of cluster")
    else:
        try:
            doubt = check_cluster(server, cluster)
        except AuthorizationRefused as exc:
            yield _refused(exc)
            return
        if doubt:
            yield unknown("kubeconfig", f"{told}: {doubt}", "see etcdfix scan namespaces")
        else:
            yield ok("kubeconfig", f"{told} answers, and is of this cluster")
    try:
        user = authorize_all(server, group="", resource="secrets")
    except AuthorizationRefused as exc:
        advice = (
            "grant it, as docs/runbooks/denied.md shows; a permission for the one object to change is enough"
        )
        denied = exc.reason == RefusalReason.DENIED
        yield fail("kubeconfig", exc.message, advice, Command(text=exc.hint)) if denied else _refused(exc)
    else:
        yield ok("kubeconfig", f"user {fit(user, 100)} may {' and '.join(VERBS)} every Secret")
