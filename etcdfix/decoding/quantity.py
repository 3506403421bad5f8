"""Whether a Quantity string parses, decided as the API server decides it.

Format: ``apimachinery/pkg/api/resource/quantity.go`` (``ParseQuantity``, ``parseQuantityString``),
``suffix.go`` (``interpret``), and for the last of the three errors ``gopkg.in/inf.v0`` (``Dec.SetString``).
A sign, digits with at most one dot, and a suffix: nothing, one of ``n u m k M G T P E Ki Mi Gi Ti Pi Ei``,
or ``e``/``E`` with a signed integer.
"""

from __future__ import annotations

import re

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

# Not the regular expression that the message shows: what upstream's hand-written scanner accepts. Possessive,
# because a megabyte of digits must not be tried in all its divisions.
_SCANNED = re.compile(
    rb"[+-]?+(?P<digits>[0-9]*+)(?:\.(?P<decimals>[0-9]*+))?+(?P<suffix>[eEinumkKMGTP]*+[-+]?+[0-9]*+)"
)
_DECIMAL_EXPONENTS = {
    b"n": -9, b"u": -6, b"m": -3, b"": 0, b"k": 3, b"M": 6, b"G": 9, b"T": 12, b"P": 15, b"E": 18,
}  # fmt: skip
_BINARY_EXPONENTS = {b"Ki": 10, b"Mi": 20, b"Gi": 30, b"Ti": 40, b"Pi": 50, b"Ei": 60}
_EXPONENT = re.compile(rb"[eE]([+-]?[0-9]+)")

# Below this power of ten, and from this power of two on, upstream leaves its int64 path and hands the number
# to inf.Dec, which, unlike the int64 path, insists on a digit.
_SMALLEST_INT64_SCALE = -9
_FIRST_BIG_BINARY = 50

_INT64_DIGITS = 19


def quantity_error(value: bytes) -> str:
    """Return the API server's error for a Quantity string, "" when it parses.

    Any bytes may be given; the answer is one of the three messages of this module.
    """
    if not value:
        return FORMAT_WRONG
    scanned = _SCANNED.fullmatch(value)
    if scanned is None:
        return FORMAT_WRONG
    suffix = scanned["suffix"]
    has_digits = bool(scanned["digits"] or scanned["decimals"])
    if suffix in _DECIMAL_EXPONENTS:
        return ""  # none is small enough to leave the int64 path without digits
    binary = _BINARY_EXPONENTS.get(suffix)
    if binary is not None:
        return "" if has_digits or binary < _FIRST_BIG_BINARY else NUMERIC_WRONG
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        return SUFFIX_WRONG
    power = parse_int64(exponent[1])
    if power is None:
        return SUFFIX_WRONG
    power = (power + 0x80000000 & 0xFFFFFFFF) - 0x80000000  # int32(parsed)
    return "" if has_digits or power >= _SMALLEST_INT64_SCALE else NUMERIC_WRONG


def parse_int64(text: bytes) -> int | None:
    """Return the value of an optional sign and digits, None where it does not fit an int64 (``strconv.ParseInt``)."""
    digits = text.lstrip(b"+-").lstrip(b"0")
    if len(digits) > _INT64_DIGITS:  # Python would be slow at these, and refuses the longest
        return None
    number = int(digits or b"0") * (-1 if text.startswith(b"-") else 1)
    return number if -(1 << 63) <= number < 1 << 63 else None


# Longer than any number that somebody meant; Python refuses to convert some thousand digits more.
_MAX_CANONICAL_LENGTH = 1000
_NANO = -9
_MAX_INT64 = (1 << 63) - 1
_DECIMAL_SUFFIXES = {exponent: suffix.decode() for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical(value: bytes) -> str:
    """Return a Quantity as the API server writes it: ``1.5`` becomes ``1500m``, ``1.5Gi`` becomes ``1536Mi``.

    What its parser takes for canonical comes back as it was written, ``+5`` too. So does, here, a text of more
    than a thousand characters, and one that does not parse (see :func:`quantity_error`).

    Format: ``quantity.go`` (``ParseQuantity``, ``CanonicalizeBytes``), ``amount.go``, ``math.go``; for amounts
    above ``E``, which releases up to 1.36 wrote without any suffix, the decimal exponent that later ones write.
    """
    text = value.decode("ascii", "replace")
    scanned = _SCANNED.fullmatch(value)
    if scanned is None or len(value) > _MAX_CANONICAL_LENGTH or quantity_error(value):
        return text
    whole = scanned["digits"].lstrip(b"0").decode() or "0"
    decimals = (scanned["decimals"] or b"").decode()
    suffix = scanned["suffix"]
    binary = _BINARY_EXPONENTS.get(suffix)
    with_exponent = binary is None and suffix not in _DECIMAL_EXPONENTS
    if binary is None:
        exponent = int(suffix[1:]) if with_exponent else _DECIMAL_EXPONENTS[suffix]
        exponent = (exponent + 0x80000000 & 0xFFFFFFFF) - 0x80000000  # int32(parsed)
        room = 18 - len(whole) - len(decimals)
    else:
        exponent = 0
        room = -1 if decimals else 14 - len(whole) - binary * 3 // 10
    scale = exponent - len(decimals)
    digits = whole + decimals
    if room >= 0 and scale >= _NANO and int(digits) << (binary or 0) <= _MAX_INT64:
        # Upstream's fast path, which reuses the text where it looks canonical.
        if binary is not None:
            reuse = int(digits) & 7 != 0
        else:
            reuse = scale % 3 == 0 and not digits.endswith("000") and not digits.startswith("0")
        if reuse:
            return text
    return _canonical(int(digits) << (binary or 0), scale, binary, text.startswith("-"), with_exponent)


def _canonical(mantissa: int, scale: int, binary: int | None, negative: bool, with_exponent: bool) -> str:
    """Write ``mantissa * 10**scale``, rounded up to whole nanos."""
    if mantissa == 0:
        return "0"
    sign = "-" if negative else ""
    while mantissa % 10 == 0:
        mantissa //= 10
        scale += 1
    if scale < _NANO:
        excess = min(
            _NANO - scale, _MAX_CANONICAL_LENGTH + 1
        )  # further down, everything rounds up to one nano
        mantissa, scale = -(-mantissa // 10**excess), _NANO
        while mantissa % 10 == 0:
            mantissa //= 10
            scale += 1
    if binary is not None and scale >= 0:
        amount = min(mantissa * 10**scale, _MAX_INT64)
        if amount >= 1024:
            power = 0
            while amount % 1024 == 0:
                amount //= 1024
                power += 1
            return f"{sign}{amount}{_BINARY_SUFFIXES[power]}"
    if binary is not None and scale < 0 and mantissa > _MAX_INT64 * 10**-scale:
        return f"{sign}{_MAX_INT64}"
    mantissa *= 10 ** (scale % 3)
    scale -= scale % 3
    if with_exponent or scale not in _DECIMAL_SUFFIXES:
        return f"{sign}{mantissa}" + (f"e{scale}" if scale else "")
    return f"{sign}{mantissa}{_DECIMAL_SUFFIXES[scale]}"
