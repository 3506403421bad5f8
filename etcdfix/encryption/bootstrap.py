"""The bootstrap data of k3s and RKE2: what a server keeps in the datastore for others, encrypted with its token.

It holds the keys of every CA of the cluster. Two things are taken out of it, and nothing else ever: the
EncryptionConfiguration, and the line that says in which stage of a rotation it was. Whatever is wrong with it is said
without a byte of it.

Format:
    ``<salt>:<base64>``; of the latter, 12 bytes are the nonce of AES-256-GCM without associated data, the rest is
    ciphertext and tag. The key is PBKDF2 (HMAC-SHA1, 4096 rounds) of token and salt. The plaintext is a JSON object of
    names to ``{Timestamp, Content}``, content in base64; in old releases straight to the content. An empty value is
    the lock of a server that is about to write.

A token is never shown, and nothing that was made of it: its place in the datastore is a fast test for a weak one.

Sources: k3s ``pkg/cluster/encrypt.go``, ``pkg/cluster/storage.go``, ``pkg/clientaccess/token.go`` (tokens),
``pkg/cluster/bootstrap.go`` (the old form), ``pkg/bootstrap/bootstrap.go``, ``pkg/secretsencrypt/config.go`` (the
stages and the hash).
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.keyring import Withheld
from etcdfix.golang import gobase64
from etcdfix.golang.errors import UnknownEncoding
from etcdfix.golang.goquote import go_quote
from etcdfix.inputs.inputfile import STANDARD_INPUT, read_secret
from etcdfix.model.errors import ConfigurationError, why
from etcdfix.model.model import digest_of

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
_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
_STAGE: Final = re.compile(rb"([a-z_]{1,32})-([0-9a-f]{64})")
_NULL: Final = msgspec.Raw(b"null")
_PARSER_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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


class BootstrapState(StrEnum):
    """What became of one value."""

    RECOVERED = "recovered"
    """It holds an EncryptionConfiguration."""
    NOT_ENABLED = "not-enabled"
    """It opens and holds none: encryption was not enabled then."""
    LOCK = "lock"
    """It is empty: a server was about to write."""
    DAMAGED = "damaged"
    """It belongs to a token that was given, by its etcd key, and does not open; or it is no such value at all."""
    OTHER_TOKEN = "other-token"  # noqa: S105 - its name
    """No token that was given opens it, and its etcd key belongs to none of them."""
    NOT_UNDERSTOOD = "not-understood"
    """It opens, and is not what k3s and RKE2 write."""


class Stage(msgspec.Struct, frozen=True):
    """What a server says about its configuration: ``<stage>-<sha256 of the file>``.

    Attributes:
        name: ``start``, ``prepare``, ``rotate``, ``reencrypt_active``, ``reencrypt_finished``; others may come.
        sha256: ``sha256:<hex>``.
    """

    name: str
    sha256: str

    def is_of(self, sha256: str) -> bool:
        """Say whether it may be said of a file with this digest: in a request it is made of the keys."""
        return self.name == "reencrypt_request" or self.sha256 == sha256

    @classmethod
    def parse(cls, text: bytes) -> Stage | None:
        """Return what a text says, None where it says nothing of this kind."""
        match = _STAGE.fullmatch(text.strip())
        return cls(match[1].decode(), f"sha256:{match[2].decode()}") if match is not None else None


class RecoveredFile(Withheld):
    """The bytes of an EncryptionConfiguration, which hold encryption keys.

    Attributes:
        sha256: ``sha256:<hex>`` of the file, as the annotation of a Node has it.
        stage: What the server said about it; None where it said nothing.
    """

    __slots__ = ("sha256", "stage")

    def __init__(self, raw: bytes, *, stage: Stage | None) -> None:
        super().__init__(raw)
        self.sha256 = digest_of(raw)
        self.stage = stage

    def expose(self) -> bytes:
        """Return the file itself; only to be parsed."""
        return self._secret

    def __repr__(self) -> str:
        return f"RecoveredFile({self.sha256})"


class OpenedBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one value.

    Attributes:
        state: See :class:`BootstrapState`.
        reason: Why it is damaged, or was not understood: a clause without a byte of it; else "".
        file: The configuration; None where there is none.
    """

    state: BootstrapState
    reason: str = ""
    file: RecoveredFile | None = None


class _File(msgspec.Struct):
    content: bytes | None = msgspec.field(name="Content", default=None)


class _Wanted(msgspec.Struct):
    """The only members that are ever decoded; the others are passed over as they stand."""

    configuration: msgspec.Raw = msgspec.field(name="EncryptionConfig", default=_NULL)
    stage: msgspec.Raw = msgspec.field(name="EncryptionHash", default=_NULL)


def open_bootstrap(etcd_key: bytes, value: bytes, tokens: Sequence[ServerToken]) -> OpenedBootstrap:
    """Open one value with the first token that fits, and take the EncryptionConfiguration out of it."""
    if not value:
        return OpenedBootstrap(state=BootstrapState.LOCK)
    parts = _split(value)
    if isinstance(parts, str):
        return OpenedBootstrap(state=BootstrapState.DAMAGED, reason=parts)
    salt, sealed = parts
    belonging = [token for token in tokens if token.etcd_key == etcd_key]
    # A value may have got under another key, so each token is tried; the tag tells.
    for token in (*belonging, *(token for token in tokens if token not in belonging)):
        try:
            plaintext = AESGCM(token.cipher_key(salt)).decrypt(
                sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], None
            )
        except InvalidTag:
            continue
        return _taken(plaintext)
    if belonging:
        return OpenedBootstrap(
            state=BootstrapState.DAMAGED, reason="its etcd key belongs to the token, and its tag does not fit"
        )
    return OpenedBootstrap(state=BootstrapState.OTHER_TOKEN)


def _split(value: bytes) -> tuple[bytes, bytes] | str:
    salt, separator, text = value.partition(b":")
    if not separator:
        return f"{len(value)} bytes without a colon, where a salt, a colon and base64 are expected"
    try:
        sealed = gobase64.decode(text)
    except UnknownEncoding:
        return "what follows the salt is not base64"
    if len(sealed) < _NONCE_SIZE + _TAG_SIZE:
        return f"{len(sealed)} bytes follow the salt, fewer than a nonce and a tag"
    return salt, sealed


def _taken(plaintext: bytes) -> OpenedBootstrap:
    """Return the configuration in the plaintext, and let go of the rest."""
    # No error of the parser gets out, as a cause neither: it may quote what it read.
    try:
        wanted = msgspec.json.decode(plaintext, type=_Wanted)
        content = _content(wanted.configuration)
    except _PARSER_ERRORS:
        return OpenedBootstrap(
            state=BootstrapState.NOT_UNDERSTOOD,
            reason=f"it opens to {len(plaintext)} bytes that are not the JSON object which k3s and RKE2 write",
        )
    if not content:
        return OpenedBootstrap(state=BootstrapState.NOT_ENABLED)
    try:
        stage = _content(wanted.stage)
    except _PARSER_ERRORS:  # what cannot be read of it does not take the configuration with it
        stage = None
    file = RecoveredFile(content, stage=Stage.parse(stage or b""))
    return OpenedBootstrap(state=BootstrapState.RECOVERED, file=file)


def _content(raw: msgspec.Raw) -> bytes | None:
    """Return the content of a file, None for none: it is alone where an old release wrote it."""
    text = bytes(raw)
    if text == b"null":
        return None
    if text.startswith(b'"'):
        return msgspec.json.decode(raw, type=bytes)
    return msgspec.json.decode(raw, type=_File).content
