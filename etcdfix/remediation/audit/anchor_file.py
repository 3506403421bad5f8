"""Reads what an anchor outside has kept of an audit log: the journal as JSON, or a file that a syslog daemon wrote.

What stands there was written by anybody who may write to it. So a line can only speak against a log, never for it: each
line about this log must be borne out by its record, and none of them hides another. Their order means nothing, since
datagrams overtake each other; two lines that name one record with two hashes cannot both be borne out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import open_input
from etcdfix.remediation.audit.outside import WORD, parse_line
from etcdfix.remediation.audit.record import Link
from etcdfix.remediation.audit.verify import Anchor

MAX_ANCHORS: Final = 1_000_000
"""Different heads of one log that are taken from one file."""

_MAX_LINE_SIZE: Final = 256 << 10
_IDENTIFIER: Final = "etcdfix"
_SAID_BY_US: Final = re.compile(r"(?:^|\s)etcdfix(?:\[\d+\])?:? (?:\d+ audit-head - )?\Z", re.ASCII)


class AnchorFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says about one log.

    Attributes:
        anchors: The records that it names, each head once.
        others: Lines about logs of another path or another host.
        malformed: Lines that begin like one of ours and go on otherwise, such as one that was cut.
        too_long: Lines that are too long to be looked at.
    """

    anchors: tuple[Anchor, ...]
    others: int
    malformed: int
    too_long: int

    @property
    def newest(self) -> int:
        """The highest sequence that it names, 0 for none."""
        return max((anchor.link.sequence for anchor in self.anchors), default=0)


class _JournalEntry(msgspec.Struct):
    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    identifier: str = msgspec.field(name="SYSLOG_IDENTIFIER", default="")


_ENTRIES: Final = msgspec.json.Decoder(_JournalEntry)


def read_anchor_file(path: Path, *, log: str, hosts: Collection[str]) -> AnchorFile:
    """Read the lines about one log.

    Args:
        path: A file of ``journalctl -o json``, or one that a syslog daemon wrote; ``-`` is standard input.
        log: Absolute path of the log on the host that wrote it.
        hosts: Names of the hosts that wrote it; a container has a new one each time.

    Raises:
        ConfigurationError: It cannot be read, or names more heads than any log has.
    """
    wanted, wanted_hosts = os.fsencode(log), frozenset(map(os.fsencode, hosts))
    found: dict[Link, Anchor] = {}
    others = malformed = too_long = 0
    try:
        with open_input(path) as stream:
            for number, raw in _lines(stream):
                if raw is None:
                    too_long += 1
                    continue
                message = _message(raw)
                if message is None:
                    continue
                line = parse_line(message)
                if line is None:
                    malformed += 1
                elif line.log != wanted or line.host not in wanted_hosts:
                    others += 1
                elif line.link.sequence and line.link not in found:  # 0 names the head of an empty log
                    if len(found) == MAX_ANCHORS:
                        raise ConfigurationError(
                            f"--anchor-file {path}: more than {MAX_ANCHORS} heads of one log",
                            hint="name less of it",
                        )
                    found[line.link] = Anchor(line.link, f"line {number} of {path}")
    except OSError as exc:
        raise ConfigurationError(f"--anchor-file {path}: {why(exc)}") from exc
    return AnchorFile(anchors=tuple(found.values()), others=others, malformed=malformed, too_long=too_long)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number; None for one that is too long."""
    number = 0
    while raw := stream.readline(_MAX_LINE_SIZE + 1):
        number += 1
        if len(raw) <= _MAX_LINE_SIZE:
            yield number, raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(_MAX_LINE_SIZE + 1)
        yield number, None


def _message(raw: bytes) -> str | None:
    """Return the message of a line that may be one of ours, without what the daemon put before it."""
    if raw.startswith(b"{"):
        return _journal_message(raw)
    before, word, after = raw.decode("utf-8", "replace").partition(WORD + " ")
    # The daemon writes who said it before the message: other programs may repeat our word within theirs.
    if not word or (before and _SAID_BY_US.search(before) is None):
        return None
    return word + after.rstrip("\r\n \0")


def _journal_message(raw: bytes) -> str | None:
    try:
        entry = _ENTRIES.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if entry.identifier != _IDENTIFIER:
        return None
    message = entry.message
    if isinstance(message, list):  # journalctl's form for what is not printable
        message = bytes(code & 0xFF for code in message).decode("utf-8", "replace")
    return message if message is not None and message.startswith(WORD + " ") else None
