from __future__ import annotations

import pytest

from etcdfix.encryption.config_values import (
    format_duration,
    parse_base64,
    parse_duration,
    parse_endpoint,
    shown_endpoint,
)

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("3s", 3 * S),
        ("-1.5h", -5400 * S),
        ("1h2m3.5s", 3723 * S + S // 2),
        (".5s", S // 2),
        ("5.s", 5 * S),
        ("100ms", S // 10),
        ("7us", 7000),
        ("7\u00b5s", 7000),
        ("7\u03bcs", 7000),
        ("9ns", 9),
        ("0.3333333333333333333333s", 333333333),
        ("9223372036854775807ns", 9223372036854775807),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("3", 'time: missing unit in duration "3"'),
        ("1m3", 'time: missing unit in duration "1m3"'),
        ("3 s", 'time: unknown unit " s" in duration "3 s"'),
        ("3S", 'time: unknown unit "S" in duration "3S"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("99999999999999999999h", 'time: invalid duration "99999999999999999999h"'),
        ("AAECAwQFBgcICQoLDA0ODw==", "time: invalid duration <24 bytes withheld>"),
    ],
)
def test_no_durations(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (3 * S, "3s"),
        (-90 * S, "-1m30s"),
        (3600 * S, "1h0m0s"),
        (3661 * S + S // 2, "1h1m1.5s"),
        (1_500_000, "1.5ms"),
        (-1_500, "-1.5\u00b5s"),
        (1, "1ns"),
        (S + 1, "1.000000001s"),
    ],
)
def test_durations_as_go_prints_them(nanoseconds: int, text: str) -> None:
    assert format_duration(nanoseconds) == text
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("", b""),
        ("AAEC", b"\x00\x01\x02"),
        ("AA==", b"\x00"),
        ("A\r\nA=\n=\n", b"\x00"),
        ("\n", b""),
        ("AB==", b"\x00"),  # left-over bits are not checked
        ("AA=", None),
        ("AA", None),
        ("AAECA", None),
        ("====", None),
        ("AA==AA==", None),
        ("AA EC", None),
        ("AAEC\t", None),
        ("__8=", None),
        ("\u00e4AEC", None),
    ],
)
def test_base64(text: str, decoded: bytes | None) -> None:
    assert parse_base64(text) == decoded


@pytest.mark.parametrize(
    ("text", "scheme", "socket_path"),
    [
        ("unix:///run/kms.sock", "unix", "/run/kms.sock"),
        ("UNIX:///run/kms.sock", "unix", "/run/kms.sock"),
        ("unix:/run/kms.sock", "unix", "/run/kms.sock"),
        ("unix:///@name", "unix", "@name"),
        ("unix:///run/a%20b?x=1#y", "unix", "/run/a b"),
        ("unix:///run/%ff", "unix", "/run/\udcff"),
        ("unix://host/run", "unix", "/run"),
        ("unix://host", "unix", ""),
        ("unix:run/kms.sock", "unix", ""),
        ("http://[::1]:80/x", "http", "/x"),
        ("http://a:80/x", "http", "/x"),
        ("//host/path", "", "/path"),
        ("///run/kms.sock", "", "///run/kms.sock"),
        ("run/kms.sock", "", "run/kms.sock"),
        ("", "", ""),
    ],
)
def test_endpoints(text: str, scheme: str, socket_path: str) -> None:
    endpoint = parse_endpoint(text)
    assert (endpoint.scheme, endpoint.socket_path) == (scheme, socket_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("unix:///a\x00", "net/url: invalid control character in URL"),
        ("://x", "missing protocol scheme"),
        ("1unix:x", "first path segment in URL cannot contain colon"),
        ("unix://a b/x", 'invalid character " " in host name'),
        ("unix://a:b/x", 'invalid port ":b" after host'),
        ("unix:///%", 'invalid URL escape "%"'),
        ("unix:///%g0", 'invalid URL escape "%g0"'),
        ("unix:///x#%z", 'invalid URL escape "%z"'),
        ("unix://%zz/x", 'invalid URL escape "%zz"'),
    ],
)
def test_no_endpoints(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_endpoint(text)
    assert str(caught.value) == f"parse {shown_endpoint(text)}: {problem}"


def test_user_names_and_passwords_are_withheld() -> None:
    with pytest.raises(ValueError) as caught:
        parse_endpoint("http://me:hush<@host/x")
    assert str(caught.value) == "parse <22 bytes withheld>: net/url: invalid userinfo"
