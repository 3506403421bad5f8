"""Which time an age stands for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.operations.change.prune_backups import older_than

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("text", "hours"), [("12w", 2016), ("90d", 2160), ("36h", 36)])
def test_an_age(text: str, hours: int) -> None:
    assert older_than(text, now=NOON) == NOON - timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "0d", "1m", "-1d", "1.5h", "1d2h", "\u0661d", "1000000w", "7"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no age"):
        older_than(text, now=NOON)
