"""What runs in a worker: frames in, one function, frames out.

Nothing that goes wrong here is told in words: an exception may hold what was decrypted. Its class is told, and the
other process does the piece itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from etcdfix.secrecy import forbid_core_dumps
from etcdfix.workers.frames import Kind, read_frame, write_frame

# <linux/prctl.h>
_PR_SET_PDEATHSIG: Final = 1

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PRIVATE: Final = 0o077

# proc_pid_oom_score_adj(5)
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO: Final = "1000"


def main(work: BinaryIO) -> NoReturn:
    """Do what is asked for until nobody asks any more; never returns, and raises nothing.

    Args:
        work: Where frames come from. Answers go to what is standard output; standard error must be nobody's.
    """
    code = 1
    try:
        answers = _seclude()
        _serve(work, answers)
        code = 0
    finally:
        os._exit(code)  # no traceback, and no time for tidying up: there is nothing to keep


def _seclude() -> int:
    """Hear no signal but SIGKILL, leave no core file, and let nothing but answers reach the pipe.

    Where memory runs short, the kernel is to end us rather than an etcd beside us.
    """
    with contextlib.suppress(OSError):
        _OOM_SCORE.write_text(_FIRST_TO_GO)  # before the file belongs to root
    forbid_core_dumps()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(_PRIVATE)
    answers = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDIN)
    os.dup2(_STDERR, _STDOUT)
    return answers


def _serve(work: BinaryIO, answers: int) -> None:
    target = read_frame(work)
    if target is None:
        return
    _end_with(target.number)
    try:
        make = _find(target.contents.decode())
        setup = read_frame(work)
        if setup is None:
            return
        do = make(setup.contents)
    except Exception as exc:  # noqa: BLE001 - whatever it was, the other process has to do the work
        write_frame(answers, 0, Kind.UNFIT, _name(exc))
        return
    del setup
    _work(do, work, answers)


def _work(do: Callable[[bytes], bytes], work: BinaryIO, answers: int) -> None:
    while (frame := read_frame(work)) is not None:
        try:
            kind, answer = Kind.ANSWER, do(frame.contents)
        except Exception as exc:  # noqa: BLE001 - likewise
            kind, answer = Kind.FAILED, _name(exc)
        number = frame.number
        del frame  # the next one may be as large
        write_frame(answers, number, kind, answer)


def _find(target: str) -> Callable[[bytes], Callable[[bytes], bytes]]:
    module, _, name = target.partition(":")
    found: Callable[[bytes], Callable[[bytes], bytes]] = getattr(import_module(module), name)
    return found


def _name(exc: Exception) -> bytes:
    return type(exc).__name__.encode()


def _end_with(parent: int) -> None:
    """Be killed when the process that started us ends, also in the middle of a piece; it may have ended already."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # no prctl outside Linux: the end of the pipe has to do
        return
    if os.getppid() != parent:
        os._exit(1)
