"""Which time an age or a date stands for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.commands.prune_backups import older_than
from etcdfix.errors import ConfigurationError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("text", "hours"), [("12w", 2016), ("90d", 2160), ("36h", 36)])
def test_an_age(text: str, hours: int) -> None:
    assert older_than(text, now=NOON) == NOON - timedelta(hours=hours)


@pytest.mark.parametrize("text", ["2026-02-28", "2026-02-28T00:00:00Z", "2026-02-28T01:00:00+01:00"])
def test_a_date(text: str) -> None:
    assert older_than(text, now=NOON) == datetime(2026, 2, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "0d", "1m", "-1d", "1.5h", "1d2h", "\u0661d", "1000000w", "999999w", "7", "yesterday", "2026-03-02"],
)
def test_what_is_neither(text: str) -> None:
    with pytest.raises(ConfigurationError, match="neither an age nor a date that is over"):
        older_than(text, now=NOON)
