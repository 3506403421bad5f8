"""What the etcd user and the kubeconfig's user may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from etcdfix.apiserver.servers import APIAccess
from etcdfix.commands.doctoring import access as module
from etcdfix.commands.doctoring.access import Range, check_etcd_user, check_kubeconfig, covers
from etcdfix.model import ClusterIdentity
from etcdfix.report.doctor import Check
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.text.commands import RunOptions
from etcdfix.wire.etcd import ROLE_GET, USER_GET, message
from tests.support.doctoring import states
from tests.support.kubernetes_api import ACCESS_REVIEW, KUBE_SYSTEM, UID, KubernetesAPI, status_answer
from tests.support.scripted_etcd import PERMISSION_DENIED, Call, ScriptedEtcd

READ, WRITE, BOTH = 0, 1, 2
Permission = tuple[int, bytes, bytes]


@pytest.mark.parametrize(
    ("granted", "wanted", "whole"),
    [
        ([], (b"/r/", b"/r0"), False),
        ([(b"/r/", b"/r0")], (b"/r/", b"/r0"), True),
        ([(b"/r/", b"/r0")], (b"/q/", b"/r0"), False),
        ([(b"/r/", b"/r0")], (b"/r/", None), False),
        ([(b"/r/", None)], (b"/r/", b"/r0"), True),
        ([(b"", None)], (b"\0", None), True),
        ([(b"/r/m", b"/r0"), (b"/r/", b"/r/m")], (b"/r/", b"/r0"), True),
        ([(b"/r/n", b"/r0"), (b"/r/", b"/r/m")], (b"/r/", b"/r0"), False),
        ([(b"/a", b"/b"), (b"/r/", b"/r0")], (b"/r/", b"/r0"), True),
        ([(b"/r/", b"/r/a"), (b"/r/a", None)], (b"/r/", b"/r0"), True),
    ],
)
def test_ranges_together(granted: list[Range], wanted: Range, *, whole: bool) -> None:
    assert covers(granted, wanted) is whole


Ask = Callable[..., list[Check]]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Ask what a user with some roles may do."""
    with ScriptedEtcd() as etcd:
        etcd.users = {"ada": "p"}

        def found(roles: list[str], *permissions: Permission, script: object = None) -> list[Check]:
            header = message("ResponseHeader")(cluster_id=0xC1)

            def answer(call: Call) -> object:
                if call.path == USER_GET.path:
                    assert call.request.name == "ada"
                    return script or message("AuthUserGetResponse")(header=header, roles=roles)
                if call.path == ROLE_GET.path:
                    assert call.request.role in roles
                    granted = [
                        message("Permission")(permType=kind, key=key, range_end=end)
                        for kind, key, end in permissions
                    ]
                    return message("AuthRoleGetResponse")(header=header, perm=granted)
                return None

            etcd.script = answer
            return asked(etcd)

        yield found


def asked(etcd: ScriptedEtcd) -> list[Check]:
    connection = EtcdConnection(endpoints=(etcd.endpoint,), user="ada", password="p")
    with closing(EtcdClient(connection, on_notice=lambda _: None)) as client:
        return list(check_etcd_user(client, b"/registry/"))


def came_to(checks: list[Check]) -> list[str]:
    return [state for _, state in states(checks)]


def test_root_may_do_everything(ask: Ask) -> None:
    assert came_to(ask(["other", "root"])) == ["ok"]


def test_everything_or_the_prefix_alone(ask: Ask) -> None:
    checks = ask(["r"], (BOTH, b"\0", b"\0"))
    assert came_to(checks) == ["ok", "ok"]
    assert checks[0].what.endswith("may read everything")
    checks = ask(["r"], (READ, b"/registry/", b"/registry0"), (WRITE, b"/registry/", b"/registry0"))
    assert came_to(checks) == ["ok", "ok"]
    assert checks[0].what.endswith("and not everything")


def test_who_may_only_read_is_told_that_changes_would_be_denied(ask: Ask) -> None:
    checks = ask(["below"], (READ, b"/registry/", b"/registry0"))
    assert came_to(checks) == ["ok", "warn"]
    assert (
        checks[1].command.line(RunOptions())
        == "etcdctl role grant-permission --prefix=true -- below readwrite /registry/"
    )


def test_who_may_read_too_little(ask: Ask) -> None:
    for few in ([], [(READ, b"/registry/", b"")], [(READ, b"/registry/pods/", b"/registry/pods0")]):
        assert came_to(ask(["below"], *few)) == ["fail", "warn"]
    assert came_to(ask([])) == ["fail", "warn"]


def test_a_denied_question_is_unknown(ask: Ask) -> None:
    assert came_to(ask([], script=PERMISSION_DENIED)) == ["unknown"]


def test_a_user_where_there_is_no_authentication() -> None:
    with ScriptedEtcd() as etcd:
        assert came_to(asked(etcd)) == ["warn"]


# The kubeconfig

HERE = ClusterIdentity.by_uid(UID)


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


def look(api: KubernetesAPI, folder: Path, cluster: ClusterIdentity | None = HERE) -> list[Check]:
    return list(check_kubeconfig(APIAccess(api.kubeconfig(folder)), cluster))


def test_who_may_do_both(api: KubernetesAPI, tmp_path: Path) -> None:
    checks = look(api, tmp_path)
    assert came_to(checks) == ["ok", "ok"]
    assert (
        checks[1].what
        == "user alice@example.org may unsafe-delete-ignore-read-errors and delete every Secret"
    )
    assert {request.method for request in api.requests if request.path != KUBE_SYSTEM} == {"POST"}


def test_who_may_not_is_told_how_to_ask(api: KubernetesAPI, tmp_path: Path) -> None:
    api.denied = {"delete"}
    checks = look(api, tmp_path)
    assert came_to(checks) == ["ok", "fail"]
    assert (
        checks[1].command.line(RunOptions())
        == "kubectl --kubeconfig FILE auth can-i delete secrets --all-namespaces"
    )


def test_a_server_of_another_cluster_is_asked_nothing_more(api: KubernetesAPI, tmp_path: Path) -> None:
    assert came_to(look(api, tmp_path, ClusterIdentity.by_uid("another"))) == ["fail"]
    assert api.asked(ACCESS_REVIEW) == []


def test_a_server_that_cannot_say_which_cluster_it_is_of(api: KubernetesAPI, tmp_path: Path) -> None:
    api.instead = {path: status_answer(500) for path in (KUBE_SYSTEM, f"{KUBE_SYSTEM}?resourceVersion=0")}
    created = ClusterIdentity(known_by="create-revision", created=4, changed=4, cluster_id="c1")  # type: ignore[arg-type]
    assert came_to(look(api, tmp_path, created)) == ["unknown", "ok"]


def test_a_server_that_does_not_answer(
    api: KubernetesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEFAULT_TIMEOUT_SECONDS", 0.6)
    api.stall = {ACCESS_REVIEW}
    assert came_to(look(api, tmp_path))[-1] == "fail"
    api.stop()
    assert came_to(look(api, tmp_path)) == ["fail"]
