"""When to ask an API server again."""

from __future__ import annotations

import pytest

from etcdfix.apiserver.patience import pause_seconds


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [(None, 1), (0, 1), (-5, 1), (1, 1), (7, 7), (30, 30), (31, 30), (10**9, 30)]
)
def test_a_server_says_how_long_within_bounds(retry_after: int | None, seconds: int) -> None:
    assert pause_seconds(retry_after) == seconds
