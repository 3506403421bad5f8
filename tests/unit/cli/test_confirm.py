"""Typing back what is about to happen; and a real terminal, with a process at its end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from etcdfix.cli.output import Terminal
from tests.support.change_runs import typing
from tests.support.fixtures import Captured, Patch

KEY = b"/registry/secrets/shop/web"


def test_yes_confirms_a_key_without_a_terminal(monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert Terminal(yes=True).confirm_key(KEY)
    assert not Terminal(yes=False).confirm_key(KEY)


def test_without_a_terminal_nothing_is_read(monkeypatch: Patch, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_bytes(KEY + b"\n")
    with answers.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert not Terminal(yes=False).confirm_key(KEY)
        assert stream.read() == f"{KEY.decode()}\n"


def others(text: str) -> list[str]:
    """Everything near a text that is not the text."""
    middle = len(text) // 2
    return [
        "", "y", "yes", text[:-1], text[1:], text[:middle], text[middle:], text.rpartition("/")[2],
        text + "/", text + "x", f"{text} {text}", "x" + text, "/" + text, text.upper(), text.title(),
        text.swapcase(), text[:middle] + " " + text[middle:], text[:middle] + "x" + text[middle + 1 :],
        text.replace("/", "//"), f"  {text}", f"{text} ", f"{text}\t", f'"{text}"', f"'{text}'",
    ]  # fmt: skip


class TestTheKey:
    def test_to_the_letter(self, monkeypatch: Patch, capfd: Captured) -> None:
        with typing(monkeypatch, KEY.decode()):
            assert Terminal(yes=False).confirm_key(KEY)
        assert f"Type the key in full to go on:\n  {KEY.decode()}\n" in capfd.readouterr().err

    @pytest.mark.parametrize("typed", others(KEY.decode()))
    def test_anything_else_is_no(self, monkeypatch: Patch, typed: str) -> None:
        with typing(monkeypatch, typed):
            assert not Terminal(yes=False).confirm_key(KEY)

    def test_only_the_first_line_counts(self, monkeypatch: Patch) -> None:
        with typing(monkeypatch, "no", KEY.decode()):
            assert not Terminal(yes=False).confirm_key(KEY)

    def test_a_key_that_ends_in_a_blank_is_typed_with_it(self, monkeypatch: Patch) -> None:
        for typed, confirmed in ((f"{KEY.decode()} ", True), (KEY.decode(), False)):
            with typing(monkeypatch, typed):
                assert Terminal(yes=False).confirm_key(KEY + b" ") is confirmed


def test_key_of_stranger_is_shown_and_typed_as_it_is_spelled_out(monkeypatch: Patch, capfd: Captured) -> None:
    key = b"/registry/secrets/\x1b[2J/\xff\xe2\x80\xae"
    with typing(monkeypatch, ""):
        Terminal(yes=False).confirm_key(key)
    shown = capfd.readouterr().err.splitlines()[1].strip()
    assert shown.isprintable()
    with typing(monkeypatch, shown):
        assert Terminal(yes=False).confirm_key(key)


LOST = "kms/v2/prov"


@pytest.mark.parametrize("yes", [True, False])
class TestTheLostKey:
    def test_to_the_letter(self, monkeypatch: Patch, capfd: Captured, *, yes: bool) -> None:
        with typing(monkeypatch, LOST):
            assert Terminal(yes=yes).confirm_lost(LOST)
        assert f"Type the name of the key that is lost for ever in full to go on:\n  {LOST}\n" in (
            capfd.readouterr().err
        )

    @pytest.mark.parametrize("typed", [*others(LOST), KEY.decode()])
    def test_anything_else_is_no(self, monkeypatch: Patch, typed: str, *, yes: bool) -> None:
        with typing(monkeypatch, typed):
            assert not Terminal(yes=yes).confirm_lost(LOST)


@pytest.mark.parametrize("closed", [True, False])
def test_lost_key_in_a_script_was_spelled_out_on_the_command_line(monkeypatch: Patch, closed: bool) -> None:
    if closed:
        monkeypatch.setattr("sys.stdin", None)
    assert Terminal(yes=False).confirm_lost("kms/v2/prov")


def test_end_of_input_is_an_interruption(monkeypatch: Patch, capsys: Captured) -> None:
    with typing(monkeypatch, "\x04"), pytest.raises(click.Abort):  # Ctrl-D
        Terminal(yes=False).confirm_key(KEY)
    asked, said = capsys.readouterr().err.splitlines()[-2:]
    told = "the key was not typed back, and nothing is changed without it"
    assert (asked[:2], said) == ("> ", told)


@pytest.mark.parametrize(
    ("call", "expected"), [(f"confirm_key({KEY!r})", KEY), (f"confirm_lost({LOST!r})", LOST.encode())]
)
@pytest.mark.parametrize("change", ["nothing", "prefix", "suffix", "case", "other"])
def test_real_terminal(call: str, expected: bytes, change: str) -> None:
    typed = {
        "nothing": expected, "prefix": expected[:-1], "suffix": expected + b"/more", "case": expected.upper(),
        "other": b"no",
    }[change]  # fmt: skip
    script = f"from etcdfix.cli.output import Terminal\nprint(Terminal(yes=False).{call})"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(slave)
        os.write(master, typed + b"\n")
        out, err = process.communicate(timeout=60)
    os.close(master)
    assert out.split() == [b"True" if change == "nothing" else b"False"]
    assert b" in full to go on" in err
