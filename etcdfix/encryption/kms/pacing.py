"""When a KMS plugin may be asked: a rate limit and a circuit breaker, both told the time by their caller.

Times are seconds on any clock that does not go back. Neither of these two locks; :mod:`~etcdfix.encryption.kms.session`
does.
"""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 4.0
FAILURES_IN_A_ROW = 5
ERRORS_PATIENCE = 10
"""How many times its patience a plugin has that answers, but with errors alone."""
A = TypeVar("A")


class Clock:
    """Where a session takes its time from: the machine's own clock, which does not go back."""

    def now(self) -> float:
        """Return seconds."""
        return time.monotonic()

    def wait_until(self, over: threading.Event, when: float) -> None:
        """Return at ``when``, or earlier, as once the event is set."""
        over.wait(max(0.0, when - time.monotonic()))


class Coming(Generic[A]):
    """An answer that is waited for.

    Not Python's Future: a signal may break into that while it holds its lock, and whoever brings the answer would wait
    for it for ever, with the lock of the session.
    """

    def __init__(self) -> None:
        self._answer: A | None = None
        self._not_here = threading.Lock()
        self._not_here.acquire()

    def bring(self, answer: A | None) -> None:
        """Give the answer to whoever waits."""
        self._answer = answer
        self._not_here.release()

    def wait(self) -> A | None:
        """Return the answer once it is there."""
        with self._not_here:
            return self._answer


class Turns:
    """A lock that is had in the order in which it was asked for, so that nobody waits for ever behind quicker ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given = self._at = 0

    def __enter__(self) -> None:
        with self._changed:
            mine, self._given = self._given, self._given + 1
            self._changed.wait_for(lambda: self._at == mine)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._at += 1
            self._changed.notify_all()


class RateLimit:
    """Hands out points in time at which a call may start, ``rate`` a second, after a burst of a tenth of a second."""

    def __init__(self, rate: float) -> None:
        """Allow ``rate`` calls a second, 0 for any number."""
        self._interval = 1 / rate if rate else 0.0
        self._burst = max(1, int(rate / 10))
        self._next: float | None = None

    def reserve(self, now: float) -> float:
        """Return when the next call may start; each reservation counts as one call."""
        earliest = now - (self._burst - 1) * self._interval
        turn = earliest if self._next is None else max(self._next, earliest)
        self._next = turn + self._interval
        return max(turn, now)


class Breaker:
    """Counts failures, and says when to pause, when to look whether the plugin is back, and when to give up.

    Open: no calls until :attr:`open_until`; then one probe, and only its success closes the breaker. While nobody
    answers, each pause is twice as long as the one before it.

    Two bounds keep a run finite. A plugin that does not answer is given up after its patience, even if it answers
    its probes: a plugin in front of a dead KMS does. A plugin that answers with errors alone has ten times as long:
    some say UNKNOWN to every key that they do not have, and the keys that they do have may come later.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._away = False
        self._silent_since: float | None = None
        self._failing_since: float | None = None
        self._last_failure: float | None = None
        self._last_answer = self._last_reply = float("-inf")
        self.open_until: float | None = None
        """When the pause ends; None while calls may be made."""

    @property
    def failing(self) -> bool:
        """So many failures in a row that asking twice for one key is a waste."""
        return self._failures >= FAILURES_IN_A_ROW

    def answered(self, now: float) -> None:
        """A wrapped key was opened or refused; an open breaker stays open for its probe."""
        self._last_answer = self._last_reply = now
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._silent_since = self._failing_since = None

    def failed(self, now: float, started: float, *, silent: bool, at_once: bool = False) -> None:
        """Count a failed call; where it was ``silent``, nobody looked at the request."""
        self._count(now, started)
        self._failures += 1
        if not silent:
            self._last_reply = now
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = max(started, self._last_reply)
        # What was under way when it opened fails as well; that is one outage, not several.
        if self.open_until is None and (at_once or self._failures % FAILURES_IN_A_ROW == 0):
            self._open(now, longer=silent)

    def probe_failed(self, now: float, started: float) -> None:
        """Nobody is there: pause, and probe again."""
        self._count(now, started)
        self._away = True
        if self._silent_since is None:
            self._silent_since = max(started, self._last_reply)
        self._open(now, longer=True)

    def probe_succeeded(self) -> bool:
        """Let calls be made again, and say whether the plugin had been away.

        Who was away and is back starts anew; who answers probes alone does not.
        """
        back = self._away
        self.open_until = None
        self._away = False
        if back:
            self._silent_since = None
        return back

    def spent(self, now: float) -> bool:
        """Say, after a failure, whether the plugin has used up its patience."""
        deadline = self._deadline()
        return deadline is not None and now >= deadline

    def _count(self, now: float, started: float) -> None:
        # Nobody asked for a while: what failed long ago is not held against the plugin.
        if self._last_failure is not None and started - self._last_failure > self._patience:
            self._silent_since = self._failing_since = None
        self._last_failure = now
        if self._failing_since is None:
            self._failing_since = max(started, self._last_answer)

    def _deadline(self) -> float | None:
        ends = []
        if self._silent_since is not None:
            ends.append(self._silent_since + self._patience)
        if self._failing_since is not None:
            ends.append(self._failing_since + ERRORS_PATIENCE * self._patience)
        return min(ends, default=None)

    def _open(self, now: float, *, longer: bool) -> None:
        # The last probe comes when patience ends, not later.
        deadline = self._deadline()
        until = now + self._pause
        self.open_until = until if deadline is None else min(until, deadline)
        if longer:
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
