from __future__ import annotations

import pytest

from etcdfix.errors import JSONMalformed
from etcdfix.golang.document import read_document


@pytest.mark.parametrize(
    ("data", "root", "repeated"),
    [
        (b'\n{"a": 1, "b": [{"c": "\xff",\n"c": null}], "a": true}', {"a": True, "b": [{"c": None}]},
         [("c", 3), ("a", 3)]),
        (b"a: 1.0\nb: y\na: 2\n", {"a": 2, "b": True}, [("a", 3)]),
        (b"[{a: 1}]", [{"a": 1}], []),
        (b"\xef\xbb\xbf{a: 1}", {"a": 1}, []),
        (b"", None, []),
    ],
)  # fmt: skip
def test_documents(data: bytes, root: object, repeated: list[tuple[str, int]]) -> None:
    assert read_document(data) == (root, repeated)


def test_json_begins_behind_white_space_of_any_kind() -> None:
    with pytest.raises(JSONMalformed, match="line 2: invalid character"):
        read_document(b" \t\r\n\v\f{}")


@pytest.mark.parametrize("data", [b'{"a": ' + b"[" * 100_000, b"{", b'{"a": NaN}', b"a: [", b"[" * 100_000])
def test_neither_json_nor_yaml(data: bytes) -> None:
    with pytest.raises(JSONMalformed):
        read_document(data)
