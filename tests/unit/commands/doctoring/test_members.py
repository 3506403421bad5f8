"""The members, as they say of themselves; a real etcd stands in tests/integration/cli/test_doctor.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.commands.doctoring.members import (
    ask_endpoints,
    check_alarms,
    check_leader,
    check_members,
    check_one_cluster,
    check_reach,
    check_space,
    check_versions,
)
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.text.commands import RunOptions
from etcdfix.wire.etcd import ALARM, MEMBER_LIST, STATUS, message
from tests.support.cluster_index_runs import HOSTILE
from tests.support.doctoring import member, states
from tests.support.etcd_proxy import Refusal
from tests.support.scripted_etcd import NO_LEADER, Call, Script, ScriptedEtcd

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


# Reach


def test_each_endpoint_is_asked_by_itself(etcd: ScriptedEtcd) -> None:
    found = ask_endpoints(EtcdConnection(endpoints=("127.0.0.1:1", etcd.endpoint), dial_timeout_seconds=1))
    assert states(check_reach(found)) == [("reach", "fail"), ("reach", "ok")]
    dead, alive = check_reach(found)
    assert dead.what == "127.0.0.1:1: nobody listens there (connection refused)"
    assert alive.what == f"{etcd.endpoint}: member 1 answers"


def test_a_member_that_never_answers_is_not_waited_for(etcd: ScriptedEtcd) -> None:
    def never(call: Call) -> None:
        if call.path == STATUS.path:
            stop.wait(20)

    import threading

    stop = threading.Event()
    etcd.script = never
    try:
        found = ask_endpoints(EtcdConnection(endpoints=(etcd.endpoint,), dial_timeout_seconds=0.2))
        (check,) = check_reach(found)
        assert (check.state, check.what) == ("fail", f"{etcd.endpoint}: no answer within 0.2 s")
    finally:
        stop.set()


def test_a_member_that_says_nothing_of_itself(etcd: ScriptedEtcd) -> None:
    etcd.script = answering(STATUS.path, Refusal("PERMISSION_DENIED", "etcdserver: permission denied"))
    found = ask_endpoints(EtcdConnection(endpoints=(etcd.endpoint,)))
    assert states(check_reach(found)) == [("reach", "unknown")]


def test_a_wrong_password_is_a_failure(etcd: ScriptedEtcd) -> None:
    etcd.users = {"ada": "right"}
    connection = EtcdConnection(endpoints=(etcd.endpoint,), user="ada", password="not-to-be-shown")
    (check,) = check_reach(ask_endpoints(connection))
    assert (check.state, check.next_step) == ("fail", "check --user and the password")
    assert "not-to-be-shown" not in check.what


def test_different_clusters() -> None:
    assert states(check_one_cluster([member(), member("two:2379", 2)])) == []
    (check,) = check_one_cluster([member(), member("two:2379", 2, cluster_id=0xC2)])
    assert check.what == "the endpoints belong to different clusters: one:2379 is c1, two:2379 is c2"


# Versions


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        (["3.6.8"], "ok"), (["3.4.22", "3.4.22"], "ok"), (["3.5.6", "3.6.8"], "warn"),
        (["3.5.5"], "warn"), (["3.4.21"], "warn"),
        (["3.3.27"], "fail"),
        (["3.3.27", "3.6.8"], "fail"), (["2.3.8"], "fail"), (["3.10.0"], "ok"), (["4.0"], "ok"), ([], "unknown"),
        ([""], "unknown"), (["3"], "unknown"), (["9" * 5000 + ".1"], "unknown"), ([HOSTILE], "unknown"),
        (["3.6.0-rc.1"], "ok"),
    ],
)  # fmt: skip
def test_versions(versions: list[str], state: str) -> None:
    found = check_versions([member(version=version) for version in versions])
    assert states(found) == [("version", state)]


# Members


def members(*listed: tuple[int, str, bool], urls: tuple[str, ...] = ("http://m:2379",)) -> object:
    header = message("ResponseHeader")(cluster_id=0xC1, member_id=1, revision=1)
    found = [
        message("Member")(ID=number, name=name, clientURLs=urls, isLearner=learner)
        for number, name, learner in listed
    ]
    return message("MemberListResponse")(header=header, members=found)


def test_a_member_that_votes_and_is_not_asked_is_named_with_its_address(
    etcd: ScriptedEtcd, client: EtcdClient
) -> None:
    etcd.script = answering(
        MEMBER_LIST.path, members((1, "a", False), (2, "b", False), (3, "c", True), urls=("https://b:2379",))
    )
    found = list(check_members(client, [member()]))
    assert states(found) == [("members", "warn"), ("learner", "warn")]
    assert "member b (2)" in found[0].what
    assert "https://b:2379" in found[0].next_step
    assert found[1].command.line(RUN) == "etcdctl --endpoints one:1,two:2 member promote 3"


def test_no_leader_is_a_failure_and_the_member_list_may_be_missing(
    etcd: ScriptedEtcd, client: EtcdClient
) -> None:
    etcd.script = answering(MEMBER_LIST.path, NO_LEADER)
    assert states(check_leader([member(leader=0)])) == [("members", "fail")]
    assert states(check_leader([member()])) == []
    with pytest.raises(CallFailed, match="no leader"):
        list(check_members(client, [member(leader=0)]))


# Alarms


def alarms(*kinds: int) -> object:
    header = message("ResponseHeader")(cluster_id=0xC1, member_id=1, revision=1)
    raised = [message("AlarmMember")(memberID=7, alarm=kind) for kind in kinds]
    return message("AlarmResponse")(header=header, alarms=raised)


def test_alarms(etcd: ScriptedEtcd, client: EtcdClient) -> None:
    etcd.script = answering(ALARM.path, alarms())
    assert states(check_alarms(client)) == [("alarms", "ok")]
    etcd.script = answering(ALARM.path, alarms(1, 2, 9))
    found = list(check_alarms(client))
    assert states(found) == [("alarms", "fail"), ("alarms", "fail"), ("alarms", "warn")]
    corrupt, space, _ = found
    assert "etcdfix fix would fail" in space.what
    assert "members-disagree.md" in corrupt.next_step
    assert [check.command.line(RUN) for check in found] == [
        "etcdctl --endpoints one:1,two:2 endpoint hashkv --cluster",
        "etcdctl --endpoints one:1 snapshot save FILE",
        "etcdctl --endpoints one:1,two:2 alarm list",
    ]


# Space


@pytest.mark.parametrize(
    ("size", "quota", "state", "words"),
    [
        (GIB, 0, "ok", "etcd's default quota; yours may be larger"),
        (2 * GIB, 0, "warn", "etcd's default quota; yours may be larger"),
        (2 * GIB, 8 * GIB, "ok", "its quota of 8192.0 MiB"),
        (7 * GIB, 8 * GIB, "warn", "its quota of 8192.0 MiB"),
        (GIB, -1, "ok", "default quota"),
    ],
)
def test_space(size: int, quota: int, state: str, words: str) -> None:
    full = member(db_size_bytes=size, db_size_in_use_bytes=GIB // 2, db_size_quota_bytes=quota)
    (check,) = check_space([full])
    assert states([check]) == [("space", state)]
    assert words in check.what
