from __future__ import annotations

import pytest

from etcdfix.decoding.quantity import FORMAT_WRONG, SUFFIX_WRONG, canonical, quantity_error


@pytest.mark.parametrize(
    "value",
    [
        "0", "1", "+1", "-1m", "100m", "128Mi", "1.5", "1.5Gi", ".5", "5.", ".", "+", "-", "+.", "1k", "1n", "1u",
        "1M", "1G", "1T", "1P", "1E", "1Ki", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+3", "1e-3", "1E-99", "1e99",
        "12345678901234567890123", "00012", "0.000", ".Ti", "k", "Ki", "e5", ".e-9", "1e4294967295",
    ],
)  # fmt: skip
def test_parses(value: str) -> None:
    assert not quantity_error(value.encode())


@pytest.mark.parametrize(
    "value",
    [b"", b"abc", b"1 Gi", b" 1", b"1\n", b"1Zi", b"0x1", b"1.2.3", b"--1x", b"1e3e", b"1\xff", b"1e+-3"],
)
def test_wrong_format(value: bytes) -> None:
    assert quantity_error(value) == FORMAT_WRONG


@pytest.mark.parametrize(
    "value",
    ["1K", "1e", "1ee3", "1ki", "1mi", "1e-", "1+5", "1-", "--1", "1e9223372036854775808", "1e" + "9" * 40],
)
def test_wrong_suffix(value: str) -> None:
    assert quantity_error(value.encode()) == SUFFIX_WRONG


@pytest.mark.parametrize("value", [b"1" * 500_000 + b"x", b"E" * 500_000, b"1e" + b"0" * 500_000 + b"1"])
def test_long_strings_cost_little(value: bytes) -> None:
    quantity_error(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1001", "1001"),
        ("1024Ki", "1Mi"),
        ("1025Ki", "1025Ki"),
        ("8Gi", "8Gi"),
        ("1.1Ki", "1126400m"),
        ("0.5Ki", "512"),
        ("-0.5Ki", "-512"),
        ("0.0001Ki", "102400u"),
        ("-1.5Gi", "-1536Mi"),
        ("1e1", "10"),
        ("1e4", "10e3"),
        ("1.5e3", "1500"),
        ("1000E", "1e21"),
        ("0.0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        (".", "0"),
        ("0.00000000001", "1n"),
        ("1.00000000001", "1000000001n"),
        ("0.9999999999", "1"),
        ("1e-20", "1e-9"),
        ("-1e-20", "-1e-9"),
        ("1e-2000000000", "1e-9"),
        ("1e2000000000", "100e1999999998"),
        ("9Ei", "9223372036854775807"),
        ("-99999999999999999999.5Ki", "-9223372036854775807"),
        ("9007199254740992.00000000001Ki", "9223372036854775807"),
        ("99999999999999999999", "99999999999999999999"),
        ("100000000000000000000", "100E"),
    ],
)
def test_canonical_form(value: str, written: str) -> None:
    assert canonical(value.encode()) == written


@pytest.mark.parametrize("value", ["0", "100m", "1Ki", "+5", "005", "1.500", "1e3", "1E3", "5."])
def test_what_upstream_takes_for_canonical_stays_as_it_is(value: str) -> None:
    assert canonical(value.encode()) == value
