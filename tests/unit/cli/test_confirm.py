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


def test_the_key_is_typed_to_the_letter(monkeypatch: Patch) -> None:
    with typing(monkeypatch, KEY.decode()):
        assert Terminal(yes=False).confirm_key(KEY)
    for typed in others(KEY.decode()):
        with typing(monkeypatch, typed):
            assert not Terminal(yes=False).confirm_key(KEY), typed
    with typing(monkeypatch, "no", KEY.decode()):
        assert not Terminal(yes=False).confirm_key(KEY)
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
def test_the_lost_key_is_typed_to_the_letter_even_with_yes(monkeypatch: Patch, *, yes: bool) -> None:
    with typing(monkeypatch, LOST):
        assert Terminal(yes=yes).confirm_lost(LOST)
    for typed in (*others(LOST), KEY.decode()):
        with typing(monkeypatch, typed):
            assert not Terminal(yes=yes).confirm_lost(LOST), typed


@pytest.mark.parametrize("closed", [True, False])
def test_lost_key_in_a_script_was_spelled_out_on_the_command_line(monkeypatch: Patch, closed: bool) -> None:
    if closed:
        monkeypatch.setattr("sys.stdin", None)
    assert Terminal(yes=False).confirm_lost("kms/v2/prov")


def test_end_of_input_is_an_interruption(monkeypatch: Patch, capsys: Captured) -> None:
    with typing(monkeypatch, "\x04"), pytest.raises(click.Abort):  # Ctrl-D
        Terminal(yes=False).confirm_key(KEY)
    assert "nothing is changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "expected"), [(f"confirm_key({KEY!r})", KEY), (f"confirm_lost({LOST!r})", LOST.encode())]
)
@pytest.mark.parametrize("confirmed", [True, False])
def test_real_terminal(call: str, expected: bytes, confirmed: bool) -> None:
    typed = expected if confirmed else expected[:-1]
    script = f"from etcdfix.cli.output import Terminal\nprint(Terminal(yes=False).{call})"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(slave)
        os.write(master, typed + b"\n")
        out, err = process.communicate(timeout=60)
    os.close(master)
    assert out.split() == [str(confirmed).encode()]
    assert b" in full to go on" in err
