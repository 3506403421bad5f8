"""One KMS plugin during one run: each wrapped key is asked once, politely, and never for ever.

Each question has a daemon thread of its own, a few at a time; whoever needs the answer waits for it or comes back
later. A plugin that no value needs is never touched.

What is remembered: keys and refusals, up to :data:`CACHE_SIZE`, least recently used first out. Failures to answer
are remembered for :data:`FAILURE_KEPT_SECONDS` and until the plugin comes back: thousands of objects may share a key.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.answers import (
    Answer,
    Health,
    PluginClient,
    PluginReport,
    PluginState,
    bounded,
)
from etcdfix.encryption.kms.envelopes import Failure, KMSPending, WrappedKey
from etcdfix.encryption.kms.pacing import Clock, Outage, PendingAnswer
from etcdfix.model.interruptions import interruptions_held

CACHE_SIZE = 20_000
MOST_ASKED_AHEAD = 16
"""So many questions are under way whose answers nobody waits for."""
ATTEMPTS = 3
FIRST_BACKOFF_SECONDS = 0.1
FAILURE_KEPT_SECONDS = 10.0
_JOIN_SECONDS = 5.0
_HEALTH = b""  # in place of a digest
_PENDING = "the KMS plugin has not answered yet"
_INTERRUPTED = "the run was ended before the KMS plugin had answered"
_FINAL_AT_FIRST = frozenset(
    {PluginState.NO_SOCKET, PluginState.SOCKET_DENIED, PluginState.DENIED, PluginState.WRONG_VERSION}
)
_CONTROLS_KEPT = 1_000
_AT_ONCE = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})


class AskingMode:
    """How all plugins of a run are asked.

    Attributes:
        deferring: Nobody waits: an answer that is not there yet is asked for and comes later.
        final: What a plugin says now is the last word: nothing that counts against a value is taken from memory, and
            each answer stands between two controls.
    """

    def __init__(self) -> None:
        self.deferring = False
        self.final = False


class PluginSession:
    """A plugin as :class:`~etcdfix.encryption.kms.envelopes.KMSPlugin`, for any number of threads."""

    def __init__(
        self,
        connect: Callable[[], PluginClient],
        about: PluginReport,
        mode: AskingMode,
        *,
        patience_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a session; ``connect`` is called when the first key is asked for, ``about`` names the plugin."""
        self.healthy = False
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()
        self._mode = mode
        self._about = about
        self._connect = connect
        self._clock = clock if clock is not None else Clock()
        # Held by the one thread that waits for its turn to make a call, or asks for the plugin's health.
        self._gate = threading.Lock()
        self._interval = 1 / about.max_rate if about.max_rate else 0.0
        self._next_call = 0.0
        # Set for good when nothing more is asked, so that no thread sleeps on.
        self._over = threading.Event()
        self._lock = threading.Lock()
        # Changed under the lock, as far as threads of the session read it.
        self._client: PluginClient | None = None
        self._threads: list[threading.Thread] = []
        self._pending: dict[bytes, PendingAnswer] = {}
        self._answers: OrderedDict[bytes, tuple[float, Answer]] = OrderedDict()
        self._outage = Outage(patience_seconds)
        # Key id -> a wrapped key that opened a value, and the digest of what it unwraps to.
        self._controls: dict[str, tuple[WrappedKey, bytes]] = {}
        self._final_answers: dict[bytes, Failure] = {}
        self._fresh_control = ""
        self._health_unknown = True
        self._reached = False
        self._health = Health(PluginState.NOT_ASKED)
        self._ended: Failure | None = None

    def check(self) -> bool:
        """Say whether the plugin answers Status or Version as it should; wait for it, unless the run defers.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
        """
        while True:
            with self._lock:
                if self._ended is not None or not self._is_probe_due():
                    return self.healthy and self._outage.pause_until is None
                pending = self._ask(_HEALTH, None)
            if self._mode.deferring:
                raise KMSPending(_PENDING)
            if pending.wait() is not None and self._ended is None:
                return (
                    False  # the machine has no thread for the question, and would have none for the next one
                )

    def unwrap(self, wrapped: WrappedKey) -> bytes | Failure:
        """Return the DEK or DEK seed, or why there is none; wait for it, unless the run defers.

        Once the plugin is given up, the failure is the same for every key.

        Raises:
            KMSPending: Deferring, and there is no answer yet.
        """
        final = self._mode.final and not self._mode.deferring
        if final and wrapped.key_id in self._controls:
            answer = self._last_word(wrapped)
        else:
            answer = self._answer(wrapped, afresh=final and self.opened[wrapped.key_id] > 0)
        return answer.expose() if isinstance(answer, KeyMaterial) else answer

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        """Return the DEK or DEK seed from memory, None where the plugin would have to be asked, or refused."""
        _, answer = self._answers.get(wrapped.digest, (0.0, None))
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
            for digest, (_, answer) in [*self._answers.items()]:
                if not isinstance(answer, KeyMaterial):
                    del self._answers[digest]
        self.begin_final()

    def begin_final(self) -> None:
        """Have the plugin's health asked anew, and forget what was the last word before."""
        with self._lock:
            self._fresh_control = ""
            self._final_answers.clear()
            self._health_unknown = True

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
            answer = self._known(digest)
            # While nobody waits, a failure is not the last word: whoever waits asks again.
            failed = isinstance(answer, Failure) and not answer.refused and self._ended is None
            if answer is not None and not (failed and self._mode.deferring):
                return answer
            if not self._mode.deferring:
                pending = self._ask(digest, wrapped)
            elif not failed and len(self._pending) < MOST_ASKED_AHEAD:
                self._ask(digest, wrapped)
        if self._mode.deferring:
            raise KMSPending(_PENDING)
        answer = pending.wait()
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
            threads = tuple(self._threads)
        if client is not None:
            client.close()
        until = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            self._answers.clear()

    def report(self) -> PluginReport:
        """Return what has become of the plugin so far."""
        with self._lock:
            return msgspec.structs.replace(
                self._about,
                state=self._health.state,
                message=self._health.message,
                opened=tuple(sorted(self.opened.items())),
                write_key_id=self.write_key_id,
            )

    # The caller of these holds the lock.

    def _is_probe_due(self) -> bool:
        return self._health_unknown or self._outage.pause_until is not None

    def _known(self, digest: bytes) -> Answer | None:
        known = self._answers.get(digest)
        if known is not None:
            came, answer = known
            lasting = isinstance(answer, KeyMaterial) or answer.refused
            if lasting or (self._ended is None and self._clock.now() - came < FAILURE_KEPT_SECONDS):
                self._answers.move_to_end(digest)
                return answer
            del self._answers[digest]
        return self._ended

    def _ask(self, digest: bytes, wrapped: WrappedKey | None) -> PendingAnswer:
        """Have a wrapped key asked for, or the plugin's health when there is none."""
        pending = self._pending.get(digest)
        if pending is None:
            pending = self._pending[digest] = PendingAnswer()
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            name = f"kms-{self._about.name}"
            thread = threading.Thread(target=self._fetch, args=(digest, wrapped), name=name, daemon=True)
            try:
                with interruptions_held():
                    thread.start()
            except RuntimeError as exc:
                self._pending.pop(digest).bring(Failure("UNAVAILABLE", f"the plugin was not asked: {exc}"))
            else:
                self._threads.append(thread)
        return pending

    def _end(self, state: PluginState, message: str) -> None:
        if self._ended is not None:
            return
        status = "PERMISSION_DENIED" if state is PluginState.DENIED else "UNAVAILABLE"
        self._ended = Failure(status, message)
        # A plugin that has answered everything so far keeps its good name.
        if self._pending:
            self._health = Health(state, bounded(message))
        for pending in self._pending.values():
            pending.bring(self._ended)
        self._pending.clear()
        self._over.set()

    def _take_health(self, health: Health, started: float) -> None:
        self._health = health
        self.healthy = health.state is PluginState.OK
        if health.state in {PluginState.OK, PluginState.UNHEALTHY}:
            self.write_key_id = health.write_key_id or self.write_key_id
            self._reached = True
            self._health_unknown = False
            if self._outage.probe_succeeded():
                self._answers = OrderedDict(
                    (digest, (came, answer))
                    for digest, (came, answer) in self._answers.items()
                    if isinstance(answer, KeyMaterial) or answer.refused
                )
        elif not self._reached and (health.nobody_listens or health.state in _FINAL_AT_FIRST):
            self._end(health.state, health.message)
        else:
            # A plugin that was there before may be starting again: its socket is gone for a moment, or not yet ours.
            self._outage.probe_failed(started, self._clock.now())
            self._end_if_spent(health.message)

    def _count(self, answer: Answer, started: float) -> None:
        if isinstance(answer, KeyMaterial) or answer.refused:
            self._about.answered += isinstance(answer, KeyMaterial)
            self._about.refused += isinstance(answer, Failure)
            self._outage.answered(self._clock.now())
            return
        self._about.failed += 1
        if self._ended is None:
            at_once = answer.status in _AT_ONCE
            self._outage.failed(started, self._clock.now(), silent=answer.silent, at_once=at_once)
            self._end_if_spent(answer.message)

    def _end_if_spent(self, message: str) -> None:
        if self._outage.is_spent(self._clock.now()):
            self.healthy = False
            self._end(PluginState.GAVE_UP if self._reached else PluginState.UNREACHABLE, message)

    # Threads of the session run these, without the lock.

    def _fetch(self, digest: bytes, wrapped: WrappedKey | None) -> None:
        try:
            if wrapped is not None:
                self._settle(digest, self._decrypt(wrapped))
                return
            with self._gate:
                self._probe_while_due()
            self._settle(digest, None)
        except BaseException:
            self.abort()  # something unforeseen ended this thread: nobody may wait for it for ever
            raise

    def _settle(self, digest: bytes, answer: Answer | None) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._pending.pop(digest).bring(answer)
            if answer is not None:
                self._answers[digest] = self._clock.now(), answer
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
                if self._outage.is_lasting and not answer.silent:
                    return answer
        return self._ended or answer

    def _admit(self) -> PluginClient | None:
        """Wait until one Decrypt may be sent; None when nothing more is to be asked."""
        with self._gate:
            self._probe_while_due()
            self._wait_for_turn()
            self._probe_while_due()  # others may have failed meanwhile
            with self._lock:
                if self._ended is not None:
                    return None
                self._about.calls += 1
                return self._client

    def _probe_while_due(self) -> None:
        """Ask for the plugin's health until it may be asked for keys; for the holder of the gate."""
        while not self._over.is_set() and self._is_probe_due():
            self._sleep_until(self._outage.pause_until or 0.0)
            self._wait_for_turn()
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
                    self._take_health(health, started)

    def _wait_for_turn(self) -> None:
        """Wait until the next call may be sent; for the holder of the gate."""
        turn = max(self._next_call, self._clock.now())
        self._next_call = turn + self._interval
        self._sleep_until(turn)

    def _sleep_until(self, when: float) -> None:
        while not self._over.is_set() and self._clock.now() < when:
            self._clock.wait_until(self._over, when)
