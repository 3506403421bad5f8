"""How every command speaks: ``-q`` and ``-v``."""

from __future__ import annotations

import re
import sys

import pytest

from etcdfix.cli.command import Command, habits
from etcdfix.cli.output import HABITS, own_habits, say, say_exchange, say_lines, say_next
from etcdfix.cli.root import run
from etcdfix.sources.etcd.trace import Exchange, listening, question
from etcdfix.text.notes import Note
from etcdfix.wire.etcd import RANGE, message
from tests.unit.cli.test_variables import COMMANDS

pytestmark = pytest.mark.usefixtures("no_variables")

HABIT_NAMES = {"--quiet", "--verbose"}
NOWHERE = ["--endpoints", "https://127.0.0.1:1", "--dial-timeout", "200ms"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_them_once(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    named = [option.opts[-1] for option in command.params]
    assert [named.count(habit) for habit in sorted(HABIT_NAMES)] == [1] * len(HABIT_NAMES)
    assert {option.opts[-1] for option in habits()} == HABIT_NAMES


def test_quiet_leaves_out_notes_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with own_habits():
        for HABITS.quiet in (False, True):
            say(Note("a note"))
            say("a warning")
            say_next("do this", "etcdfix scan")
            say_lines(["a preview"])
    rest = "etcdfix: a warning\n  next: do this\n        etcdfix scan\na preview\n"
    assert capfd.readouterr().err == f"etcdfix: a note\n{rest}{rest}"


def test_warnings_about_safety_and_errors_stay_quiet_or_not(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["scan", *NOWHERE, "--insecure-skip-tls-verify"]
    told = []
    for more in ([], ["-q"]):
        assert run([*words, *more]) == 5
        told.append(capfd.readouterr().err)
    assert "warning: TLS certificates are not checked" in told[0]
    assert re.sub(r"\d", "", told[0]) == re.sub(r"\d", "", told[1])


def test_what_a_command_line_says_holds_for_its_command_alone(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["schema", "-q", "-v"]
    assert run(words) == 2
    assert "contradict each other" in capfd.readouterr().err
    words.remove("-q")
    assert run(words) == 0
    assert not HABITS.quiet
    assert question("a:1", RANGE.path, message("RangeRequest")()) is None  # nobody listens any more


def test_of_a_request_only_range_and_counts_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    request = message("RangeRequest")(key=b"/registry/a", range_end=b"/registry/b", revision=7, limit=500)
    answer = message("RangeResponse")(more=True, count=9)
    answer.kvs.add(key=b"/registry/a\x1b", value=b"not-to-be-shown")

    def ask() -> None:
        asked = question("10.0.0.1:2379", RANGE.path, request)
        assert asked is not None
        asked.answered(answer, sys.float_info.max)

    found: list[Exchange] = []
    with listening(found.append):
        ask()
    (came,) = found
    assert (came.method, came.key, came.range_end, came.revision, came.limit) == (
        "KV/Range", b"/registry/a", b"/registry/b", 7, 500,
    )  # fmt: skip
    assert (came.keys, came.more, came.status) == (1, True, "")
    say_exchange(came)
    assert re.fullmatch(
        r"etcdfix: \S+Z 10\.0\.0\.1:2379 KV/Range /registry/a to /registry/b at revision 7 at most 500: "
        r"1 key, more follow, \S+ ms\n",
        capfd.readouterr().err,
    )
