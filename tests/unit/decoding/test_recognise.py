"""Recognition of JSON by the first bytes."""

from __future__ import annotations

import pytest

from etcdfix.decoding.recognise import is_json


@pytest.mark.parametrize(
    ("data", "claimed"),
    [
        (b"", False),
        (b"k8s\x00{", False),
        (b"{", True),
        (b" \t\r\n\v\f{}", True),
        ("\u0085\u00a0\u1680\u2000\u2028\u205f\u3000{".encode(), True),
        (b"\xd9\xd9\xf7\xa0", False),
        (b"[]", False),
        (b"\xef\xbb\xbf{}", False),
        (b"\x1c{}", False),
    ],
)
def test_first_bytes_decide(data: bytes, claimed: bool) -> None:
    assert is_json(data) is claimed


def test_a_megabyte_of_white_space_is_no_trap() -> None:
    assert not is_json(b" " * 1_000_000 + b"x")
