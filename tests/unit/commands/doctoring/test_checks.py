"""Members, the way to them, rights, places and the API server; with a real etcd in tests/integration/cli."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver.client import AuthorizationRefused
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.commands.doctoring import needs as module
from etcdfix.commands.doctoring.etcd import (
    ask_endpoints,
    check_alarms,
    check_etcd_user,
    check_leader,
    check_members,
    check_reach,
    check_space,
    check_tls,
    check_versions,
)
from etcdfix.commands.doctoring.needs import (
    check_audit_log,
    check_configuration,
    check_directory,
    check_kubeconfig,
)
from etcdfix.model.errors import SourceUnreachable
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.durable import Filesystem
from etcdfix.remediation.errors import NotDurable
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.doctor import Check
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.testing.certificates import CertificateAuthority, CertificateFiles
from etcdfix.text.commands import RunOptions
from etcdfix.wire.etcd import ALARM, MEMBER_LIST, ROLE_GET, STATUS, USER_GET, message
from tests.support.audit_logs import entry, own_directory, write_log
from tests.support.cluster_index_runs import HOSTILE
from tests.support.doctoring import member, states
from tests.support.etcd_proxy import Refusal
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import ACCESS_REVIEW, KUBE_SYSTEM, UID, KubernetesAPI
from tests.support.objects import KEY_1, configuration, provider
from tests.support.scripted_etcd import NO_LEADER, PERMISSION_DENIED, Call, Script, ScriptedEtcd

RUN = RunOptions(source=("--endpoints", "one:1,two:2", "--revision", "5"))
GIB = 1 << 30


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd() as server:
        yield server


@pytest.fixture
def client(etcd: ScriptedEtcd) -> Iterator[EtcdClient]:
    connection = EtcdConnection(
        endpoints=(etcd.endpoint,), dial_timeout_seconds=2, command_timeout_seconds=0.5
    )
    opened = EtcdClient(connection, on_notice=lambda _: None)
    yield opened
    opened.close()


def answering(path: str, answer: object) -> Script:
    return lambda call: answer if call.path == path else None


def reached(*endpoints: str, **options: Any) -> list[Check]:
    connection = EtcdConnection(endpoints=endpoints, **options)
    return [*map(check_reach, endpoints, ask_endpoints(connection))]


def test_a_member_that_never_answers_is_not_waited_for(etcd: ScriptedEtcd) -> None:
    stop = threading.Event()
    etcd.script = lambda call: stop.wait(20) and None if call.path == STATUS.path else None
    try:
        (check,) = reached(etcd.endpoint, dial_timeout_seconds=0.2)
    finally:
        stop.set()
    assert (check.state, check.what) == ("fail", f"{etcd.endpoint}: no answer within 0.2 s")


def test_a_member_that_says_nothing_of_itself_and_a_wrong_password(etcd: ScriptedEtcd) -> None:
    etcd.script = answering(STATUS.path, Refusal("PERMISSION_DENIED", "etcdserver: permission denied"))
    assert states(reached(etcd.endpoint)) == ["unknown"]
    etcd.users = {"ada": "right"}
    (check,) = reached(etcd.endpoint, user="ada", password="not-to-be-shown")
    assert (check.state, check.next_step) == ("fail", "check --user and the password")
    assert "not-to-be-shown" not in check.what


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        (["3.6.8"], "ok"), (["3.4.22", "3.4.22"], "ok"), (["3.5.6", "3.6.8"], "warn"),
        (["3.5.5"], "warn"), (["3.4.21"], "warn"), (["3.3.27"], "fail"), (["3.3.27", "3.6.8"], "fail"),
        (["2.3.8"], "fail"), (["3.10.0"], "ok"), (["4.0"], "ok"), ([], "unknown"), ([""], "unknown"),
        (["3"], "unknown"), (["9" * 5000 + ".1"], "unknown"), ([HOSTILE], "unknown"), (["3.6.0-rc.1"], "ok"),
    ],
)  # fmt: skip
def test_versions(versions: list[str], state: str) -> None:
    assert states(check_versions([member(version=version) for version in versions])) == [state]


@pytest.mark.parametrize(
    ("size", "quota", "state"),
    [
        (GIB, 0, "ok"), (2 * GIB, 0, "warn"), (2 * GIB, 8 * GIB, "ok"), (7 * GIB, 8 * GIB, "warn"), (GIB, -1, "ok"),
    ],
)  # fmt: skip
def test_space(size: int, quota: int, state: str) -> None:
    full = member(db_size_bytes=size, db_size_in_use_bytes=GIB // 2, db_size_quota_bytes=quota)
    assert states([check_space(full)]) == [state]


def test_no_leader_is_failure_and_member_list_may_be_missing(etcd: ScriptedEtcd, client: EtcdClient) -> None:
    etcd.script = answering(MEMBER_LIST.path, NO_LEADER)
    assert states(check_leader([member(leader=0)])) == ["fail"]
    assert states(check_leader([member()])) == []
    with pytest.raises(SourceUnreachable, match="no leader"):
        list(check_members(client, [member(leader=0)]))


def test_alarms(etcd: ScriptedEtcd, client: EtcdClient) -> None:
    def alarms(*kinds: int) -> object:
        header = message("ResponseHeader")(cluster_id=0xC1, member_id=1, revision=1)
        raised = [message("AlarmMember")(memberID=7, alarm=kind) for kind in kinds]
        return message("AlarmResponse")(header=header, alarms=raised)

    etcd.script = answering(ALARM.path, alarms())
    assert states(check_alarms(client)) == ["ok"]
    etcd.script = answering(ALARM.path, alarms(1, 2, 9))
    found = list(check_alarms(client))
    assert states(found) == ["fail", "fail", "warn"]
    assert [check.command.line(RUN) for check in found] == [
        "etcdctl --endpoints one:1,two:2 endpoint hashkv --cluster",
        "etcdctl --endpoints one:1 snapshot save FILE",
        "etcdctl --endpoints one:1,two:2 alarm list",
    ]


READ, WRITE, BOTH = 0, 1, 2
Permission = tuple[int, bytes, bytes]


def allowed(etcd: ScriptedEtcd, roles: list[str], *permissions: Permission, script: object = None) -> Check:
    """Ask what a user with some roles may do."""
    etcd.users = {"ada": "p"}
    header = message("ResponseHeader")(cluster_id=0xC1)
    granted = [message("Permission")(permType=kind, key=key, range_end=end) for kind, key, end in permissions]

    def answer(call: Call) -> object:
        if call.path == USER_GET.path:
            return script or message("AuthUserGetResponse")(header=header, roles=roles)
        return (
            message("AuthRoleGetResponse")(header=header, perm=granted)
            if call.path == ROLE_GET.path
            else None
        )

    etcd.script = answer
    return asked(etcd)


def asked(etcd: ScriptedEtcd) -> Check:
    connection = EtcdConnection(endpoints=(etcd.endpoint,), user="ada", password="p")
    with closing(EtcdClient(connection, on_notice=lambda _: None)) as client:
        check = check_etcd_user(client, b"/registry/")
    states([check])
    return check


@pytest.mark.parametrize(
    ("roles", "granted", "state"),
    [
        (["other", "root"], [], "ok"),
        (["r"], [(BOTH, b"\0", b"\0")], "ok"),
        (["r"], [(WRITE, b"/registry/", b"/registry0")], "ok"),
        (["r"], [(WRITE, b"/a", b"/b"), (BOTH, b"/", b"0")], "ok"),
        (["r"], [(READ, b"\0", b"\0")], "warn"),
        (["r"], [(WRITE, b"/registry/", b"")], "warn"),
        (["r"], [(WRITE, b"/registry/pods/", b"/registry/pods0")], "warn"),
        ([], [], "warn"),
    ],
)
def test_who_may_write(etcd: ScriptedEtcd, roles: list[str], granted: list[Permission], state: str) -> None:
    assert allowed(etcd, roles, *granted).state == state


def test_who_may_not_write_is_told_how_it_is_granted(etcd: ScriptedEtcd) -> None:
    check = allowed(etcd, ["below"], (READ, b"/registry/", b"/registry0"))
    granted = "etcdctl role grant-permission --prefix=true -- below readwrite /registry/"
    assert check.command.line(RunOptions()) == granted
    assert allowed(etcd, [], script=PERMISSION_DENIED).state == "unknown"
    etcd.users = {}
    assert asked(etcd).state == "warn"


# Certificates: what the authority signs is good for ten days, itself for thirty.


@contextmanager
def speaking(files: CertificateFiles) -> Iterator[str]:
    """A server that shakes hands, and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except (OSError, ValueError):
                    plain.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def looked_at(away: timedelta = timedelta(), **options: Any) -> list[Check]:
    now = datetime.now(UTC) + away  # not before the authority is made
    found = list(check_tls(EtcdConnection(**{"dial_timeout_seconds": 5, **options}), now))
    states(found)
    assert "not-to-be-shown" not in str(found)
    assert "PRIVATE" not in str(found)
    return found


@pytest.mark.parametrize(
    ("away", "state", "words"),
    [
        (timedelta(hours=1), "warn", "9 days from now"), (timedelta(days=40), "fail", "has expired on"),
        (timedelta(days=-25), "fail", "is not valid before"),
    ],
)  # fmt: skip
def test_every_certificate_is_told(
    authority: CertificateAuthority, away: timedelta, state: str, words: str
) -> None:
    client = authority.issue("doctor-client")
    files = {"cacert": str(authority.cert), "cert": str(client.cert), "key": str(client.key)}
    with speaking(authority.issue("doctor-server")) as endpoint:
        found = looked_at(away, endpoints=(endpoint,), **files)
    named = (
        f"--cacert {authority.cert}", f"--cert {client.cert}", f"certificate of the server at {endpoint}",
    )  # fmt: skip
    assert [check.what.startswith(name) for check, name in zip(found, named, strict=True)] == [True] * 3
    assert [(check.state, words in check.what) for check in found[1:]] == [(state, True)] * 2


def test_what_is_less_than_safe_is_warned_of(authority: CertificateAuthority) -> None:
    assert states(looked_at(user="ada", password="not-to-be-shown")) == ["warn", "ok"]
    with speaking(authority.issue("doctor-server")) as endpoint:
        assert states(looked_at(endpoints=(endpoint,), insecure_skip_tls_verify=True)) == ["warn", "warn"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "own")


def test_the_configuration() -> None:
    given = configuration(provider("aescbc", key1=KEY_1))
    (check,) = check_configuration(given, told_none=False)
    assert check.what == f"{given.path} {given.sha256}"
    odd = configuration(
        {"kms": {"apiVersion": "v1", "name": "old", "endpoint": "unix:///k.sock"}}, {"identity": {}}
    )
    assert states(check_configuration(odd, told_none=False)) == ["ok", "warn"]
    assert states(check_configuration(None, told_none=False)) == ["warn"]
    assert states(check_configuration(None, told_none=True)) == ["ok"]


def kept(path: Path, *, named: bool = True) -> list[str]:
    return states(check_directory(path, named=named))


def test_a_directory_of_ours_will_do_and_stays_empty(own: Path, monkeypatch: Patch) -> None:
    assert kept(own) == ["ok"]
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 1 << 60)
    assert kept(own) == ["warn", "ok"]
    assert list(own.iterdir()) == []


def test_a_directory_that_is_missing_is_a_failure_with_the_command_to_make_it(own: Path) -> None:
    (check,) = check_directory(own / "a b", named=True)
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"mkdir -m 0700 '{own / 'a b'}'")
    assert not (own / "a b").exists()


def test_directories_of_others_and_one_that_cannot_keep_a_file(own: Path, monkeypatch: Patch) -> None:
    (own / "link").symlink_to(own)
    shared = own_directory(own / "shared")
    shared.chmod(0o777)
    for path in (own / "link", shared):
        with pytest.raises(NotDurable):
            kept(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    empty = own_directory(own / "empty")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotDurable, match="No space left on device"):
        kept(empty)
    assert list(empty.iterdir()) == []


def test_a_default_that_is_not_there_yet_is_not_made(own: Path, monkeypatch: Patch) -> None:
    assert kept(own / "a" / "b", named=False) == ["ok"]
    assert list(own.iterdir()) == []
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert kept(own / "a" / "b", named=False) == ["fail"]
    kind = Filesystem("tmpfs", "tmpfs", "/")
    monkeypatch.setattr("etcdfix.remediation.places.filesystem_kind", lambda _: kind)
    assert kept(own) == ["warn", "ok"]
    for default in (own, own / "not-there"):
        with pytest.raises(NotDurable, match="a restart of this machine empties it"):
            kept(default, named=False)


def log(path: Path) -> list[Check]:
    """What is said of the log itself, behind that of its directory."""
    first, *others = check_audit_log(RecordPaths(audit_log=path))
    assert states([first]) == ["ok"]
    states(others)
    return others


def test_a_whole_log_is_left_as_it_is(own: Path) -> None:
    assert states(log(own / "log")) == ["ok"]
    write_log(own / "log")
    before = sorted((path.name, path.read_bytes()) for path in own.iterdir())
    assert states(log(own / "log")) == ["ok"]
    assert sorted((path.name, path.read_bytes()) for path in own.iterdir()) == before


def test_an_open_intent(own: Path) -> None:
    with AuditLog.open(own / "log") as opened:
        opened.append(entry(RecordType.INTENT))
    check, *_ = log(own / "log")
    settle = f"etcdfix log settle {own / 'log'} --dry-run"
    assert (check.state, check.command.line(RunOptions())) == ("warn", settle)


def test_a_log_that_was_tampered_with_and_one_without_half_of_it(own: Path) -> None:
    write_log(own / "log")
    raw = (own / "log").read_bytes()
    (own / "log").write_bytes(raw.replace(b"mod_revision", b"mod-revision", 1).replace(b"41", b"42", 1))
    (check,) = log(own / "log")
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"etcdfix log verify {own / 'log'}")
    (own / "log").write_bytes(raw)
    (own / "log.head").rename(own / "kept")
    assert states(log(own / "log")) == ["fail"]
    (own / "kept").rename(own / "log.head")
    (own / "log").unlink()
    assert states(log(own / "log")) == ["fail"]


HERE = ClusterIdentity.by_uid(UID)


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority) as server:
        yield server


def look(api: KubernetesAPI, folder: Path, cluster: ClusterIdentity | None = HERE) -> Iterator[Check]:
    return check_kubeconfig(APIAccess(api.kubeconfig(folder)), cluster)


def test_who_may_do_both(api: KubernetesAPI, tmp_path: Path) -> None:
    assert states(look(api, tmp_path)) == ["ok", "ok"]
    assert {request.method for request in api.requests if request.path != KUBE_SYSTEM} == {"POST"}
    assert states(look(api, tmp_path, None)) == ["unknown", "ok"]


def test_who_may_not_is_told_how_to_ask(api: KubernetesAPI, tmp_path: Path) -> None:
    api.denied = {"delete"}
    checks = look(api, tmp_path)
    assert states([next(checks)]) == ["ok"]
    with pytest.raises(AuthorizationRefused) as refused:
        next(checks)
    assert "auth can-i delete secrets --all-namespaces" in refused.value.hint


def test_a_server_of_another_cluster_is_asked_nothing_more(api: KubernetesAPI, tmp_path: Path) -> None:
    with pytest.raises(AuthorizationRefused):
        list(look(api, tmp_path, ClusterIdentity.by_uid("another")))
    assert api.asked(ACCESS_REVIEW) == []


def test_a_server_that_does_not_answer(api: KubernetesAPI, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.2)
    api.stall = {ACCESS_REVIEW}
    for _ in range(2):
        with pytest.raises(AuthorizationRefused):
            list(look(api, tmp_path))
        api.stop()
