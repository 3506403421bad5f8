"""The steps that are announced while something is made durable, in order: where a process may be stopped."""

from __future__ import annotations

import errno
import os
from typing import Final

FILE_ACTIONS: Final = ("create file", "write file", "fsync file", "fsync directory", "read back")
"""The actions of :meth:`SafeDirectory.create`, in order."""

REPLACE_ACTIONS: Final = (*FILE_ACTIONS, "rename file", "fsync directory")
"""The actions of :meth:`SafeDirectory.replace`, in order."""

REMOVE_ACTIONS: Final = ("unlink file", "fsync directory")
"""The actions of :meth:`SafeDirectory.remove`, in order."""


def step_names(what: str, actions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that ``actions`` on ``what`` are announced with, in order."""
    return tuple(f"{what}: {when} {action}" for action in actions for when in ("before", "after"))


_HEAD_STEPS: Final = step_names("audit head", REPLACE_ACTIONS)

CREATE_STEPS: Final = (
    *step_names("audit log", ("create file", "fsync file", "fsync directory")),
    *_HEAD_STEPS,
)
"""Steps of making a log that is not there yet; its head file names record 0."""

APPEND_STEPS: Final = (*step_names("audit log", ("write record", "fsync file", "read back")), *_HEAD_STEPS)
"""Steps of one append."""

TORN_STEPS: Final = (
    *step_names("audit fragment", REPLACE_ACTIONS),
    *step_names("audit log", ("truncate file", "fsync file")),
    *APPEND_STEPS,
)
"""Steps of setting a torn last line aside; the last of them append its record."""

RESERVE_STEPS: Final = step_names("audit reserve", FILE_ACTIONS)
"""Steps of keeping room for the record of an outcome."""

RELEASE_STEPS: Final = step_names("audit reserve", REMOVE_ACTIONS)
"""Steps of giving that room back, just before the record is written."""

WRITE_STEPS: Final = (*step_names("backup marker", FILE_ACTIONS), *step_names("backup", FILE_ACTIONS))
"""Steps of writing one backup file, before the intent."""

CONFIRM_STEPS: Final = step_names("backup marker", REMOVE_ACTIONS)
"""Steps of confirming one backup file, after the intent."""


class FailAt:
    """Raises at one step, from the given time on that it comes; remembers all."""

    def __init__(self, at: str, error: int = errno.ENOSPC, *, skip: int = 0) -> None:
        self.at = at
        self.error = error
        self.skip = skip
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self.at and self.seen.count(name) > self.skip:
            raise OSError(self.error, os.strerror(self.error))
