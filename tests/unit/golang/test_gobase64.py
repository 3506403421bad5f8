"""Base64 like Go's: the same results, and the same byte to blame (vectors from running ``encoding/base64``)."""

from __future__ import annotations

import pytest

from etcdfix.errors import UnknownEncoding
from etcdfix.golang.gobase64 import decode, illegal_byte


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
