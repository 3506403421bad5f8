"""What a KMS plugin can answer, as values, and the seam between one plugin's connection and whoever uses it."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import Failure, WrappedKey

MESSAGE_MAX_SIZE = 1024
"""Bytes of a plugin's text that are kept: a plugin is not trusted, and one line is enough."""


class PluginState(StrEnum):
    """How it stands with one plugin."""

    OK = "ok"
    NO_SOCKET = "no-socket"
    UNREACHABLE = "unreachable"
    SOCKET_DENIED = "socket-denied"
    DENIED = "denied"
    WRONG_VERSION = "wrong-version"
    UNHEALTHY = "unhealthy"
    NOT_ASKED = "not-asked"
    GAVE_UP = "gave-up"


class Health(msgspec.Struct, frozen=True):
    """The answer to Status (v2) or Version (v1).

    Attributes:
        state: One of ok, no-socket, unreachable, socket-denied, denied, wrong-version, unhealthy.
        message: Why it is not ok, bounded, as the plugin or the system said it; "" when it is.
        write_key_id: Key id that a v2 plugin encrypts with today, else "".
        nobody_listens: The kernel refused the connection: no process has the socket.
    """

    state: PluginState
    message: str = ""
    write_key_id: str = ""
    nobody_listens: bool = False


Answer = KeyMaterial | Failure
"""What comes back for one wrapped key."""


class PluginReport(msgspec.Struct):
    """What became of one plugin; texts are the plugin's own and not made safe.

    Attributes:
        api_version: ``v1`` or ``v2``.
        name: Of the provider.
        endpoint: Where it was asked: as configured, or what overrides that.
        state: How it stood at the end.
        message: Why the state is not ``ok``; "" when it is, or nothing was asked.
        calls: RPCs sent, health and retries included.
        answered: Keys that it opened.
        refused: Keys to which it said no.
        failed: RPCs without an answer that counts, health not included.
        write_key_id: See :class:`~etcdfix.encryption.kms.envelopes.KMSPlugin`.
        opened: Values opened with its answers, by key id, sorted.
        max_rate: Calls a second that it was asked at most, 0 for no limit.
    """

    api_version: str
    name: str
    endpoint: str
    state: PluginState = PluginState.NOT_ASKED
    message: str = ""
    calls: int = 0
    answered: int = 0
    refused: int = 0
    failed: int = 0
    write_key_id: str = ""
    opened: tuple[tuple[str, int], ...] = ()
    max_rate: float = 0.0


class PluginClient(Protocol):
    """One plugin, one call at a time; may be used by several threads."""

    def check(self) -> Health:
        """Ask for Status or Version."""
        ...

    def decrypt(self, wrapped: WrappedKey) -> Answer:
        """Ask for the DEK or DEK seed."""
        ...

    def close(self) -> None:
        """End the connection; calls under way come back as unanswered."""
        ...


def bounded(text: str, size: int = MESSAGE_MAX_SIZE) -> str:
    """Return the text, or its first ``size`` bytes and three dots."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= size else raw[:size].decode(errors="ignore") + "..."
