"""When a failing KMS plugin is paused, looked at again, and given up; and how an answer is waited for.

Two bounds keep a run finite. A plugin that does not answer is given up after its patience, even if it answers its
probes: a plugin in front of a dead KMS does. A plugin that answers with errors alone has ten times as long: some say
UNKNOWN to every key that they do not have, and the keys that they do have may come later.
"""

from __future__ import annotations

import threading
import time

from etcdfix.encryption.kms.answers import Answer

FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 4.0
FAILURES_IN_A_ROW = 5
ERRORS_PATIENCE = 10
"""How many times its patience a plugin has that answers, but with errors alone."""


class Clock:
    """The machine's own clock, which does not go back."""

    def now(self) -> float:
        """Return seconds."""
        return time.monotonic()

    def wait_until(self, over: threading.Event, when: float) -> None:
        """Return at ``when``, or earlier, as once the event is set."""
        over.wait(max(0.0, when - time.monotonic()))


class PendingAnswer:
    """An answer that is waited for.

    Not Python's Future: a signal may break into that while it holds its lock, and whoever brings the answer would wait
    for it for ever, with the lock of the session.
    """

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._not_here = threading.Lock()
        self._not_here.acquire()

    def bring(self, answer: Answer | None) -> None:
        """Give the answer to whoever waits; None for health."""
        self._answer = answer
        self._not_here.release()

    def wait(self) -> Answer | None:
        """Return the answer once it is there."""
        with self._not_here:
            return self._answer


class Outage:
    """Counts failures of one plugin; times are seconds on any clock. Its user locks.

    Attributes:
        pause_until: No calls are made until then, and after it one probe; None while calls may be made.
    """

    def __init__(self, patience_seconds: float) -> None:
        self.pause_until: float | None = None
        self._patience = patience_seconds
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._is_away = False
        self._silent_since: float | None = None
        self._failing_since: float | None = None
        self._last_failure = self._last_answer = self._last_reply = float("-inf")

    @property
    def is_lasting(self) -> bool:
        """So many failures in a row that asking twice for one key is a waste."""
        return self._failures >= FAILURES_IN_A_ROW

    def answered(self, now: float) -> None:
        """Forget all failures: a wrapped key was opened or refused. A pause lasts until its probe."""
        self._last_answer = self._last_reply = now
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._silent_since = self._failing_since = None

    def failed(self, started: float, now: float, *, silent: bool, at_once: bool) -> None:
        """Count a failed call; where it was ``silent``, nobody looked at the request. ``at_once`` asks for a pause."""
        self._failures += 1
        if not silent:
            self._last_reply = now
            self._silent_since = None
        self._count(started, now, silent=silent)
        # What was under way when the pause began fails as well; that is one outage, not several.
        if self.pause_until is None and (at_once or self._failures % FAILURES_IN_A_ROW == 0):
            self._begin_pause(now, longer=silent)

    def probe_failed(self, started: float, now: float) -> None:
        """Pause, and probe again: nobody is there."""
        self._is_away = True
        self._count(started, now, silent=True)
        self._begin_pause(now, longer=True)

    def probe_succeeded(self) -> bool:
        """Let calls be made again, and say whether the plugin had been away. One that was away starts anew."""
        was_away, self._is_away, self.pause_until = self._is_away, False, None
        if was_away:
            self._silent_since = None
        return was_away

    def is_spent(self, now: float) -> bool:
        """Say, after a failure, whether the plugin has used up its patience."""
        return now >= self._deadline()

    def _count(self, started: float, now: float, *, silent: bool) -> None:
        if started - self._last_failure > self._patience:
            # Nobody asked for a while: what failed long ago is not held against the plugin.
            self._silent_since = self._failing_since = None
        self._last_failure = now
        if self._failing_since is None:
            self._failing_since = max(started, self._last_answer)
        if silent and self._silent_since is None:
            self._silent_since = max(started, self._last_reply)

    def _deadline(self) -> float:
        deadline = float("inf")
        if self._silent_since is not None:
            deadline = self._silent_since + self._patience
        if self._failing_since is not None:
            deadline = min(deadline, self._failing_since + ERRORS_PATIENCE * self._patience)
        return deadline

    def _begin_pause(self, now: float, *, longer: bool) -> None:
        # The last probe comes when patience ends, not later.
        self.pause_until = min(now + self._pause, self._deadline())
        if longer:
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
