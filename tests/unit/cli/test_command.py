"""How every command speaks: ``-q``."""

from __future__ import annotations

import re

import pytest

from etcdfix.cli.output import HABITS, own_habits, say, say_lines, say_next
from etcdfix.cli.root import run
from etcdfix.text.notes import Note
from tests.support.fixtures import Captured

pytestmark = pytest.mark.usefixtures("no_variables")

NOWHERE = ["--endpoints", "https://127.0.0.1:1", "--dial-timeout", "200ms"]


def test_quiet_leaves_out_notes_and_nothing_else(capfd: Captured) -> None:
    with own_habits():
        for HABITS.quiet in (False, True):
            say(Note("a note"))
            say("a warning")
            say_next("do this", "etcdfix scan")
            say_lines(["a preview"])
    rest = "etcdfix: a warning\n  next: do this\n        etcdfix scan\na preview\n"
    assert capfd.readouterr().err == f"etcdfix: a note\n{rest}{rest}"


def test_warnings_about_safety_and_errors_stay_quiet_or_not(capfd: Captured) -> None:
    words = ["scan", *NOWHERE, "--insecure-skip-tls-verify"]
    told = []
    for more in ([], ["-q"]):
        assert run([*words, *more]) == 5
        told.append(capfd.readouterr().err)
    assert "warning: TLS certificates are not checked" in told[0]
    assert re.sub(r"\d", "", told[0]) == re.sub(r"\d", "", told[1])


def test_what_a_command_line_says_holds_for_its_command_alone() -> None:
    assert run(["schema", "-q"]) == 0
    assert not HABITS.quiet
