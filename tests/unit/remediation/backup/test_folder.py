"""What lies in a backup directory, and what a log says of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, RecordType, Result, Verb
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup import folder as folder_module
from etcdfix.remediation.backup.file import MARKER_SUFFIX, BackupPlan, name_of, read_backup, record_intent
from etcdfix.remediation.backup.folder import (
    Account,
    FileKind,
    FoundFile,
    intent_of,
    look_into,
    resource_of,
    unlisted_writes,
)
from etcdfix.remediation.durable import SafeDirectory
from etcdfix.remediation.errors import BackupUnreadable
from tests.support.audit_logs import CLUSTER, KEY, OPERATOR, content, delete_with, entry, own_directory
from tests.support.backups import Ground

INTENT = Link(7, "ab" * 32)


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


def test_what_looks_like_a_backup_is_found_and_nothing_else(ground: Ground, tmp_path: Path) -> None:
    name, nothing = ground.change(), "0" * 16 + "-1-1-" + "0" * 16 + ".json"
    folder = ground.directories[0]
    raw = (folder / name).read_bytes()
    (folder / "cut.json").write_bytes(raw[:-30])
    (folder / nothing).write_bytes(b"words")
    (folder / "tail.json").write_bytes(b"x" + raw)
    (folder / "notes").write_text("mine")
    (folder / "link.json").symlink_to(tmp_path / "outside")
    own_directory(folder / "deeper")
    os.mkfifo(folder / "pipe")
    (folder / "audit.jsonl").write_bytes(ground.log.read_bytes())
    (folder / "audit.jsonl.reserve").touch(0o600)
    (folder / (name + MARKER_SUFFIX)).touch(0o600)  # it is told with its backup
    (folder / ("gone.json" + MARKER_SUFFIX)).touch(0o600)
    assert look(ground)[name].marked
    found = {file: each.kind.value for file, each in look(ground).items()}
    assert found == {name: "backup", "cut.json": "damaged", nothing: "damaged"}
    assert all(each.what for file, each in look(ground).items() if file != name)


def test_what_others_may_get_at(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.change()
    path = ground.directories[0] / name
    path.chmod(0o644)
    os.link(path, tmp_path / "second")
    mode, names = look(ground)[name].exposed
    assert ("mode 0644" in mode, "2 names" in names) == (True, True)
    there = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: there + 1)
    assert look(ground)[name].exposed[0] == f"belongs to uid {there}, expected {there + 1}"


def test_a_file_that_cannot_be_read(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.change()

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(folder_module, "read_limited", fail)
    assert (look(ground)[name].kind, look(ground)[name].what) == (FileKind.UNREADABLE, "Input/output error")
    monkeypatch.undo()
    monkeypatch.setattr(folder_module, "MAX_BACKUP_SIZE", 10)
    assert look(ground)[name].kind is FileKind.DAMAGED


def test_a_directory_that_is_none(ground: Ground) -> None:
    for path in (ground.folder / "nothing", ground.log):
        ground.log.touch()
        with pytest.raises(BackupUnreadable, match="backup directory"):
            list(look_into(path))


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        (b"/registry/secrets/shop/db", "secrets"),
        (b"/my/own/prefix/secrets/shop/db", "secrets"),
        (b"/registry/foo.io/secrets/shop/db", "secrets.foo.io"),
        (b"/registry/deployments/secrets/web", "deployments.apps"),
        (b"/elsewhere/x", ""),
        (b"no slash", ""),
        (b"\xff/secrets/\xff", ""),
    ],
)
def test_the_resource_of_a_key(key: bytes, resource: str) -> None:
    assert resource_of(key) == resource


def test_an_anomaly_of_which_nothing_could_be_kept(ground: Ground) -> None:
    ground.change(None)
    with AuditLog.open(ground.log) as log:
        log.append(log.intent(1).closed_by(Result.ANOMALY, operator=OPERATOR))
    (listed,) = account(ground).listed.values()
    assert (listed.second, listed.outcome) == (False, Result.ANOMALY)


def account(ground: Ground) -> Account:
    return Account(read_records(ground.log))


def test_results_and_files(ground: Ground) -> None:
    for result in (Result.DELETED, None, Result.UNKNOWN, Result.REFUSED):
        ground.change(result)
    assert [listed.outcome for listed in account(ground).listed.values()] == [
        Result.DELETED,
        None,
        None,
        Result.REFUSED,
    ]
    assert all(len(listed.paths) == 2 for listed in account(ground).listed.values())


def test_what_came_back_by_an_anomaly_is_known(ground: Ground) -> None:
    ground.change(Result.ANOMALY)
    first, second = account(ground).listed.values()
    assert (first.second, second.second) == (False, True)
    assert first.outcome is second.outcome is Result.ANOMALY
    assert set(first.paths + second.paths) == {
        str(file) for path in ground.directories for file in path.iterdir()
    }
    for path in ground.directories[0].iterdir():
        assert account(ground).listing(read_backup(path)) is not None


@pytest.mark.parametrize(
    "what", ["key_base64", "mod_revision", "value_sha256", "cluster", "link", "content_sha256"]
)
def test_a_file_that_says_otherwise_is_not_the_one(ground: Ground, what: str) -> None:
    name = ground.change()
    backup = read_backup(ground.directories[0] / name)
    assert account(ground).listing(backup) is not None
    if what == "content_sha256":
        backup = msgspec.structs.replace(backup, content_sha256="sha256:00")
    elif what == "link":
        backup = msgspec.structs.replace(backup, intent=msgspec.structs.replace(backup.intent, sequence=9))
    else:
        other = {
            "key_base64": b"/x", "mod_revision": 7, "value_sha256": "sha256:00",
            "cluster": msgspec.structs.replace(backup.content.cluster, kube_system_uid=None),
        }[what]  # fmt: skip
        backup = msgspec.structs.replace(
            backup, content=msgspec.structs.replace(backup.content, **{what: other})
        )
    assert account(ground).listing(backup) is None


def test_pruned_files(ground: Ground) -> None:
    ground.change()
    ground.prune()
    (listed,) = account(ground).listed.values()
    assert listed.pruned == dict.fromkeys(listed.paths, 3)
    with AuditLog.open(ground.log) as log:
        log.append(
            entry(RecordType.PRUNE, verb=Verb.PRUNE, backups=listed.paths, backup_sha256="sha256:other")
        )
    assert len(account(ground).listed) == 1


class TestListed:
    """A true undo needs a backup that an intent of this log lists."""

    @pytest.fixture
    def listed(self, folder: Path) -> tuple[Path, Path]:
        delete_with(folder)
        (path,) = (folder / "one").iterdir()
        return path, folder / "audit.jsonl"

    def test_a_copy_elsewhere(self, listed: tuple[Path, Path], tmp_path: Path) -> None:
        path, audit_log = listed
        (tmp_path / "copy").write_bytes(path.read_bytes())
        assert intent_of(read_backup(tmp_path / "copy"), audit_log) is not None

    def test_of_another_log(self, listed: tuple[Path, Path], tmp_path: Path) -> None:
        path, audit_log = listed
        other = own_directory(tmp_path / "other")
        AuditLog.open(other / "audit.jsonl").close()
        assert intent_of(read_backup(path), other / "audit.jsonl") is None
        with AuditLog.open(other / "audit.jsonl") as log:
            log.append(entry())
        assert intent_of(read_backup(path), other / "audit.jsonl") is None
        written = audit_log.read_bytes()
        audit_log.write_bytes(written.replace(b"the key is lost", b"the key is gone", 1))
        assert intent_of(read_backup(path), audit_log) is None  # it was rewritten

    def test_of_a_cluster_that_nobody_could_name(
        self, log: AuditLog, directories: list[SafeDirectory]
    ) -> None:
        nameless = content(cluster=msgspec.structs.replace(CLUSTER, kube_system_uid=None))
        intent = record_intent(log, entry(cluster_uid=""), nameless, directories)
        log.close()
        found = intent_of(read_backup(Path(intent.backups[0])), log.path)
        assert found is not None
        assert found.link == intent.link


class TestUnlistedWrites:
    """Of what lies in a backup directory, only what the log does not know may be a write of ours."""

    HERE = ClusterIdentity.by_uid("d4c1")

    @pytest.mark.parametrize("purpose", ["fix", "undo"])
    def test_a_write_that_the_log_does_not_know(
        self, folder: Path, directories: list[SafeDirectory], purpose: str
    ) -> None:
        plan = BackupPlan(content(purpose=purpose), directories, sequence=7)
        plan.write(INTENT, audit_log=Path("/another/log"))
        places = [folder / "one", folder / "none"]
        assert unlisted_writes(places, folder / "none.jsonl", self.HERE) == {name_of(KEY)}
        assert unlisted_writes(places, folder / "none.jsonl", ClusterIdentity()) == {name_of(KEY)}
        another = ClusterIdentity.by_uid("another")
        assert unlisted_writes(places, folder / "none.jsonl", another) == frozenset()

    def test_a_deletion_writes_nothing_and_a_marker_is_no_backup(
        self, folder: Path, directories: list[SafeDirectory]
    ) -> None:
        BackupPlan(content(), directories, sequence=7).write(INTENT, audit_log=Path("/another/log"))
        assert len(directories[0].names()) == 2
        assert unlisted_writes([folder / "one"], folder / "none.jsonl", self.HERE) == frozenset()

    def test_what_the_log_lists(self, folder: Path, log: AuditLog, directories: list[SafeDirectory]) -> None:
        record_intent(log, entry(verb=Verb.UNDO), content(purpose="undo"), directories)
        log.close()
        assert unlisted_writes([folder / "one"], log.path, self.HERE) == frozenset()

    def test_a_damaged_one_counts_by_its_name(self, folder: Path) -> None:
        (folder / "one" / f"{name_of(KEY)}-41-7-{'0' * 16}.json").write_text("{")
        assert unlisted_writes([folder / "one"], folder / "none.jsonl", self.HERE) == {name_of(KEY)}
