"""Syslog daemons: sockets that keep what is sent to them."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from etcdfix.model.closing import Closing


class PlayedSyslog(Closing):
    """A datagram socket at a path, as ``/dev/log`` is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def close(self) -> None:
        """Go away, as a daemon that is stopped."""
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def lines(self) -> list[str]:
        """Return what came since the last time."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(1 << 16).decode("ascii"))
            except BlockingIOError:
                return found

    def heads(self) -> list[str]:
        """Return the heads that came since the last time."""
        found = [re.fullmatch(r"<86>etcdfix: audit head (\S+) of \S+\n", line) for line in self.lines()]
        return [match[1] if match is not None else "?" for match in found]
