"""Frames as they go over pipes, whole and not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from etcdfix.workers.frames import HEADER, Frame, Kind, read_answer, read_frame, write_frame


class Pipe:
    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.stream: BinaryIO = open(self.read, "rb")  # noqa: SIM115, PTH123 - closed with us

    def close(self) -> None:
        self.stream.close()
        self.end()

    def end(self) -> None:
        if self.write >= 0:
            os.close(self.write)
        self.write = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.mark.parametrize("size", [0, 1, 65_519, 65_520, 3_000_000])
@pytest.mark.parametrize("answer", [True, False])
def test_there_and_back(pipe: Pipe, size: int, answer: bool) -> None:
    contents = os.urandom(size)
    kind = Kind.ANSWER if answer else Kind.WORK
    thread = threading.Thread(target=write_frame, args=(pipe.write, 2**64 - 1, kind, contents))
    thread.start()
    found = read_answer(pipe.read) if answer else read_frame(pipe.stream)
    thread.join()
    assert found == Frame(2**64 - 1, kind, contents)


@pytest.mark.parametrize("most", [1, 16, 17, 18, 100])
def test_writes_that_are_cut_short(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    write = os.write

    def some(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:most])

    monkeypatch.setattr(os, "writev", lambda descriptor, parts: some(descriptor, b"".join(parts)))
    monkeypatch.setattr(os, "write", some)
    write_frame(pipe.write, 3, Kind.ANSWER, b"contents" * 9)
    assert read_answer(pipe.read) == Frame(3, Kind.ANSWER, b"contents" * 9)


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 20])
def test_the_end_in_the_middle(pipe: Pipe, cut: int) -> None:
    os.write(pipe.write, (HEADER.pack(1, 5, Kind.ANSWER) + b"12345")[:cut])
    pipe.end()
    assert read_answer(pipe.read) is None


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 20])
def test_the_end_in_the_middle_of_work(pipe: Pipe, cut: int) -> None:
    os.write(pipe.write, (HEADER.pack(1, 5, Kind.WORK) + b"12345")[:cut])
    pipe.end()
    assert read_frame(pipe.stream) is None


@pytest.mark.parametrize(
    ("size", "kind"),
    [(1 << 40, 3), (2**64 - 1, 3), ((512 << 20) + 1, 4), (0, 0), (0, 1), (0, 2), (0, 6), (0, 255)],
)
def test_what_is_no_answer(pipe: Pipe, size: int, kind: int) -> None:
    os.write(pipe.write, HEADER.pack(1, size, kind))
    assert read_answer(pipe.read) is None  # without waiting for more
