"""Commands to paste."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.text.commands import KeptOptions, RepeatedOptions

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
    assert RepeatedOptions(source=source).save_snapshot() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ((), ""),
        (("--snapshot", "old.db", "--revision", "7"), "7"),
        (("--revision",), ""),  # a saved report may say anything
    ],
)
def test_the_revision_that_was_named(source: tuple[str, ...], expected: str) -> None:
    assert RepeatedOptions(source=source).revision == expected


def test_etcdctl_asks_every_endpoint_and_knows_no_revision() -> None:
    again = RepeatedOptions(source=("--endpoints", "one:1,two:2", "--revision", "7", "--cacert", "my ca"))
    assert again.etcdctl("alarm", "list") == "etcdctl --endpoints one:1,two:2 --cacert 'my ca' alarm list"
    assert RepeatedOptions(source=("--snapshot", "old.db", "--salvage")).etcdctl("alarm", "list") == (
        "etcdctl alarm list"
    )


def test_no_command_writes_to_kine() -> None:
    again = RepeatedOptions(source=("--kine", "my state.db", "--revision", "7"), reading=("--no-encryption",))
    key = b"/registry/secrets/shop/web"
    assert again.of_a_file
    assert again.of_the_past
    changes = [
        again.delete(key),
        again.reencrypt(key, "c.yaml"),
        again.repair(key),
        again.restore(key, 5),
        again.etcdctl("alarm", "list"),
    ]
    assert changes == [""] * 5
    assert again.save_snapshot("kept.db") == "sqlite3 -readonly 'my state.db' '.backup kept.db'"
    assert again.get(key, revision=5) == (
        "etcdfix get --kine 'my state.db' --revision 5 --no-encryption /registry/secrets/shop/web"
    )
    assert again.history(key).startswith("etcdfix history --kine 'my state.db'")


def test_every_command_names_the_places_that_it_has_options_for() -> None:
    key, report = b"/registry/secrets/shop/web", ("--from-report", "scan.json")
    again = RepeatedOptions(
        source=("--endpoints", "one:1"),
        kept=KeptOptions(("--backup-dir", "B"), ("--audit-log", "L"), ("--audit-syslog", "/dev/log")),
    )
    change = "--backup-dir B --audit-log L --audit-syslog /dev/log --reason REASON"
    of_file = msgspec.structs.replace(again, source=("--snapshot", "old.db"))
    for command in (
        again.delete(key), again.repair(key), again.reencrypt(key, "c.yaml"), again.restore(key, 5),
        again.restore_from_key(b"/registry/secrets/shop/other", key), of_file.restore_from_file(key),
        again.heal(report),
    ):  # fmt: skip
        assert command.count(change) == 1, command
        assert command.count("--audit-log") == 1
    assert again.rescue(report).endswith(" --reveal --audit-log L --audit-syslog /dev/log")
    for command in (again.copies(key), again.copies_of_report("scan.json")):
        assert "--backup-dir B --audit-log L" in command
        assert "--audit-syslog" not in command
    assert again.recover(["T"], "--save-dir", "D").endswith("--audit-log L --save-dir D")
    assert "--audit-log L" in again.get(key, "--reveal")
    for command in (
        again.get(key), again.scan(key), again.explain(key), again.history(key), again.impact(key), again.orphans(),
        again.plan("scan.json", "plan.json"),
    ):  # fmt: skip
        assert not {"--backup-dir", "--audit-log", "--audit-syslog"} & set(command.split())
    assert again.after_change()[-2:] == ("--audit-syslog", "/dev/log")
    assert not {"--backup-dir", "--audit-log"} & set(again.after_change())
