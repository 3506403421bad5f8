"""A JSON document taken apart by its marks; reports and plans show most of it, see their own tests."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest

from etcdfix.inputs.jsonparts import MOST_PIECE_BYTES, DocumentCut, OtherFormError, items, members, piece


def taken_apart(raw: bytes) -> list[Any]:
    return [msgspec.json.decode(piece(raw, span)) for span in items(raw, members(raw)[b"rows"], "rows")]


@pytest.mark.parametrize("layout", ['{"rows":[%s]}', '{\n  "rows": [\n    %s\n  ]\n}', '{"rows" :\t[ %s ] }'])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_all_items_of_a_list(layout: str, count: int) -> None:
    rows = [{"a": "},\n  ]", "b": [number, {}]} for number in range(count)]
    between = ",\n    " if "\n" in layout else " , "
    raw = (layout % between.join(map(json.dumps, rows))).encode()
    assert taken_apart(raw) == rows


@pytest.mark.parametrize(
    "rows",
    ['{"a":1},', "{},{},", '\n    {"a":1},\n  ', '\n    {"a":1},\n    {"a":2},\n  ', ",", "{} {}", "{},,{}"],
)  # fmt: skip
def test_a_comma_too_many_or_too_few_is_no_list(rows: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        taken_apart(b'{"rows": [%s]}' % rows.encode())


def test_what_is_no_list_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match="its rows are no list"):
        taken_apart(b'{"rows": {}}')


def test_a_document_that_ends_early() -> None:
    with pytest.raises(DocumentCut, match="it is cut"):
        members(b'{"rows": [{"a": 1}')


@pytest.mark.parametrize(
    "rest",
    ['"a": 1,', '"a": 1, , "b": 2', '"a": 1 "b": 2', '"a\n": 1', '"rows": []', r'"row\u0073": []', "a: 1"],
)
def test_members_that_are_none(rest: str) -> None:
    """The name of one is what JSON says it is, however it is written: none stands twice."""
    with pytest.raises(msgspec.DecodeError):
        members(b'{"rows": [], %s}' % rest.encode())


@pytest.mark.parametrize(
    "rows", ['\n    {"a": 1},\n    {"a": 2}\n ', '\n    {"a": 1},\n    {"a": 2},    {"a": 3}\n  ']
)
def test_a_list_that_begins_as_ours_and_goes_on_otherwise_is_refused(rows: str) -> None:
    """Never are there fewer items than the document has."""
    with pytest.raises(msgspec.DecodeError):
        taken_apart(b'{"rows": [%s]}' % rows.encode())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[]", "it is JSON, but a list, expected an object"),
        (b" [{}, 1]\n", "it is JSON, but a list, expected an object"),
        (b"null", "it is JSON, but one value (null), expected an object"),
        (b"true", "it is JSON, but one value (true), expected an object"),
        (b"-1.5e3\n", "it is JSON, but one value (a number), expected an object"),
        (b'"\\u001b[2J"', "it is JSON, but one value (a string), expected an object"),
        (b"[core]", "it is no JSON at byte 0"),
        (b"nul", "it is no JSON at byte 0"),
        (b"[" * 100_000, "it is no JSON at byte 0"),
        (b"  # A heading", "it is no JSON at byte 2"),
        (b"[" + b" " * MOST_PIECE_BYTES + b"]", "it is no JSON object at byte 0"),
        (b" ", "it is cut: its end is missing"),
        (b"", "it is empty"),
        (b"\xef\xbb\xbf", "it is empty"),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_document_that_is_no_object(raw: bytes, said: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as refused:
        members(raw)
    assert str(refused.value) == said


@pytest.mark.parametrize("raw", [b'{"rows": [1, 2]}', b'\n {"rows":[\n    1,\n    2\n  ]}'])
def test_a_mark_of_utf_8_before_the_document_is_passed_over(raw: bytes) -> None:
    assert taken_apart(b"\xef\xbb\xbf" + raw) == taken_apart(raw) == [1, 2]
    with pytest.raises(msgspec.DecodeError, match="no JSON at byte 3"):
        members(b"\xef\xbb\xbf" * 2 + raw)


@pytest.mark.parametrize(
    ("raw", "said", "hint"),
    [
        (gzip.compress(b'{"rows": []}'), "it begins with 1f 8b: it is compressed (gzip)", "gunzip"),
        ('{"rows": []}'.encode("utf-16"), "it begins with ff fe: it is UTF-16, expected UTF-8", "iconv -f UTF-16 "),
        (b"\xfe\xff" + '{"rows": []}'.encode("utf-16-be"), "it begins with fe ff: it is UTF-16", "iconv -f UTF-16 "),
        ('{"rows": []}'.encode("utf-16-le"), "it begins with 7b 00: it is UTF-16", "iconv -f UTF-16LE "),
        ('{"rows": []}'.encode("utf-16-be"), "it begins with 00 7b: it is UTF-16", "iconv -f UTF-16BE "),
    ],
    ids=range(5),
)  # fmt: skip
def test_a_document_in_another_form_says_how_to_turn_it_into_json(raw: bytes, said: str, hint: str) -> None:
    with pytest.raises(OtherFormError) as refused:
        members(raw)
    assert str(refused.value).startswith(said)
    assert hint in refused.value.hint
