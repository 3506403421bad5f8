from __future__ import annotations

import io
import os
import pty

import pytest

from etcdfix.report.base import Aligned, Output
from etcdfix.report.tables import prose_lines, table_lines, width_for

COLUMNS = ("CAUSE", "KEY", "COUNT", "NONE", "WHAT IS WRONG")
KEY = "/registry/secrets/shop/a-name-that-is-rather-long-for-a-narrow-terminal"
ROWS = [
    ("key-name-missing", KEY, "12", "-", "written under aescbc/v1/lost; no key of that name is configured"),
    ("empty-value", "/registry/pods/a/b", "3", "-", "no byte is stored"),
]


def test_without_a_width_each_row_is_one_line_and_the_key_is_last() -> None:
    head, first, second = table_lines(COLUMNS, ROWS, 0, key="KEY")
    assert head.split("  ")[0] == "CAUSE"
    assert head.endswith("  KEY")
    assert first == f"key-name-missing  12       -       {ROWS[0][4]}  {KEY}"
    assert second.endswith("  /registry/pods/a/b")


def test_what_fits_is_not_folded() -> None:
    whole = list(table_lines(COLUMNS, ROWS, 0, key="KEY"))
    most = max(map(len, whole))
    assert list(table_lines(COLUMNS, ROWS, most, key="KEY")) == whole
    assert len(list(table_lines(COLUMNS, ROWS, most - 10, key="KEY"))) > len(whole)


def test_a_key_without_room_stands_whole_on_a_line_of_its_own() -> None:
    lines = list(table_lines(COLUMNS, ROWS, 60, key="KEY"))
    assert lines[1] == "    KEY"
    assert f"    {KEY}" in lines
    assert max(len(line) for line in lines if "/registry" not in line) <= 60
    assert lines[0] == "CAUSE             COUNT  NONE  WHAT IS WRONG"
    assert lines[2] == "key-name-missing  12     -     written under aescbc/v1/lost;"
    assert lines[3] == "                               no key of that name is"


def test_what_has_no_room_is_left_out_and_named_empty_columns_first() -> None:
    columns = ("NAME", "ONE", "EMPTY", "TWO", "THREE")
    rows = [("a" * 20, "b" * 20, "-", "c" * 20, "d" * 20)]
    one = list(table_lines(columns, rows, 87, spare=("TWO",)))
    assert one[-1] == "(no room for EMPTY: see -o json, or use a wider terminal)"
    two = list(table_lines(columns, rows, 65, spare=("TWO",)))
    assert two[-1] == "(no room for EMPTY, TWO: see -o json, or use a wider terminal)"
    assert two[0].split() == ["NAME", "ONE", "THREE"]
    # Before a column goes that nobody can spare, words are broken.
    three = list(table_lines(columns, rows, 55, spare=("TWO",)))
    assert three[0].split() == ["NAME", "ONE", "THREE"]
    assert max(map(len, three)) <= 55
    assert "".join(line[:17].strip() for line in three[1:3]) == "a" * 20


def test_a_long_word_breaks_after_one_of_its_parts() -> None:
    rows = [("customresourcedefinitions.apiextensions.k8s.io", "x " * 30)]
    lines = list(table_lines(("RESOURCE", "WHAT"), rows, 50))
    assert [line[:24].strip() for line in lines if line[:24].strip()] == [
        "RESOURCE", "customresourcedefinition", "s.apiextensions.k8s.io",
    ]  # fmt: skip


def test_sentences_fold_below_a_row_between_their_words() -> None:
    rows = [("1", f"find the key {KEY} before anything is deleted", "wrong-key-and-much-more")]
    lines = list(table_lines(("COUNT", "ADVICE", "CAUSE"), rows, 50, key="ADVICE", prose=True))
    assert lines[1:] == [
        "    ADVICE",
        "1      wrong-key-and-much-more",
        "    find the key",
        f"    {KEY}",
        "    before anything is deleted",
    ]


def test_prose_breaks_no_word() -> None:
    assert prose_lines(f"look at {KEY} first", 40) == ["look at", KEY, "first"]


@pytest.mark.parametrize(
    ("given", "width"), [("100", 100), ("7", 40), ("0", 0), ("", 0), ("wide", 0), ("-80", 0), ("²", 0)]
)
def test_columns_of_the_environment(monkeypatch: pytest.MonkeyPatch, given: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", given)
    assert width_for(io.BytesIO()) == width


def test_a_terminal_is_asked_for_its_width() -> None:
    controller, terminal = pty.openpty()
    try:
        with open(terminal, "wb", buffering=0, closefd=False) as stream:
            assert width_for(stream) == 0  # it has no size yet
            import fcntl
            import struct
            import termios

            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 93, 0, 0))
            assert width_for(stream) == 93
    finally:
        os.close(controller)
        os.close(terminal)


def test_aligned_lines_fold_below_their_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    what = "STOPS: it does not start, whatever else is there"
    row = Aligned(f"  pods a/b  {what}", ["pods a/b", what], "  ")
    out = io.BytesIO()
    Output(out).line(row)
    assert out.getvalue().decode() == f"{row}\n"
    monkeypatch.setenv("COLUMNS", "40")
    out = io.BytesIO()
    Output(out).line(row)
    assert (
        out.getvalue().decode()
        == "  pods a/b\n      STOPS: it does not start, whatever\n      else is there\n"
    )
