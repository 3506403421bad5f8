from __future__ import annotations

import base64
import json
import shlex

import pytest

from etcdfix.text.safetext import (
    is_plain,
    key_base64,
    key_word,
    quote_command,
    safe_json,
    safe_text,
    shown_key,
)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("/registry/secrets/shop/web", "/registry/secrets/shop/web"),
        ("café 東京 😀", "café 東京 😀"),
        ("back\\slash", "back\\slash"),
        ("", ""),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\u200bb\ufeffc\u00ad", "a\\u200bb\\ufeffc\\xad"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("a\u00a0b", "a\\xa0b"),
    ],
)
def test_safe_text(text: str, safe: str) -> None:
    assert safe_text(text) == safe


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (b"/registry/secrets/shop/web", True),
        ("/registry/secrets/shop/café".encode(), True),
        (b"/registry/secrets/shop/with space", True),
        (b"/registry/secrets/shop/\xff", False),
        (b"/registry/secrets/shop/\x1b[2J", False),
        ("/registry/secrets/shop/\u202etxt".encode(), False),
        ("/registry/secrets/shop/\u200b".encode(), False),
        (b"/registry/secrets/shop/\xed\xa0\x80", False),
        (b"", True),
    ],
)
def test_is_plain(key: bytes, plain: bool) -> None:
    assert is_plain(key) is plain


@pytest.mark.parametrize("key", [b"/registry/secrets/shop/web", b"/registry/x/$(reboot)", b"/registry/x/a b"])
def test_plain_keys_are_named_as_they_are(key: bytes) -> None:
    assert key_word(key) == key.decode()


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/x/\xff",
        b"/registry/x/a\nb",
        "/registry/x/\u202e".encode(),
        b"--output-file=/etc/passwd",
        b"secrets",
        b"/registry/secrets/shop/",
        b"",
        b"/registry/x/a*b",
        b"/registry/x/a?",
        b"/registry/x/a[1]",
    ],
    ids=[
        "not-utf8",
        "control",
        "bidi",
        "option",
        "resource",
        "prefix",
        "empty",
        "star",
        "question",
        "bracket",
    ],
)
def test_other_keys_are_named_by_base64(key: bytes) -> None:
    option, _, encoded = key_word(key).partition(":")
    assert option == "base64"
    assert base64.b64decode(encoded, validate=True) == key


@pytest.mark.parametrize(
    "words",
    [
        ["etcdfix", "scan", "/registry/secrets/shop/web"],
        ["etcdfix", "scan", "/registry/x/$(reboot);`id`'\"&|<>*?~#!"],
        ["etcdfix", "scan", "", " ", "-n"],
    ],
)
def test_commands_are_quoted_for_the_shell(words: list[str]) -> None:
    assert shlex.split(quote_command(words)) == words


def test_nothing_invisible_reaches_a_command() -> None:
    line = quote_command(["etcdfix", "scan", "a\x1b[2J\u202e\nb"])
    assert line.isprintable()


@pytest.mark.parametrize(
    "text",
    ["plain", "café", "\x1b\x00", "\x7f", "\x9b31m", "\u202e", "\u2028", "\U000e0041", "a\u00a0b", "😀"],
)
def test_safe_json_means_the_same_and_prints(text: str) -> None:
    encoded = json.dumps({"a": text, text: [text]}, ensure_ascii=False).encode()
    safe = safe_json(encoded)
    assert json.loads(safe) == json.loads(encoded)
    assert safe.decode().isprintable()


def test_safe_json_leaves_ordinary_json_alone() -> None:
    encoded = '{"a":"café 😀"}'.encode()
    assert safe_json(encoded) == encoded
    assert safe_json(b'{"a":1}') == b'{"a":1}'


TOKEN = b"0123456789ab"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"/bootstrap/" + TOKEN, b"/bootstrap/<withheld>"),
        (b"//bootstrap/" + TOKEN, b"//bootstrap/<withheld>"),
        (b"///bootstrap//" + TOKEN + b"/", b"///bootstrap/<withheld>"),
        (b"bootstrap/" + TOKEN, b"bootstrap/<withheld>"),
        (b"/bootstrap/" + TOKEN + b"/more", b"/bootstrap/<withheld>"),
        (b"/bootstrap/\xff\n" + TOKEN, b"/bootstrap/<withheld>"),
        # A part of it, as a prefix to look at is one, tells that part.
        (b"/bootstrap/0", b"/bootstrap/<withheld>"),
        # Below what a proxy, or the prefix of another program, puts in front.
        (b"/k3s/bootstrap/" + TOKEN, b"/k3s/bootstrap/<withheld>"),
        (b"tenant/bootstrap/" + TOKEN * 5, b"tenant/bootstrap/<withheld>"),
        (b"/registry/bootstrap/" + TOKEN, b"/registry/bootstrap/<withheld>"),
    ],
)
def test_what_is_a_digest_of_a_token_is_withheld(key: bytes, shown: bytes) -> None:
    assert shown_key(key) == shown
    assert TOKEN not in shown_key(key)
    assert key_base64(key) is None
    assert key_word(key) == shown.decode()


@pytest.mark.parametrize(
    "key",
    [
        b"/bootstrap",
        b"/bootstrap/",
        b"/bootstrapped/" + TOKEN,
        b"/registry/secrets/bootstrap/" + TOKEN,
        b"/registry/secrets/shop/bootstrap",
        b"/registry/bootstrap/settings",
        b"/registry/stable.example.com/bootstrap/web",
        b"/registry/secrets/kube-system/bootstrap-token-abcdef",
        b"bootstrap",
        b"",
        b"///",
    ],
)
def test_every_other_key_is_shown_as_it_is(key: bytes) -> None:
    assert shown_key(key) == key


def test_no_base64_of_a_withheld_key() -> None:
    key = b"/bootstrap/\x00" + TOKEN
    assert not is_plain(key)
    assert key_base64(key) is None
    assert key_word(key) == "/bootstrap/<withheld>"
