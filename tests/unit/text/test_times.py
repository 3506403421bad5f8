from __future__ import annotations

import pytest

from etcdfix.text.times import seconds_between, unix_seconds


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60),
        ("1970-01-01T01:01:00+01:00", 60),
        ("1960-01-01T00:00:00Z", 0),
        ("", 0),
        ("yesterday", 0),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_a_time_in_seconds(at: str, seconds: int) -> None:
    assert unix_seconds(at) == seconds


@pytest.mark.parametrize(
    ("first", "last", "seconds"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:05:06Z", 61),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:04Z", 0),
        ("x", "2026-01-02T03:04:04Z", 0),
        ("2026-01-02T03:04:05Z", "x", 0),
    ],
)
def test_how_long_something_took(first: str, last: str, seconds: int) -> None:
    assert seconds_between(first, last) == seconds
