"""Backups and their intents: all or nothing, in an order that a crash cannot make a lie of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.errors import (
    AuditError,
    BackupNotDurable,
    BackupUnreadable,
    NotDurable,
)
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, RecordType, Result, Verb
from etcdfix.remediation.audit.record_line import parse_record
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.backup import write as backup
from etcdfix.remediation.backup.account import intent_of
from etcdfix.remediation.backup.directory import anchor_of
from etcdfix.remediation.backup.file import encode_content, read_backup
from etcdfix.remediation.backup.write import (
    MARKER_SUFFIX,
    BackupPlan,
    confirm_backups,
    keep_second_backup,
    name_of,
    record_intent,
    unlisted_writes,
)
from etcdfix.remediation.durable import SafeDirectory, open_directory
from tests.support.audit_logs import (
    CLUSTER,
    GROUNDS,
    KEY,
    OPERATOR,
    STORED,
    content,
    delete_with,
    entry,
    own_directory,
)
from tests.support.durable_steps import (
    CONFIRM_STEPS,
    WRITE_STEPS,
    FailAt,
)

INTENT = Link(7, "ab" * 32)


@pytest.fixture
def log(folder: Path) -> Iterator[AuditLog]:
    with AuditLog.open(folder / "audit.jsonl") as opened:
        yield opened


class TestWriting:
    def test_names_say_nothing_of_the_key(self, directories: list[SafeDirectory]) -> None:
        evil = msgspec.structs.replace(STORED, key=b"/registry/secrets/../../etc/passwd\n")
        plan = BackupPlan(content(evil), directories, sequence=7)
        digest = hashlib.sha256(evil.key).hexdigest()[:16]
        unique = plan.content_sha256.removeprefix("sha256:")[:16]
        assert [path.name for path in plan.paths] == [f"{digest}-41-7-{unique}.json"] * 2
        assert [path.parent.name for path in plan.paths] == ["one", "two"]

    def test_marker_comes_first_and_goes_last(self, directories: list[SafeDirectory]) -> None:
        plan = BackupPlan(content(), directories, sequence=7)
        seen: list[str] = []
        plan.write(INTENT, audit_log=Path("/a"), step=seen.append)
        assert seen == [*WRITE_STEPS, *WRITE_STEPS]
        for directory, path in zip(directories, plan.paths, strict=True):
            assert directory.names() == [path.name, path.name + MARKER_SUFFIX]
        seen.clear()
        plan.confirm(step=seen.append)
        assert seen == [*CONFIRM_STEPS, *CONFIRM_STEPS]
        assert [directory.names() for directory in directories] == [[path.name] for path in plan.paths]

    @pytest.mark.parametrize("skip", [0, 1], ids=["first directory", "second directory"])
    @pytest.mark.parametrize("at", WRITE_STEPS)
    def test_all_or_nothing(self, directories: list[SafeDirectory], at: str, skip: int) -> None:
        plan = BackupPlan(content(), directories, sequence=7)
        with pytest.raises(BackupNotDurable, match="No space left") as caught:
            plan.write(INTENT, audit_log=Path("/a"), step=FailAt(at, skip=skip))
        assert caught.value.exit_code == 4
        assert caught.value.path.parent.name == ("one", "two")[skip]
        assert [directory.names() for directory in directories] == [[], []]

    def test_what_cannot_be_withdrawn_keeps_its_marker(
        self, directories: list[SafeDirectory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stuck(self: SafeDirectory, name: str, *, what: str) -> None:
            raise NotDurable("stuck", path=self.path)

        monkeypatch.setattr(SafeDirectory, "remove", stuck)
        plan = BackupPlan(content(), directories, sequence=7)
        with pytest.raises(BackupNotDurable, match="No space left"):
            plan.write(INTENT, audit_log=Path("/a"), step=FailAt("backup: before write file", skip=1))
        name = plan.paths[0].name
        assert directories[0].names() == [name, name + MARKER_SUFFIX]
        assert anchor_of(read_backup(plan.paths[0])) is None

    def test_no_directory(self) -> None:
        with pytest.raises(BackupNotDurable, match="no directory"):
            BackupPlan(content(), [], sequence=1)

    def test_one_directory_twice(self, directories: list[SafeDirectory], folder: Path) -> None:
        with (
            open_directory(folder / "two") as again,
            pytest.raises(BackupNotDurable, match="two is named twice"),
        ):
            BackupPlan(content(), [*directories, again], sequence=1)

    def test_the_largest_that_can_be_read_again(
        self, directories: list[SafeDirectory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        size = len(encode_content(content())) + backup._FRAME_SIZE
        monkeypatch.setattr(backup, "MAX_BACKUP_SIZE", size)
        assert BackupPlan(content(), directories, sequence=1).paths
        monkeypatch.setattr(backup, "MAX_BACKUP_SIZE", size - 1)
        with pytest.raises(BackupNotDurable, match="too large"):
            BackupPlan(content(), directories, sequence=1)


class TestIntent:
    def test_the_circle_closes(self, log: AuditLog, directories: list[SafeDirectory]) -> None:
        log.append(entry(RecordType.DRY_RUN))
        intent = record_intent(log, entry(), content(), directories)
        assert log.head == intent.link == Link(2, intent.link.sha256)
        assert len(intent.backups) == 2
        assert intent.value_sha256 == content().value_sha256
        for path in map(Path, intent.backups):
            read = read_backup(path)
            assert read.intent.link == intent.link
            assert read.intent.audit_log == str(log.path)
            assert read.content_sha256 == intent.backup_sha256
            anchor = anchor_of(read)
            assert anchor is not None
            assert (anchor.link, anchor.source) == (intent.link, f"backup {path}")
        assert log.open_intents() == (intent,)
        log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
        assert log.open_intents() == ()

    def test_backup_and_intent_rest_on_the_same(
        self, log: AuditLog, directories: list[SafeDirectory]
    ) -> None:
        hostile = msgspec.structs.replace(GROUNDS, transformer="a\udce9")
        intent = record_intent(log, entry(grounds=hostile), content(), directories)
        assert intent.grounds == msgspec.structs.replace(GROUNDS, transformer="a\\udce9")
        for path in intent.backups:
            assert read_backup(Path(path)).content.grounds == intent.grounds

    def test_a_backup_that_fails_leaves_no_intent(
        self, log: AuditLog, directories: list[SafeDirectory]
    ) -> None:
        with pytest.raises(BackupNotDurable, match="No space left"):
            record_intent(
                log, entry(), content(), directories, step=FailAt("backup: after fsync file", skip=1)
            )
        assert log.head.sequence == 0
        assert [directory.names() for directory in directories] == [[], []]
        assert record_intent(log, entry(), content(), directories).link.sequence == 1

    def test_an_intent_that_fails_leaves_marked_backups(
        self, folder: Path, directories: list[SafeDirectory]
    ) -> None:
        step = FailAt("audit log: before fsync file", skip=1)
        with AuditLog.open(folder / "audit.jsonl", step=step) as log, pytest.raises(AuditError):
            record_intent(log, entry(), content(), directories)
        for directory in directories:
            name, marker = directory.names()
            assert marker == name + MARKER_SUFFIX
            assert anchor_of(read_backup(directory.path / name)) is None
        assert verify(folder / "audit.jsonl").records == 0

    def test_markers_that_cannot_be_removed_refuse(
        self, log: AuditLog, directories: list[SafeDirectory]
    ) -> None:
        with pytest.raises(BackupNotDurable, match="backup marker"):
            record_intent(
                log, entry(), content(), directories, step=FailAt("backup marker: before unlink file")
            )
        assert log.open_intents() == ()
        outcome = parse_record(log.path.read_bytes().splitlines()[1])[1]
        assert outcome.annotations.outcome == Result.REFUSED
        assert "backup marker" in outcome.annotations.detail

    def test_nor_that_recorded(self, folder: Path, directories: list[SafeDirectory]) -> None:
        step = FailAt("audit log: before write record", skip=1)
        with AuditLog.open(folder / "audit.jsonl", step=step) as log, pytest.raises(BackupNotDurable):
            record_intent(
                log, entry(), content(), directories, step=FailAt("backup marker: before unlink file")
            )
        found = verify(folder / "audit.jsonl")
        assert (found.state, list(found.open_intents)) == (ChainState.UNFINISHED, [1])
        with AuditLog.open(folder / "audit.jsonl") as log:
            confirm_backups(log.intent(1))
        assert all(len(directory.names()) == 1 for directory in directories)

    def test_second_backup(self, log: AuditLog, directories: list[SafeDirectory], folder: Path) -> None:
        intent = record_intent(log, entry(), content(), directories)
        other = content(msgspec.structs.replace(STORED, value=b"another"), purpose="anomaly")
        plan = keep_second_backup(other, directories, intent=intent, audit_log=log.path)
        closing = intent.closed_by(
            Result.ANOMALY,
            operator=OPERATOR,
            backups=tuple(map(str, plan.paths)),
            backup_sha256=plan.content_sha256,
        )
        log.append(closing)
        log.close()
        read = read_backup(plan.paths[0])
        assert read.content.stored.value == b"another"
        # The intent does not name it, and its outcome does.
        found = intent_of(read, folder / "audit.jsonl")
        assert found is not None
        assert found.link == intent.link
        for changed in ({"content_sha256": "sha256:" + "0" * 64}, {"content": content(STORED)}):
            assert intent_of(msgspec.structs.replace(read, **changed), folder / "audit.jsonl") is None
        anchor = anchor_of(read)
        assert anchor is not None
        assert verify(folder / "audit.jsonl", anchors=[anchor]).state is ChainState.WHOLE
        assert [len(directory.names()) for directory in directories] == [2, 2]


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
        path, _ = listed
        other = own_directory(tmp_path / "other")
        AuditLog.open(other / "audit.jsonl").close()
        assert intent_of(read_backup(path), other / "audit.jsonl") is None
        with AuditLog.open(other / "audit.jsonl") as log:
            log.append(entry())
        assert intent_of(read_backup(path), other / "audit.jsonl") is None

    def test_of_a_log_that_was_rewritten(self, listed: tuple[Path, Path]) -> None:
        path, audit_log = listed
        written = audit_log.read_bytes()
        audit_log.write_bytes(written.replace(b"the key is lost", b"the key is gone", 1))
        assert audit_log.read_bytes() != written
        assert intent_of(read_backup(path), audit_log) is None

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
        (folder / "one" / f"{name_of(KEY)}-41-7-x.json").write_text("{")
        assert unlisted_writes([folder / "one"], folder / "none.jsonl", self.HERE) == {name_of(KEY)}

    def test_a_directory_that_cannot_be_listed(self, folder: Path) -> None:
        (folder / "file").touch()
        with pytest.raises(BackupUnreadable, match="Not a directory"):
            unlisted_writes([folder / "file"], folder / "none.jsonl", self.HERE)
