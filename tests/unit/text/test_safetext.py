from __future__ import annotations

import base64

import msgspec
import pytest

from etcdfix.text import commands
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import (
    is_plain,
    key_base64,
    key_word,
    safe_json,
    safe_text,
    shown_key,
)
from etcdfix.text.times import seconds_between, unix_seconds
from etcdfix.text.words import counted


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("/registry/secrets/shop/web", "/registry/secrets/shop/web"),
        ("back\\slash", "back\\slash"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
    ],
)
def test_safe_text(text: str, safe: str) -> None:
    assert safe_text(text) == safe


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (b"/registry/secrets/shop/web", True),
        (b"/registry/secrets/shop/with space", True),
        (b"/registry/secrets/shop/\xff", False),
        (b"/registry/secrets/shop/\x1b[2J", False),
        ("/registry/secrets/shop/\u202etxt".encode(), False),
        (b"/registry/secrets/shop/\xed\xa0\x80", False),
        (b"", True),
    ],
)
def test_is_plain(key: bytes, plain: bool) -> None:
    assert is_plain(key) is plain


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/x/\xff",
        b"/registry/x/a\nb",
        "/registry/x/\u202e".encode(),
        b"--output-file=/etc/passwd",
        b"secrets",
        b"/registry/secrets/shop/",
        b"",
        b"/registry/x/a*b",
        b"/registry/x/a?",
        b"/registry/x/a[1]",
    ],
    ids=[
        "not-utf8", "control", "bidi", "option", "resource", "prefix", "empty", "star", "question",
        "bracket",
    ],
)  # fmt: skip
def test_other_keys_are_named_by_base64(key: bytes) -> None:
    option, _, encoded = key_word(key).partition(":")
    assert option == "base64"
    assert base64.b64decode(encoded, validate=True) == key


def test_safe_json_leaves_ordinary_json_alone() -> None:
    encoded = '{"a":"café 😀"}'.encode()
    assert safe_json(encoded) == encoded
    assert safe_json(b'{"a":1}') == b'{"a":1}'


TOKEN = b"0123456789ab"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"/bootstrap/" + TOKEN, b"/bootstrap/<withheld>"),
        (b"///bootstrap//" + TOKEN + b"/", b"///bootstrap/<withheld>"),
        (b"bootstrap/" + TOKEN, b"bootstrap/<withheld>"),
        (b"/bootstrap/" + TOKEN + b"/more", b"/bootstrap/<withheld>"),
        (b"/bootstrap/\xff\n" + TOKEN, b"/bootstrap/<withheld>"),
        # A part of it, as a prefix to look at is one, tells that part.
        (b"/bootstrap/0", b"/bootstrap/<withheld>"),
        # Below what a proxy, or the prefix of another program, puts in front.
        (b"/k3s/bootstrap/" + TOKEN, b"/k3s/bootstrap/<withheld>"),
        (b"/registry/bootstrap/" + TOKEN, b"/registry/bootstrap/<withheld>"),
    ],
)
def test_what_is_a_digest_of_a_token_is_withheld(key: bytes, shown: bytes) -> None:
    assert shown_key(key) == shown
    assert TOKEN not in shown_key(key)
    assert key_base64(key) is None
    assert key_word(key) == shown.decode()


@pytest.mark.parametrize(
    "key",
    [
        b"/bootstrap/",
        b"/bootstrapped/" + TOKEN,
        b"/registry/secrets/bootstrap/" + TOKEN,
        b"/registry/bootstrap/settings",
        b"/registry/stable.example.com/bootstrap/web",
        b"/registry/secrets/kube-system/bootstrap-token-abcdef",
        b"",
    ],
)
def test_every_other_key_is_shown_as_it_is(key: bytes) -> None:
    assert shown_key(key) == key


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60), ("1970-01-01T01:01:00+01:00", 60), ("1960-01-01T00:00:00Z", 0),
        ("", 0), ("yesterday", 0), ("0001-01-01T00:00:00+23:59", 0),
    ],
)  # fmt: skip
def test_a_time_in_seconds(at: str, seconds: int) -> None:
    assert unix_seconds(at) == seconds


@pytest.mark.parametrize(
    ("first", "last", "seconds"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:05:06Z", 61),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:04Z", 0),
        ("x", "2026-01-02T03:04:04Z", 0),
        ("2026-01-02T03:04:05Z", "x", 0),
    ],
)
def test_how_long_something_took(first: str, last: str, seconds: int) -> None:
    assert seconds_between(first, last) == seconds


def test_words_with_their_numbers() -> None:
    assert (counted(0, "key"), counted(1, "key"), counted(2, "key")) == ("0 keys", "1 key", "2 keys")


ACCESS = ("--cacert", "ca", "--cert", "c", "--key", "k", "--user", "root")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (("--snapshot", "old.db"), "etcdctl snapshot save FILE"),
        (
            ("--endpoints", "one:1,two:2", *ACCESS),
            "etcdctl --endpoints one:1 --cacert ca --cert c --key k --user root snapshot save FILE",
        ),
        (("--user", "root", "--revision", "7"), "etcdctl --user root snapshot save FILE"),
    ],
)
def test_a_snapshot_is_saved_of_one_endpoint_as_it_stands_now(source: tuple[str, ...], expected: str) -> None:
    assert commands.save_snapshot().line(RunOptions(source=source)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((), ""),
        (("--snapshot", "old.db", "--revision", "7"), "7"),
        (("--revision",), ""),  # a saved report may say anything
    ],
)
def test_the_revision_that_was_named(source: tuple[str, ...], expected: str) -> None:
    assert RunOptions(source=source).revision == expected


def test_etcdctl_asks_every_endpoint_and_knows_no_revision() -> None:
    run = RunOptions(source=("--endpoints", "one:1,two:2", "--revision", "7", "--cacert", "my ca"))
    alarms = commands.etcdctl("alarm", "list")
    assert alarms.line(run) == "etcdctl --endpoints one:1,two:2 --cacert 'my ca' alarm list"
    assert alarms.line(RunOptions(source=("--snapshot", "old.db", "--salvage"))) == "etcdctl alarm list"


KEY = b"/registry/secrets/shop/web"
FIX = commands.fix(KEY, "revision:5")
HEAL = commands.fix_from_memory(KEY)


def test_no_command_writes_to_kine() -> None:
    run = RunOptions(source=("--kine", "my state.db", "--revision", "7"), reading=("--no-encryption",))
    assert run.of_a_file
    assert run.of_the_past
    changes = (
        commands.delete(KEY), FIX, commands.undo("b"),
        commands.etcdctl("alarm", "list"), commands.run_plan("plan.json"), commands.save_snapshot(),
    )  # fmt: skip
    assert {change.line(run) for change in changes} == {""}
    assert commands.save_copy(run, "kept.db").line(run) == "sqlite3 -readonly 'my state.db' '.backup kept.db'"
    assert commands.get(KEY, revision=5).line(run) == (
        "etcdfix get --kine 'my state.db' --revision 5 --no-encryption /registry/secrets/shop/web"
    )
    assert " --kine 'my state.db' --encryption-config FILE --reason" in HEAL.line(run)


def test_every_command_names_the_places_that_it_has_options_for() -> None:
    report = ("--from-report", "scan.json")
    run = RunOptions(
        source=("--endpoints", "one:1"),
        backups=("--backup-dir", "B"),
        log=("--audit-log", "L"),
        syslog=("--audit-syslog", "/dev/log"),
    )
    change = "--backup-dir B --audit-log L --audit-syslog /dev/log --reason REASON"
    for command in (commands.delete(KEY), FIX, HEAL, commands.undo("b")):
        assert command.line(run).count(change) == 1, command
        assert command.line(run).count("--audit-log") == 1
    assert commands.rescue(report).line(run).endswith(" --rescued DIR --audit-log L --audit-syslog /dev/log")
    for command in (commands.copies("k"), commands.copies(*report), commands.explain(KEY, "--history")):
        assert "--backup-dir B --audit-log L" in command.line(run)
        assert "--audit-syslog" not in command.line(run)
    assert commands.recover(["T"], "--save-dir", "D").line(run).endswith("--audit-log L --save-dir D")
    assert "--audit-log L" in commands.get(KEY, "--reveal").line(run)
    for command in (
        commands.get(KEY), commands.scan("k"), commands.plan("scan.json", "plan.json"),
    ):  # fmt: skip
        assert not {"--backup-dir", "--audit-log", "--audit-syslog"} & set(command.line(run).split())
    settle = commands.Command(commands.after_change()).line(run)
    assert settle.endswith("--audit-syslog /dev/log")
    assert "--audit-log" not in settle


def test_a_command_comes_back_from_the_disk_as_it_was() -> None:
    for command in (commands.get(KEY, revision=3), FIX, commands.Command(text="etcdfix scan"), HEAL):
        packed = msgspec.msgpack.encode(command, enc_hook=commands.pack_command)
        read = msgspec.msgpack.decode(packed, type=commands.Command, dec_hook=commands.unpack_command)
        assert read == command
