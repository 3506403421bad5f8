from __future__ import annotations

import pytest

from etcdfix.sources.etcd.paging import (
    FIRST_LIMIT,
    GOOD_PAGES,
    LARGEST_LIMIT,
    SMALLEST_LIMIT,
    TARGET_BYTES,
    PageSize,
    after,
    bounds_of,
)


@pytest.mark.parametrize(
    ("prefix", "bounds"),
    [
        (b"", (b"\x00", b"\x00")),
        (b"a", (b"a", b"b")),
        (b"/registry/", (b"/registry/", b"/registry0")),
        (b"a\xff", (b"a\xff", b"b")),
        (b"a\xff\xff", (b"a\xff\xff", b"b")),
        (b"a\xfe", (b"a\xfe", b"a\xff")),
        (b"\xff", (b"\xff", b"\x00")),
        (b"a\x00", (b"a\x00", b"a\x01")),
    ],
)
def test_bounds(prefix: bytes, bounds: tuple[bytes, bytes]) -> None:
    assert bounds_of(prefix) == bounds


def test_nothing_lies_between_a_key_and_the_one_after_it() -> None:
    assert after(b"a") == b"a\x00"
    assert b"a" < after(b"a") <= min(b"a\x00", b"a\x01", b"aa", b"b")


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


def test_halving_ends_at_one_key() -> None:
    page = PageSize()
    limits = [page.limit]
    while page.shrink():
        limits.append(page.limit)
    assert limits == [500, 250, 125, 62, 31, 15, 7, 3, 1]
    assert not page.shrink()
    assert page.limit == 1


def test_small_values_do_not_lift_a_ceiling_at_once() -> None:
    page = PageSize()
    page.shrink()
    for _ in range(GOOD_PAGES - 1):
        page.learn(100, 100)
        assert page.limit == FIRST_LIMIT // 2
    page.learn(100, 100)
    assert page.limit == FIRST_LIMIT


def test_a_failure_begins_the_count_anew() -> None:
    page = PageSize()
    page.shrink()
    for _ in range(GOOD_PAGES - 1):
        page.learn(100, 100)
    page.shrink()
    for _ in range(GOOD_PAGES - 1):
        page.learn(100, 100)
    assert page.limit == FIRST_LIMIT // 4


def test_one_huge_value_does_not_slow_the_rest_for_ever() -> None:
    page = PageSize()
    while page.shrink():
        pass
    for _ in range(20 * GOOD_PAGES):
        page.learn(1000, 10)
    assert page.limit == LARGEST_LIMIT
