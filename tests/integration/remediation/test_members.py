from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from etcdfix.model.errors import SourceUnreachable
from etcdfix.model.model import StoredValue
from etcdfix.remediation.datastore import EtcdNow, KeyReading
from etcdfix.remediation.errors import MemberListUnusable
from etcdfix.remediation.members import (
    ActiveAlarm,
    AlarmKind,
    LeaseState,
    MemberCopy,
    MemberSurvey,
    read_alarms,
    read_lease,
    survey_members,
)
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import ClusterMismatch, SourceDenied
from etcdfix.sources.etcd.channel import open_channel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import ClusterMember, parse_endpoint
from etcdfix.sources.etcd.tls import TLSMaterial
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import READER, EtcdServer
from etcdfix.wire.etcd import ALARM, AUTHENTICATE, LEASE_TIME_TO_LIVE, MEMBER_LIST, alarm_query, message
from tests.support.connections import connected
from tests.support.etcd_members import EtcdMembers, etcd_members
from tests.support.etcd_proxy import NO_LEADER, RANGE, Refusal
from tests.support.fixtures import Patch, StartEtcd
from tests.support.lossy_etcd import LossyProxy
from tests.support.scripted_etcd import INVALID_TOKEN, WRONG_PASSWORD

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("short_pauses")]

KEY = b"/registry/secrets/shop/broken"
VALUE = b"k8s:enc:aescbc:v1:key1:" + bytes(range(1, 200))
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd-members")) as started:
        started.server("member-0").put(KEY, VALUE)
        yield started


def agreed(survey: MemberSurvey) -> bool:
    return not (survey.differing or survey.unchecked)


def test_all_members_agree(cluster: EtcdMembers) -> None:
    """Those that no endpoint reaches are found by the member list."""
    named = ("member-1",)
    with connected(*map(cluster.endpoint, named)) as client:
        reading = EtcdNow(client).read_key(KEY)
        survey = survey_members(client, KEY)
    assert survey.reading.stored == reading.stored
    assert survey.learners == ()
    assert agreed(survey)
    assert [record.value for record in survey.distinct_values()] == [VALUE]
    assert {copy.name: (copy.member_id, copy.endpoint) for copy in survey.copies} == {
        name: (cluster.member_id(name), f"{'' if name in named else 'http://'}{cluster.endpoint(name)}")
        for name in cluster.names
    }
    for copy in survey.copies:
        assert copy.stored == reading.stored
        assert copy.revision >= reading.revision


def test_every_member_is_asked_for_its_own_copy(cluster: EtcdMembers) -> None:
    with LossyProxy(cluster.endpoint("member-2")) as proxy:
        requests: list[Any] = []

        def note(path: str, request: bytes) -> None:
            if path == RANGE:
                requests.append(message("RangeRequest").FromString(request))

        proxy.before = note
        with connected(cluster.endpoint("member-0"), proxy.endpoint) as client:
            survey_members(client, KEY)
    assert [(request.key, request.serializable, request.range_end) for request in requests] == [
        (KEY, True, b"")
    ]


def test_a_learner_has_no_say(etcd: EtcdServer, monkeypatch: Patch) -> None:
    with connected(etcd.endpoint) as client:
        listed(client, monkeypatch, member(name="learner", learner=True))
        survey = survey_members(client, KEY)
    assert (len(survey.copies), survey.learners, agreed(survey)) == (1, ("learner (abc)",), True)


LINEARIZABLE = StoredValue(KEY, VALUE, 7, 5, 2, 0)


def copy_of(name: str, stored: StoredValue | None, reason: str = "") -> MemberCopy:
    return MemberCopy(member_id=len(name), name=name, stored=stored, revision=9, reason=reason)


def survey_of(*copies: MemberCopy, reading: StoredValue | None = LINEARIZABLE) -> MemberSurvey:
    return MemberSurvey(
        reading=KeyReading(stored=reading, revision=9, cluster_id=1, member_id=1), copies=copies
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"value": VALUE + b"x"},
        {"mod_revision": 8},
        {"create_revision": 6},
        {"version": 3},
        {"lease": 1},
        None,
    ],
    ids=str,
)
def test_whatever_differs_counts(changes: dict[str, Any] | None) -> None:
    other = None if changes is None else msgspec.structs.replace(LINEARIZABLE, **changes)
    same, odd = copy_of("a", LINEARIZABLE), copy_of("odd", other)
    down = copy_of("down", None, "nobody answers")
    three = survey_of(same, odd, copy_of("bb", LINEARIZABLE), down)
    assert (three.differing, three.unchecked) == ((odd,), (down,))
    assert (three.accepted(["bb"]), three.accepted(["down"])) == ((), (down,))
    # Of two, nobody can say who is right; and the linearizable read may be the odd one's.
    assert survey_of(same, odd).differing == (same, odd)
    assert survey_of(odd).differing == (odd,)
    assert survey_of(same, odd, copy_of("odd2", other)).differing == (same,)


def test_a_name_that_two_members_bear_accepts_neither_and_an_empty_one_nobody() -> None:
    twins = tuple(MemberCopy(member_id=number, name="twin", reason="down") for number in (0xA1, 0xA2))
    unnamed = MemberCopy(member_id=0xA3, reason="has not started")
    survey = survey_of(copy_of("a", LINEARIZABLE), *twins, unnamed)
    assert survey.unchecked == (*twins, unnamed)
    assert survey.accepted(["twin", ""]) == ()
    assert survey.accepted(["a1", "a3"]) == (twins[0], unnamed)
    assert survey.accepted(["a1", "a2", "a3"]) == survey.unchecked


def answers_as(count: int, change: Callable[[Any], None]) -> Callable[[str, bytes], bytes]:
    left = itertools.chain([True] * count, itertools.repeat(False))

    def rewrite(path: str, answer: bytes) -> bytes:
        if path != RANGE or not next(left):
            return answer
        found = message("RangeResponse").FromString(answer)
        change(found)
        return bytes(found.SerializeToString())

    return rewrite


def _as_before(found: Any) -> None:
    found.header.revision = 1
    found.ClearField("kvs")


def test_a_member_that_catches_up(cluster: EtcdMembers) -> None:
    with LossyProxy(cluster.endpoint("member-2")) as proxy:
        proxy.rewrite = answers_as(3, _as_before)
        endpoints = (cluster.endpoint("member-0"), cluster.endpoint("member-1"), proxy.endpoint)
        with connected(*endpoints) as client:
            survey = survey_members(client, KEY, patience_seconds=60)
        assert agreed(survey)
        assert proxy.calls.count(RANGE) == 4


@pytest.mark.parametrize("by_list", [False, True])
def test_a_member_that_does_not_catch_up_is_not_different(
    cluster: EtcdMembers, monkeypatch: Patch, by_list: bool
) -> None:
    """Its old answer says that the key is absent, which would look like a member that differs."""
    late = cluster.member_id("member-2")
    with LossyProxy(cluster.endpoint("member-2")) as proxy:
        proxy.rewrite = answers_as(10**6, _as_before)
        more = [] if by_list else [cluster.endpoint("member-1"), proxy.endpoint]
        with connected(cluster.endpoint("member-0"), *more) as client:
            members = tuple(
                replace(one, client_urls=(f"http://{proxy.endpoint}",)) if one.member_id == late else one
                for one in client.members()
            )
            if by_list:
                monkeypatch.setattr(client, "members", lambda: members)
            else:  # an endpoint that told nothing before
                monkeypatch.setattr(client, "statuses", tuple)
            survey = survey_members(client, KEY, patience_seconds=0.02)
    assert survey.differing == ()
    (behind,) = survey.unchecked
    assert (behind.name, behind.stored) == ("member-2", None)
    assert "lags behind, at revision 1 instead of" in behind.reason


@pytest.mark.parametrize("writes", [1, 100])
def test_a_key_that_is_being_written(etcd: EtcdServer, prefix: bytes, writes: int) -> None:
    key = prefix + b"k"
    etcd.put(key, VALUE)
    left = itertools.chain([True] * writes, itertools.repeat(False))

    def write(path: str, request: bytes) -> None:
        if path == RANGE and message("RangeRequest").FromString(request).serializable and next(left):
            etcd.put(key, VALUE)

    with LossyProxy(etcd.endpoint) as proxy:
        proxy.before = write
        with connected(proxy.endpoint) as client:
            survey = survey_members(client, key)
        assert bool(survey.differing) is (writes > 1)
        assert proxy.calls.count(RANGE) == (4 if writes == 1 else 6)


def listed(client: EtcdClient, monkeypatch: Patch, *more: ClusterMember) -> list[ClusterMember]:
    members = [*client.members(), *more]
    monkeypatch.setattr(client, "members", lambda: tuple(members))
    return members


def member(*urls: str, member_id: int = 0xABC, name: str = "other", learner: bool = False) -> ClusterMember:
    return ClusterMember(member_id=member_id, name=name, client_urls=urls, is_learner=learner)


def reason_of(client: EtcdClient, name: str = "other") -> str:
    survey = survey_members(client, KEY, patience_seconds=0.02)
    (copy,) = (copy for copy in survey.copies if copy.name == name)
    assert (survey.differing, survey.unchecked) == ((), (copy,))
    return copy.reason


def test_urls_that_lead_nowhere(etcd: EtcdServer, monkeypatch: Patch) -> None:
    with connected(etcd.endpoint) as client:
        urls = (NOBODY, "ftp://a:1", "http://b", f"http://{etcd.endpoint}")
        listed(client, monkeypatch, member(*urls), member(member_id=0xABD, name="silent"))
        (me,) = (status.member_id for status in client.statuses())
        reasons = {copy.name: copy.reason for copy in survey_members(client, KEY).unchecked}
    assert reasons["silent"] == "it advertises no client URL"
    wrong = ("has the scheme 'ftp'", "has no port", f"{etcd.endpoint}: member {me:x} answers there")
    assert all(words in reasons["other"] for words in (*wrong, f"{NOBODY}: nobody listens there"))


def test_a_url_that_leads_to_another_cluster(
    etcd: EtcdServer, start_etcd: StartEtcd, monkeypatch: Patch
) -> None:
    other = start_etcd()
    with connected(etcd.endpoint) as client:
        listed(client, monkeypatch, member(f"http://{other.endpoint}"))
        with pytest.raises(ClusterMismatch, match="belongs to cluster") as caught:
            survey_members(client, KEY)
    assert set(caught.value.cluster_ids) == {etcd.endpoint, f"http://{other.endpoint}"}
    assert len(set(caught.value.cluster_ids.values())) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda found: [],
        lambda found: [member(learner=True)],
        lambda found: [*found, found[0]],
        lambda found: [*found, *(member(member_id=number + 1) for number in range(64))],
    ],
    ids=["empty", "learners", "twice", "too many"],
)
def test_a_member_list_that_cannot_be_true(
    etcd: EtcdServer, monkeypatch: Patch, change: Callable[[list[ClusterMember]], list[ClusterMember]]
) -> None:
    with connected(etcd.endpoint) as client:
        members = tuple(change(list(client.members())))
        monkeypatch.setattr(client, "members", lambda: members)
        with pytest.raises(MemberListUnusable, match="cannot be true") as caught:
            survey_members(client, KEY)
    assert caught.value.exit_code == 4


def test_a_member_that_has_answered_is_not_asked_at_another_address(
    etcd: EtcdServer, monkeypatch: Patch
) -> None:
    with LossyProxy(etcd.endpoint) as proxy, connected(etcd.endpoint) as client:
        (me,) = client.members()
        moved = (replace(me, client_urls=(f"http://{proxy.endpoint}",)),)
        monkeypatch.setattr(client, "members", lambda: moved)
        assert agreed(survey_members(client, KEY))
        assert proxy.calls == []


def test_tls_is_not_left(
    start_etcd: StartEtcd, authority: CertificateAuthority, monkeypatch: Patch, etcd: EtcdServer
) -> None:
    guarded = start_etcd(authority=authority, client_certificates=True)
    files = authority.issue("client")
    options = {"cacert": str(authority.cert), "cert": str(files.cert), "key": str(files.key)}
    with LossyProxy(etcd.endpoint) as proxy, connected(guarded.endpoint, **options) as client:
        assert agreed(survey_members(client, KEY))
        listed(client, monkeypatch, member(f"http://{proxy.endpoint}", NOBODY.replace("http", "https")))
        told = reason_of(client)
        assert f"http://{proxy.endpoint}: advertised without TLS, while --endpoints speak TLS" in told
        assert "https://127.0.0.1:1: nobody listens there" in told
        assert proxy.calls == []
    with connected(guarded.endpoint, insecure_skip_tls_verify=True, **options) as client:
        listed(client, monkeypatch, member("https://127.0.0.1:1"))
        assert "connection refused" in reason_of(client)


def test_members_behind_a_login(start_etcd: StartEtcd, monkeypatch: Patch) -> None:
    etcd = start_etcd()
    etcd.put(KEY, VALUE)
    etcd.require_login(b"/registry/")
    user = {"user": READER[0], "password": READER[1]}
    with LossyProxy(etcd.endpoint) as proxy, connected(proxy.endpoint, **user) as client:
        assert agreed(survey_members(client, KEY))
        # A member that lags has not heard of a new token yet.
        refusing = itertools.chain([True] * 3, itertools.repeat(False))

        def forget(path: str, request: bytes) -> Refusal | None:
            if path != RANGE or not message("RangeRequest").FromString(request).serializable:
                return None
            return INVALID_TOKEN if next(refusing) else None

        proxy.before = forget
        survey = survey_members(client, KEY, patience_seconds=60)
        assert agreed(survey)
        assert not next(refusing)
        refusing = itertools.chain(itertools.repeat(True))
        members = tuple(replace(found, client_urls=()) for found in client.members())
        monkeypatch.setattr(client, "members", lambda: members)
        (copy,) = survey_members(client, KEY, patience_seconds=0.02).copies
        assert copy.reason == f"{proxy.endpoint}: etcd says: invalid auth token"
        # Whatever else it says will not change by waiting.
        proxy.before = lambda path, request: NO_LEADER if forget(path, request) else None
        proxy.calls.clear()
        (copy,) = survey_members(client, KEY, patience_seconds=1).copies
        assert copy.reason == f"{proxy.endpoint}: etcd says: no leader"
        assert proxy.calls.count(RANGE) == 2
        proxy.before = lambda path, _request: WRONG_PASSWORD if path == AUTHENTICATE.path else None
        with pytest.raises(SourceDenied, match="invalid user ID or password"):
            survey_members(client, KEY)


@pytest.mark.parametrize("path", [RANGE, MEMBER_LIST.path])
def test_the_cluster_does_not_answer(etcd: EtcdServer, path: str) -> None:
    with (
        LossyProxy(etcd.endpoint) as proxy,
        connected(proxy.endpoint, dial_timeout_seconds=1.0, command_timeout_seconds=0.05) as client,
    ):
        proxy.before = lambda called, _request: NO_LEADER if called == path else None
        with pytest.raises(SourceUnreachable, match="no leader"):
            survey_members(client, KEY)


def raise_alarm(etcd: EtcdServer, kind: int, member_id: int) -> None:
    import grpc

    with grpc.insecure_channel(etcd.endpoint) as channel:
        request = message("AlarmRequest")(memberID=member_id, alarm=kind).SerializeToString()
        # action = ACTIVATE: a field that the package's own message does not have.
        channel.unary_unary(ALARM.path)(b"\x08\x01" + request, timeout=10)


def test_alarms(start_etcd: StartEtcd) -> None:
    etcd = start_etcd()
    with LossyProxy(etcd.endpoint) as proxy, connected(proxy.endpoint) as client:
        assert read_alarms(client) == ()
        # There is nobody to be named then.
        assert MEMBER_LIST.path not in proxy.calls
        (found,) = client.members()
        raise_alarm(etcd, 1, found.member_id)
        nospace = ActiveAlarm(AlarmKind.NOSPACE, f"{found.name} ({found.member_id:x})")
        assert read_alarms(client) == (nospace,)
        raise_alarm(etcd, 2, 0xABC)
        corrupt = ActiveAlarm(AlarmKind.CORRUPT, "abc")
        assert set(read_alarms(client)) == {nospace, corrupt}
        # Asking lifted nothing.
        assert set(read_alarms(client)) == {nospace, corrupt}


def test_no_channel_raises_an_alarm(etcd: EtcdServer) -> None:
    activate = message("AlarmRequest").FromString(b"\x08\x01\x18\x02")
    assert b"\x08\x01" in activate.SerializeToString()
    with LossyProxy(etcd.endpoint) as proxy:
        endpoint = parse_endpoint(proxy.endpoint, has_tls_material=False)
        with closing(open_channel(endpoint, TLSMaterial(), EtcdConnection())) as channel:
            for request in (activate, message("AlarmRequest")(memberID=1), message("AlarmRequest")(alarm=2)):
                with pytest.raises(ValueError, match="could raise or lift an alarm"):
                    channel.start(ALARM, request, timeout_seconds=5)
            with pytest.raises(ValueError, match="is not a stream"):
                channel.stream(ALARM, iter([activate]), timeout_seconds=5)
            channel.start(ALARM, alarm_query(), timeout_seconds=5).result()
        assert proxy.calls == [ALARM.path]


def test_leases(etcd: EtcdServer) -> None:
    lease = int(etcd.etcdctl("lease", "grant", "600").split()[1], 16)
    gone = LeaseState(lease=lease, alive=False, remaining_seconds=0)

    def last(path: str, answer: bytes) -> bytes:
        if path != LEASE_TIME_TO_LIVE.path:
            return answer
        found = message("LeaseTimeToLiveResponse").FromString(answer)
        found.TTL = 0
        return bytes(found.SerializeToString())

    with LossyProxy(etcd.endpoint) as proxy, connected(proxy.endpoint) as client:
        found = read_lease(client, lease)
        assert (found.lease, found.alive) == (lease, True)
        assert 0 < found.remaining_seconds <= 600
        # What is left is rounded down, and etcd is about to delete what depends on it.
        proxy.rewrite = last
        assert read_lease(client, lease) == gone
        proxy.rewrite = lambda _path, answer: answer
        etcd.etcdctl("lease", "revoke", f"{lease:x}")
        assert read_lease(client, lease) == gone
