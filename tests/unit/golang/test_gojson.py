"""Go's JSON scanner: every context string, every quirk; expectations come from running ``encoding/json``."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.golang import gotime
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.golang.gobase64 import decode, illegal_byte
from etcdfix.golang.gojson import GoJSONError, Token, check_json, loads, tokenize
from etcdfix.golang.gojsontext import NumberLiteral, encode_json, parse_exactly
from etcdfix.golang.goquote import go_quote, quote_byte
from etcdfix.golang.gotime import RFC3339, RFC3339_MICRO, parse_error

REFUSED = [
    # the byte itself
    (b"\xee", "invalid character 'î' looking for beginning of value", 0),
    (b"\xef\xbb\xbf1", "invalid character 'ï' looking for beginning of value", 0),
    (b"\x0b1", "invalid character '\\v' looking for beginning of value", 0),
    (b"NaN", "invalid character 'N' looking for beginning of value", 0),
    (b"[,]", "invalid character ',' looking for beginning of value", 1),
    (b"[1,]", "invalid character ']' looking for beginning of value", 3),
    # objects
    (b"{1:2}", "invalid character '1' looking for beginning of object key string", 1),
    (b'{"a":1,}', "invalid character '}' looking for beginning of object key string", 7),
    (b'{"a" 1}', "invalid character '1' after object key", 5),
    (b'{"a":1 x}', "invalid character 'x' after object key:value pair", 7),
    (b'{"a":1]', "invalid character ']' after object key:value pair", 6),
    # arrays and the end
    (b"[1 2]", "invalid character '2' after array element", 3),
    (b"[1}", "invalid character '}' after array element", 2),
    (b'{"a":1}x', "invalid character 'x' after top-level value", 7),
    (b"01", "invalid character '1' after top-level value", 1),
    (b"1e5e", "invalid character 'e' after top-level value", 3),
    # strings
    (b'"a\x00"', "invalid character '\\x00' in string literal", 2),
    (b'"\\\'"', "invalid character '\\'' in string escape code", 2),
    (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape", 5),
    (b'{"\\q":1}', "invalid character 'q' in string escape code", 3),
    # literals
    (b"nil", "invalid character 'i' in literal null (expecting 'u')", 1),
    (b"tru\x7f", "invalid character '\\x7f' in literal true (expecting 'e')", 3),
    # numbers
    (b"-a", "invalid character 'a' in numeric literal", 1),
    (b"1.x", "invalid character 'x' after decimal point in numeric literal", 2),
    (b"1ex", "invalid character 'x' in exponent of numeric literal", 2),
    # the end of the data
    (b"", "unexpected end of JSON input", 0),
    (b" \t\r\n", "unexpected end of JSON input", 4),
    (b"{", "unexpected end of JSON input", 1),
    (b'{"a":', "unexpected end of JSON input", 5),
    (b"[1,", "unexpected end of JSON input", 3),
    (b'"abc', "unexpected end of JSON input", 4),
    # scanner.eof feeds one space, and inside these it is the space that Go blames
    (b"tru", "invalid character ' ' in literal true (expecting 'e')", 3),
    (b"-", "invalid character ' ' in numeric literal", 1),
    (b"1.", "invalid character ' ' after decimal point in numeric literal", 2),
    (b"1e", "invalid character ' ' in exponent of numeric literal", 2),
    (b'"a\\', "invalid character ' ' in string escape code", 3),
    (b'"a\\u1', "invalid character ' ' in \\u hexadecimal character escape", 5),
]

ACCEPTED = [
    b"0", b"-0", b"-0.5E+10", b"[]", b"{}", b' {"a" : [ 1 , { } , [ ] ] , "b":null} \n', b'"\\u00e9\\/\\b"',
    b'"\x7f\xff"', b'{"a":{},"b":[[],{}],"\\ud800":[1,true]}',
    b'{"a":1,"a":2}', b'"\\ud800"', b"true", b"false", b"null", b"1e999", b"12345678901234567890123",
]  # fmt: skip


@pytest.mark.parametrize(("data", "message", "offset"), REFUSED)
def test_refusals_are_worded_like_gos_scanner(data: bytes, message: str, offset: int) -> None:
    assert check_json(data) == GoJSONError(message, offset)


@pytest.mark.parametrize("data", ACCEPTED)
def test_what_go_accepts_has_no_error(data: bytes) -> None:
    assert check_json(data) is None


def test_depth_ends_where_go_ends_it() -> None:
    assert check_json(b"[" * 10_000 + b"]" * 10_000) is None
    assert check_json(b'{"a":' * 10_000 + b"1" + b"}" * 10_000) is None
    too_deep = GoJSONError("invalid character '[' exceeded max depth", 10_000)
    assert check_json(b"[" * 10_001 + b"]" * 10_001) == too_deep
    assert check_json(b"[" * 1_000_000) == too_deep
    message = "invalid character '{' exceeded max depth"
    assert check_json(b'{"a":' * 10_001) == GoJSONError(message, 50_000)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,-2,3.5,true,false,null,"x"],"b":{}}', {"a": [1, -2, 3.5, True, False, None, "x"], "b": {}}),
        (b'{"a":1,"b":0,"a":2}', {"a": 2, "b": 0}),
        (b"9223372036854775807", 9223372036854775807),
        (b"-9223372036854775808", -9223372036854775808),
        (b"9223372036854775808", 9223372036854775808.0),
        (b"1e2", 100.0),
        (b"-0", 0),
        (b'"\\ud83d\\ude00\\u00e9\\n\\/\\""', '😀é\n/"'),
        (b'"\\ud800x\\udfff\\ud83d"', "\ufffdx\ufffd\ufffd"),
        (b'"\\ud800\\u0041"', "\ufffdA"),
        (b'["\\ud83d\\ude00\\u00e9\\b\\f\\n\\r\\t\\/\\"\xff", 5, -2.5, true, false, null]',
         ['😀é\b\f\n\r\t/"\ufffd', 5, -2.5, True, False, None]),
        (b'"\xe2\x82|\xff\xed\xa0\x80"', "\ufffd\ufffd|\ufffd\ufffd\ufffd\ufffd"),
        (b'{"\xff":"\xff"}', {"\ufffd": "\ufffd"}),
        (b'[["\xff"],[],{"a":{"b":["\xff"]}},1]', [["\ufffd"], [], {"a": {"b": ["\ufffd"]}}, 1]),
    ],
)  # fmt: skip
def test_loads_reads_as_go_reads(data: bytes, value: object) -> None:
    loaded = loads(data)
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"[1e999]", "json: cannot unmarshal number <5 bytes withheld> into Go value of type float64", 1),
        (b"[1,]", "invalid character ']' looking for beginning of value", 3),
    ],
)
def test_loads_raises_in_gos_words(data: bytes, message: str, offset: int) -> None:
    with pytest.raises(JSONMalformed) as caught:
        loads(data)
    assert (caught.value.message, caught.value.offset) == (message, offset)


def test_loads_survives_depth() -> None:
    value: Any = loads(b'{"a":[' * 5_000 + b"]}" * 5_000)
    depth = 0
    while value:
        value = value["a"] if isinstance(value, dict) else value[0]
        depth += 1
    assert depth == 9_999


def test_tokens_know_their_extent_and_their_sibling() -> None:
    data = b' {"a":[1,"b"],"c":{}} '
    assert tokenize(data) == [
        Token("{", 1, 21, 7),
        Token('"', 2, 5, 2),
        Token("[", 6, 13, 5),
        Token("0", 7, 8, 4),
        Token('"', 9, 12, 5),
        Token('"', 14, 17, 6),
        Token("{", 18, 20, 7),
    ]
    assert [token.kind for token in tokenize(b"[true,false,null,-1]")] == ["[", "t", "f", "n", "0"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('<a> & "b" \\ /', r'"\u003ca\u003e \u0026 \"b\" \\ /"'),
        ("\n\r\t\b\f\x00\x1f\x7f", '"\\n\\r\\t\\b\\f\\u0000\\u001f\x7f"'),
        ("\u2028\u2029é😀\ufffd", '"\\u2028\\u2029é😀\ufffd"'),
        ("a\udcffb", r'"a\ufffdb"'),
        (True, "true"),
        (None, "null"),
        (1 << 70, "1180591620717411303424"),
        (-0.5, "-0.5"),
        (-0.0, "-0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        ([], "[]"),
        ({"b": [], "a": [{}, 1]}, '{"b":[],"a":[{},1]}'),
    ],
)
def test_encoding(value: Any, text: str) -> None:
    assert encode_json(value) == text.encode()


@pytest.mark.parametrize(
    "literal",
    [
        "1", "-1", "0", "-0", "1.50", "1.5", "1e3", "1E3", "1e+21", "1e999", "-1e-999", "0.1", "1.0",
        "123456789012345678901234567890", "9" * 5000, "1." + "3" * 5000,
    ],
)  # fmt: skip
def test_numbers_keep_their_text(literal: str) -> None:
    value = parse_exactly(f'{{"n":[{literal}]}}'.encode())
    assert isinstance(value["n"][0], (int, float))
    assert encode_json(value) == f'{{"n":[{literal}]}}'.encode()


def test_numbers_are_plain_where_they_can_be() -> None:
    assert [type(value) for value in parse_exactly(b"[1, 1.5, 1.50, 18446744073709551616, 1e400]")] == [
        int, float, NumberLiteral, int, NumberLiteral,
    ]  # fmt: skip
    assert parse_exactly(b"1.50") == 1.5
    assert pickle.loads(pickle.dumps(NumberLiteral("1.50"))).literal == "1.50"


def test_depth_costs_no_stack() -> None:
    deep = b'{"a":[' * 5000 + b"]}" * 5000
    assert sys.getrecursionlimit() < 10_000
    assert encode_json(parse_exactly(deep)) == deep


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(documents, st.sampled_from(["", " ", "  ", "\t"]))
def test_what_is_written_reads_back(document: Any, indent: str) -> None:
    text = encode_json(document, indent=indent)
    assert parse_exactly(text) == json.loads(text)
    assert encode_json(parse_exactly(text), indent=indent) == text


@pytest.mark.parametrize(
    ("data", "quoted"),
    [
        (b"Se\x7fret", r'"Se\x7fret"'),
        (b"Se\xffret", r'"Se\xffret"'),
        (b"\xed\xb0\x80", r'"\xed\xb0\x80"'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"\a\b\f\n\r\t\v\x00", r'"\a\b\f\n\r\t\v\x00"'),
        ("ⅷé\u00a0\u200b\U000e0001�".encode(), '"ⅷé\\u00a0\\u200b\\U000e0001�"'),
    ],
)
def test_go_quoting(data: bytes, quoted: str) -> None:
    assert go_quote(data) == quoted


@pytest.mark.parametrize(
    ("byte", "quoted"),
    [
        (0x07, "'\\a'"), (0x08, "'\\b'"), (0x1F, "'\\x1f'"), (0x20, "' '"), (0x22, "'\"'"), (0x27, "'\\''"),
        (0x5C, "'\\\\'"), (0x7F, "'\\x7f'"), (0x80, "'\\u0080'"), (0xA0, "'\\u00a0'"), (0xA1, "'¡'"), (0xFF, "'ÿ'"),
    ],
)  # fmt: skip
def test_bytes_are_quoted_as_latin_1_characters(byte: int, quoted: str) -> None:
    assert quote_byte(byte) == quoted


@pytest.mark.parametrize(
    ("data", "decoded"),
    [
        (b"", b""), (b"\r\n", b""), (b"YQ==", b"a"), (b"YWI=", b"ab"), (b"YWJj", b"abc"), (b"Y\nQ=\r=\n", b"a"),
        (b"YQ=\n=", b"a"), (b"YR==", b"a"),
    ],
)  # fmt: skip
def test_decodes_what_go_decodes(data: bytes, decoded: bytes) -> None:
    assert illegal_byte(data) is None
    assert decode(data) == decoded


@pytest.mark.parametrize(
    ("data", "byte"),
    [
        (b"!", 0), (b"YWJj!", 4), (b"YQ", 0), (b"YWJjY", 4), (b"YWJjYQ", 4), (b"YW\nJjYQ", 5), (b"=", 0), (b"Y=", 1),
        (b"YQ=", 3), (b"YQ=\n", 4), (b"YQ=x", 2), (b"YQ==x", 4), (b"YQ==\nYQ==", 5), (b"YWI=YQ==", 4), (b"YWI==", 4),
        (b"Y-_=", 1), (b" YQ==", 0), (b"YQ= =", 2), (b"k8s\x00", 3), (b"Y\xff", 1),
    ],
)  # fmt: skip
def test_blames_the_byte_that_go_blames(data: bytes, byte: int) -> None:
    assert illegal_byte(data) == byte
    with pytest.raises(UnknownEncoding) as caught:
        decode(data)
    assert caught.value.message == f"illegal base64 data at input byte {byte}"
    assert caught.value.offset == byte


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
        ("2021-1-02T03:04:05Z", 'parsing time "" as "": cannot parse "" as "01"'),
        ("2021-13-02T03:04:05Z", 'parsing time "": month out of range'),
        ("2021-02-30T03:04:05Z", 'parsing time "": day out of range'),
        ("2021-02-00T03:04:05Z", 'parsing time "": day out of range'),
        ("2021-01-02T24:04:05Z", 'parsing time "": hour out of range'),
        ("2021-01-02T23:00:0Z", 'parsing time "" as "": cannot parse "" as "05"'),
        ("2021-01-02T23:00:00.Z", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00z", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
        ("2021-01-02T23:00:00", 'parsing time "" as "": cannot parse "" as "Z07:00"'),
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
        ("1970-01-01T5:00:00,5+05:00", RFC3339, (0, 500_000_000)),
        ("1970-01-01T00:00:00-01:30", RFC3339, (5_400, 0)),
        ("1970-01-01T00:00:00.1234567899Z", RFC3339, (0, 123_456_789)),
        ("1970-01-01T00:00:00.+23456Z", RFC3339_MICRO, (0, 23_456_000)),
        ("0000-03-01T00:00:00Z", RFC3339, (-62_162_035_200, 0)),
        ("yesterday", RFC3339, None),
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
        ("0s", 0),
        ("-1.5h", -5_400_000_000_000),
        ("1h2m3.5s", 3_723_500_000_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("7\u00b5s", 7_000),
        ("7\u03bcs", 7_000),
        ("0.3333333333333333333333s", 333_333_333),
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
