"""The token of a k3s or RKE2 server: what its bootstrap data is encrypted with, and where that lies in the datastore.

A token is never shown, and nothing that was made of it: its place in the datastore is a fast test for a weak one.

Sources: k3s ``pkg/cluster/storage.go``, ``pkg/cluster/encrypt.go``, ``pkg/clientaccess/token.go``.
"""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.encryption.keyring import Withheld
from etcdfix.errors import ConfigurationError, why
from etcdfix.golang.goquote import go_quote
from etcdfix.inputs.inputfile import STANDARD_INPUT, read_secret

BOOTSTRAP_PREFIX: Final = b"/bootstrap/"
"""Under it are the keys of k3s and RKE2, whatever the storage prefix of the API servers is."""

_MOST_BYTES: Final = 1 << 16
_PATH_DIGITS: Final = 12
_ROUNDS: Final = 4096
_KEY_SIZE: Final = 32
_LONG_FORM: Final = b"K10"
_CA_HASH_DIGITS: Final = 64
# What a token brings about that was typed in the place of its file.
_NO_SUCH_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})


class ServerToken(Withheld):
    """A token in one of its forms; it leaves only as what is made of it."""

    __slots__ = ()

    @property
    def etcd_key(self) -> bytes:
        """Where a server with this token keeps its data: to be looked up, and never shown."""
        return BOOTSTRAP_PREFIX + hashlib.sha256(self._secret).hexdigest()[:_PATH_DIGITS].encode()

    def cipher_key(self, salt: bytes) -> bytes:
        """Return the AES key of a value with this salt."""
        return hashlib.pbkdf2_hmac("sha1", self._secret, salt, _ROUNDS, _KEY_SIZE)


class TokenFile(msgspec.Struct, frozen=True):
    """What one file may mean.

    Attributes:
        tokens: Every form that a server may have used, the one of today's servers first; the empty one is not among
            them.
        warnings: What is odd about the file, one sentence each.
    """

    path: str
    tokens: tuple[ServerToken, ...]
    warnings: tuple[str, ...] = ()


EMPTY_TOKEN: Final = ServerToken(b"")
"""Belongs to no file, and is tried always."""


def load_token(path: Path) -> TokenFile:
    """Read a file that holds the token of a server.

    Raises:
        ConfigurationError: It cannot be read, is no regular file, or is too large for a token. Where no such file is
            there its name is withheld: somebody may have typed a token in its place.
    """
    try:
        raw, exposed = read_secret(path, most_bytes=_MOST_BYTES)
    except OSError as exc:
        # Nor how long it is.
        name = "(name withheld, it may be a token)" if exc.errno in _NO_SUCH_FILE else go_quote(str(path))
        raise ConfigurationError(
            f"--token-file {name}: {why(exc)}",
            hint="name a file that holds the token, on a server /var/lib/rancher/k3s/server/token or "
            "/var/lib/rancher/rke2/server/token; a token never stands on a command line",
        ) from None
    tokens = forms_of(raw)
    name = "standard input" if path == STANDARD_INPUT else str(path)
    warnings = []
    if not tokens:
        warnings.append(f"{name} holds no token: the empty one alone is tried")
    if exposed:
        warnings.append(f"{name}: {exposed}")
    return TokenFile(str(path), tokens, tuple(warnings))


def forms_of(raw: bytes) -> tuple[ServerToken, ...]:
    """Return what the bytes of a file may mean as a token, each once: its password as today's servers use it, and all.

    Servers cut line feeds off its end; what else surrounds it was probably added by a person.
    """
    texts = [text for text in (raw.rstrip(b"\n"), raw.strip()) if text]
    forms = [form for text in texts for form in (password_of(text), text) if form]
    return tuple(map(ServerToken, dict.fromkeys(forms)))


def password_of(token: bytes) -> bytes | None:
    """Return the part of a token that servers use, or None where they refuse it.

    Format:
        ``[K10[<64 hex digits of the CA's hash>]::]<user>:<password>`` where it begins with ``K10``; else all of it.
    """
    if not token.startswith(_LONG_FORM):
        return token or None
    first, separator, rest = token.removeprefix(_LONG_FORM).partition(b"::")
    if separator and len(first) not in {0, _CA_HASH_DIGITS}:
        return None
    return (rest if separator else first).partition(b":")[2] or None
