"""Typing back what is about to happen; and a real terminal, with a process at its end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from etcdfix.cli.confirm import Terminal
from tests.support.change_runs import typing

KEY = b"/registry/secrets/shop/web"


def test_yes_confirms_a_key_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert Terminal(yes=True).confirm_key(KEY)
    assert not Terminal(yes=False).confirm_key(KEY)


def test_without_a_terminal_nothing_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_bytes(KEY + b"\n")
    with answers.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert not Terminal(yes=False).confirm_key(KEY)
        assert stream.read() == f"{KEY.decode()}\n"


@pytest.mark.parametrize(
    ("typed", "confirmed"),
    [
        (KEY.decode(), True),
        (f"  {KEY.decode()} ", True),
        (KEY.decode().upper(), False),
        (KEY.decode() + "/", False),
        ("y", False),
        ("", False),
    ],
)
def test_key_typed_back(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], typed: str, *, confirmed: bool
) -> None:
    with typing(monkeypatch, typed):
        assert Terminal(yes=False).confirm_key(KEY) is confirmed
    assert f"Type the key in full to go on:\n  {KEY.decode()}\n" in capfd.readouterr().err


def test_key_of_a_stranger_is_shown_and_typed_as_it_is_spelled_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    key = b"/registry/secrets/\x1b[2J/\xff\xe2\x80\xae"
    with typing(monkeypatch, ""):
        Terminal(yes=False).confirm_key(key)
    shown = capfd.readouterr().err.splitlines()[1].strip()
    assert shown.isprintable()
    with typing(monkeypatch, shown):
        assert Terminal(yes=False).confirm_key(key)


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize(("typed", "confirmed"), [("kms/v2/prov", True), ("kms/v2/pro", False), ("", False)])
def test_lost_key_is_typed_back_whatever_yes_says(
    monkeypatch: pytest.MonkeyPatch, typed: str, *, confirmed: bool, yes: bool
) -> None:
    with typing(monkeypatch, typed):
        assert Terminal(yes=yes).confirm_lost("kms/v2/prov") is confirmed


@pytest.mark.parametrize("closed", [True, False])
def test_lost_key_in_a_script_was_spelled_out_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, *, closed: bool
) -> None:
    if closed:
        monkeypatch.setattr("sys.stdin", None)
    assert Terminal(yes=False).confirm_lost("kms/v2/prov")


def test_end_of_input_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    with typing(monkeypatch, "\x04"), pytest.raises(click.Abort):  # Ctrl-D
        Terminal(yes=False).confirm_key(KEY)


@pytest.mark.parametrize(("typed", "answer"), [(KEY, b"True"), (b"no", b"False")])
def test_real_terminal(typed: bytes, answer: bytes) -> None:
    script = f"from etcdfix.cli.confirm import Terminal\nprint(Terminal(yes=False).confirm_key({KEY!r}))"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(slave)
        os.write(master, typed + b"\n")
        out, err = process.communicate(timeout=60)
    os.close(master)
    assert out.split() == [answer]
    assert b"Type the key in full" in err
