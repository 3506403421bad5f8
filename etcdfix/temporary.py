"""Temporary files that have no name. No signal leaves anything of them behind."""

from __future__ import annotations

import tempfile
from typing import IO

from etcdfix.interruptions import interruptions_held


def temporary_directory() -> str:
    """Return where temporary files are made: ``TMPDIR``, or what Python finds in its place.

    Raises:
        FileNotFoundError: No directory for them takes a file.
    """
    with interruptions_held():  # Python tries each with a file that has a name
        return tempfile.gettempdir()


def temporary_file(*, buffering: int = -1) -> IO[bytes]:
    """Open a temporary file without a name, to write and read; it vanishes when it is closed.

    Raises:
        OSError: There is no room for one.
    """
    made = None
    try:
        with interruptions_held():  # half made it would have a name
            made = tempfile.TemporaryFile(buffering=buffering)  # noqa: SIM115 - who asked closes it
    except KeyboardInterrupt:
        if made is not None:
            made.close()
        raise
    return made
