"""How every command speaks: ``-q``, ``-v``, ``--log-format``, ``--no-progress``, ``--color``."""

from __future__ import annotations

import json
import re
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.command import Command, habits
from etcdfix.cli.output import HABITS, own_habits, say, say_exchange, say_lines, say_next
from etcdfix.cli.root import run
from etcdfix.reports.base import Output
from etcdfix.sources.etcd.trace import Exchange, listening, question
from etcdfix.text.colour import ColourChoice
from etcdfix.text.commands import ACKNOWLEDGEMENT
from etcdfix.text.notes import Note
from etcdfix.wire.etcd import RANGE, message
from tests.support.collecting import ALPHA
from tests.unit.cli.test_variables import CHANGING, COMMANDS

pytestmark = pytest.mark.usefixtures("no_variables")

HABIT_NAMES = {"--quiet", "--verbose", "--log-format", "--no-progress", "--color"}
SNAPSHOT = ["--snapshot", str(ALPHA / "snapshot.db.gz")]
NOWHERE = ["--endpoints", "https://127.0.0.1:1", "--dial-timeout", "200ms"]


def lines_of(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


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
    words = ["schema", "-q", "-vv", "--log-format", "json", "--no-progress", "--color", "always"]
    assert run(words) == 2
    assert "contradict each other" in capfd.readouterr().err
    words.remove("-q")
    assert run(words) == 0
    assert (HABITS.quiet, HABITS.json, HABITS.progress, HABITS.questions) == (False, False, True, False)
    assert ColourChoice.mode == "auto"
    assert question("a:1", RANGE.path, message("RangeRequest")()) is None  # nobody listens any more


@pytest.mark.parametrize(
    ("words", "code", "level"),
    [
        (["scan", "--snapshot", "no/such/file", "--log-format", "json"], 5, "error"),
        (["scan", "--log-format=json", "--no-such-option"], 2, "error"),
        (["scan", "--no-such-option", "--log-format", "json"], 2, "error"),
        (["scna", "--log-format", "json"], 2, "error"),
        (["scan", *SNAPSHOT, "--log-format", "json", "no-such-things"], 2, "error"),
        (["scan", *SNAPSHOT, "/registry/nothing", "--log-format", "json"], 5, "warning"),
    ],
)
def test_in_json_every_line_is_an_object(
    words: list[str], code: int, level: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    told = lines_of(capfd)
    assert told[-1]["level"] == level
    assert all(
        line["message"] and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", line["time"]) for line in told
    )


@pytest.mark.parametrize(
    ("words", "in_json"),
    [
        (["scan", "--bogus"], True),
        (["--bogus"], True),
        (["scna"], True),
        (["audit", "verify", "--bogus"], True),
        (["scan", "--bogus", "--log-format", "text"], False),
        (["scan", "--log-format=text", "--bogus"], False),
        *[([*name.split(), "--bogus"], False) for name in sorted(CHANGING)],
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_misuse_is_told_in_the_form_of_the_variable(
    words: list[str], in_json: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCDFIX_LOG_FORMAT", "json")
    assert run(words) == 2
    assert capfd.readouterr().err.startswith("{") is in_json


def test_an_error_in_json_has_its_code_and_what_to_do_next(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "--kubernetes-version", "x", *SNAPSHOT, "--log-format", "json"]) == 2
    (told,) = lines_of(capfd)
    told.pop("time")
    assert told == {
        "level": "error",
        "message": "--kubernetes-version 'x' is not a version",
        "next": "write it as 1.36",
        "code": "configuration-invalid",
    }


def test_a_change_in_json_says_what_it_does_not_heed_as_an_object(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCDFIX_PLAN", "p")
    assert run(["delete", "/k", ACKNOWLEDGEMENT, "--log-format", "json"]) == 2
    heeded, missing = lines_of(capfd)
    assert heeded["message"].startswith("not heeded: ETCDFIX_PLAN;")
    assert missing["message"] == "Missing option '--reason'."


def test_names_of_strangers_stay_inert_in_json(capfd: pytest.CaptureFixture[str]) -> None:
    with own_habits():
        HABITS.json = True
        say("a\x1b[2J\nb\u202ec")
        say_lines(["", "a preview"])
    raw = capfd.readouterr().err
    assert raw.isascii()
    assert "\x1b" not in raw
    assert [json.loads(line)["message"] for line in raw.splitlines()] == [
        "a\\x1b[2J\\nb\\u202ec",
        "a preview",
    ]


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
    sent, came = found
    assert (sent.milliseconds, sent.keys) == (None, None)
    assert (came.method, came.key, came.range_end, came.revision, came.limit) == (
        "KV/Range", b"/registry/a", b"/registry/b", 7, 500,
    )  # fmt: skip
    assert (came.keys, came.more, came.status) == (1, True, "")
    with own_habits():
        say_exchange(sent)
        assert capfd.readouterr().err == ""  # only with -vv
        HABITS.questions = True
        say_exchange(sent)
        assert re.fullmatch(
            r"etcdfix: \S+Z 10\.0\.0\.1:2379 KV/Range /registry/a to /registry/b at revision 7 at most 500\n",
            capfd.readouterr().err,
        )


def test_in_json_no_keys_are_told_as_none(capfd: pytest.CaptureFixture[str]) -> None:
    with own_habits():
        HABITS.json = True
        say_exchange(Exchange(endpoint="a:1", method="KV/Range", key=b"/k", milliseconds=0.0, keys=0))
    (told,) = lines_of(capfd)
    assert (told["keys"], told["milliseconds"]) == (0, 0)
    assert not told.keys() & {"revision", "limit", "more", "status", "range_end"}


class _Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


ROWS = [
    ("decrypt-failure", "wrong-key", "/registry/secrets/decrypt-failure"),
    ("readable", "", "/registry/pods/x"),
]


def table(stream: BytesIO) -> str:
    Output(stream).table(("OUTCOME", "CAUSE", "KEY"), ROWS, key="KEY")
    return stream.getvalue().decode()


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("refused", ["", "1"])
def test_who_gets_colours(mode: Any, terminal: bool, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", refused)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "0")
    with own_habits():
        ColourChoice.mode = "never"
        plain = table(BytesIO())
        ColourChoice.mode = mode
        found = table(_Terminal() if terminal else BytesIO())
    coloured = mode == "always" or (mode == "auto" and terminal and not refused)
    assert ("\x1b" in found) is coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", found) == plain
    if coloured:
        assert found.count("\x1b[31mdecrypt-failure\x1b[0m") == 1  # not where it is the name of an object


@pytest.mark.parametrize("columns", ["40", "60", "200"])
def test_colours_do_not_change_where_words_stand(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with own_habits():
        plain = table(BytesIO())
        ColourChoice.mode = "always"
        assert re.sub(r"\x1b\[[\d;]*m", "", table(BytesIO())) == plain


def test_a_scan_into_a_pipe_has_no_colours(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    words = ["scan", *SNAPSHOT, "--encryption-config", str(ALPHA / "config-lost.yaml")]
    assert run(words) == 3
    plain = capfdbinary.readouterr().out
    assert b"\x1b" not in plain
    assert run([*words, "--color", "always"]) == 3
    found = capfdbinary.readouterr().out
    assert b"\x1b[31mdecrypt-failure\x1b[0m" in found
    assert run([*words, "--output-file", str(tmp_path / "report")]) == 3
    assert b"\x1b" not in (tmp_path / "report").read_bytes()
