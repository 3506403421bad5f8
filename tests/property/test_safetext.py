"""Whatever strangers call their objects: nothing acts upon a terminal, and commands stay what they were."""

from __future__ import annotations

import base64
import json
import shlex
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from etcdfix.text.safetext import is_plain, key_word, quote_command, safe_json, safe_text

ANY_TEXT = st.text(st.characters())
# Categories that a terminal may act upon, or that hide what is there.
ACTIVE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY_TEXT)
def test_safe_text_holds_nothing_active(text: str) -> None:
    safe = safe_text(text)
    assert not {unicodedata.category(c) for c in safe} & ACTIVE
    assert safe_text(safe) == safe
    if not {unicodedata.category(c) for c in text} & (ACTIVE | {"Zs", "Co", "Cn"}):
        assert safe == text


@given(st.binary())
def test_keys_survive_the_command_line(key: bytes) -> None:
    word = key_word(key)
    line = quote_command(["etcdfix", "scan", word])
    assert line.isprintable()
    assert shlex.split(line) == ["etcdfix", "scan", word]
    named = base64.b64decode(word[7:]) if word.startswith("base64:") else word.encode()
    assert named == key
    if not word.startswith("base64:"):
        assert is_plain(key)


@given(st.lists(ANY_TEXT, min_size=1))
def test_every_command_is_one_line_with_the_same_number_of_words(words: list[str]) -> None:
    line = quote_command(words)
    assert line.isprintable()
    assert shlex.split(line) == [safe_text(word) for word in words]


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_safe_json_is_the_same_document(value: object) -> None:
    encoded = json.dumps(value, ensure_ascii=False).encode()
    safe = safe_json(encoded)
    assert json.loads(safe) == value
    assert not {unicodedata.category(c) for c in safe.decode()} & ACTIVE
