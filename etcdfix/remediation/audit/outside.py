"""The head of the audit chain, told to an anchor outside: journald or syslog, which this log's owner cannot rewrite.

One line for each record, sent once the record is durable::

    etcdfix-audit-head v=1 seq=12 sha256=<hex> type=outcome log=<path> host=node-1 key=sha256:<hex>

The words, and their order, stay as they are in version 1. ``log`` and ``host`` are percent-encoded, so that a line
stays one line of printable ASCII. ``key`` is the SHA-256 of the etcd key, ``-`` where the record has none. ``type``
is the record's, or ``head`` for the line that is sent before anything is recorded: it shows that the anchor can be
reached, and names the head that is there already.

Format:
    journald: systemd, "Native Journal Protocol" (``NAME=value`` lines in one datagram). Local syslog: RFC 3164 as glibc
    writes it. Over the network: RFC 5424, on TCP with the octet counting of RFC 6587.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.remediation.audit.record import Link
from etcdfix.remediation.audit.record_line import Draft

WORD: Final = "etcdfix-audit-head"
"""How every line begins."""

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
SYSLOG_SOCKET: Final = Path("/dev/log")

_IDENTIFIER: Final = "etcdfix"
_SEVERITY: Final = 5  # notice
_PRIORITY: Final = 10 << 3 | _SEVERITY  # facility authpriv
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SYSLOG_PORT: Final = 514
_TIMEOUT_SECONDS: Final = 5.0
_LINE: Final = re.compile(
    WORD + r" v=1 seq=(?P<seq>\d{1,15}) sha256=(?P<sha256>[0-9a-f]{64}) type=(?P<type>[a-z-]{1,20})"
    r" log=(?P<log>[!-~]{1,16384}) host=(?P<host>[!-~]{1,1024}) key=(?:-|sha256:[0-9a-f]{64})",
    re.ASCII,
)
_TARGETS: Final = "journald, syslog, syslog:SOCKET-PATH, syslog:udp://HOST:PORT or syslog:tcp://HOST:PORT"


class _Transport(StrEnum):
    JOURNALD = "journald"
    LOCAL_SYSLOG = "unix"
    UDP = "udp"
    TCP = "tcp"


class OutsideAnchor(msgspec.Struct, frozen=True):
    """Where heads are sent to.

    Attributes:
        named: As it was named on the command line.
        transport: How it is spoken to.
        path: Its socket; None over the network.
        host: Name or address over the network, else "".
        port: Its port, 0 without a network.
    """

    named: str
    transport: _Transport
    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before one relies on it, one sentence each."""
        if self.transport is _Transport.UDP:
            return (f"--audit-anchor {self.named}: UDP does not say whether a line arrived",)
        return ()

    def send(self, line: str) -> None:
        """Send one line.

        Raises:
            OSError: It cannot be reached, or does not take it.
        """
        match self.transport:
            case _Transport.JOURNALD:
                _send_datagram(self.path, _journal_entry(line))
            case _Transport.LOCAL_SYSLOG:
                _send_locally(self.path, _rfc3164(line))
            case _Transport.UDP:
                self._send(socket.SOCK_DGRAM, _rfc5424(line))
            case _Transport.TCP:
                message = _rfc5424(line)
                self._send(socket.SOCK_STREAM, b"%d %s" % (len(message), message))
            case _:
                assert_never(self.transport)

    def _send(self, kind: socket.SocketKind, message: bytes) -> None:
        last: OSError = OSError(errno.EHOSTUNREACH, "no address")
        for family, _kind, protocol, _name, address in socket.getaddrinfo(self.host, self.port, type=kind):
            try:
                with socket.socket(family, kind, protocol) as connection:
                    connection.settimeout(_TIMEOUT_SECONDS)
                    connection.connect(address)
                    connection.sendall(message)
            except OSError as exc:
                last = exc
            else:
                return
        raise last


def parse_outside(text: str) -> OutsideAnchor:
    """Read the target of ``--audit-anchor``.

    Raises:
        ConfigurationError: It is none.
    """
    kind, colon, rest = text.partition(":")
    if text == "journald":
        return OutsideAnchor(text, _Transport.JOURNALD, JOURNAL_SOCKET)
    if kind == "syslog" and not colon:
        return OutsideAnchor(text, _Transport.LOCAL_SYSLOG, SYSLOG_SOCKET)
    if kind == "syslog" and rest.startswith("/") and "\0" not in rest:
        return OutsideAnchor(text, _Transport.LOCAL_SYSLOG, Path(rest))
    if kind == "syslog" and rest.startswith(("udp://", "tcp://")):
        with suppress(ValueError):  # a port that is none, brackets that do not close
            parts = urlsplit(rest)
            port = _SYSLOG_PORT if parts.port is None else parts.port
            plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
            if parts.hostname and port and plain:
                return OutsideAnchor(text, _Transport(parts.scheme), None, parts.hostname, port)
    raise ConfigurationError(f"--audit-anchor: {text!r} is no anchor", hint=f"name {_TARGETS}")


def head_line(head: Link, log: Path) -> str:
    """Return the line that names the present head of a log, before anything is recorded."""
    return _line(head, "head", log, None)


def record_line(draft: Draft, log: Path) -> str:
    """Return the line that names a record which was just written."""
    subject = draft.entry.subject
    return _line(draft.link, draft.entry.type, log, subject.key if subject is not None else None)


def _line(link: Link, kind: str, log: Path, key: bytes | None) -> str:
    digest = "-" if key is None else f"sha256:{hashlib.sha256(key).hexdigest()}"
    where = f"log={_encoded(os.fsencode(log))} host={_encoded(os.fsencode(socket.gethostname()))}"
    return f"{WORD} v=1 seq={link.sequence} sha256={link.sha256} type={kind} {where} key={digest}"


def _encoded(text: bytes) -> str:
    return quote_from_bytes(text, safe="/:@+,") or "-"


class OutsideLine(msgspec.Struct, frozen=True):
    """What one line says; see the module's docstring.

    Attributes:
        link: The record's sequence and hash.
        log: Path of the log, as bytes.
        host: Name of the machine, as bytes.
    """

    link: Link
    log: bytes
    host: bytes


def parse_line(text: str) -> OutsideLine | None:
    """Read a message that should be such a line from its first word to its end; None for anything else."""
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    link = Link(int(found["seq"]), found["sha256"])
    return OutsideLine(link, unquote_to_bytes(found["log"]), unquote_to_bytes(found["host"]))


def _journal_entry(line: str) -> bytes:
    fields = {"MESSAGE": line, "PRIORITY": str(_SEVERITY), "SYSLOG_IDENTIFIER": _IDENTIFIER}
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode("ascii")


def _rfc3164(line: str) -> bytes:
    # The day of the month is padded with a space. Names of months do not follow the locale.
    now = datetime.now().astimezone()
    at = f"{_MONTHS[now.month - 1]} {now.day:2} {now:%H:%M:%S}"
    return f"<{_PRIORITY}>{at} {_IDENTIFIER}[{os.getpid()}]: {line}".encode("ascii")


def _rfc5424(line: str) -> bytes:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    host = _encoded(os.fsencode(socket.gethostname()))[:255]
    return f"<{_PRIORITY}>1 {at} {host} {_IDENTIFIER} {os.getpid()} audit-head - {line}".encode("ascii")


def _send_datagram(path: Path | None, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(str(path))
        connection.send(message)


def _send_locally(path: Path | None, message: bytes) -> None:
    try:
        _send_datagram(path, message)
    except OSError as exc:
        if exc.errno != errno.EPROTOTYPE:
            raise
    else:
        return
    # A daemon that listens for connections, as some do.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(str(path))
        connection.sendall(message + b"\n")


def failure(anchor: OutsideAnchor, exc: OSError) -> str:
    """Return what went wrong with an anchor, in half a sentence."""
    return f"the anchor {anchor.named} does not take the head of the audit log: {why(exc)}"
