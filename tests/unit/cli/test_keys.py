"""Keys as `scan -o name` prints them are taken wherever a KEY goes."""

from __future__ import annotations

import pytest

from etcdfix.cli.keys import is_base64, named_key
from etcdfix.errors import ConfigurationError


def test_a_key_as_it_is() -> None:
    assert named_key("/registry/secrets/a/b") == b"/registry/secrets/a/b"
    assert named_key("/registry/\udcff") == b"/registry/\xff"
    assert not is_base64("/registry/base64:")


def test_a_key_in_base64() -> None:
    assert named_key("base64:L3JlZ2lzdHJ5") == b"/registry"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("base64:!", "base64:…: not base64"),
        ("base64:ä", "base64:…: not base64"),
        ("base64:", "base64:…: names no key"),
        ("base64:%", "base64:…: not base64"),
    ],
)
def test_what_names_no_key(word: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        named_key(word)
