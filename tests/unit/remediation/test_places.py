"""Where backups and the audit log go."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.errors import UnsafePlace
from etcdfix.remediation.audit.outside import parse_outside
from etcdfix.remediation.durable import default_audit_log, default_directory
from etcdfix.remediation.places import RecordPaths, lasting_warnings
from etcdfix.text.commands import KeptOptions


def test_what_was_not_named_is_the_default(tmp_path: Path) -> None:
    assert RecordPaths().directories == (default_directory(),)
    assert RecordPaths().log_path == default_audit_log()
    named = RecordPaths((tmp_path,), tmp_path / "log")
    assert (named.directories, named.log_path) == ((tmp_path,), tmp_path / "log")


def test_what_was_named_is_repeated_and_no_default(tmp_path: Path) -> None:
    assert RecordPaths().again == KeptOptions()
    named = RecordPaths((tmp_path, tmp_path / "b"), tmp_path / "log", anchor=parse_outside("journald"))
    assert named.again.of_change == (
        "--backup-dir", str(tmp_path), "--backup-dir", f"{tmp_path}/b", "--audit-log", f"{tmp_path}/log",
        "--audit-anchor", "journald",
    )  # fmt: skip


def test_the_disk_of_etcd_is_warned_of_where_it_was_named_and_refused_where_it_was_not(
    tmp_path: Path,
) -> None:
    places = RecordPaths(etcd_data=tmp_path)
    (warning,) = lasting_warnings(tmp_path, places, named=True)
    assert "on the disk of etcd" in warning
    with pytest.raises(UnsafePlace, match="the default directory will not do"):
        lasting_warnings(tmp_path, places, named=False)


def test_a_place_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePlace, match="it cannot be told whether it would last"):
        lasting_warnings(tmp_path / "gone", RecordPaths(), named=True)
