"""Work that may never come back, because the system gives this process no thread or no memory for one.

gRPC starts threads of its own, and where it gets none, its channels can neither be made nor closed: the call waits for
ever inside its C code, where no signal is heard. Where it has no room for an answer, its thread dies of a MemoryError,
and nobody is ever told how a request ended. So threads and room are tried out before gRPC is used, what may stand still
is done in a thread that nobody has to wait for, and no request is waited for without a limit.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from typing import Final

from etcdfix.model.errors import SourceUnreachable
from etcdfix.model.interruptions import interruptions_held
from etcdfix.sources.etcd.failures import Failure, FailureKind

_NEEDED: Final = 8
"""About as many as gRPC and we start for one cluster: with fewer, making a channel was seen to hang."""

_ROOM_BYTES: Final = 64 << 20
"""Must be free for answers once threads have been there: with 40 MiB, gRPC's own were seen to die."""

_HINT: Final = (
    "raise the limits of this process: processes (ulimit -u, pids of a container), memory (ulimit -v)"
)

_stuck: list[threading.Thread] = []


def require_threads() -> None:
    """Start as many threads as will be needed, and let them end again; see that there is room for answers.

    Raises:
        SourceUnreachable: There are not so many to be had, or there is no room.
    """
    enough = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(_NEEDED):
            thread = threading.Thread(target=enough.wait, daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as exc:
        raise no_threads(f"{len(started)} of {_NEEDED}") from exc
    finally:
        enough.set()
        for thread in started:
            thread.join()
    _require_room()


def _require_room() -> None:
    """See that an answer would find room; what is only reserved costs nothing."""
    try:
        mmap.mmap(-1, _ROOM_BYTES).close()
    except OSError as exc:
        room = f"{_ROOM_BYTES >> 20} MiB more are not available"
        raise SourceUnreachable(
            f"the system gives this process too little memory: {room}", hint=_HINT
        ) from exc


def no_threads(detail: str) -> SourceUnreachable:
    """Return the error that says so."""
    return SourceUnreachable(f"the system gives this process too few threads ({detail})", hint=_HINT)


def do_in_time(work: Callable[[], object], seconds: float) -> bool:
    """Do some work; return False where it could not be begun, or has not ended in time.

    What it raises is not told.
    """
    thread = threading.Thread(target=work, daemon=True)
    try:
        with interruptions_held():  # a thread that was started by half never begins its work
            thread.start()
    except (RuntimeError, MemoryError):
        _stuck.append(thread)
        return False
    thread.join(seconds)
    if thread.is_alive():
        _stuck.append(thread)
        return False
    return True


def stands_still(endpoint: str) -> Failure:
    """Return what to say, and remember it, where gRPC does not even tell that the time of a request is over."""
    _stuck.append(threading.current_thread())
    return Failure(
        FailureKind.ENDED,
        f"{endpoint}: gRPC stands still: the system gives this process too few threads or too little memory",
        _HINT,
    )


def anything_stuck() -> bool:
    """Whether something never ended: then Python's own end, which waits for gRPC, might not come either."""
    return bool(_stuck)
