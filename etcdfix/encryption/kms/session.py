"""One KMS plugin during one run: each wrapped key is asked once, politely, and never for ever.

Daemon threads ask; whoever needs an answer waits for it or comes back later. One more is started where none is
idle, so a plugin that no value needs is never touched.

What is remembered: keys and refusals, up to :data:`CACHE_SIZE`, least recently used first out. Failures to answer
are remembered for :data:`FAILURE_KEPT_SECONDS` and until the plugin comes back: thousands of objects may share a key.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

import msgspec

from etcdfix.encryption.errors import KMSRefused, KMSUnreachable
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import (
    Answer,
    Failure,
    Health,
    PluginClient,
    PluginReport,
    PluginState,
    bounded,
)
from etcdfix.encryption.kms.envelopes import KMSPending, WrappedKey
from etcdfix.encryption.kms.pacing import Breaker, Clock, Coming, RateLimit, Turns
from etcdfix.model.interruptions import interruptions_held

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
_PENDING = "the KMS plugin has not answered yet"
_INTERRUPTED = "the run was ended before the KMS plugin had answered"
_FINAL_AT_FIRST = frozenset(
    {PluginState.NO_SOCKET, PluginState.SOCKET_DENIED, PluginState.DENIED, PluginState.WRONG_VERSION}
)
_CONTROLS_KEPT = 1_000
_AT_ONCE = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})


class PluginSession:
    """A plugin as :class:`~etcdfix.encryption.kms.envelopes.KMSPlugin`, for any number of threads.

    Attributes:
        deferring: :meth:`unwrap` does not wait.
        final: What :meth:`unwrap` says now is the last word: nothing is taken from memory, and each answer stands
            between two controls.
    """

    def __init__(
        self,
        connect: Callable[[], PluginClient],
        about: PluginReport,
        *,
        patience_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a session; ``connect`` is called when the first key is asked for, ``about`` names the plugin."""
        self.healthy = False
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()
        self.deferring = False
        self.final = False
        self._about = about
        self._connect = connect
        self._clock = clock if clock is not None else Clock()

        # Held by the one thread that waits for permission to make a call, or asks for the plugin's health.
        self._gate = Turns()
        self._rate = RateLimit(about.max_rate)
        # Set for good when nothing more is asked, so that no thread sleeps on.
        self._over = threading.Event()
        self._lock = threading.Lock()
        # Changed under the lock, as far as threads of the session read it.
        self._client: PluginClient | None = None
        self._workers: list[threading.Thread] = []
        self._idle = 0
        self._asked_for = threading.Condition(self._lock)
        self._queue: deque[WrappedKey | None] = deque()
        self._queued_bytes = 0
        self._asked: dict[bytes, Coming[Answer]] = {}
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._failures: OrderedDict[bytes, tuple[float, Failure]] = OrderedDict()
        self._breaker = Breaker(patience_seconds)
        # Key id -> a wrapped key that opened a value, and the digest of what it unwraps to.
        self._controls: dict[str, tuple[WrappedKey, bytes]] = {}
        self._final_answers: dict[bytes, Failure] = {}
        self._fresh_control = ""
        self._probe_due = True
        self._reached = False
        self._health = Health(PluginState.NOT_ASKED)
        self._ended: Failure | None = None

    def check(self) -> None:
        """Ask for Status or Version, unless it has been asked already; unless :attr:`deferring`, wait for it.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
            KMSUnreachable: The plugin does not answer, or not as it should.
        """
        while True:
            with self._lock:
                if self._ended is not None or not self._is_probe_due():
                    if self.healthy and self._breaker.open_until is None:
                        return
                    raise KMSUnreachable((self._ended or self._health).message)
                coming = self._ask(None, _HEALTH, first=True)
            if self.deferring:
                raise KMSPending(_PENDING)
            coming.wait()

    def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Return the DEK or DEK seed; unless :attr:`deferring`, wait for it.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
            KMSUnreachable: No answer now; the same message for every key once the plugin is given up.
            KMSRefused: The plugin said no.
        """
        final = self.final and not self.deferring
        if final and wrapped.key_id in self._controls:
            answer = self._last_word(wrapped)
        else:
            answer = self._answer(wrapped, afresh=final and self.opened[wrapped.key_id] > 0)
        if isinstance(answer, KeyMaterial):
            return answer.expose()
        if answer.refused:
            raise KMSRefused(answer.message, status=answer.status)
        raise KMSUnreachable(answer.message)

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        """Return the DEK or DEK seed from memory, None where the plugin would have to be asked, or refused."""
        answer = self._answers.get(wrapped.digest)
        return answer.expose() if isinstance(answer, KeyMaterial) else None

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        """Remember a wrapped key that opened a value, as a control for its key id."""
        if len(self._controls) < _CONTROLS_KEPT:
            self._controls.setdefault(wrapped.key_id, (wrapped, hashlib.sha256(key).digest()))

    def start_over(self) -> None:
        """Forget what counts for or against values, as a new process has it; data keys that it gave are kept."""
        with self._lock:
            self.opened.clear()
            self._controls.clear()
            self._final_answers.clear()
            self._fresh_control = ""
            self._failures.clear()
            for digest in [
                each for each, answer in self._answers.items() if not isinstance(answer, KeyMaterial)
            ]:
                del self._answers[digest]
            self._probe_due = True

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
        digest, key_id = wrapped.digest, wrapped.key_id
        known = self._final_answers.get(digest)
        if known is not None:
            return known
        holds = self._fresh_control == key_id or self._control_holds(key_id)
        answer = self._answer(wrapped, afresh=True)
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
        answer = self._answer(wrapped, afresh=True)
        return (
            self.healthy
            and isinstance(answer, KeyMaterial)
            and hashlib.sha256(answer.expose()).digest() == expected
        )

    def _answer(self, wrapped: WrappedKey, *, afresh: bool = False) -> Answer:
        digest = wrapped.digest
        with self._lock:
            if afresh:
                self._answers.pop(digest, None)
                self._failures.pop(digest, None)
            answer = self._known(digest)
            if answer is not None:
                return answer
            if self.deferring:
                # A hint; where there is no room for it, somebody asks again.
                room = len(self._queue) < QUEUE_SIZE and self._queued_bytes + wrapped.size <= QUEUE_MAX_BYTES
                if digest not in self._failures and room:
                    self._ask(wrapped, digest)
                raise KMSPending(_PENDING)
            # Somebody waits for this one: it goes before the hints, however many there are.
            coming = self._ask(wrapped, digest, first=True)
        answer = coming.wait()
        assert answer is not None  # only health has no answer
        return answer

    @property
    def over(self) -> bool:
        """Whether it was given up, or could not be reached at all."""
        return self._ended is not None

    def abort(self) -> None:
        """Stop asking: what has no answer yet is unreachable at once. Answers remain."""
        with interruptions_held(), self._lock:
            self._end(PluginState.GAVE_UP, _INTERRUPTED)

    def close(self) -> None:
        """End the connection and the threads, and forget all keys; more than once is fine."""
        self.abort()
        with self._lock:
            client, self._client = self._client, None
            workers = tuple(self._workers)
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
            opened, state = tuple(sorted(self.opened.items())), self._health.state
            return msgspec.structs.replace(
                self._about,
                state=state,
                message=self._health.message,
                opened=opened,
                write_key_id=self.write_key_id,
            )

    # The caller of these holds the lock.

    def _is_probe_due(self) -> bool:
        return self._probe_due or self._breaker.open_until is not None

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

    def _ask(self, wrapped: WrappedKey | None, digest: bytes, *, first: bool = False) -> Coming[Answer]:
        """Have a wrapped key asked for, or the plugin's health when there is none."""
        coming = self._asked.get(digest)
        if coming is None:
            if len(self._queue) >= self._idle and len(self._workers) < WORKERS:
                self._start_worker()
            coming = self._asked[digest] = Coming()
            (self._queue.appendleft if first else self._queue.append)(wrapped)
            self._queued_bytes += wrapped.size if wrapped is not None else 0
            self._asked_for.notify()
        return coming

    def _start_worker(self) -> None:
        """Add a thread; where the machine has none left, those that are there do the work."""
        worker = threading.Thread(target=self._work, name=f"kms-{self._about.name}", daemon=True)
        try:
            with interruptions_held():
                worker.start()
        except RuntimeError:
            if not self._workers:
                raise
        else:
            self._workers.append(worker)

    def _end(self, state: PluginState, message: str) -> None:
        if self._ended is not None:
            return
        status = "PERMISSION_DENIED" if state is PluginState.DENIED else "UNAVAILABLE"
        self._ended = Failure(status, message)
        # A plugin that has answered everything so far keeps its good name.
        if self._asked:
            self._health = Health(state, bounded(message))
        for coming in self._asked.values():
            coming.bring(self._ended)
        self._asked.clear()
        self._queue.clear()
        self._over.set()
        self._asked_for.notify_all()

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
        if not self._reached and (health.nobody_listens or health.state in _FINAL_AT_FIRST):
            self._end(health.state, health.message)
            return
        # A plugin that was there before may be starting again: its socket is gone for a moment, or not yet ours.
        now = self._clock.now()
        self._breaker.probe_failed(now, started)
        self._end_if_spent(now, health.message)

    def _count(self, answer: Answer, started: float) -> None:
        if isinstance(answer, KeyMaterial) or answer.refused:
            self._about.answered += isinstance(answer, KeyMaterial)
            self._about.refused += isinstance(answer, Failure)
            self._breaker.answered(self._clock.now())
            return
        self._about.failed += 1
        if self._ended is None:
            now = self._clock.now()
            self._breaker.failed(now, started, silent=answer.silent, at_once=answer.status in _AT_ONCE)
            self._end_if_spent(now, answer.message)

    def _end_if_spent(self, now: float, message: str) -> None:
        if self._breaker.spent(now):
            self.healthy = False
            self._end(PluginState.GAVE_UP if self._reached else PluginState.UNREACHABLE, message)

    # Threads of the session run these, without the lock.

    def _work(self) -> None:
        try:
            while True:
                with self._asked_for:
                    self._idle += 1
                    self._asked_for.wait_for(lambda: self._queue or self._over.is_set())
                    self._idle -= 1
                    if not self._queue:
                        return
                    wrapped = self._queue.popleft()
                    self._queued_bytes -= wrapped.size if wrapped is not None else 0
                if wrapped is not None:
                    self._settle(wrapped.digest, self._decrypt(wrapped))
                    continue
                with self._gate:
                    self._probe_while_due()
                self._settle(_HEALTH, None)
        except BaseException:
            self.abort()  # something unforeseen ended this thread: nobody may wait for it for ever
            raise

    def _settle(self, digest: bytes, answer: Answer | None) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._asked.pop(digest).bring(answer)
            if isinstance(answer, Failure) and not answer.refused:
                self._failures[digest] = (self._clock.now(), answer)
                if len(self._failures) > _FAILURES_KEPT:
                    self._failures.popitem(last=False)
            elif answer is not None:
                self._answers[digest] = answer
                if len(self._answers) > CACHE_SIZE:
                    self._answers.popitem(last=False)

    def _decrypt(self, wrapped: WrappedKey) -> Answer | None:
        """Ask until there is an answer, the attempts are used up, or the plugin is given up."""
        answer: Answer | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                # Jitter, so that threads which failed together do not return together.
                pause = FIRST_BACKOFF_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
                self._sleep_until(self._clock.now() + pause)
            client = self._admit()
            if client is None:
                break
            started = self._clock.now()
            answer = client.decrypt(wrapped)
            with self._lock:
                self._count(answer, started)
                if isinstance(answer, KeyMaterial) or answer.refused:
                    return answer
                if self._breaker.failing and not answer.silent:
                    return answer
        return self._ended or answer

    def _admit(self) -> PluginClient | None:
        """Wait until one Decrypt may be sent; None when nothing more is to be asked."""
        with self._gate:
            self._probe_while_due()
            self._sleep_until(self._rate.reserve(self._clock.now()))
            self._probe_while_due()  # others may have failed meanwhile
            with self._lock:
                if self._ended is not None:
                    return None
                self._about.calls += 1
                return self._client

    def _probe_while_due(self) -> None:
        """Ask for the plugin's health until it may be asked for keys; for the holder of the gate."""
        while not self._over.is_set() and self._is_probe_due():
            self._sleep_until(self._breaker.open_until or 0.0)
            self._sleep_until(self._rate.reserve(self._clock.now()))
            with self._lock:
                if self._ended is not None:
                    return
                if self._client is None:
                    self._client = self._connect()
                client = self._client
                self._about.calls += 1
            started = self._clock.now()
            health = client.check()
            with self._lock:
                if self._ended is None:
                    self._examined(health, started)

    def _sleep_until(self, when: float) -> None:
        while not self._over.is_set() and self._clock.now() < when:
            self._clock.wait_until(self._over, when)
