"""One KMS plugin during one run: each wrapped key is asked once, politely, and never for ever.

Workers ask; whoever needs an answer waits for it or comes back later. Threads are daemons and start with the first
question, so a plugin that no value needs is never touched.

What is remembered: keys and refusals, up to :data:`CACHE_SIZE`, least recently used first out. Failures to answer
are remembered for :data:`FAILURE_KEPT_SECONDS` and until the plugin comes back: thousands of objects may share a key.
"""

from __future__ import annotations

import hashlib
import random
import struct
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import assert_never

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import (
    Answer,
    Health,
    PluginClient,
    PluginReport,
    PluginState,
    Refused,
    Unanswered,
    bounded,
)
from etcdfix.encryption.kms.envelopes import KMSPending, WrappedKey
from etcdfix.encryption.kms.pacing import Breaker, Clock, MonotonicClock, RateLimit
from etcdfix.errors import KMSRefused, KMSUnreachable

CACHE_SIZE = 20_000
QUEUE_SIZE = 1_000
QUEUE_MAX_BYTES = 8 << 20
WORKERS = 16
ATTEMPTS = 3
FIRST_BACKOFF_SECONDS = 0.1
FAILURE_KEPT_SECONDS = 10.0
_FAILURES_KEPT = 1_000
_JOIN_SECONDS = 5.0
_HEALTH = b""  # in place of a digest
_PART = struct.Struct(">I")
_PENDING = "the KMS plugin has not answered yet"
_INTERRUPTED = "the run was ended before the KMS plugin had answered"
_FINAL_AT_FIRST = frozenset(
    {PluginState.NO_SOCKET, PluginState.SOCKET_DENIED, PluginState.DENIED, PluginState.WRONG_VERSION}
)
_CONTROLS_KEPT = 1_000
_AT_ONCE = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})


class _Job:
    """One wrapped key that is being asked for, or the plugin's health when there is none."""

    __slots__ = ("answer", "digest", "wrapped")

    def __init__(self, digest: bytes, wrapped: WrappedKey | None) -> None:
        self.digest = digest
        self.wrapped = wrapped
        self.answer: Answer | None = None


class PluginSession:
    """A plugin as :class:`~etcdfix.encryption.kms.envelopes.KMSPlugin`, for any number of threads.

    Attributes:
        name: Of the provider.
        healthy: Its last Status or Version was as it should be.
        write_key_id: Key id that a v2 plugin encrypts with, as its last Status said.
        opened: How many values opened with its answers, by key id; counted by the transformers.
        deferring: :meth:`unwrap` does not wait.
        final: What :meth:`unwrap` says now is the last word: nothing is taken from memory, and each answer stands
            between two controls.
    """

    def __init__(
        self,
        connect: Callable[[], PluginClient],
        *,
        api_version: str,
        name: str,
        endpoint: str,
        overridden: bool = False,
        max_rate: float = 50.0,
        patience_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a session; ``connect`` is called when the first key is asked for."""
        self.name = name
        self.healthy = False
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()
        self.deferring = False
        self.final = False
        self._api_version = api_version
        self._endpoint = endpoint
        self._overridden = overridden
        self._max_rate = max_rate
        self._connect = connect
        self._clock = clock if clock is not None else MonotonicClock()

        self._lock = threading.Lock()
        self._jobs_came = threading.Condition(self._lock)
        self._answers_came = threading.Condition(self._lock)
        self._admission = threading.Condition(self._lock)
        # Everything below is read and written under the lock.
        self._client: PluginClient | None = None
        self._workers: list[threading.Thread] = []
        self._idle = 0
        self._queue: deque[_Job] = deque()
        self._queued_bytes = 0
        self._jobs: dict[bytes, _Job] = {}
        self._answers: OrderedDict[bytes, KeyMaterial | Refused] = OrderedDict()
        self._failures: OrderedDict[bytes, tuple[float, Unanswered]] = OrderedDict()
        self._rate = RateLimit(max_rate)
        self._breaker = Breaker(patience_seconds)
        # Key id -> a wrapped key that opened a value, and the digest of what it unwraps to.
        self._controls: dict[str, tuple[WrappedKey, bytes]] = {}
        self._final_answers: dict[bytes, Answer] = {}
        self._fresh_control = ""
        self._probe_due = True
        self._probing = False
        self._reached = False
        self._health = Health(PluginState.NOT_ASKED)
        self._ended: Unanswered | Refused | None = None
        self._calls = self._answered = self._refused = self._failed = 0

    def check(self) -> None:
        """Ask for Status or Version, unless it has been asked already; unless :attr:`deferring`, wait for it.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
            KMSUnreachable: The plugin does not answer, or not as it should.
        """
        with self._lock:
            while self._health_open():
                self._ask_health()
                if self.deferring:
                    raise KMSPending(_PENDING)
                self._answers_came.wait()
            if self.healthy and self._breaker.open_until is None:
                return
            problem = self._ended.message if self._ended is not None else self._health.message
        raise KMSUnreachable(problem)

    def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Return the DEK or DEK seed; unless :attr:`deferring`, wait for it.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
            KMSUnreachable: No answer now; the same message for every key once the plugin is given up.
            KMSRefused: The plugin said no.
        """
        if self.final and not self.deferring and wrapped.key_id in self._controls:
            return _key_of(self._last_word(wrapped))
        with self._lock:
            answer = self._known(_digest(wrapped))
            if answer is None and self.deferring:
                self._ask(wrapped)
                raise KMSPending(_PENDING)
            if answer is None:
                answer = self._wait_for(wrapped)
        return _key_of(answer)

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        """Return the DEK or DEK seed from memory, None where the plugin would have to be asked, or refused."""
        with self._lock:
            answer = self._answers.get(_digest(wrapped))
        return answer.expose() if isinstance(answer, KeyMaterial) else None

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        """Remember a wrapped key that opened a value, as a control for its key id."""
        if len(self._controls) < _CONTROLS_KEPT:
            self._controls.setdefault(wrapped.key_id, (wrapped, hashlib.sha256(key).digest()))

    def begin_final(self) -> None:
        """Ask for the plugin's health anew, and from now on take nothing from memory that counts against a value."""
        with self._lock:
            self.final = True
            self._fresh_control = ""
            self._final_answers.clear()
            self._probe_due = True

    def _last_word(self, wrapped: WrappedKey) -> Answer:
        """Ask once more, between two controls; without them, what counted for the plugin under this key id is gone.

        A plugin can go bad in the middle of a run, and a single answer can be a hiccup. What is refused, or does not
        open, is believed only where the plugin still does before and after it what it did for another value.
        """
        digest, key_id = _digest(wrapped), wrapped.key_id
        known = self._final_answers.get(digest)
        if known is not None:
            return known
        holds = self._fresh_control == key_id or self._control_holds(key_id)
        answer = self._afresh(wrapped)
        holds = self._control_holds(key_id) and holds
        self._fresh_control = key_id if holds else ""
        if not holds:
            self._controls.pop(key_id, None)
            self.opened.pop(key_id, None)
        elif not isinstance(answer, KeyMaterial) and len(self._final_answers) < CACHE_SIZE:
            self._final_answers[digest] = answer
        return answer

    def _control_holds(self, key_id: str) -> bool:
        wrapped, expected = self._controls[key_id]
        answer = self._afresh(wrapped)
        return (
            self.healthy
            and isinstance(answer, KeyMaterial)
            and hashlib.sha256(answer.expose()).digest() == expected
        )

    def _afresh(self, wrapped: WrappedKey) -> Answer:
        with self._lock:
            digest = _digest(wrapped)
            self._answers.pop(digest, None)
            self._failures.pop(digest, None)
            return self._known(digest) or self._wait_for(wrapped)

    @property
    def over(self) -> bool:
        """Whether it was given up, or could not be reached at all."""
        return self._ended is not None

    def ask(self, wrapped: WrappedKey) -> bool:
        """Ask ahead of an :meth:`unwrap` to come; never waits.

        Returns:
            False when the queue is full and the hint was dropped.
        """
        with self._lock:
            return self._known(_digest(wrapped)) is not None or self._ask(wrapped)

    def abort(self) -> None:
        """Stop asking: what has no answer yet is unreachable at once. Answers remain."""
        with self._lock:
            self._end(PluginState.GAVE_UP, _INTERRUPTED)

    def close(self) -> None:
        """End the connection and the threads, and forget all keys; more than once is fine."""
        self.abort()
        with self._lock:
            client, self._client = self._client, None
            workers, self._workers = self._workers, []
        if client is not None:
            client.close()
        until = time.monotonic() + _JOIN_SECONDS
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
        with self._lock:
            self._answers.clear()
            self._failures.clear()

    def report(self) -> PluginReport:
        """Return what has become of the plugin so far."""
        with self._lock:
            return PluginReport(
                api_version=self._api_version,
                name=self.name,
                endpoint=self._endpoint,
                overridden=self._overridden,
                state=self._health.state,
                message=self._health.message,
                calls=self._calls,
                answered=self._answered,
                refused=self._refused,
                failed=self._failed,
                write_key_id=self.write_key_id,
                opened=tuple(sorted(self.opened.items())),
                max_rate=self._max_rate,
            )

    # Below, the lock is held by the caller, but for what a worker runs.

    def _known(self, digest: bytes) -> Answer | None:
        answer = self._answers.get(digest)
        if answer is not None:
            self._answers.move_to_end(digest)
            return answer
        if self._ended is not None:
            return self._ended
        if not self.deferring and digest in self._failures:
            failed_at, failure = self._failures[digest]
            if self._clock.now() - failed_at < FAILURE_KEPT_SECONDS:
                return failure
            del self._failures[digest]
        return None

    def _ask(self, wrapped: WrappedKey) -> bool:
        digest = _digest(wrapped)
        if digest in self._jobs or digest in self._failures:
            return True
        if len(self._queue) >= QUEUE_SIZE or self._queued_bytes + _size(wrapped) > QUEUE_MAX_BYTES:
            return False
        job = self._jobs[digest] = _Job(digest, wrapped)
        self._queue.append(job)
        self._queued(job)
        return True

    def _health_open(self) -> bool:
        return self._ended is None and (self._probe_due or self._breaker.open_until is not None)

    def _ask_health(self) -> None:
        if _HEALTH not in self._jobs:
            job = self._jobs[_HEALTH] = _Job(_HEALTH, None)
            self._queue.appendleft(job)
            self._queued(job)

    def _wait_for(self, wrapped: WrappedKey) -> Answer:
        digest = _digest(wrapped)
        job = self._jobs.get(digest)
        if job is None:
            # Somebody waits for this one: it goes before the hints, however many there are.
            job = self._jobs[digest] = _Job(digest, wrapped)
            self._queue.appendleft(job)
            self._queued(job)
        while job.answer is None and self._ended is None:
            self._answers_came.wait()
        answer = job.answer or self._ended
        assert answer is not None  # the loop's condition
        return answer

    def _queued(self, job: _Job) -> None:
        self._queued_bytes += _size(job.wrapped)
        if self._idle < len(self._queue) and len(self._workers) < WORKERS:
            worker = threading.Thread(target=self._work, name=f"kms-{len(self._workers)}", daemon=True)
            self._workers.append(worker)
            worker.start()
        self._jobs_came.notify()

    def _end(self, state: PluginState, message: str) -> None:
        if self._ended is not None:
            return
        self._ended = (
            Refused("PERMISSION_DENIED", message)
            if state is PluginState.DENIED
            else Unanswered("UNAVAILABLE", message)
        )
        # A plugin that has answered everything so far keeps its good name.
        if self._jobs:
            self._health = Health(state, bounded(message))
        self._jobs.clear()
        self._queue.clear()
        self._queued_bytes = 0
        for condition in (self._jobs_came, self._answers_came, self._admission):
            condition.notify_all()

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            # Also where something unforeseen ends this thread: nobody may wait for it for ever.
            with self._lock:
                self._end(PluginState.GAVE_UP, _INTERRUPTED)

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._queue and self._ended is None:
                    self._idle += 1
                    self._jobs_came.wait()
                    self._idle -= 1
                if self._ended is not None:
                    return
                job = self._queue.popleft()
                self._queued_bytes -= _size(job.wrapped)
            if job.wrapped is None:
                self._admit(sending=False)
                with self._lock:
                    self._jobs.pop(_HEALTH, None)
                    self._answers_came.notify_all()
                continue
            answer = self._answer(job.wrapped)
            with self._lock:
                self._settle(job, answer)

    def _settle(self, job: _Job, answer: Answer) -> None:
        job.answer = answer
        self._jobs.pop(job.digest, None)
        self._answers_came.notify_all()
        if self._ended is not None:
            return
        if isinstance(answer, Unanswered):
            self._failures[job.digest] = (self._clock.now(), answer)
            if len(self._failures) > _FAILURES_KEPT:
                self._failures.popitem(last=False)
            return
        self._answers[job.digest] = answer
        if len(self._answers) > CACHE_SIZE:
            self._answers.popitem(last=False)

    def _answer(self, wrapped: WrappedKey) -> Answer:
        """Ask until there is an answer, the attempts are used up, or the plugin is given up; for workers."""
        answer: Answer | None = None
        for attempt in range(ATTEMPTS):
            client = self._admit()
            if client is None:
                break
            started = self._clock.now()
            answer = client.decrypt(wrapped)
            with self._lock:
                self._count(answer, started)
                if not isinstance(answer, Unanswered) or (self._breaker.failing and not answer.silent):
                    return answer
                if attempt + 1 < ATTEMPTS:
                    self._back_off(attempt)
        with self._lock:
            last = self._ended or answer
        assert last is not None  # admitted at least once, or ended
        return last

    def _admit(self, *, sending: bool = True) -> PluginClient | None:
        """Wait for permission to send one Decrypt; None when nothing more is to be asked. For workers.

        Without ``sending``, wait only until the plugin's health is known.
        """
        turn: float | None = None
        while True:
            with self._lock:
                if self._ended is not None:
                    return None
                now = self._clock.now()
                pause = self._breaker.open_until
                if self._probing:
                    self._admission.wait()
                    continue
                if pause is not None and now < pause:
                    self._clock.wait_until(self._admission, pause)
                    continue
                if pause is None and not self._probe_due:
                    if not sending:
                        return self._client
                    if turn is None:
                        turn = self._rate.reserve(now)
                    if turn <= now:
                        self._calls += 1
                        return self._client
                    self._clock.wait_until(self._admission, turn)
                    continue
                self._probing = True
            self._probe()

    def _probe(self) -> None:
        """Ask for the plugin's health, as the one worker that does so; for workers."""
        with self._lock:
            turn = self._rate.reserve(self._clock.now())
            while self._ended is None and self._clock.now() < turn:
                self._clock.wait_until(self._admission, turn)
            if self._ended is not None:
                return
            if self._client is None:
                self._client = self._connect()
            client = self._client
            self._calls += 1
        started = self._clock.now()
        health = client.check()
        with self._lock:
            self._probing = False
            self._admission.notify_all()
            if self._ended is None:
                self._examined(health, started)

    def _examined(self, health: Health, started: float) -> None:
        self._health = health
        self.healthy = health.state is PluginState.OK
        if health.state in {PluginState.OK, PluginState.UNHEALTHY}:
            self.write_key_id = health.write_key_id or self.write_key_id
            self._reached = True
            self._probe_due = False
            if self._breaker.probe_succeeded():
                self._failures.clear()
            return
        if not self._reached and health.state in _FINAL_AT_FIRST:
            self._end(health.state, health.message)
            return
        # A plugin that was there before may be starting again: its socket is gone for a moment, or not yet ours.
        now = self._clock.now()
        self._breaker.probe_failed(now, started)
        self._abort_if_spent(now, health.message)

    def _count(self, answer: Answer, started: float) -> None:
        if not isinstance(answer, Unanswered):
            self._answered += isinstance(answer, KeyMaterial)
            self._refused += isinstance(answer, Refused)
            self._breaker.answered(self._clock.now())
            return
        self._failed += 1
        if self._ended is None:
            now = self._clock.now()
            at_once = answer.status in _AT_ONCE
            self._breaker.failed(now, started, silent=answer.silent, at_once=at_once)
            self._abort_if_spent(now, answer.message)

    def _abort_if_spent(self, now: float, message: str) -> None:
        if self._breaker.spent(now):
            self.healthy = False
            self._end(PluginState.GAVE_UP if self._reached else PluginState.UNREACHABLE, message)

    def _back_off(self, attempt: int) -> None:
        # Jitter, so that workers which failed together do not return together.
        until = self._clock.now() + FIRST_BACKOFF_SECONDS * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311
        while self._ended is None and self._clock.now() < until:
            self._clock.wait_until(self._admission, until)


def _key_of(answer: Answer) -> bytes:
    match answer:
        case KeyMaterial():
            return answer.expose()
        case Refused():
            raise KMSRefused(answer.message, status=answer.status)
        case Unanswered():
            raise KMSUnreachable(answer.message)
        case _:
            assert_never(answer)


def _digest(wrapped: WrappedKey) -> bytes:
    """Return a cache key: as unique as the wrapped key, and as short as a digest.

    Source: ``generateCacheKey`` of ``…/envelope/kmsv2/envelope.go``, with longer lengths and the version in front.
    """
    parts = [wrapped.api_version.encode(), wrapped.ciphertext, wrapped.key_id.encode()]
    for name, value in wrapped.annotations:
        parts += [name.encode(), value]
    digest = hashlib.sha256(_PART.pack(wrapped.source_type & 0xFFFFFFFF))
    for part in parts:
        digest.update(_PART.pack(len(part)))
        digest.update(part)
    return digest.digest()


def _size(wrapped: WrappedKey | None) -> int:
    if wrapped is None:
        return 0
    return len(wrapped.ciphertext) + sum(len(value) for _, value in wrapped.annotations)
