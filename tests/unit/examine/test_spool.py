"""Values put aside: their order whatever is written and read meanwhile, and a disk that is full."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import msgspec
import pytest

from etcdfix.examine import spool
from etcdfix.examine.spool import Spool


class Record(msgspec.Struct, frozen=True):
    number: int
    text: bytes = b""


def drained(values: Spool[Record]) -> list[int]:
    return [record.number for record in values.drain()]


@pytest.mark.parametrize("seed", range(5))
def test_values_come_in_their_order_whatever_is_read_meanwhile(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 200)
    monkeypatch.setattr(spool, "_MEMORY_BYTES", 500)
    chance = random.Random(seed)
    values = Spool(Record)
    came: list[int] = []
    for number in range(400):
        values.append(Record(number, bytes(chance.choice((0, 3, 70, 900)))))
        while values.count and chance.random() < 0.45:
            assert values.peek() is values.peek()
            came.append(values.peek().number)
            values.drop()
    assert values.count == 400 - len(came)
    assert came + drained(values) == list(range(400))
    values.close()


@pytest.mark.parametrize("in_memory", [1, 300], ids=["in a file", "at the first of the file"])
def test_a_full_disk_costs_the_value_that_found_no_room_and_no_other(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    """Also where the file is made just then, and takes a part of what was in memory before."""
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(spool, "_MEMORY_BYTES", in_memory)
    values = Spool(Record)
    values.append(Record(1, bytes(200)))
    values.append(Record(2))
    write = os.pwrite

    def half(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[: len(data) // 2], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            values.append(Record(3, bytes(200)))
    assert values.count == 2
    assert values.peek().number == 1
    monkeypatch.setattr(os, "pwrite", write)
    values.append(Record(4, bytes(200)))
    assert drained(values) == [1, 2, 4]
    values.close()


def test_nothing_can_be_read_out_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(spool, "_MEMORY_BYTES", 500)
    written = []
    write = os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        written.append(bytes(data))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    values = Spool(Record)
    for number in range(20):
        values.append(Record(number, b"decrypted" * 9))
    assert written
    assert b"decrypted" not in b"".join(written)
    assert drained(values) == list(range(20))
    values.close()


class _Signal:
    """Raises once as a signal does: when a function of the spool begins, or has come back from C."""

    def __init__(self, moment: int) -> None:
        self._left = moment
        self.heard = False

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if event not in {"call", "c_return"} or frame.f_code.co_filename != spool.__file__:
            return
        self._left -= 1
        assert self._left > -10_000, "it goes on for ever"
        if self._left == 0:
            raise KeyboardInterrupt

    def cuts(self, work: Callable[[], object]) -> bool:
        sys.setprofile(self)
        try:
            work()
        except KeyboardInterrupt:
            self.heard = True
            return True
        finally:
            sys.setprofile(None)
        return False


@pytest.mark.parametrize("in_memory", [0, 90, 1 << 20], ids=["in a file", "later in a file", "in memory"])
def test_a_signal_at_any_moment_costs_at_most_the_value_that_is_just_added(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(spool, "_MEMORY_BYTES", in_memory)
    for moment in itertools.count(1):
        signal = _Signal(moment)
        values, came = Spool(Record), list[int]()
        cut = set[int]()

        def take() -> None:
            while signal.cuts(values.peek):  # noqa: B023 - called in this turn of the loop alone
                pass
            came.append(values.peek().number)  # noqa: B023
            while signal.cuts(values.drop):  # noqa: B023
                pass

        for number in range(12):
            if signal.cuts(partial(values.append, Record(number, bytes(number)))):
                cut.add(number)
            if number % 3 == 2:
                take()
        while values.count:
            take()
        values.close()
        assert came == sorted(set(came)), moment
        assert {*came, *cut} == set(range(12)), moment
        if not signal.heard:
            break
    assert moment > 100
