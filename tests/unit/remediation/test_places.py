"""Where backups and the audit log go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.inputs import machine
from etcdfix.remediation import places
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.durable import Filesystem, filesystem_kind
from etcdfix.remediation.errors import UnsafePlace
from etcdfix.remediation.places import RecordPaths, disk_of_etcd, lasting_warnings, place_warnings
from etcdfix.text.commands import Part, RunOptions
from tests.support.audit_logs import mounted, own_directory


def test_what_was_named_is_repeated_and_no_default(tmp_path: Path) -> None:
    assert RecordPaths().repeated_in(RunOptions()) == RunOptions()
    named = RecordPaths((tmp_path, tmp_path / "b"), tmp_path / "log", syslog=Syslog("/dev/log"))
    assert named.repeated_in(RunOptions()).part(Part.KEPT) == (
        "--backup-dir", str(tmp_path), "--backup-dir", f"{tmp_path}/b", "--audit-log", f"{tmp_path}/log",
        "--audit-syslog", "/dev/log",
    )  # fmt: skip


@pytest.fixture
def etcd_data() -> Path:
    """A machine with etcd's data, and nothing else yet."""
    data = machine.etcd_data()
    data.mkdir(parents=True)
    return data


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default directory, not made yet."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return machine.state_of_root()


def test_the_disk_of_etcd_is_warned_of_once_and_never_refused(
    etcd_data: Path, state: Path, tmp_path: Path
) -> None:
    (warning,) = place_warnings(RecordPaths())
    assert str(state) in warning
    assert str(etcd_data) in warning
    state.mkdir()
    assert place_warnings(RecordPaths()) == (warning,)
    (named,) = place_warnings(RecordPaths((tmp_path, own_directory(tmp_path / "b")), tmp_path / "log"))
    assert f"{tmp_path} and {tmp_path}/b are" in named


def test_a_backup_on_another_disk_is_not_lost_with_the_disk_of_etcd(
    etcd_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other, log = own_directory(tmp_path / "other"), own_directory(tmp_path / "log") / "log"
    monkeypatch.setattr(places, "same_disk", lambda one, _data: other not in (one, *one.parents))
    named = RecordPaths((tmp_path, other), log)
    (warning,) = place_warnings(named)
    assert "the audit log" in warning
    assert "the backup" not in warning
    assert place_warnings(RecordPaths((other,), other / "log")) == ()
    # Only the log matters where there is nothing to back up.
    (warning,) = place_warnings(RecordPaths(audit_log=log), backup=False)
    assert "the backup" not in warning


def test_the_device_is_that_of_the_directory_that_shares_it(
    etcd_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "filesystem_kind", lambda _: Filesystem("ext4", "/dev/sda2", "/"))
    assert disk_of_etcd(RecordPaths((tmp_path,), tmp_path / "log")) == "/dev/sda2"
    monkeypatch.setattr(places, "same_disk", lambda *_: False)
    assert disk_of_etcd(RecordPaths((tmp_path,), tmp_path / "log")) == ""


@pytest.mark.parametrize("made", [True, False])
def test_a_default_directory_on_tmpfs_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, made: bool
) -> None:
    (state if made else state.parent).mkdir(parents=True)
    monkeypatch.setattr(places, "filesystem_kind", lambda _: Filesystem("tmpfs", "tmpfs", "/"))
    with pytest.raises(UnsafePlace, match="is on tmpfs") as caught:
        place_warnings(RecordPaths())
    assert (caught.value.exit_code, "--backup-dir" in caught.value.hint) == (4, True)
    with pytest.raises(UnsafePlace, match="is on tmpfs"):
        place_warnings(RecordPaths((tmp_path,)))
    (warning,) = place_warnings(RecordPaths((tmp_path,), tmp_path / "log"))
    assert "is on tmpfs" in warning


def test_a_real_tmpfs_is_seen(tmp_path: Path) -> None:
    with mounted(tmp_path / "kept", "size=64k") as path:
        assert filesystem_kind(path) == Filesystem("tmpfs", "etcdfix-test", str(path))
        (warning,) = lasting_warnings(path, named=True)
        assert str(path) in warning
        with pytest.raises(UnsafePlace):
            lasting_warnings(path, named=False)


def test_a_place_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePlace, match="it cannot be told whether it would last"):
        lasting_warnings(tmp_path / "gone", named=True)
    with pytest.raises(UnsafePlace, match="File name too long"):
        place_warnings(RecordPaths((tmp_path / ("a" * 300),)))


def test_data_of_etcd_that_cannot_be_looked_at_is_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is there one where etcd has no data on this machine."""
    named = RecordPaths((tmp_path,), tmp_path / "log")
    assert (place_warnings(named), disk_of_etcd(named), place_warnings(RecordPaths())) == ((), "", ())
    monkeypatch.setattr(machine, "ROOT", tmp_path / ("a" * 300))
    assert (place_warnings(named), disk_of_etcd(named)) == ((), "")
