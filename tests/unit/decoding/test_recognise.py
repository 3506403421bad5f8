"""Recognition by the first bytes."""

from __future__ import annotations

import pytest

from etcdfix.decoding.recognise import Form, is_json, recognise


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"", Form.EMPTY),
        (b"k8s\x00", Form.PROTOBUF),
        (b"k8s\x00{", Form.PROTOBUF),
        (b"{", Form.JSON),
        (b" \t\r\n\v\f{}", Form.JSON),
        ("\u0085\u00a0\u1680\u2000\u2028\u205f\u3000{".encode(), Form.JSON),
        (b"\xd9\xd9\xf7\xa0", Form.CBOR),
        (b"k8s:enc:aescbc:v1:key1:", Form.ENCRYPTED),
        (b"k8s", Form.UNKNOWN),
        (b"[]", Form.UNKNOWN),
        (b"\xef\xbb\xbf{}", Form.UNKNOWN),
        (b"\x1c{}", Form.UNKNOWN),
        (b"\xd9\xd9", Form.UNKNOWN),
    ],
)
def test_first_bytes_decide(data: bytes, form: Form) -> None:
    assert recognise(data) is form
    assert is_json(data) is (form is Form.JSON)


def test_a_megabyte_of_white_space_is_no_trap() -> None:
    assert not is_json(b" " * 1_000_000 + b"x")
