"""One session with a scripted client and a clock that is set by hand: limits, memory, retries, patience."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms import session as kms_session
from etcdfix.encryption.kms.answers import Answer, Health, PluginReport, PluginState
from etcdfix.encryption.kms.envelopes import Failure, KMSPending, WrappedKey
from etcdfix.encryption.kms.pacing import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Clock,
    Outage,
)
from etcdfix.encryption.kms.session import (
    ATTEMPTS,
    FAILURE_KEPT_SECONDS,
    MOST_ASKED_AHEAD,
    AskingMode,
    PluginSession,
)
from tests.support.breaking_in import break_in
from tests.support.fixtures import Patch

OK = Health(PluginState.OK, "", "k")
GONE = Health(PluginState.UNREACHABLE, "nobody there")
SILENT = Failure("DEADLINE_EXCEEDED", "too late")
AWAY = Failure("UNAVAILABLE", "gone")
ERROR = Failure("UNKNOWN", "something")


class HandClock(Clock):
    """Time passes when somebody waits for it, and at once."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wait_until(self, over: threading.Event, when: float) -> None:
        self.time = max(self.time, when)


class Scripted:
    """A client that answers from functions; counts, and notes when it was asked."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.health: Callable[[], Health] = lambda: OK
        self.answer: Callable[[WrappedKey], Answer] = lambda wrapped: KeyMaterial(wrapped.ciphertext)
        self.decrypts: list[bytes] = []
        self.checks = 0
        self.times: list[float] = []
        self.closed = 0

    def check(self) -> Health:
        self.checks += 1
        self.times.append(self._clock.now())
        return self.health()

    def decrypt(self, wrapped: WrappedKey) -> Answer:
        self.decrypts.append(wrapped.ciphertext)
        self.times.append(self._clock.now())
        return self.answer(wrapped)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def client(clock: HandClock) -> Scripted:
    return Scripted(clock)


Start = Callable[..., PluginSession]


@pytest.fixture
def start(clock: HandClock, client: Scripted) -> Iterator[Start]:
    made = []

    def session(*, max_rate: float = 0.0, patience_seconds: float = 30.0) -> PluginSession:
        started = PluginSession(
            lambda: client,
            PluginReport("v2", "prov", "unix:///x", max_rate=max_rate),
            AskingMode(),
            patience_seconds=patience_seconds,
            clock=clock,
        )
        made.append(started)
        return started

    yield session
    for started in made:
        started.close()


def key(number: int, size: int = 4) -> WrappedKey:
    return WrappedKey("v2", number.to_bytes(size, "big"), 1, "k", (("a.b", b"c"),))


def ask(session: PluginSession, wrapped: WrappedKey) -> None:
    session._mode.deferring = True
    with contextlib.suppress(KMSPending):
        session.unwrap(wrapped)
    session._mode.deferring = False


def unreachable(session: PluginSession, wrapped: WrappedKey) -> str:
    answer = session.unwrap(wrapped)
    assert isinstance(answer, Failure)
    assert not answer.refused
    return answer.message


def test_the_rate_holds_for_everything_that_is_sent(start: Start, client: Scripted, clock: HandClock) -> None:
    session = start(max_rate=10)
    seen: list[bytes] = []

    def fail_first(wrapped: WrappedKey) -> Answer:
        if wrapped.ciphertext in seen:
            return KeyMaterial(b"dek")
        seen.append(wrapped.ciphertext)
        return ERROR

    client.answer = fail_first
    for number in range(20):
        session.unwrap(key(number))
    assert len(client.times) == client.checks + 40
    spread = client.times[-1] - client.times[0]
    assert spread >= (len(client.times) - 1) / 10 - 1e-6
    for earlier, later in zip(client.times, client.times[1:], strict=False):
        assert later - earlier >= 0.1 - 1e-6
    assert session.report().calls == len(client.times)


def test_what_was_given_is_recalled_and_nothing_is_asked_for_it(start: Start, client: Scripted) -> None:
    session = start()
    assert session.recall(key(1)) is None
    assert client.checks == 0
    session.unwrap(key(1))
    client.answer = lambda _: Failure("NOT_FOUND", "no")
    assert isinstance(session.unwrap(key(2)), Failure)
    asked = len(client.times)
    assert session.recall(key(1)) == key(1).ciphertext
    assert session.recall(key(2)) is None
    assert len(client.times) == asked


def test_a_failure_is_not_final_while_deferring(start: Start, client: Scripted, clock: HandClock) -> None:
    session = start()
    client.answer = lambda _wrapped: ERROR
    unreachable(session, key(1))
    session._mode.deferring = True
    for _ in range(3):
        with pytest.raises(KMSPending):
            session.unwrap(key(1))
    assert len(client.decrypts) == ATTEMPTS
    session._mode.deferring = False
    unreachable(session, key(1))
    clock.time += FAILURE_KEPT_SECONDS
    client.answer = lambda _wrapped: KeyMaterial(b"dek")
    assert session.unwrap(key(1)) == b"dek"


def test_memory_of_answers_is_bounded_and_keeps_what_is_used(
    start: Start, client: Scripted, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(kms_session, "CACHE_SIZE", 3)
    session = start()
    for number in (1, 2, 3, 1, 4, 1):
        session.unwrap(key(number))
    assert client.decrypts == [key(number).ciphertext for number in (1, 2, 3, 4)]
    session.unwrap(key(2))
    assert client.decrypts[-1] == key(2).ciphertext


def hold(client: Scripted) -> tuple[threading.Event, threading.Event]:
    gate, asked = threading.Event(), threading.Event()

    def answer(wrapped: WrappedKey) -> Answer:
        asked.set()
        assert gate.wait(30)
        return KeyMaterial(wrapped.ciphertext)

    client.answer = answer
    return gate, asked


def test_so_many_are_asked_ahead_and_one_that_is_waited_for_always(start: Start, client: Scripted) -> None:
    session, (gate, _) = start(), hold(client)
    for number in range(2 * MOST_ASKED_AHEAD):
        ask(session, key(number))
    found: list[bytes | Failure] = []
    waiting = threading.Thread(target=lambda: found.append(session.unwrap(key(99))))
    waiting.start()
    while key(99).ciphertext not in client.decrypts:
        waiting.join(0.01)
    assert len(client.decrypts) == MOST_ASKED_AHEAD + 1
    gate.set()
    waiting.join(30)
    assert found == [key(99).ciphertext]
    assert session.unwrap(key(5)) == key(5).ciphertext
    ask(session, key(5))  # it is known
    assert len(client.decrypts) == MOST_ASKED_AHEAD + 1


def test_an_outage_uses_up_patience_and_no_more(start: Start, client: Scripted, clock: HandClock) -> None:
    session = start(patience_seconds=30)
    session.unwrap(key(0))
    client.health = lambda: GONE
    client.answer = lambda _wrapped: AWAY
    assert unreachable(session, key(1)) == "nobody there"
    assert clock.time == pytest.approx(1030)
    checks = client.checks
    for number in range(1000):
        assert unreachable(session, key(number + 2)) == "nobody there"
    assert clock.time == pytest.approx(1030)
    assert (client.checks, len(client.decrypts)) == (checks, 2)
    report = session.report()
    assert (report.state, report.message) == (PluginState.GAVE_UP, "nobody there")
    assert not session.healthy
    assert session.unwrap(key(0)) == key(0).ciphertext


def test_a_socket_on_which_nobody_listens_is_known_at_once(
    start: Start, client: Scripted, clock: HandClock
) -> None:
    session = start(patience_seconds=30)
    client.health = lambda: Health(PluginState.UNREACHABLE, "connection refused", nobody_listens=True)
    assert unreachable(session, key(1)) == "connection refused"
    assert session.report().state is PluginState.UNREACHABLE
    assert clock.time == pytest.approx(1000)
    assert client.checks == 1
    assert not client.decrypts


def test_a_plugin_that_asks_for_less_gets_less(start: Start, client: Scripted, clock: HandClock) -> None:
    session = start()
    answers = iter([Failure("RESOURCE_EXHAUSTED", "slowly")] * 2)
    client.answer = lambda wrapped: next(answers, KeyMaterial(wrapped.ciphertext))
    assert session.unwrap(key(1)) == key(1).ciphertext
    assert clock.time >= 1000.25 + 0.5
    assert client.checks == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_leaves_nobody_waiting(start: Start, client: Scripted) -> None:
    def broken(_wrapped: WrappedKey) -> Answer:
        raise ZeroDivisionError

    session = start()
    client.answer = broken
    unreachable(session, key(1))
    assert session.report().state is PluginState.GAVE_UP


def not_well(session: PluginSession) -> str:
    assert not session.check()
    return session.report().message


def test_the_health_of_a_plugin_that_is_not_there(start: Start, client: Scripted, clock: HandClock) -> None:
    client.health = lambda: Health(PluginState.NO_SOCKET, "no socket")
    session = start()
    assert not_well(session) == not_well(session) == "no socket"
    assert session.report().state is PluginState.NO_SOCKET
    assert client.checks == 1

    client.health = lambda: GONE
    session = start()
    assert not_well(session) == "nobody there"
    assert clock.time == pytest.approx(1030)


def last_word(session: PluginSession, wrapped: WrappedKey) -> str | bytes:
    answer = session.unwrap(wrapped)
    return answer.message if isinstance(answer, Failure) else answer


def gone_final(start: Start, client: Scripted) -> PluginSession:
    session = start()
    client.answer = lambda w: Failure("INVALID_ARGUMENT", "no") if w == key(2) else KeyMaterial(w.ciphertext)
    assert session.unwrap(key(1)) == key(1).ciphertext
    session.add_control(key(1), key(1).ciphertext)
    session.opened["k"] = 5
    assert last_word(session, key(2)) == "no"
    session._mode.final = True
    session.begin_final()
    client.decrypts.clear()
    return session


def test_the_last_word_stands_between_two_controls(start: Start, client: Scripted) -> None:
    session = gone_final(start, client)
    assert last_word(session, key(2)) == "no"
    assert client.decrypts == [key(1).ciphertext, key(2).ciphertext, key(1).ciphertext]
    assert last_word(session, key(2)) == "no"  # many values may share a data key
    assert len(client.decrypts) == 3
    assert client.checks == 2
    assert session.opened["k"] == 5


def test_a_hiccup_is_no_last_word(start: Start, client: Scripted) -> None:
    session = gone_final(start, client)
    client.answer = lambda wrapped: KeyMaterial(wrapped.ciphertext)
    assert last_word(session, key(2)) == key(2).ciphertext


@pytest.mark.parametrize("bad", [Failure("INVALID_ARGUMENT", "no"), KeyMaterial(b"another"), SILENT])
def test_plugin_that_went_bad_loses_what_counted_for_it(bad: Answer, start: Start, client: Scripted) -> None:
    session = gone_final(start, client)
    client.answer = lambda _wrapped: bad
    last_word(session, key(2))
    assert session.opened["k"] == 0


def test_a_plugin_that_went_bad_in_between_does_too(start: Start, client: Scripted) -> None:
    session = gone_final(start, client)
    answers: Iterator[Answer] = iter(
        [KeyMaterial(key(1).ciphertext), Failure("INVALID_ARGUMENT", "no"), KeyMaterial(b"another")]
    )
    client.answer = lambda _wrapped: next(answers)
    assert last_word(session, key(2)) == "no"
    assert session.opened["k"] == 0


@pytest.mark.parametrize("deferring", [False, True])
def test_a_signal_leaves_nothing_that_the_session_waits_for(
    client: Scripted, tmp_path: Path, *, deferring: bool
) -> None:
    """A lock that is never given back would keep the session's threads, and whoever closes it, for ever."""
    for place in itertools.count():
        session = PluginSession(
            lambda: client, PluginReport("v2", "prov", f"unix://{tmp_path}"), AskingMode()
        )
        session._mode.deferring = deferring

        def use(session: PluginSession = session) -> None:
            with contextlib.suppress(KMSPending):
                session.unwrap(key(1))
            session.abort()

        heard = break_in(place, use)
        closing = threading.Thread(target=session.close, daemon=True)
        closing.start()
        closing.join(2)
        assert not closing.is_alive(), place
        if not heard:
            break
    assert place


def test_a_session_that_starts_over_keeps_only_data_keys(start: Start, client: Scripted) -> None:
    session = start()
    session.unwrap(key(1))
    session.add_control(key(1), b"dek")
    session.opened["k"] += 1
    client.answer = lambda _wrapped: Failure("PERMISSION_DENIED", "no")
    assert isinstance(session.unwrap(key(2)), Failure)
    client.answer = lambda wrapped: KeyMaterial(wrapped.ciphertext)
    session.start_over()
    assert not session.opened
    asked = len(client.decrypts)
    session.unwrap(key(1))
    assert len(client.decrypts) == asked, "it was given"
    session.unwrap(key(2))
    assert len(client.decrypts) == asked + 1, "what was refused may be given by now"


def test_a_machine_without_threads_is_no_plugin_that_is_well(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", no_thread)
        assert not session.check()
        assert "can't start new thread" in unreachable(session, key(1))
    assert session.check()
    assert isinstance(session.unwrap(key(1)), bytes)


def test_five_failures_in_a_row_open_it() -> None:
    outage, states = Outage(30), []
    for number in range(FAILURES_IN_A_ROW):
        states.append((outage.is_lasting, outage.pause_until))
        outage.failed(float(number), float(number), silent=True, at_once=False)
    assert states == [(False, None)] * FAILURES_IN_A_ROW
    assert (outage.is_lasting, outage.pause_until) == (True, 4.0 + FIRST_PAUSE_SECONDS)


def test_pauses_double_up_to_a_limit_while_nobody_answers() -> None:
    outage, now, pauses = Outage(1000), 0.0, []
    for _ in range(8):
        outage.probe_failed(now, now)
        assert outage.pause_until is not None
        pauses.append(outage.pause_until - now)
        now = outage.pause_until
    assert pauses == [0.25, 0.5, 1, 2, 4, 4, 4, 4]
    assert max(pauses) == MAX_PAUSE_SECONDS
    assert outage.probe_succeeded()
    outage.answered(now)
    outage.failed(now, now, silent=True, at_once=True)
    assert outage.pause_until == now + FIRST_PAUSE_SECONDS


def test_the_last_probe_comes_when_patience_ends() -> None:
    outage, now, probes = Outage(10), 0.0, 0
    while not outage.is_spent(now):
        outage.probe_failed(now, now)
        assert outage.pause_until is not None
        now = outage.pause_until
        probes += 1
    assert now == 10
    assert probes == 6


def test_an_error_is_a_sign_of_life() -> None:
    outage = Outage(10)
    outage.failed(0.0, 0.0, silent=True, at_once=False)
    outage.failed(9.0, 9.0, silent=False, at_once=False)
    outage.failed(10.0, 10.0, silent=True, at_once=False)
    assert not outage.is_spent(19.0)
    assert outage.is_spent(20.0)


def test_one_slow_call_among_answers_costs_no_patience_that_others_have_kept() -> None:
    outage = Outage(10)
    outage.answered(55.0)
    outage.failed(0.0, 60.0, silent=True, at_once=False)
    assert not outage.is_spent(64.0)
    assert outage.is_spent(65.0)
