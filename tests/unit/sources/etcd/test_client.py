from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import ClusterMismatch, SourceDenied
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import threads
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.sources.etcd.threads import anything_stuck
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.wire.etcd import ALARM, AUTHENTICATE, MEMBER_LIST, RANGE, STATUS, WATCH, alarm_query, message
from tests.support.breaking_in import break_in
from tests.support.etcd_proxy import Refusal
from tests.support.scripted_etcd import (
    FUTURE_REVISION,
    INVALID_TOKEN,
    NO_LEADER,
    TIMED_OUT,
    Call,
    ScriptedEtcd,
    Store,
)
from tests.support.thorough import THOROUGH

NOBODY = "127.0.0.1:1"
SECRET = "hunter2-of-the-test"

SHORT: dict[str, Any] = {"dial_timeout_seconds": 1, "command_timeout_seconds": 1}
"""Where a test waits until the client gives up. Elsewhere the limits are far away: a busy machine answers late."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(client_module, "_LONGEST_PAUSE_SECONDS", 0.05)


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd({b"k": b"v"}) as server:
        yield server


@pytest.fixture
def pair() -> Iterator[tuple[ScriptedEtcd, ScriptedEtcd]]:
    store = Store({b"k": b"v"})
    with ScriptedEtcd(store) as first, ScriptedEtcd(store) as second:
        yield first, second


class Connected:
    """A client that writes down its notices; a context manager."""

    def __init__(self, *endpoints: str, **options: Any) -> None:
        options = {"dial_timeout_seconds": 20, "command_timeout_seconds": 20} | options
        self.notices: list[str] = []
        self.client = EtcdClient(
            EtcdConnection(endpoints=endpoints, **options), on_notice=self.notices.append
        )

    def __enter__(self) -> EtcdClient:
        return self.client

    def __exit__(self, *_exc: object) -> None:
        self.client.close()


def read(client: EtcdClient) -> bytes:
    return bytes(client.call(RANGE, message("RangeRequest")(key=b"k")).kvs[0].value)


def failing(client: EtcdClient) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        read(client)
    return caught.value


def on_range(*answers: Refusal | None) -> Any:
    left = list(answers)

    def script(call: Call) -> Refusal | None:
        if call.path != RANGE.path:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    return script


# Who is asked


def test_what_a_member_says_about_itself() -> None:
    with (
        ScriptedEtcd(Store({b"k": b"v"}), version="3.5.21", errors=("NOSPACE",)) as server,
        (connected := Connected(server.endpoint)) as client,
    ):
        (status,) = client.statuses()
        assert (status.endpoint, status.version, status.errors) == (server.endpoint, "3.5.21", ("NOSPACE",))
        assert client.current_version() == "3.5.21"
        assert client.cluster_id == 0xC1
        assert connected.notices == [f"{server.endpoint}: etcd complains: NOSPACE"]


def test_a_learner_is_not_chosen() -> None:
    store = Store({b"k": b"v"})
    with ScriptedEtcd(store, learner=True) as learner, ScriptedEtcd(store) as voter:
        with Connected(learner.endpoint, voter.endpoint) as client:
            assert read(client) == b"v"
        assert learner.ranges() == []
        assert len(voter.ranges()) == 1


# One cluster


def test_an_answer_from_another_cluster(etcd: ScriptedEtcd) -> None:
    with Connected(etcd.endpoint) as client:
        assert read(client) == b"v"
        etcd.cluster_id = 0xBEEF
        with pytest.raises(ClusterMismatch) as caught:
            read(client)
        assert caught.value.cluster_ids == {etcd.endpoint: "beef"}
        with pytest.raises(ClusterMismatch):
            next(client.watch(iter([watch_request()]), timeout_seconds=5))


def without_ids(path: str, answer: str) -> Any:
    return lambda call: message(answer)() if call.path == path else None


def test_an_answer_to_alarm_without_ids_is_not_from_another_cluster(etcd: ScriptedEtcd) -> None:
    etcd.script = without_ids(ALARM.path, "AlarmResponse")
    with Connected(etcd.endpoint) as client:
        assert not client.call(ALARM, alarm_query()).header.cluster_id
        assert client.cluster_id == 0xC1
        # What carries ids is still held against them.
        etcd.cluster_id = 0xC2
        with pytest.raises(ClusterMismatch, match="c2"):
            read(client)


@pytest.mark.parametrize(
    ("path", "answer"), [(RANGE.path, "RangeResponse"), (MEMBER_LIST.path, "MemberListResponse")]
)
def test_an_answer_that_should_carry_ids_and_does_not(etcd: ScriptedEtcd, path: str, answer: str) -> None:
    etcd.script = without_ids(path, answer)
    with Connected(etcd.endpoint) as client:
        for _ in range(2):
            with pytest.raises(ClusterMismatch, match="carries no cluster id"):
                read(client) if path == RANGE.path else client.members()
        assert client.cluster_id == 0xC1


# What is asked again, and of whom


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (NO_LEADER, "asking {} instead"),
        (FUTURE_REVISION, "asking {} instead"),
        (TIMED_OUT, r"no answer for \d+\.\d s, trying again at {}"),
    ],
    ids=["no leader", "future", "silent"],
)
def test_another_member_is_asked(
    pair: tuple[ScriptedEtcd, ScriptedEtcd], refusal: Refusal, said: str
) -> None:
    first, second = pair
    first.script = on_range(refusal)
    with (connected := Connected(first.endpoint, second.endpoint)) as client:
        assert [read(client), read(client)] == [b"v", b"v"]
        assert (len(first.ranges()), len(second.ranges())) == (1, 2)
        (notice,) = connected.notices
    assert re.search(said.format(re.escape(second.endpoint)), notice)


def test_after_three_requests_without_an_answer_nobody_is_asked_any_more(
    pair: tuple[ScriptedEtcd, ScriptedEtcd],
) -> None:
    for member in pair:
        member.script = on_range(TIMED_OUT)
    with (connected := Connected(*(member.endpoint for member in pair))) as client:
        failure = failing(client).failure
        assert failure.kind is FailureKind.SILENT
        assert failure.message.startswith(f"{pair[0].endpoint}: no answer for 0.")
        assert failure.message.endswith(", to 3 requests in a row")
        assert failure.hint
        assert failing(client).failure is failure
    assert [len(member.ranges()) for member in pair] == [2, 1]
    assert [notice.partition(", ")[2] for notice in connected.notices] == [
        f"trying again at {pair[1].endpoint}", f"trying again at {pair[0].endpoint}",
    ]  # fmt: skip


def hold(answer: threading.Event, *paths: str) -> Any:
    def script(call: Call) -> None:
        if call.path in paths:
            answer.wait(10)

    return script


def page(client: EtcdClient) -> bytes:
    request = message("RangeRequest")(key=b"k")
    found, _size = client.answer(client.ask(RANGE, request, timeout_seconds=9))
    return bytes(found.kvs[0].value)


@pytest.mark.parametrize("ask", [read, page])
def test_a_member_that_answers_nothing_any_more(etcd: ScriptedEtcd, ask: Any) -> None:
    answer = threading.Event()
    with (connected := Connected(etcd.endpoint, command_timeout_seconds=0.1)) as client:
        etcd.script = hold(answer, RANGE.path, STATUS.path)
        began = time.monotonic()
        with pytest.raises(CallFailed) as caught:
            ask(client)
        seconds = time.monotonic() - began
        answer.set()
    failure = caught.value.failure
    assert failure.kind is FailureKind.SILENT
    told = re.search(r"no answer for ([0-9.]+) s, to 3 requests in a row", failure.message)
    assert told is not None
    assert float(told[1]) == pytest.approx(seconds, abs=0.15)
    assert seconds < 6
    assert len(connected.notices) == 2
    assert all(notice.endswith(", trying again") for notice in connected.notices)


def watch_in_vain(client: EtcdClient) -> list[Any]:
    return list(client.watch(iter([watch_request()]), timeout_seconds=9))


def test_a_watch_of_a_member_that_answers_nothing_any_more(etcd: ScriptedEtcd) -> None:
    """Each silent watch counts as a request without an answer, and any answer ends the count."""
    answer = threading.Event()
    with Connected(etcd.endpoint, command_timeout_seconds=0.1) as client:
        etcd.script = hold(answer, WATCH.path, STATUS.path)
        failures = []
        for _ in range(3):
            with pytest.raises(CallFailed, match=r"no answer for [0-9.]+ s") as caught:
                watch_in_vain(client)
            failures.append(caught.value.failure)
        assert failing(client).failure is failures[-1]
        answer.set()
    assert [one.kind for one in failures] == [FailureKind.UNREACHABLE] * 2 + [FailureKind.SILENT]
    assert failures[-1].message.endswith(", to 3 requests in a row")
    assert etcd.ranges() == []


@pytest.mark.thorough
def test_a_watch_in_which_nothing_happens_goes_on_while_its_member_lives(etcd: ScriptedEtcd) -> None:
    answer = threading.Event()
    with (connected := Connected(etcd.endpoint, command_timeout_seconds=0.6)) as client:
        etcd.script = hold(answer, WATCH.path)
        threading.Timer(2.5, answer.set).start()
        with contextlib.closing(client.watch(iter([watch_request()]), timeout_seconds=9)) as answers:
            assert next(answers).created
    assert len(etcd.requests(STATUS.path)) > 2
    assert connected.notices == []


def test_after_a_watch_without_an_answer_a_member_that_lives_is_asked(
    pair: tuple[ScriptedEtcd, ScriptedEtcd],
) -> None:
    first, second = pair
    answer = threading.Event()
    with Connected(first.endpoint, second.endpoint, command_timeout_seconds=0.5) as client:
        first.script = hold(answer, WATCH.path, STATUS.path)
        with pytest.raises(CallFailed) as caught:
            watch_in_vain(client)
        assert caught.value.failure.kind is FailureKind.UNREACHABLE
        assert read(client) == b"v"
        answer.set()
    assert (len(first.ranges()), len(second.ranges())) == (0, 1)


def test_a_page_goes_to_a_member_that_lives(pair: tuple[ScriptedEtcd, ScriptedEtcd]) -> None:
    first, second = pair
    answer = threading.Event()
    with (
        connected := Connected(NOBODY, first.endpoint, second.endpoint, command_timeout_seconds=0.5)
    ) as client:
        first.script = hold(answer, RANGE.path, STATUS.path)
        assert page(client) == b"v"
        answer.set()
    assert len(second.ranges()) == 1
    assert connected.notices[-1].endswith(f", trying again at {second.endpoint}")


@pytest.mark.thorough
def test_a_member_whose_certificate_cannot_be_fetched(etcd: ScriptedEtcd, tmp_path: Path) -> None:
    """With --insecure-skip-tls-verify the way to a member may fail before anything is sent."""
    import grpc  # not at the top: the package sets variables that grpc reads when it is imported

    files = CertificateAuthority(tmp_path).issue("server")
    credentials = grpc.ssl_server_credentials([(files.key.read_bytes(), files.cert.read_bytes())])
    with (
        ScriptedEtcd(etcd.store, credentials=credentials) as secure,
        (connected := Connected(secure.endpoint, NOBODY, insecure_skip_tls_verify=True, **SHORT)) as client,
    ):
        assert read(client) == b"v"
        secure.stop()
        assert failing(client).failure.kind is FailureKind.UNREACHABLE
        # Not an exception where only a request is sent: a page under way would be lost with it.
        client._current = client._members[1]
        pending = client.ask(RANGE, message("RangeRequest")(key=b"k"), timeout_seconds=0.3)
        pending.cancel()
        with pytest.raises(CallFailed):
            client.answer(pending)
        assert any(NOBODY in notice for notice in connected.notices)


# Users


def logged_in(*endpoints: str, password: str = SECRET, **options: Any) -> Connected:
    return Connected(*endpoints, user="reader", password=password, **options)


@pytest.fixture
def guarded(etcd: ScriptedEtcd) -> ScriptedEtcd:
    etcd.users["reader"] = SECRET
    return etcd


def test_an_expired_token_is_renewed_once(guarded: ScriptedEtcd) -> None:
    with logged_in(guarded.endpoint) as client:
        read(client)
        guarded.tokens.append("somebody-elses")
        assert read(client) == b"v"
        assert guarded.logins() == 2
        assert [call.token for call in guarded.calls if call.path == AUTHENTICATE.path] == [None, None]
        assert [call.token for call in guarded.calls if call.path == RANGE.path] == [
            "token-1",
            "token-1",
            "token-3",
        ]


def test_a_new_token_that_is_refused_too_ends_it(guarded: ScriptedEtcd) -> None:
    guarded.script = on_range(INVALID_TOKEN)
    with logged_in(guarded.endpoint) as client:
        assert failing(client).failure.kind is FailureKind.TOKEN_REFUSED
    assert guarded.logins() == 2


def test_a_login_that_is_answered_like_a_bad_token_is_not_repeated(guarded: ScriptedEtcd) -> None:
    guarded.script = lambda call: INVALID_TOKEN if call.path == AUTHENTICATE.path else None
    with pytest.raises(SourceDenied, match="invalid auth token"):
        logged_in(guarded.endpoint)
    assert guarded.logins() == 1


def test_a_server_that_wants_a_login_before_it_tells_its_status(guarded: ScriptedEtcd) -> None:
    guarded.script = lambda call: INVALID_TOKEN if call.path == STATUS.path and call.token is None else None
    with logged_in(guarded.endpoint) as client:
        assert client.current_version() == "3.6.8"
    with Connected(guarded.endpoint) as client:
        assert client.current_version() == ""


def test_neither_password_nor_token_is_in_a_repr(guarded: ScriptedEtcd) -> None:
    with logged_in(guarded.endpoint) as client:
        login = message("AuthenticateRequest")(name="reader", password=SECRET)
        pending = client.ask(AUTHENTICATE, login, timeout_seconds=5)
        shown = repr(pending)
        client.answer(pending)
    assert SECRET not in shown
    assert "token-1" not in shown
    assert AUTHENTICATE.path in shown


# Watches


def watch_request() -> Any:
    create = message("WatchCreateRequest")(key=b"k", start_revision=1)
    return message("WatchRequest")(create_request=create)


def watched(client: EtcdClient) -> tuple[list[Any], CallFailed]:
    answers: list[Any] = []
    with pytest.raises(CallFailed) as caught:
        # Not list(): what came before the failure counts too.
        answers.extend(client.watch(iter([watch_request()]), timeout_seconds=5))
    return answers, caught.value


def cancelled(reason: str) -> Any:
    header = message("ResponseHeader")(cluster_id=0xC1, revision=2)
    return message("WatchResponse")(header=header, created=True, canceled=True, cancel_reason=reason)


def on_watch(answer: Any) -> Any:
    return lambda call: answer if "Watch" in call.path else None


@pytest.mark.parametrize("refusal", [INVALID_TOKEN, [cancelled("etcdserver: invalid auth token")]])
def test_a_watch_with_an_expired_token_brings_a_new_one(guarded: ScriptedEtcd, refusal: Any) -> None:
    guarded.script = on_watch(refusal)
    with logged_in(guarded.endpoint) as client:
        assert watched(client)[1].failure.kind is FailureKind.TOKEN_REFUSED
        assert read(client) == b"v"
    assert (guarded.logins(), guarded.calls[-1].token) == (2, "token-2")


# Signals: Python runs their handlers in the main thread, also in the middle of what gRPC does there.


STEP = 1 if THOROUGH else 3
"""Of so many moments one is tried."""


def read_and_watch(client: EtcdClient) -> None:
    read(client)
    with contextlib.closing(client.watch(iter([watch_request()]), timeout_seconds=5)) as answers:
        assert next(answers).created
        assert next(answers).events


def give_up_waiting(client: EtcdClient) -> None:
    client.ask(RANGE, message("RangeRequest")(key=b"k"), timeout_seconds=5).cancel()


@pytest.mark.parametrize("work", [read_and_watch, give_up_waiting, EtcdClient.close])
def test_a_signal_breaks_into_nothing_that_others_wait_for(
    etcd: ScriptedEtcd, monkeypatch: pytest.MonkeyPatch, work: Callable[[EtcdClient], None]
) -> None:
    """A lock that is never given back stops the thread of the connection: nothing is answered any more."""
    monkeypatch.setattr(threads, "_stuck", [])  # what other tests left
    for place in itertools.count(step=STEP):
        with Connected(etcd.endpoint) as client:
            heard = break_in(place, partial(work, client))
            if work is not EtcdClient.close:
                assert read(client) == b"v", place
        assert not anything_stuck(), place
        if not heard:
            break
    assert place
