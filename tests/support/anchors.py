"""Anchors outside: sockets that take what is sent to them, as journald and syslog daemons do."""

from __future__ import annotations

import socket
from pathlib import Path

from etcdfix.closing import Closing
from etcdfix.remediation.audit.outside import WORD


class PlayedAnchor(Closing):
    """A datagram socket at a path that keeps what it was sent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    @property
    def target(self) -> str:
        return f"syslog:{self.path}"

    def close(self) -> None:
        """Go away, as a daemon that is stopped."""
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def received(self) -> list[bytes]:
        """Return what came since the last time."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(1 << 16))
            except BlockingIOError:
                return found

    def lines(self) -> list[str]:
        """Return the lines of ours that came since the last time, without what stands before them."""
        return [WORD + message.decode("ascii").partition(WORD)[2] for message in self.received()]
