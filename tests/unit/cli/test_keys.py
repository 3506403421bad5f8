"""Keys as `scan -o name` prints them are taken wherever a KEY goes."""

from __future__ import annotations

import pytest

from etcdfix.cli.keys import decoded_key, is_base64, named_key
from etcdfix.errors import ConfigurationError


def test_a_key_as_it_is() -> None:
    assert named_key("/registry/secrets/a/b") == b"/registry/secrets/a/b"
    assert named_key("/registry/\udcff") == b"/registry/\xff"
    assert not is_base64("/registry/base64:")


@pytest.mark.parametrize("word", ["base64:L3JlZ2lzdHJ5", "L3JlZ2lzdHJ5"])
def test_a_key_in_base64(word: str) -> None:
    assert decoded_key(word) == b"/registry"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("base64:!", "base64:…: not base64"),
        ("base64:ä", "base64:…: not base64"),
        ("base64:", "base64:…: names no key"),
        ("%", "--key-base64: not base64"),
        ("", "--key-base64: names no key"),
    ],
)
def test_what_names_no_key(word: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        decoded_key(word)
