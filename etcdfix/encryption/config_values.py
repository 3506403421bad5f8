"""Scalars of the configuration as Go reads them: durations, base64, KMS endpoints.

Each parser is pure. A value that does not parse raises ``ValueError`` with Go's wording, and that wording
never holds more of the input than :func:`~etcdfix.encryption.wording.shown` lets through.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from etcdfix.encryption.wording import shown

NANOSECONDS = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}
_NUMBER = re.compile(r"([0-9]*)(?:\.([0-9]*))?")
_UNIT = re.compile(r"[^0-9.]*")
_MAX_DURATION = (1 << 63) - 1


def parse_duration(text: str) -> int:
    """Return nanoseconds.

    Raises:
        ValueError: Not a duration; Go's wording.

    Format:
        Go ``time.ParseDuration``: an optional sign, then decimal numbers with units (``1m30s``, ``1.5h``),
        or a bare ``0``.
    """
    invalid = ValueError(f"time: invalid duration {shown(text)}")
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    if not rest:
        raise invalid
    total = 0
    while rest:
        number = _NUMBER.match(rest)
        assert number is not None  # the pattern matches the empty string
        whole, fraction = number.group(1), number.group(2) or ""
        if not whole and not fraction:
            raise invalid
        rest = rest[number.end() :]
        unit = rest[: _end_of_unit(rest)]
        if not unit:
            raise ValueError(f"time: missing unit in duration {shown(text)}")
        if unit not in _UNITS:
            raise ValueError(f"time: unknown unit {shown(unit)} in duration {shown(text)}")
        rest = rest[len(unit) :]
        # Digits beyond the 19th overflow in Go as well, so the conversion below stays small.
        if len(whole.lstrip("0")) > len(str(_MAX_DURATION)):
            raise invalid
        fraction = fraction[:18]
        total += int(whole or 0) * _UNITS[unit] + int(fraction or 0) * _UNITS[unit] // 10 ** len(fraction)
        if total > _MAX_DURATION:
            raise invalid
    return -total if negative else total


def _end_of_unit(text: str) -> int:
    unit = _UNIT.match(text)
    assert unit is not None  # the pattern matches the empty string
    return unit.end()


def format_duration(nanoseconds: int) -> str:
    """Return a duration as Go prints it (``time.Duration.String``): ``0s``, ``-1m30s``, ``1.5ms``."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left < NANOSECONDS:
        for unit, size in (("ms", 1_000_000), ("\u00b5s", 1_000), ("ns", 1)):
            if left >= size:
                return f"{sign}{_decimal(left, size)}{unit}"
        return "0s"
    minutes, left = divmod(left, 60 * NANOSECONDS)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(left, NANOSECONDS)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def parse_base64(text: str) -> bytes | None:
    """Return the bytes of a secret, or None where the text is not base64 to the API server.

    Format:
        Go ``base64.StdEncoding``: the standard alphabet, padding required; CR and LF anywhere are
        skipped, other white space is not.
    """
    stripped = text.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(stripped, validate=True)
    except ValueError:
        return None  # the exception is dropped here on purpose: nothing may carry the secret further


class Endpoint(NamedTuple):
    """A KMS endpoint taken apart: scheme in lower case, and the decoded path."""

    scheme: str
    path: str

    @property
    def socket_path(self) -> str:
        """Path of the socket; ``@name`` is a Linux abstract socket (``unix:///@name``)."""
        return self.path[1:] if self.path.startswith("/@") else self.path


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_PORT = re.compile(r":[0-9]*")
_USERINFO = re.compile(r"[A-Za-z0-9._~:!$&'()*+,;=%@-]*")
_BAD_IN_HOST = re.compile(r"[\x00-\x20\x7f<>\"\\^`{}|]")


def parse_endpoint(text: str) -> Endpoint:
    """Take a KMS endpoint apart.

    Raises:
        ValueError: Not a URL; Go's wording.

    Format:
        Go ``net/url.Parse``, as far as it decides about a KMS endpoint; then
        ``envelope/kmsv2`` and ``k8s.io/kms/pkg/util.ParseEndpoint`` for the socket path.
    """
    problem = _url_problem(text)
    if problem:
        raise ValueError(f"parse {_shown_url(text)}: {problem}")
    rest = text.partition("#")[0]
    scheme = _SCHEME.match(rest)
    if scheme is not None:
        rest = rest[scheme.end() :]
    rest = rest.partition("?")[0]
    if rest.startswith("//"):
        rest = rest[2:]
        slash = rest.find("/")
        rest = "" if slash < 0 else rest[slash:]
    elif scheme is not None and not rest.startswith("/"):
        rest = ""  # opaque (unix:run/kms.sock): such a URL has no path
    return Endpoint(scheme.group(1).lower() if scheme else "", _unescape(rest))


def _shown_url(text: str) -> str:
    # user:password@host has no place in a unix endpoint, and a password none in a message.
    authority = text.partition("//")[2].partition("/")[0]
    return shown(text) if "@" not in authority else f"<{len(text.encode(errors='replace'))} bytes withheld>"


def shown_endpoint(text: str) -> str:
    """Return an endpoint quoted like Go, or its size alone where it holds a user name or may hold a key."""
    return _shown_url(text)


def _url_problem(text: str) -> str:
    if _CONTROL.search(text):
        return "net/url: invalid control character in URL"
    if text.startswith(":"):
        return "missing protocol scheme"
    rest, _, fragment = text.partition("#")
    scheme = _SCHEME.match(rest)
    if scheme is not None:
        rest = rest[scheme.end() :]
    rest = rest.partition("?")[0]
    if scheme is None and not rest.startswith("/") and ":" in rest.partition("/")[0]:
        return "first path segment in URL cannot contain colon"
    if scheme is not None and not rest.startswith("/"):
        rest = ""  # opaque: not looked into
    authority = ""
    if rest.startswith("//") and (scheme is not None or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    return _authority_problem(authority) or _escape_problem(rest) or _escape_problem(fragment)


def _authority_problem(authority: str) -> str:
    userinfo, at, host = authority.rpartition("@")
    if at and not _USERINFO.fullmatch(userinfo):
        return "net/url: invalid userinfo"
    bad = _BAD_IN_HOST.search(host)
    if bad is not None:
        return f"invalid character {shown(bad.group())} in host name"
    name, colon, port = host.rpartition(":")
    if colon and not host.startswith("[") and not _PORT.fullmatch(colon + port):
        return f"invalid port {shown(colon + port)} after host"
    return _escape_problem(name or host)


def _escape_problem(text: str) -> str:
    bad = _ESCAPE.search(text)
    return f"invalid URL escape {shown(bad.group())}" if bad is not None else ""


def _unescape(path: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m.group(1), 16)]), path.encode(errors="replace"))
    return raw.decode("utf-8", "surrogateescape")
