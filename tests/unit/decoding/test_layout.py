"""Where the parts of a plaintext lie, and that nothing of its contents is told."""

from __future__ import annotations

import pytest

from etcdfix.decoding.layout import plaintext_layout
from tests.support.objects import config_map, secret, widget


def told(value: bytes) -> str:
    return " ".join(f"{part.name} {part.detail}" for part in plaintext_layout(value))


def test_a_protobuf_object() -> None:
    value = secret()
    parts = plaintext_layout(value)
    assert [part.name for part in parts] == ["magic", "type", "object", "content encoding", "content type"]
    assert parts[1].detail == "apiVersion v1, kind Secret"
    assert parts[-1].offset + parts[-1].length == len(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b'{"kind":"Widget"}\n', "text begins as JSON does"),
        (
            b'{"kind":"Widget"}',
            "text begins as JSON does, and lacks the line feed at its end that API servers write",
        ),
        (b"[1]", "text begins as JSON does"),
        (b"\xd9\xd9\xf7\xa0", "bytes begins as CBOR does"),
        (bytes(9), "bytes all zero"),
        (b"k8t\x00rest", "bytes begins as no known encoding does; 3 bits of the protobuf magic are wrong"),
        (b"?", "bytes begins as no known encoding does"),
        (b"something else", "bytes begins as no known encoding does"),
        (b"", ""),
    ],
)
def test_what_a_value_begins_as(value: bytes, words: str) -> None:
    assert told(value) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "rest no field of the envelope begins here"),
        (b"\x10\x01", "rest no field that the envelope has"),
        (b"\x2a\x01x", "rest no field that the envelope has"),
        (b"\x12\x7fabc", "object says 127 bytes, 3 are left"),
        (b"\x0a\x02\x0a\xff", "type 2 bytes that are not only these"),
        (b"\x0a\x03\x1a\x01x", "type 3 bytes that are not only these"),
        (b"\x0a\x06\x0a\x01a\x0a\x01b", "type apiVersion a, 6 bytes that are not only these"),
        (b"\x0a\x04\x0a\x02\x00\x01", "type apiVersion <2 bytes withheld>"),
    ],
)
def test_an_envelope_that_is_not_as_it_should_be(body: bytes, words: str) -> None:
    assert told(b"k8s\x00" + body) == f"magic k8s and a zero byte: protobuf {words}"


@pytest.mark.parametrize("whole", [secret(), config_map(), widget()], ids=["secret", "config map", "widget"])
def test_nothing_of_an_object_is_told_wherever_it_is_cut_or_damaged(whole: bytes) -> None:
    values = [whole[:size] for size in range(len(whole))]
    values += [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    for value in values:
        parts = plaintext_layout(value)
        assert sum(part.length for part in parts) == len(value)
        shown = told(value)
        assert "never-to" not in shown
        assert "password" not in shown
