"""Whether a JSON timestamp parses, decided and worded as Go's ``time.Parse`` does.

The API server reads ``Time`` with the layout RFC 3339 and ``MicroTime`` with the same plus exactly six decimals.
Go is more lenient than the RFC in places (an hour of one digit, a comma before decimals) and stricter in
others (capital T and Z only).

Format:
    Go ``time/format.go``, ``parse``; Kubernetes ``apimachinery/pkg/apis/meta/v1/time.go`` and
    ``micro_time.go``.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from datetime import UTC, datetime, timedelta
from typing import Final

from etcdfix.golang.goquote import withheld

RFC3339: Final = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"

_ELEMENTS: Final = (("", "2006"), ("-", "01"), ("-", "02"), ("T", "15"), (":", "04"), (":", "05"))
_TWO_DIGITS = re.compile("[0-9]{2}")
_HOUR = re.compile("[0-9]{1,2}")
_YEAR = re.compile("[0-9]{4}")
_FRACTION = re.compile("[.,][0-9]+")
_MICROSECONDS = re.compile("[.,]([0-9]{6}|[-+][0-9]{5})")  # atoi takes a sign
_OFFSET = re.compile("([-+])([0-9]{2}):([0-9]{2})")
_PATTERNS: Final = {"2006": _YEAR, "15": _HOUR}
_LIMITS: Final = {
    "01": (1, 12, "month"),
    "15": (0, 23, "hour"),
    "04": (0, 59, "minute"),
    "05": (0, 59, "second"),
}


def parse_error(text: str, layout: str) -> str:
    """Return Go's error for ``text`` under one of the two layouts, "" when it parses; the text is withheld."""
    rest = text
    numbers: dict[str, int] = {}
    for prefix, element in _ELEMENTS:
        if not rest.startswith(prefix):
            return _cannot(text, layout, rest, prefix)
        rest = rest[len(prefix) :]
        match = _PATTERNS.get(element, _TWO_DIGITS).match(rest)
        if match is None:
            return _cannot(text, layout, rest, element)
        number = numbers[element] = int(match[0])
        rest = rest[match.end() :]
        lowest, highest, name = _LIMITS.get(element, (number, number, ""))
        if not lowest <= number <= highest:
            return _out_of_range(text, name)
    if layout == RFC3339:
        match = _FRACTION.match(rest)
    else:
        match = _MICROSECONDS.match(rest)
        if match is None:
            return _cannot(text, layout, rest, ".000000")
        if int(match[1]) < 0:
            return _out_of_range(text, "fractional second")
    rest = rest[match.end() :] if match else rest
    return _zone_error(text, layout, rest) or _day_error(text, numbers)


def _zone_error(text: str, layout: str, rest: str) -> str:
    if rest.startswith("Z"):
        extra = rest[1:]
    else:
        match = _OFFSET.match(rest)
        if match is None:
            return _cannot(text, layout, rest, "Z07:00")
        if int(match[3]) > 60:
            return _out_of_range(text, "time zone offset minute")
        if int(match[2]) > 24:
            return _out_of_range(text, "time zone offset hour")
        extra = rest[match.end() :]
    if extra:
        return f'parsing time "{withheld(text)}": extra text: "{withheld(extra)}"'
    return ""


def _day_error(text: str, numbers: dict[str, int]) -> str:
    # Year 0 is a leap year to Go, and to the rule below; Python's calendar begins at year 1.
    days = monthrange(numbers["2006"] or 4, numbers["01"])[1]
    return "" if 1 <= numbers["02"] <= days else _out_of_range(text, "day")


def _cannot(text: str, layout: str, rest: str, element: str) -> str:
    return f'parsing time "{withheld(text)}" as "{layout}": cannot parse "{withheld(rest)}" as "{element}"'


def _out_of_range(text: str, what: str) -> str:
    return f'parsing time "{withheld(text)}": {what} out of range'


_ZERO_TIME: Final = -62_135_596_800
"""Go's zero time, the first second of the year 1, in seconds since 1970."""

# Python's calendar has no year 0 and none past 9999; Go's repeats itself every 400 years, in both directions.
_SECONDS_PER_ERA: Final = 146_097 * 86_400
_YEAR_2000: Final = datetime(2000, 1, 1, tzinfo=UTC)
_PARTS = re.compile(
    "([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([-+0-9]+))?(Z|[-+][0-9]{2}:[0-9]{2})"
)


def parse(text: str, layout: str) -> tuple[int, int] | None:
    """Return a timestamp as seconds since 1970 and nanoseconds, None where :func:`parse_error` has an error."""
    if parse_error(text, layout):
        return None
    match = _PARTS.fullmatch(text)
    assert match is not None  # what parses has this form
    year, *others = map(int, match.groups()[:6])
    zone = match[8]
    offset = 0 if zone == "Z" else int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    seconds = timegm((2000 + year % 400, *others)) + (year // 400 - 5) * _SECONDS_PER_ERA
    fraction = (match[7] or "0")[:9]
    nanoseconds = int(fraction) * 10 ** (9 - len(fraction))
    return seconds + (offset if zone[0] == "-" else -offset), nanoseconds


def format_time(seconds: int) -> str | None:
    """Return seconds since 1970 as ``Time`` is written in JSON (UTC); None, JSON's null, for Go's zero time.

    Years of more than four digits are written as they are, as Go does.
    """
    return None if seconds == _ZERO_TIME else f"{_date_and_time(seconds)}Z"


def format_micro_time(seconds: int, nanoseconds: int) -> str | None:
    """Return a time as ``MicroTime`` is written in JSON: as :func:`format_time`, with six decimals."""
    # Go's division truncates towards zero, and time.Unix then brings the nanoseconds into their range.
    microseconds = abs(nanoseconds) // 1000 * (-1 if nanoseconds < 0 else 1)
    carry, microseconds = divmod(microseconds, 1_000_000)
    seconds += carry
    if seconds == _ZERO_TIME and not microseconds:
        return None
    return f"{_date_and_time(seconds)}.{microseconds:06}Z"


_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000,  # micro sign and Greek letter
    "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LONGEST_DURATION: Final = (1 << 63) - 1


def parse_duration(text: str) -> int | None:
    """Return a duration in nanoseconds, None where Go's ``time.ParseDuration`` refuses the text.

    Format:
        An optional sign, then decimal numbers with units (``1m30s``, ``1.5h``), or a bare ``0``.
    """
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    total = at = 0
    while match := _DURATION_PART.match(rest, at):
        whole, fraction, unit = match[1].lstrip("0"), (match[2] or "")[:18], _UNITS[match[3]]
        # What has no digits is no number, and what has more than 19 overflows in Go as well.
        if not (match[1] or match[2]) or len(whole) > 19:
            return None
        total += int(whole or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        at = match.end()
    if not rest or at < len(rest) or total > _LONGEST_DURATION:
        return None
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Return a duration as Go's ``Duration.String`` writes it: ``1h0m30s``, ``1.5ms``, ``0s``."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, rest = divmod(rest, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 1_000_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(number: int, unit: int) -> str:
    whole, fraction = divmod(number, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(unit + fraction)[1:].rstrip('0')}"


def _date_and_time(seconds: int) -> str:
    eras, rest = divmod(seconds - int(_YEAR_2000.timestamp()), _SECONDS_PER_ERA)
    moment = _YEAR_2000 + timedelta(seconds=rest)
    year = moment.year + 400 * eras
    return f"{'-' if year < 0 else ''}{abs(year):04}-{moment:%m-%dT%H:%M:%S}"
