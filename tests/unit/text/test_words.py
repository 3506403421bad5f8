from __future__ import annotations

from etcdfix.text.words import counted


def test_words_with_their_numbers() -> None:
    assert (counted(0, "key"), counted(1, "key"), counted(2, "key")) == ("0 keys", "1 key", "2 keys")
