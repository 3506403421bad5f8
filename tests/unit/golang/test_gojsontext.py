"""JSON text as Go writes it."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.errors import JSONMalformed
from etcdfix.golang.gojsontext import NumberLiteral, encode_json, parse_exactly


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('<a> & "b" \\ /', r'"\u003ca\u003e \u0026 \"b\" \\ /"'),
        ("\n\r\t\b\f\x00\x1f\x7f", '"\\n\\r\\t\\b\\f\\u0000\\u001f\x7f"'),
        ("\u2028\u2029é😀\ufffd", '"\\u2028\\u2029é😀\ufffd"'),
        ("a\udcffb", r'"a\ufffdb"'),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1 << 70, "1180591620717411303424"),
        (1.0, "1"),
        (-0.5, "-0.5"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        ({}, "{}"),
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
        int,
        float,
        NumberLiteral,
        int,
        NumberLiteral,
    ]
    assert parse_exactly(b"1.50") == 1.5
    assert pickle.loads(pickle.dumps(NumberLiteral("1.50"))).literal == "1.50"


@pytest.mark.parametrize("digits", [308, 309, 400, 2000, 5000])
def test_whole_numbers_beyond_any_float(digits: int) -> None:
    text = b'{"n":-%s}' % (b"9" * digits)
    assert encode_json(parse_exactly(text)) == text


def test_what_is_no_json() -> None:
    with pytest.raises(JSONMalformed) as caught:
        parse_exactly(b'{"a":x}')
    assert (caught.value.message, caught.value.offset) == (
        "invalid character 'x' looking for beginning of value",
        5,
    )


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
