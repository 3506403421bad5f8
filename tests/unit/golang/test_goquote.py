from __future__ import annotations

import pytest

from etcdfix.golang.goquote import go_quote, quote_byte


@pytest.mark.parametrize(
    ("data", "quoted"),
    [
        (b"Secret", '"Secret"'),
        (b"Se\x7fret", r'"Se\x7fret"'),
        (b"Se\xffret", r'"Se\xffret"'),
        (b"\xe1\x88", r'"\xe1\x88"'),
        (b"\xed\xb0\x80", r'"\xed\xb0\x80"'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"\a\b\f\n\r\t\v\x00", r'"\a\b\f\n\r\t\v\x00"'),
        ("ⅷé\u00a0\u200b\U000e0001�".encode(), '"ⅷé\\u00a0\\u200b\\U000e0001�"'),
    ],
)
def test_go_quoting(data: bytes, quoted: str) -> None:
    assert go_quote(data) == quoted


def test_text_is_quoted_like_its_bytes() -> None:
    assert go_quote("Se\x7fr\udcffet\u202e") == r'"Se\x7fr\xffet\u202e"'


@pytest.mark.parametrize(
    ("byte", "quoted"),
    [
        (0x07, "'\\a'"), (0x08, "'\\b'"), (0x1F, "'\\x1f'"), (0x20, "' '"), (0x22, "'\"'"), (0x27, "'\\''"),
        (0x5C, "'\\\\'"), (0x7F, "'\\x7f'"), (0x80, "'\\u0080'"), (0xA0, "'\\u00a0'"), (0xA1, "'¡'"), (0xFF, "'ÿ'"),
    ],
)  # fmt: skip
def test_bytes_are_quoted_as_latin_1_characters(byte: int, quoted: str) -> None:
    assert quote_byte(byte) == quoted
