"""Pieces of work done by real processes, and yielded in order."""

from __future__ import annotations

import random

from etcdfix.workers.pool import WorkerPool
from tests.support.pieces import TARGET


def here(_piece: bytes) -> bytes:
    return b"here"


def same(piece: bytes) -> bytes:
    return piece


def test_the_order_of_the_work_whatever_takes_how_long() -> None:
    delays = random.Random(1)
    pieces = [b"sleep %.3f %d" % (delays.choice([0, 0, 0, 0.02]), number) for number in range(300)]
    with WorkerPool(3, TARGET, b"") as pool:
        assert list(pool.run(pieces, same, here)) == [(piece, piece[::-1]) for piece in pieces]
        assert list(pool.run(pieces[:3], same, here)) == [(piece, piece[::-1]) for piece in pieces[:3]]
        assert pool.lost == []
