"""Temporary files that have no name. No signal leaves anything of them behind.

What was decrypted goes into one only under a :class:`Seal`: a block of the disk may be read later by others.
"""

from __future__ import annotations

import errno
import os
import tempfile
from typing import IO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.model.interruptions import interruptions_held

_NONCE_BYTES: Final = 12
_KEY_BITS: Final = 256


class Seal:
    """Encrypts what goes into a temporary file, under a key that is in the memory of this process alone."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(_KEY_BITS))

    def close(self, contents: bytes | bytearray) -> bytes:
        """Return contents of at most 2 GiB in a form that says nothing of them but their size."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, contents, None)

    def open(self, sealed: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            OSError: It was not by this one, or it is not whole.
        """
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except (InvalidTag, ValueError) as exc:
            raise OSError(errno.EIO, "a temporary file is not as it was written") from exc


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
