"""What is closed at the end of its block."""

from __future__ import annotations

import pytest

from etcdfix.closing import Closing


class Door(Closing):
    def __init__(self) -> None:
        self.closed: list[bool] = []

    def close(self) -> None:
        self.closed.append(True)


def test_it_is_closed_when_the_block_ends() -> None:
    with Door() as door:
        assert door.closed == []
    assert door.closed == [True]


def test_it_is_closed_when_the_block_fails_and_the_error_goes_on() -> None:
    door = Door()
    with pytest.raises(ValueError, match="in the block"), door:
        raise ValueError("in the block")
    assert door.closed == [True]


def test_what_cannot_be_closed_is_none() -> None:
    class Hole(Closing):
        pass

    with pytest.raises(TypeError, match="close"):
        Hole()  # type: ignore[abstract]
