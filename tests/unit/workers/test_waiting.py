"""Answers that wait: in memory, on disk, and where neither has room."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from etcdfix.workers.waiting import WaitingAnswers

MB = 1 << 20


@pytest.fixture
def answers() -> Iterator[WaitingAnswers]:
    made = WaitingAnswers()
    yield made
    made.close()


def answer(number: int, size: int = MB) -> bytes:
    return bytes([number]) * (size + number)


def test_any_order_is_given_back(answers: WaitingAnswers) -> None:
    for number in (3, 9, 1, 4, 7, 5, 8, 2, 6):
        answers.put(number, answer(number))
    assert 10 not in answers
    for number in (9, 1, 2, 3, 8, 7, 6, 5, 4):
        assert number in answers
        assert answers.take(number) == answer(number)
        assert number not in answers
    assert not answers.full


def test_memory_and_disk_stay_small(answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        ends.append(offset + len(data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    for start in range(0, 100, 10):
        for number in range(start, start + 10):
            answers.put(number, answer(number))
            assert answers._memory_bytes <= 4 * MB
        for number in range(start, start + 10):
            assert answers.take(number) == answer(number)
    assert answers._memory_bytes == 0
    assert max(ends) < 8 * MB


def test_a_write_that_is_cut_short(answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:1_000_000], offset))
    answers.put(1, answer(1, 9 * MB))
    assert answers.take(1) == answer(1, 9 * MB)


def test_a_full_disk(answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    fullness = []
    for number in range(8):
        answers.put(number, answer(number))
    monkeypatch.setattr(os, "pwrite", refuse)
    fullness.append(answers.full)
    answers.put(8, answer(8))
    fullness.append(answers.full)
    for number in range(9):
        assert answers.take(number) == answer(number)
    assert [*fullness, answers.full] == [False, True, False]


def test_the_disk_is_tried_again_once_it_is_empty(
    answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        for number in range(5):
            answers.put(number, answer(number))
        for number in range(5):
            answers.take(number)
    for number in range(9):
        answers.put(number, answer(number))
    assert not answers.full
    assert [answers.take(number) for number in range(9)] == [answer(number) for number in range(9)]


def test_nothing_can_be_read_out_of_the_file(
    answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers hold what was extracted from decrypted objects."""
    written = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        written.append(bytes(data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    for number in range(3):
        answers.put(number, b"decrypted" * MB)
    assert len(b"".join(written)) > 27 * MB
    assert b"decrypted" not in b"".join(written)
    assert len({data[:64] for data in written}) == 3
    assert [answers.take(number) for number in range(3)] == [b"decrypted" * MB] * 3


@pytest.mark.parametrize("read", ["cut", "nothing", "other bytes", "refused"])
def test_what_cannot_be_read_back(
    answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    answers.put(1, answer(1, 9 * MB))
    found = {
        "cut": lambda *_: b"cut",
        "nothing": lambda *_: b"",
        "other bytes": lambda _, size, __: bytes(size),
    }
    monkeypatch.setattr(os, "pread", found.get(read, refuse))
    assert answers.take(1) is None
    assert 1 not in answers


def test_the_file_has_no_name(
    answers: WaitingAnswers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answers.put(1, answer(1, 9 * MB))
    assert list(tmp_path.iterdir()) == []


def refuse(*_: object, **__: object) -> IO[bytes]:
    raise OSError(28, "No space left on device")
