"""A JSON document taken apart by its marks; reports and plans show most of it, see their own tests."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from etcdfix.inputs.jsonparts import DocumentCut, items, members, piece


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


def test_a_name_may_be_written_in_many_ways() -> None:
    assert taken_apart(rb'{"ro\u0077s": [1]}') == [1]


@pytest.mark.parametrize(
    "rows", ['\n    {"a": 1},\n    {"a": 2}\n ', '\n    {"a": 1},\n    {"a": 2},    {"a": 3}\n  ']
)
def test_a_list_that_begins_as_ours_and_goes_on_otherwise_is_refused(rows: str) -> None:
    """Never are there fewer items than the document has."""
    with pytest.raises(msgspec.DecodeError):
        taken_apart(b'{"rows": [%s]}' % rows.encode())
