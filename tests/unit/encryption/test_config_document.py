from __future__ import annotations

import pytest

from etcdfix.encryption.config_document import Mapping, Number, is_json, read_json
from etcdfix.errors import ConfigurationError


@pytest.mark.parametrize(
    ("raw", "json"),
    [
        (b"{", True),
        (b" \t\r\n\v\f{", True),
        (b"[{", False),
        (b"\xef\xbb\xbf{", False),
        (b"", False),
        (b"a: {", False),
    ],
)
def test_is_json(raw: bytes, json: bool) -> None:
    assert is_json(raw) is json


def test_json_keeps_order_duplicates_and_number_texts() -> None:
    root = read_json(b'{"b": 1e3, "a": [true, null, "x", {}], "b": -0.50}').root
    assert isinstance(root, Mapping)
    assert [name for name, _ in root.pairs] == ["b", "a", "b"]
    first, listed, last = (node for _, node in root.pairs)
    assert isinstance(first, Number)
    assert isinstance(last, Number)
    assert (first.text, last.text) == ("1e3", "-0.50")
    assert isinstance(listed, list)
    assert listed[:3] == [True, None, "x"]


def test_json_replaces_invalid_utf8() -> None:
    root = read_json(b'{"a": "\xff"}').root
    assert isinstance(root, Mapping)
    assert root.pairs == [("a", "\ufffd")]


def test_trees_do_not_print_themselves() -> None:
    root = read_json(b'{"secret": 12345}').root
    assert isinstance(root, Mapping)
    assert "secret" not in repr(root)
    assert "12345" not in repr(root.pairs[0][1])


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"{", "expecting property name enclosed in double quotes at line 1, column 2"),
        (b'{"a": 1}\nx', "extra data at line 2, column 1"),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": ' + b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_bad_json(raw: bytes, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_json(raw)
    assert caught.value.message == f"couldn't get version/kind; json parse error: {problem}"
    assert caught.value.hint
    # JSONDecodeError holds the file; it must not hang on to our error.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
