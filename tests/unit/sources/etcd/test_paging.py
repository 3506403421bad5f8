from __future__ import annotations

import random

import pytest

from etcdfix.sources.etcd.paging import (
    FIRST_LIMIT,
    GOOD_PAGES,
    LARGEST_LIMIT,
    NO_BOUND,
    SMALLEST_LIMIT,
    TARGET_BYTES,
    PageSize,
    RangeEnd,
)


@pytest.mark.parametrize(
    ("size_bytes", "keys", "limit"),
    [
        (500 * 16_384, 500, TARGET_BYTES // 16_384),
        (500 * 100, 500, LARGEST_LIMIT),
        (0, 1, LARGEST_LIMIT),
        (500 << 20, 500, SMALLEST_LIMIT),
    ],
)
def test_a_page_is_sized_by_bytes(size_bytes: int, keys: int, limit: int) -> None:
    page = PageSize()
    assert page.limit == FIRST_LIMIT
    page.learn(size_bytes, keys)
    assert page.limit == limit


def test_small_values_do_not_lift_a_ceiling_at_once() -> None:
    page = PageSize()
    page.shrink()
    for _ in range(GOOD_PAGES - 1):
        page.learn(100, 100)
        assert page.limit == FIRST_LIMIT // 2
    page.learn(100, 100)
    assert page.limit == FIRST_LIMIT


MANY = 1_000_000
"""Keys that a range holds, as etcd has counted: too many to be counted for each page."""


def learned(first: bytes, last: bytes, *, keys: int = 10, limit: int = 10, end: bytes = b"/z") -> bytes:
    reach = RangeEnd(end)
    reach.learn(first, last, keys, MANY, limit)
    return reach.guess


def test_a_guess_is_above_the_last_key_and_not_behind_the_end() -> None:
    chance = random.Random(4)
    for _ in range(5000):
        first, last, end = sorted(
            {bytes(chance.choices(b"\0\x01/ab\xfe\xff", k=chance.randint(1, 12))) for _ in range(9)}
        )[:3]
        guess = learned(first, last, end=end, keys=chance.randint(1, 9), limit=chance.randint(1, 10_000))
        assert last < guess <= end
        guess = learned(first, last, end=NO_BOUND)
        assert guess == NO_BOUND or guess > last
