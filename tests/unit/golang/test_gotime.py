"""Timestamps like Go's ``time.Parse``: vectors from running it; the text itself is withheld from messages."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from etcdfix.golang import gotime
from etcdfix.golang.gotime import RFC3339, RFC3339_MICRO, parse_error


@pytest.mark.parametrize(
    "text",
    [
        "2021-01-31T23:59:59Z", "2020-02-29T00:00:00.123Z", "2021-12-01T05:06:07+01:00",
        "2021-12-01T05:06:07-24:60", "0000-02-29T00:00:00Z", "2021-01-01T1:02:03,5Z",
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"), (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"), (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_800, "10000-01-01T00:00:00Z"), (-62_135_596_801, "0000-12-31T23:59:59Z"),
        (-62_167_219_201, "-0001-12-31T23:59:59Z"), (-62_135_596_800, None),
        (-62_135_596_799, "0001-01-01T00:00:01Z"),
    ],
)  # fmt: skip
def test_times_are_written_in_utc(seconds: int, text: str | None) -> None:
    assert gotime.format_time(seconds) == text


@pytest.mark.parametrize("seconds", range(-62_135_596_799, 253_402_300_800, 86_400 * 97_003 + 4_321))
def test_times_agree_with_the_standard_library(seconds: int) -> None:
    expected = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat() + "Z"  # noqa: DTZ001 - years before 1970
    assert gotime.format_time(seconds) == expected
    assert gotime.parse(expected, RFC3339) == (seconds, 0)


@pytest.mark.parametrize(
    ("seconds", "nanoseconds", "text"),
    [
        (0, 123_456_789, "1970-01-01T00:00:00.123456Z"),
        (0, -1_999, "1969-12-31T23:59:59.999999Z"),
        (0, -999, "1970-01-01T00:00:00.000000Z"),
        (0, 2_000_000_000, "1970-01-01T00:00:02.000000Z"),
        (-62_135_596_800, 999, None),
        (-62_135_596_800, 1_000, "0001-01-01T00:00:00.000001Z"),
    ],
)
def test_micro_times_always_have_six_decimals(seconds: int, nanoseconds: int, text: str | None) -> None:
    assert gotime.format_micro_time(seconds, nanoseconds) == text


@pytest.mark.parametrize(
    ("text", "layout", "parsed"),
    [
        ("1970-01-01T00:00:01Z", RFC3339, (1, 0)),
        ("1970-01-01T5:00:00,5+05:00", RFC3339, (0, 500_000_000)),
        ("1970-01-01T00:00:00-01:30", RFC3339, (5_400, 0)),
        ("1970-01-01T00:00:00.1234567899Z", RFC3339, (0, 123_456_789)),
        ("1970-01-01T00:00:00.+23456Z", RFC3339_MICRO, (0, 23_456_000)),
        ("0000-03-01T00:00:00Z", RFC3339, (-62_162_035_200, 0)),
        ("yesterday", RFC3339, None),
        ("1970-01-01T00:00:01Z", RFC3339_MICRO, None),
    ],
)
def test_parsed_times(text: str, layout: str, parsed: tuple[int, int] | None) -> None:
    assert gotime.parse(text, layout) == parsed


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"), (1, "1ns"), (1_500, "1.5µs"), (2_000_000, "2ms"), (1_000_000_000, "1s"),
        (90_500_000_000, "1m30.5s"), (3_600_000_000_000, "1h0m0s"),
        (-5_400_000_000_001, "-1h30m0.000000001s"), (-(1 << 63), "-2562047h47m16.854775808s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_go_does(nanoseconds: int, text: str) -> None:
    assert gotime.format_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("3s", 3_000_000_000),
        ("-1.5h", -5_400_000_000_000),
        ("1h2m3.5s", 3_723_500_000_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("100ms", 100_000_000),
        ("7us", 7_000),
        ("7\u00b5s", 7_000),
        ("7\u03bcs", 7_000),
        ("9ns", 9),
        ("0.3333333333333333333333s", 333_333_333),
        ("00000000000000000000001s", 1_000_000_000),
        ("9223372036854775807ns", 9_223_372_036_854_775_807),
    ],
)
def test_durations_are_read_as_go_does(text: str, nanoseconds: int) -> None:
    assert gotime.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "s", ".s", "3", "1m3", "1mm", "3 s", "3S", "5d", "9223372036854775808ns",
        "99999999999999999999h",
    ],
)  # fmt: skip
def test_what_is_no_duration(text: str) -> None:
    assert gotime.parse_duration(text) is None
