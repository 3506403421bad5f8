"""What runs over many objects have in common: who has confirmed once, and how signals and the clock end a run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from etcdfix.errors import EndedEarly


def ended_by(name: str) -> EndedEarly:
    """Return what a signal comes to that waited for the outcome of one object: no other one is begun."""
    if name == signal.SIGINT.name:
        return EndedEarly.of(KeyboardInterrupt())
    return EndedEarly(f"ended by {name}", 128 + signal.Signals[name])


@contextmanager
def timer_kept() -> Iterator[None]:
    """Let ``--timeout`` go on counting after an object: between its intent and its outcome it does not count."""
    left, begun = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    yield
    if left:
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001))


class Confirmed:
    """Stands for a person who has confirmed all objects at once."""

    def confirm_key(self, _key: bytes) -> bool:
        return True

    def confirm_lost(self, _declared: str) -> bool:
        return True
