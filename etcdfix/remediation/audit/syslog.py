"""Sends the head of the audit log to syslog: whoever rewrites the log cannot rewrite that copy of its head."""

from __future__ import annotations

import logging
import socket
from contextlib import closing, suppress
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

import msgspec

from etcdfix.model.errors import ConfigurationError, why
from etcdfix.remediation.audit.record import Link
from etcdfix.text.safetext import safe_text

TIMEOUT_SECONDS: Final = 5.0
"""How long a syslog may take to answer."""


class _Handler(SysLogHandler):
    append_nul = False
    ident = "etcdfix: "

    def handleError(self, record: logging.LogRecord) -> NoReturn:  # noqa: N802, ARG002 - it is logging's method
        raise  # noqa: PLE0704 - logging calls it while it handles the error


def parse_address(text: str) -> str | tuple[str, int]:
    """Read ``--audit-syslog``: the path of a socket, or host and port; raises ConfigurationError."""
    if text.startswith("/") and "\0" not in text:
        return text
    with suppress(ValueError):  # also what is no name of a host
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port and parts.netloc == text and not parts.username:
            parts.hostname.encode("idna")
            return parts.hostname, parts.port
    raise ConfigurationError(f"--audit-syslog: {text!r} is not an address", hint="give /dev/log or HOST:PORT")


class Syslog(msgspec.Struct):
    """A syslog that the head of the audit log is sent to, by all logs of one command."""

    address: str
    warning: str = ""

    def send(self, head: Link, log: Path) -> None:
        """Send the sequence and hash of the last record, and the path of its log; over a network with TCP."""
        where = parse_address(self.address)
        kind = None if isinstance(where, str) else socket.SOCK_STREAM
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(TIMEOUT_SECONDS)  # the handler has no timeout of its own
        try:
            with closing(_Handler(where, SysLogHandler.LOG_AUTHPRIV, kind)) as handler:
                text = f"audit head {head} of {safe_text(str(log))}\n"
                handler.emit(logging.makeLogRecord({"msg": text, "levelname": "INFO"}))
        except OSError as exc:
            lost = f"syslog at {self.address} did not take the head of the audit log: {why(exc)}"
            self.warning = f"{lost}; the record is on disk, write its head down: {head}"
        finally:
            socket.setdefaulttimeout(before)
