"""The bootstrap data of k3s and RKE2: what a server keeps in the datastore for others, encrypted with its token.

It holds the keys of every CA of the cluster. Two things are taken out of it, and nothing else ever: the
EncryptionConfiguration, and the line that says in which stage of a rotation it was. Whatever is wrong with it is said
without a byte of it.

Format:
    ``<salt>:<base64>``; of the latter, 12 bytes are the nonce of AES-256-GCM without associated data, the rest is
    ciphertext and tag. The key is PBKDF2 (HMAC-SHA1, 4096 rounds) of token and salt. The plaintext is a JSON object of
    names to ``{Timestamp, Content}``, content in base64; in old releases straight to the content. An empty value is
    the lock of a server that is about to write.

Sources: k3s ``pkg/cluster/encrypt.go``, ``pkg/cluster/storage.go``, ``pkg/cluster/bootstrap.go`` (the old form),
``pkg/bootstrap/bootstrap.go``, ``pkg/secretsencrypt/config.go`` (the stages and the hash).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.keyring import Withheld
from etcdfix.encryption.server_token import ServerToken
from etcdfix.errors import UnknownEncoding
from etcdfix.golang import gobase64

_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
_STAGE: Final = re.compile(rb"([a-z_]{1,32})-([0-9a-f]{64})")
_NULL: Final = msgspec.Raw(b"null")
_PARSER_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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
        self.sha256 = f"sha256:{hashlib.sha256(raw).hexdigest()}"
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
