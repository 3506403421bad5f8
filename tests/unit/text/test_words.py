from __future__ import annotations

import pytest

from etcdfix.text.words import counted, short_duration

HOUR, DAY, YEAR = 3600, 86400, 365 * 86400


def test_words_with_their_numbers() -> None:
    assert (counted(0, "key"), counted(1, "key"), counted(2, "key")) == ("0 keys", "1 key", "2 keys")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (5 * HOUR + 61, "5h1m"),
        (8 * HOUR, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (3 * DAY + 5 * HOUR, "3d5h"),
        (8 * DAY + HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 41 * DAY, "3y41d"),
        (8 * YEAR + 41 * DAY, "8y"),
    ],
)
def test_durations_as_kubectl_shortens_them(seconds: int, text: str) -> None:
    assert short_duration(seconds) == text
