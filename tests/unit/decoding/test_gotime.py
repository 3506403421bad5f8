"""Timestamps like Go's ``time.Parse``: vectors from running it; the text itself is withheld from messages."""

from __future__ import annotations

import pytest

from etcdfix.decoding.gotime import RFC3339, RFC3339_MICRO, parse_error


@pytest.mark.parametrize(
    "text",
    [
        "2021-01-31T23:59:59Z",
        "2020-02-29T00:00:00.123Z",
        "2021-12-01T05:06:07+01:00",
        "2021-12-01T05:06:07-24:60",
        "0000-02-29T00:00:00Z",
        "2021-01-01T1:02:03,5Z",
    ],
)
def test_what_go_parses(text: str) -> None:
    assert parse_error(text, RFC3339) == ""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'parsing time "" as "": cannot parse "" as "2006"'),
        ("yesterday", 'parsing time "" as "": cannot parse "" as "2006"'),
        ("2021", 'parsing time "" as "": cannot parse "" as "-"'),
        ("2021-1-02T03:04:05Z", 'parsing time "" as "": cannot parse "" as "01"'),
        ("2021-13-02T03:04:05Z", 'parsing time "": month out of range'),
        ("2021-02-30T03:04:05Z", 'parsing time "": day out of range'),
        ("2021-02-00T03:04:05Z", 'parsing time "": day out of range'),
        ("2021-01-02t03:04:05Z", 'parsing time "" as "": cannot parse "" as "T"'),
        ("2021-01-02T24:04:05Z", 'parsing time "": hour out of range'),
        ("2021-01-02T23:60:05Z", 'parsing time "": minute out of range'),
        ("2021-01-02T23:00:60Z", 'parsing time "": second out of range'),
        ("2021-01-02T23:00:0Z", 'parsing time "" as "": cannot parse "" as "05"'),
        ("2021-01-02T23:00:00.Z", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00z", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00+0100", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00+25:00", 'parsing time "": time zone offset hour out of range'),
        ("2021-01-02T23:00:00+25:61", 'parsing time "": time zone offset minute out of range'),
        ("2021-01-02T23:00:00", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00Zx", 'parsing time "": extra text: ""'),
    ],
)
def test_what_go_refuses(text: str, error: str) -> None:
    found = parse_error(text, RFC3339)
    assert f'"<{len(text)} bytes withheld>"' in found
    for piece in (f"<{size} bytes withheld>" for size in range(40)):
        found = found.replace(piece, "")
    assert found == error.replace('as "":', f'as "{RFC3339}":')


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("2021-01-01T00:00:00.123456Z", ""),
        ("2021-01-01T00:00:00.+23456Z", ""),
        ("2021-01-01T00:00:00.-00000Z", ""),
        ("2021-01-01T00:00:00Z", 'cannot parse "<1 bytes withheld>" as ".000000"'),
        ("2021-01-01T00:00:00.12345Z", 'cannot parse "<7 bytes withheld>" as ".000000"'),
        ("2021-01-01T00:00:00.1234567Z", 'cannot parse "<2 bytes withheld>" as "Z07:00"'),
        ("2021-01-01T00:00:00.-12345Z", "fractional second out of range"),
    ],
)
def test_micro_times_want_six_decimals(text: str, rest: str) -> None:
    assert parse_error(text, RFC3339_MICRO).endswith(rest)
    assert bool(parse_error(text, RFC3339_MICRO)) is bool(rest)
