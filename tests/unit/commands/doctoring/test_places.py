"""Backup directories and the audit log: written to, and left as they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix import machine
from etcdfix.commands.doctoring import places as module
from etcdfix.commands.doctoring.places import check_audit_log, check_backup_directories
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.durable import Filesystem
from etcdfix.remediation.places import RecordPaths
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import entry, own_directory, write_log
from tests.support.doctoring import states


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "own")


def backups(*paths: Path) -> list[str]:
    return [state for _, state in states(check_backup_directories(RecordPaths(paths)))]


def log(path: Path) -> list[str]:
    """The states of the log itself, behind that of its directory."""
    first, *others = (state for _, state in states(check_audit_log(RecordPaths(audit_log=path))))
    assert first == "ok"
    return others


def test_a_directory_of_ours_will_do_and_stays_empty(own: Path) -> None:
    assert backups(own, own) == ["ok", "ok"]
    assert list(own.iterdir()) == []


def test_a_directory_that_is_missing_is_a_failure_with_the_command_to_make_it(own: Path) -> None:
    (check,) = check_backup_directories(RecordPaths((own / "a b",)))
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"mkdir -m 0700 '{own / 'a b'}'")
    assert not (own / "a b").exists()


def test_directories_of_others(own: Path) -> None:
    (own / "file").write_text("")
    (own / "link").symlink_to(own)
    shared = own_directory(own / "shared")
    shared.chmod(0o777)
    for path in (own / "file", own / "link", shared, Path("/proc/self"), own / ("a" * 300)):
        assert backups(path) == ["fail"], path
    if os.geteuid() == 0:
        theirs = own_directory(own / "theirs")
        os.chown(theirs, 12345, 12345)
        assert backups(theirs) == ["fail"]


def test_a_directory_that_cannot_keep_a_file(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (check,) = check_backup_directories(RecordPaths((own,)))
    assert (check.state, "No space left on device" in check.what) == ("fail", True)
    assert list(own.iterdir()) == []


def test_the_disk_of_etcd_and_little_room_are_warned_of(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_FREE_BYTES", 1 << 60)
    machine.etcd_data().mkdir(parents=True)
    places = RecordPaths((own, own), own / "log")
    found = [*states(check_backup_directories(places)), *states(check_audit_log(places))]
    directory = [("space", "warn"), ("backup-dir", "ok")]
    assert found[:5] == [*directory, *directory, ("backup-dir", "warn")]
    assert ("audit-log", "warn") not in found


def test_a_default_that_is_not_there_yet_is_not_made(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: own / "a" / "b")
    monkeypatch.setattr("etcdfix.remediation.places.default_audit_log", lambda: own / "a" / "b" / "log")
    assert backups() == ["ok"]
    assert log(own / "log") == ["ok"]
    assert [state for _, state in states(check_audit_log(RecordPaths()))] == ["ok", "ok"]
    assert list(own.iterdir()) == []
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert backups() == ["fail"]


def test_a_default_on_tmpfs_is_a_failure(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Filesystem("tmpfs", "tmpfs", "/")
    monkeypatch.setattr("etcdfix.remediation.places.filesystem_kind", lambda _: kind)
    for default in (own, own / "not-there"):
        monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: default)  # noqa: B023
        assert [state for _, state in states(check_backup_directories(RecordPaths()))] == ["fail"]


# The log


def test_a_whole_log(own: Path) -> None:
    write_log(own / "log")
    before = sorted((path.name, path.read_bytes()) for path in own.iterdir())
    assert log(own / "log") == ["ok"]
    assert sorted((path.name, path.read_bytes()) for path in own.iterdir()) == before


def test_an_open_intent(own: Path) -> None:
    with AuditLog.open(own / "log") as opened:
        opened.append(entry(RecordType.INTENT))
    check = list(check_audit_log(RecordPaths(audit_log=own / "log")))[1]
    assert (check.state, check.command.line(RunOptions())) == (
        "warn",
        f"etcdfix audit reconcile {own / 'log'} --dry-run",
    )


def test_a_log_that_was_tampered_with(own: Path) -> None:
    write_log(own / "log")
    raw = (own / "log").read_bytes()
    (own / "log").write_bytes(raw.replace(b"mod_revision", b"mod-revision", 1).replace(b"41", b"42", 1))
    check = list(check_audit_log(RecordPaths(audit_log=own / "log")))[1]
    assert (check.state, check.command.line(RunOptions())) == ("fail", f"etcdfix audit verify {own / 'log'}")


def test_the_head_without_the_log_and_the_log_without_the_head(own: Path) -> None:
    write_log(own / "log")
    (own / "log.head").rename(own / "kept")
    assert log(own / "log") == ["fail"]
    (own / "kept").rename(own / "log.head")
    (own / "log").unlink()
    assert log(own / "log") == ["fail"]


def test_what_is_no_log_of_ours(own: Path) -> None:
    write_log(own / "log")
    (own / "link").symlink_to(own / "log")
    (own / "folder").mkdir()
    os.mkfifo(own / "pipe")
    (own / "open").write_text("")
    (own / "open").chmod(0o666)
    for name in ("link", "folder", "pipe", "open"):
        assert log(own / name) == ["fail"], name


def test_a_log_that_somebody_writes_cannot_be_judged(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.05)
    with AuditLog.open(own / "log") as opened:
        opened.append(entry(RecordType.INTENT))
        assert log(own / "log") == ["unknown"]
