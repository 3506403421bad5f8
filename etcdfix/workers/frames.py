"""Frames on the pipes between this process and its workers.

A frame is a header of 17 bytes, little-endian, and its contents: 8 bytes number of the piece of work, 8 bytes size of
the contents, 1 byte kind. The format is ours, and both ends are always of the same version.
"""

from __future__ import annotations

import os
import select
import struct
import time
from enum import IntEnum
from typing import BinaryIO, Final, NamedTuple

HEADER: Final = struct.Struct("<QQB")

MOST_ANSWER_BYTES: Final = 512 << 20
"""A header that announces a larger answer is nonsense."""


class Kind(IntEnum):
    """What a frame is: the first three go to a worker, the others come from it."""

    TARGET = 0
    """Which function makes the worker's function; it is imported, and waits for the setup."""
    SETUP = 1
    WORK = 2
    ANSWER = 3
    FAILED = 4
    """This piece raised an exception; the contents are the name of its class."""
    UNFIT = 5
    """Nothing can be done by this worker, likewise; it ends."""


class Frame(NamedTuple):
    """One frame.

    Attributes:
        number: Of the piece of work; with a target the process id of the sender.
        kind: What it is.
        contents: As sent.
    """

    number: int
    kind: Kind
    contents: bytes


def write_frame(descriptor: int, number: int, kind: Kind, contents: bytes) -> None:
    """Write a whole frame, without a copy of its contents.

    Raises:
        OSError: Nobody reads any more.
    """
    header = HEADER.pack(number, len(contents), kind)
    written = os.writev(descriptor, [header, contents])
    rest = memoryview(contents)
    while written < len(header) + len(contents):
        if written < len(header):  # a signal came in between
            written += os.write(descriptor, header[written:])
        else:
            written += os.write(descriptor, rest[written - len(header) :])


def read_frame(stream: BinaryIO) -> Frame | None:
    """Return the next frame that goes to a worker; None where the sender has gone, whatever of a frame is there."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    number, size, kind = HEADER.unpack(header)
    contents = stream.read(size)
    return Frame(number, Kind(kind), contents) if len(contents) == size else None


def read_answer(descriptor: int, *, by: float | None = None) -> Frame | None:
    """Return the next frame that comes from a worker.

    Returns:
        None where there is none: the worker has ended, whatever of a frame is there, or what it sent is no answer.

    Raises:
        TimeoutError: It did not come whole in time; no more can be read.
    """
    header = _read_exactly(descriptor, HEADER.size, by)
    if header is None:
        return None
    number, size, kind = HEADER.unpack(header)
    if size > MOST_ANSWER_BYTES or kind not in {Kind.ANSWER, Kind.FAILED, Kind.UNFIT}:
        return None
    contents = _read_exactly(descriptor, size, by)
    return None if contents is None else Frame(number, Kind(kind), contents)


def _read_exactly(descriptor: int, size: int, by: float | None) -> bytes | None:
    buffer = bytearray(size)
    room = memoryview(buffer)
    while room:
        if by is not None and not select.select([descriptor], [], [], max(0, by - time.monotonic()))[0]:
            raise TimeoutError
        count = os.readv(descriptor, [room])
        if not count:
            return None
        room = room[count:]
    return bytes(buffer)
