from __future__ import annotations

from datetime import timedelta

import pytest

from etcdfix.text.ages import age_of


@pytest.mark.parametrize(("text", "hours"), [("12w", 2016), ("90d", 2160), ("36h", 36)])
def test_an_age(text: str, hours: int) -> None:
    assert age_of(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "0d", "1m", "-1d", "1.5h", "1d2h", "\u0661d", "1000000w", "7"])
def test_what_is_no_age(text: str) -> None:
    assert age_of(text) is None
