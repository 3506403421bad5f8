"""Calls side by side, in threads that nobody has to wait for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from etcdfix.model.interruptions import interruptions_held

R = TypeVar("R")


def run_within(
    calls: Sequence[Callable[[], R]], seconds: float | None, *, most: int | None = None
) -> list[R | BaseException | None]:
    """Make calls side by side, for a bounded time.

    In daemons, because neither a plugin of a kubeconfig nor a server that sends byte by byte knows our limit: Python
    does not wait for one at its end. Not in a pool of Python's: a signal may break into its code while that holds a
    lock which its threads need, and it waits for them.

    Args:
        calls: Each is made once, unless the time is over before its turn.
        seconds: For all of them; None waits until each is done.
        most: So many at once; None for all. There are fewer where the system gives no more threads.

    Returns:
        For each call what it returned, what it raised (as a value, never as a traceback, which could show what a
        package quotes), or None where it was not done in time.

    Raises:
        RuntimeError: There is no thread to be had.
        MemoryError: Likewise.
    """
    found: list[R | BaseException | None] = [None] * len(calls)
    left = deque(enumerate(calls))
    done: SimpleQueue[tuple[int, R | BaseException]] = SimpleQueue()
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        with interruptions_held():  # a thread that was started by half never begins its work
            _start(len(calls) if most is None else min(len(calls), most), left, done)
        for _ in calls:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            place, result = done.get(timeout=timeout)
            found[place] = result
    except Empty:
        pass  # the time is over
    finally:
        left.clear()
    return found


def _start(
    count: int,
    left: deque[tuple[int, Callable[[], R]]],
    done: SimpleQueue[tuple[int, R | BaseException]],
) -> None:
    for number in range(count):
        try:
            threading.Thread(target=_work, args=(left, done), daemon=True).start()
        except (RuntimeError, MemoryError):
            if not number:
                raise
            return


def _work(left: deque[tuple[int, Callable[[], R]]], done: SimpleQueue[tuple[int, R | BaseException]]) -> None:
    while True:
        try:
            place, call = left.popleft()
        except IndexError:
            return
        try:
            result: R | BaseException = call()
        except BaseException as exc:  # noqa: BLE001 - whoever waits decides
            result = exc
        done.put((place, result))
