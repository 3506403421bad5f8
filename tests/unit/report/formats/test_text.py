"""Words and columns that the text forms share."""

from __future__ import annotations

import pytest

from etcdfix.report.formats.text import aligned, shown, shown_transformer, steps


def test_foreign_text_is_safe_and_bounded() -> None:
    assert shown("a\x1b[1mb\nc") == "a\\x1b[1mb\\nc"
    assert shown("x" * 500) == "x" * 500
    long = shown("a" * 1000 + "b" * 1000)
    assert (len(long), long[0], long[-1]) == (501, "a", "b")


def test_columns_are_as_wide_as_their_cells_but_not_for_one_giant() -> None:
    rows = [("a", "1"), ("bbb", "2"), ("c" * 100, "3")]
    assert list(aligned(rows)) == ["  a    1", "  bbb  2", f"  {'c' * 100}  3"]
    assert list(aligned([])) == []


def test_steps_are_numbered_with_note_before_command() -> None:
    assert list(steps([("look", "etcdfix scan", "first"), ("wait", "", "")])) == [
        "  1. look",
        "     first",
        "       etcdfix scan",
        "  2. wait",
    ]


@pytest.mark.parametrize(
    ("transformer", "words"),
    [
        ("aesgcm/v1/old%3Bnnn%B3%01", "aesgcm/v1/(unreadable name, 9 bytes)"),
        ("kms/v2/a%0Ab", "kms/v2/(unreadable name, 3 bytes)"),
        ("aescbc/v1/a%2Fb%25", "aescbc/v1/a%2Fb%25"),
        ("aescbc/v1/schlüssel", "aescbc/v1/schlüssel"),
        ("identity", "identity"),
        ("", ""),
    ],
)
def test_a_name_that_is_no_text_is_not_shown(transformer: str, words: str) -> None:
    assert shown_transformer(transformer) == words
