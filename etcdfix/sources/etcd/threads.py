"""Work that may never come back, because the system gives this process no thread or no memory for one.

gRPC starts threads of its own, and where it gets none, its channels can neither be made nor closed: the call waits for
ever inside its C code, where no signal is heard. So threads are tried out before gRPC is used, and what may stand still
is done in a thread that nobody has to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from etcdfix.errors import SourceUnreachable

_NEEDED: Final = 8
"""About as many as gRPC and we start for one cluster: with fewer, making a channel was seen to hang."""

_HINT: Final = (
    "raise the limits of this process: processes (ulimit -u, pids of a container), memory (ulimit -v)"
)

_stuck: list[threading.Thread] = []


def require_threads() -> None:
    """Start as many threads as will be needed, and let them end again.

    Raises:
        SourceUnreachable: There are not so many to be had.
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


def no_threads(detail: str) -> SourceUnreachable:
    """Return the error that says so."""
    return SourceUnreachable(f"the system gives this process too few threads ({detail})", hint=_HINT)


def do_in_time(work: Callable[[], object], seconds: float) -> bool:
    """Do some work; return False where it could not be begun, or has not ended in time.

    What it raises is not told.
    """
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        _stuck.append(thread)
        return False
    thread.join(seconds)
    if thread.is_alive():
        _stuck.append(thread)
        return False
    return True


def anything_stuck() -> bool:
    """Whether something never ended: then Python's own end, which waits for gRPC, might not come either."""
    return bool(_stuck)
