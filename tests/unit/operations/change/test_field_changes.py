"""Which fields differ: paths and nothing of values, names of entries only where masking leaves them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.operations.change.field_changes import field_changes


def changes(before: Any, after: Any, *, most: int = 100) -> tuple[list[tuple[str, str]], int]:
    told, more = field_changes(before, after, {"before": before, "after": after}, most=most)
    return [(one.path, one.change) for one in told], more


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", "changed")]),
        ({"a": 1}, {"a": True}, [("a", "changed")]),
        ({"a": None}, {}, [("a", "removed")]),
        ({}, {"a": {"b": 1}}, [("a", "added")]),
        (
            {"a": {"b": [1, {"c": 2}]}},
            {"a": {"b": [1, {"c": 3}, 4]}},
            [("a.b[1].c", "changed"), ("a.b[2]", "added")],
        ),
        ({"a": {"x/y.z": 1}}, {"a": {"x/y.z": 2}}, [('a["x/y.z"]', "changed")]),
        ({"a": [1]}, {"a": {"0": 1}}, [("a", "changed")]),
    ],
)
def test_paths(before: Any, after: Any, told: list[tuple[str, str]]) -> None:
    assert changes(before, after) == (told, 0)


def test_so_many_and_no_more() -> None:
    told, more = changes({}, {str(number): 1 for number in range(10)}, most=3)
    assert (len(told), more) == (3, 7)


def test_a_name_that_masking_hides_is_told_by_its_size() -> None:
    before, after = {"data": {"secret-as-a-key": ""}}, {"data": {"other": ""}}
    told, _ = field_changes(before, after, {"data": {"<key of 15 bytes masked>": "", "other": ""}}, most=9)
    assert told == [("data.other", "added"), ("data[<name of 15 bytes masked>]", "removed")]


def test_hostile_names_are_spelled_out_and_short() -> None:
    (((path, _),), _) = changes({}, {"\x1b[2J\u202e" + "n" * 2000: 1}, most=9)
    assert path.isprintable()
    assert len(path) < 400


def test_any_depth() -> None:
    deep: dict[str, Any] = {}
    deeper: dict[str, Any] = {"end": 1}
    for _ in range(5000):
        deep, deeper = {"a": deep}, {"a": deeper}
    ((path, change),), _ = changes(deep, deeper)
    assert change == "added"
    assert len(path) <= 501


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_equal_objects_differ_nowhere_and_others_somewhere(before: Any, after: Any) -> None:
    assert changes(before, before) == ([], 0)
    told, more = changes(before, after)
    assert bool(told or more) == (_in_order(before) != _in_order(after))
    assert all(path.isprintable() for path, _ in told)


def _in_order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
