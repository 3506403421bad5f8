"""What must not be cut in two by a signal: starting a process, ending it, and a change."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final, ParamSpec

_RAISING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_ASKING_FOR_THE_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

P = ParamSpec("P")
Handler = Callable[[int, FrameType | None], object]


@contextmanager
def interruptions_held(*, only_first: bool = False) -> Iterator[None]:
    """Let signals whose handlers may raise wait until what runs inside is done; then they are heard.

    Args:
        only_first: A second signal is heard at once: what runs inside may wait for somebody who does nothing.

    In another thread than the main one, which alone hears signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if only_first and came:
            came.clear()
            before[number](number, frame)
        came.append(number)

    before = _callable_handlers()
    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        try:
            _put_back(before)
        except BaseException:
            _put_back(before)  # the first that was back has raised, and the others must be back too
            raise
        for heard in dict.fromkeys(came):
            signal.raise_signal(heard)


@contextmanager
def whole_calls(work: Callable[P, None]) -> Iterator[Callable[P, None]]:
    """Yield a function that does the same, in the middle of which no signal is heard: it is heard when that is done.

    For what is done for each of many values: the handlers change once, and a call costs a fraction of a microsecond.
    """
    if threading.current_thread() is not threading.main_thread():
        yield work
        return
    inside = False
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if inside:
            came.append(number)
        else:
            before[number](number, frame)

    def whole(*arguments: P.args, **named: P.kwargs) -> None:
        nonlocal inside
        inside = True
        try:
            work(*arguments, **named)
        finally:
            inside = False
        if came:
            heard = came[-1]
            came.clear()
            signal.raise_signal(heard)

    before = _callable_handlers()
    try:
        for number in before:
            signal.signal(number, note)
        yield whole
    finally:
        _put_back(before)
        for heard in dict.fromkeys(came):  # what was done failed, and nobody has heard them
            signal.raise_signal(heard)


def _callable_handlers() -> dict[int, Handler]:
    handlers = {number: signal.getsignal(number) for number in _RAISING}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _put_back(handlers: Mapping[int, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[list[str]]:
    """Let the signals wait that a person, a terminal or a service manager sends; yield the names of those that came.

    From here on no ``--timeout`` counts any more either: one that is over is heard before anything is recorded.
    """
    signal.setitimer(signal.ITIMER_REAL, 0)
    came: list[str] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in _ASKING_FOR_THE_END}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
