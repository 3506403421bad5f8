"""Commands to paste."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.text import commands
from etcdfix.text.commands import RunOptions

ACCESS = ("--cacert", "ca", "--cert", "c", "--key", "k", "--user", "root")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((), "etcdctl snapshot save FILE"),
        (("--snapshot", "old.db"), "etcdctl snapshot save FILE"),
        (
            ("--endpoints", "one:1,two:2", *ACCESS),
            "etcdctl --endpoints one:1 --cacert ca --cert c --key k --user root snapshot save FILE",
        ),
        (("--endpoints", "one:1", "--revision", "7"), "etcdctl --endpoints one:1 snapshot save FILE"),
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
    for command in (
        commands.get(KEY, revision=3),
        FIX,
        commands.Command(text="etcdfix scan"),
        HEAL,
    ):
        packed = msgspec.msgpack.encode(command, enc_hook=commands.pack_command)
        read = msgspec.msgpack.decode(packed, type=commands.Command, dec_hook=commands.unpack_command)
        assert read == command
