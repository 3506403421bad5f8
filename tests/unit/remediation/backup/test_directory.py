"""What lies in a backup directory: all of it is named, and nothing outside is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.errors import BackupUnreadable
from etcdfix.remediation.backup import directory
from etcdfix.remediation.backup import file as backup_file
from etcdfix.remediation.backup.directory import FileKind, FoundFile, look_into, resource_of
from etcdfix.remediation.backup.write import MARKER_SUFFIX
from tests.support.audit_logs import own_directory
from tests.support.backups import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "state"))


def look(ground: Ground) -> dict[str, FoundFile]:
    return {file.path.name: file for file in look_into(ground.directories[0])}


def test_a_backup_without_its_value(ground: Ground) -> None:
    name = ground.change()
    found = look(ground)[name]
    assert (found.kind, found.what, found.marked, found.exposed) == (
        FileKind.BACKUP, "", False, ()
    )  # fmt: skip
    assert found.size == (ground.directories[0] / name).stat().st_size
    assert found.backup is not None
    assert found.backup.content.value_base64 == b""
    assert found.backup.content.value_size == 278


def test_a_marker_is_told_with_its_backup_and_without(ground: Ground) -> None:
    name = ground.change()
    (ground.directories[0] / (name + MARKER_SUFFIX)).touch(0o600)
    (ground.directories[0] / ("gone.json" + MARKER_SUFFIX)).touch(0o600)
    found = look(ground)
    assert set(found) == {name, "gone.json" + MARKER_SUFFIX}
    assert found[name].marked
    assert found["gone.json" + MARKER_SUFFIX].what == "the marker of a backup that is not there"


def test_everything_else_is_named(ground: Ground, tmp_path: Path) -> None:
    name = ground.change()
    folder = ground.directories[0]
    raw = (folder / name).read_bytes()
    (folder / "cut.json").write_bytes(raw[:-30])
    (folder / ("0" * 16 + "-1-1-" + "0" * 16 + ".json")).write_bytes(b"words")
    (folder / "tail.json").write_bytes(b"x" + raw)
    (folder / "notes").write_text("mine")
    (folder / "link.json").symlink_to(tmp_path / "outside")
    own_directory(folder / "deeper")
    os.mkfifo(folder / "pipe")
    for file in ("audit.jsonl", "audit.jsonl.head"):
        (folder / file).write_bytes((ground.folder / file).read_bytes())
    for file in ("audit.jsonl.reserve", "audit.jsonl.torn-7-ab", "audit.jsonl.head.new", ".etcdfix-probe-ab"):
        (folder / file).touch(0o600)
    kinds = {file: found.kind.value for file, found in look(ground).items()}
    assert kinds == {
        name: "backup", "cut.json": "damaged", "0" * 16 + "-1-1-" + "0" * 16 + ".json": "damaged",
        "tail.json": "damaged", "notes": "foreign", "link.json": "foreign", "deeper": "foreign", "pipe": "foreign",
        "audit.jsonl": "ours", "audit.jsonl.head": "ours", "audit.jsonl.reserve": "ours",
        "audit.jsonl.torn-7-ab": "ours", "audit.jsonl.head.new": "ours", ".etcdfix-probe-ab": "ours",
    }  # fmt: skip
    assert all(found.what for file, found in look(ground).items() if file != name)


def test_what_others_may_get_at(ground: Ground, tmp_path: Path) -> None:
    name = ground.change()
    path = ground.directories[0] / name
    path.chmod(0o644)
    os.link(path, tmp_path / "second")
    mode, names = look(ground)[name].exposed
    assert mode == "has mode 0644, expected 0600: others may get at it"
    assert names == "has 2 names: another one leads to the same file"


def test_somebody_else(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.change()
    there = (ground.directories[0] / name).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: there + 1)
    assert look(ground)[name].exposed == (f"belongs to uid {there}, expected {there + 1}",)


def test_a_file_that_cannot_be_read(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.change()

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(directory, "read_limited", fail)
    assert (look(ground)[name].kind, look(ground)[name].what) == (FileKind.UNREADABLE, "Input/output error")


def test_larger_than_any_backup(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.change()
    for module in (directory, backup_file):
        monkeypatch.setattr(module, "MAX_BACKUP_SIZE", 10)
    assert (look(ground)[name].kind, "larger" in look(ground)[name].what) == (FileKind.DAMAGED, True)


def test_a_directory_that_is_none(ground: Ground) -> None:
    for path in (ground.folder / "nothing", ground.log):
        ground.log.touch()
        with pytest.raises(BackupUnreadable, match="backup directory"):
            list(look_into(path))


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        (b"/registry/secrets/shop/db", "secrets"),
        (b"/kubernetes.io/secrets/shop/db", "secrets"),
        (b"/my/own/prefix/secrets/shop/db", "secrets"),
        (b"/registry/foo.io/secrets/shop/db", "secrets.foo.io"),
        (b"/registry/deployments/secrets/web", "deployments.apps"),
        (b"/registry/pods/secrets/web", "pods"),
        (b"/elsewhere/x", ""),
        (b"no slash", ""),
        (b"\xff/secrets/\xff", ""),
    ],
)
def test_the_resource_of_a_key(key: bytes, resource: str) -> None:
    assert resource_of(key) == resource
