"""Scalars of the configuration as Go reads them: durations, base64, KMS endpoints.

Each parser is pure. A value that does not parse raises ``ValueError`` with Go's wording, and that wording
never holds more of the input than :func:`~etcdfix.encryption.wording.shown` lets through.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from etcdfix.encryption.wording import shown
from etcdfix.golang.goquote import withheld

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
_NUMBER_START = re.compile(r"[0-9.]")
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
        unit = _NUMBER_START.split(rest, maxsplit=1)[0]
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
_BAD_IN_HOST = re.compile(r'[\x00-\x20\x7f<>"\\^`{}|]')


class _Parts(NamedTuple):
    scheme: str
    authority: str
    path: str
    fragment: str


def parse_endpoint(text: str) -> Endpoint:
    """Take a KMS endpoint apart.

    Raises:
        ValueError: Not a URL; Go's wording.

    Format:
        Go ``net/url.Parse``, as far as it decides about a KMS endpoint; the socket path follows
        ``ParseEndpoint`` of ``k8s.io/kms/pkg/util``.
    """
    parts = _split_url(text)
    problem = _url_problem(text, parts)
    if problem:
        raise ValueError(f"parse {shown_endpoint(text)}: {problem}")
    return Endpoint(parts.scheme.lower(), _unescape(parts.path))


def shown_endpoint(text: str) -> str:
    """Return an endpoint quoted like Go, or its size alone where it names a user or could hold a key."""
    # user:password@host has no place in a unix endpoint, and a password none in a message.
    authority = text.partition("//")[2].partition("/")[0]
    return withheld(len(text.encode(errors="replace"))) if "@" in authority else shown(text)


def _split_url(text: str) -> _Parts:
    rest, _, fragment = text.partition("#")
    match = _SCHEME.match(rest)
    scheme = match.group(1) if match is not None else ""
    rest = rest[match.end() :] if match is not None else rest
    rest = rest.partition("?")[0]
    if scheme and not rest.startswith("/"):
        return _Parts(scheme, "", "", fragment)  # opaque (unix:run/kms.sock): such a URL has no path
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        return _Parts(scheme, authority, slash + path, fragment)
    return _Parts(scheme, "", rest, fragment)


def _url_problem(text: str, parts: _Parts) -> str:
    if _CONTROL.search(text):
        return "net/url: invalid control character in URL"
    if text.startswith(":"):
        return "missing protocol scheme"
    if not parts.scheme and not parts.authority and ":" in parts.path.partition("/")[0]:
        return "first path segment in URL cannot contain colon"
    return (
        _authority_problem(parts.authority) or _escape_problem(parts.path) or _escape_problem(parts.fragment)
    )


def _authority_problem(authority: str) -> str:
    userinfo, at, host = authority.rpartition("@")
    if at and not _USERINFO.fullmatch(userinfo):
        return "net/url: invalid userinfo"
    bad = _BAD_IN_HOST.search(host)
    if bad is not None:
        return f"invalid character {shown(bad.group())} in host name"
    _, colon, port = host.rpartition(":")
    if colon and not host.startswith("[") and not _PORT.fullmatch(colon + port):
        return f"invalid port {shown(colon + port)} after host"
    return _escape_problem(host)


def _escape_problem(text: str) -> str:
    bad = _ESCAPE.search(text)
    return f"invalid URL escape {shown(bad.group())}" if bad is not None else ""


def _unescape(path: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m.group(1), 16)]), path.encode(errors="replace"))
    return raw.decode("utf-8", "surrogateescape")
