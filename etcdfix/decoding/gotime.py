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
from calendar import monthrange
from typing import Final

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
        return f'parsing time "{_withheld(text)}": extra text: "{_withheld(extra)}"'
    return ""


def _day_error(text: str, numbers: dict[str, int]) -> str:
    # Year 0 is a leap year to Go, and to the rule below; Python's calendar begins at year 1.
    days = monthrange(numbers["2006"] or 4, numbers["01"])[1]
    return "" if 1 <= numbers["02"] <= days else _out_of_range(text, "day")


def _cannot(text: str, layout: str, rest: str, element: str) -> str:
    return f'parsing time "{_withheld(text)}" as "{layout}": cannot parse "{_withheld(rest)}" as "{element}"'


def _out_of_range(text: str, what: str) -> str:
    return f'parsing time "{_withheld(text)}": {what} out of range'


def _withheld(text: str) -> str:
    return f"<{len(text.encode())} bytes withheld>"
