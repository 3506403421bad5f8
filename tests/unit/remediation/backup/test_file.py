"""A backup file: everything that it holds comes back, every damage is found, and it goes with its intent."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from pathlib import Path

import msgspec
import pytest

from etcdfix import __version__
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, RecordType, Result, parse_record
from etcdfix.remediation.audit.verify import Anchor, ChainState, verify
from etcdfix.remediation.backup import file as backup_file
from etcdfix.remediation.backup.file import (
    MARKER_SUFFIX,
    BackupPlan,
    confirm_backups,
    encode_content,
    keep_second_backup,
    read_backup,
    record_intent,
)
from etcdfix.remediation.backup.folder import anchors_in, intent_of, look_into
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, open_directory
from etcdfix.remediation.errors import AuditError, BackupDamaged, BackupUnreadable, NotABackup, NotDurable
from tests.support.audit_logs import CLUSTER, GROUNDS, KEY, OPERATOR, STORED, content, entry
from tests.support.durable_steps import CONFIRM_STEPS, WRITE_STEPS, FailAt
from tests.support.thorough import some

INTENT = Link(7, "ab" * 32)


@pytest.fixture
def written(directories: list[SafeDirectory]) -> Path:
    plan = BackupPlan(content(), directories[:1], sequence=7)
    plan.write(INTENT, audit_log=Path("/var/lib/etcdfix/audit.jsonl"))
    plan.confirm()
    return plan.paths[0]


def seal(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return body + f',\n"document_sha256":"sha256:{digest}"}}\n'.encode()


def body_of(path: Path) -> bytes:
    return path.read_bytes().rpartition(b",\n")[0]


class TestContents:
    def test_everything_comes_back(self, written: Path) -> None:
        read = read_backup(written)
        assert read.path == written
        assert read.content == content()
        assert repr(STORED.value)[2:20] not in repr(read.content)
        assert read.content.stored == STORED
        assert read.intent.link == INTENT
        assert read.intent.audit_log == "/var/lib/etcdfix/audit.jsonl"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600

    def test_as_json(self, written: Path) -> None:
        raw = written.read_bytes()
        document = json.loads(raw)
        assert list(document) == ["format", "content", "content_sha256", "intent", "document_sha256"]
        assert document["format"] == "etcdfix.backup/v1"
        held = document["content"]
        assert held["key_base64"] == base64.b64encode(KEY).decode()
        assert held["value_base64"] == base64.b64encode(STORED.value).decode()
        assert held["value_sha256"] == f"sha256:{hashlib.sha256(STORED.value).hexdigest()}"
        assert (held["tool"], held["created_at"]) == (f"etcdfix/{__version__}", "2026-03-01T12:00:00.123456Z")
        assert (held["mod_revision"], held["create_revision"], held["version"]) == (41, 12, 3)
        assert (held["lease"], held["lease_ttl_seconds"], held["stored_as_plaintext"]) == ("694d", 55, False)
        body, _, tail = raw.rpartition(b",\n")
        assert tail == f'"document_sha256":"sha256:{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
        inner = raw.split(b'"content":', 1)[1].split(b',\n"content_sha256"', 1)[0]
        assert document["content_sha256"] == f"sha256:{hashlib.sha256(inner).hexdigest()}"
        assert raw.count(b"\n") == 5


@pytest.mark.parametrize("uid", ["d4c1", None])
def test_what_kept_no_identity_names_a_cluster_by_its_uid(uid: str | None) -> None:
    named = msgspec.structs.replace(CLUSTER, kube_system_uid=uid).named
    assert named == ClusterIdentity.by_uid(uid or "")


class TestReading:
    def refused(self, path: Path, kind: type[BackupUnreadable], match: str) -> None:
        with pytest.raises(BackupUnreadable, match=match) as caught:
            read_backup(path)
        assert type(caught.value) is kind
        assert (caught.value.exit_code, caught.value.path) == (5, path)
        assert base64.b64encode(STORED.value).decode()[:20] not in str(caught.value)

    @pytest.mark.parametrize("damage", ["cut", "one bit changed"])
    def test_every_byte_counts(self, written: Path, damage: str) -> None:
        raw = written.read_bytes()
        for position in some(range(len(raw)), of=7):
            changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
            written.write_bytes(raw[:position] if damage == "cut" else changed)
            with pytest.raises(NotABackup if damage != "cut" and position < 26 else BackupDamaged):
                read_backup(written)

    def test_what_was_changed(self, written: Path) -> None:
        body, raw = body_of(written), written.read_bytes()
        for changed, match in (
            (raw.replace(b"is lost", b"is fine"), "not the ones that its digest was made of"),
            (b"", "it ends after 0 bytes"),
            (raw + b"\n", "cut off, or edited"),
            (seal(body.replace(b"backup/v1", b"backup/v2", 1)), "another version"),
            (seal(body.replace(b",\n", b",", 1)), "its first line"),
            (body + b',\n"document":"other"}\n', "cut off, or edited"),
        ):
            written.write_bytes(changed)
            self.refused(written, BackupDamaged, match)

    @pytest.mark.parametrize("raw", [b"x", b"{}\n", b'{"format":"other/v1"}\n', b"\0" * 5000])
    def test_something_else(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "a").write_bytes(raw)
        self.refused(tmp_path / "a", NotABackup, "is no backup of etcdfix")

    def test_too_large(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backup_file, "MAX_BACKUP_SIZE", written.stat().st_size - 1)
        self.refused(written, BackupUnreadable, "larger than")

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            (b'"content":{"', b'"content":["', "the document does not"),
            (b'"purpose":"delete"', b'"purpose":7', "the document does not"),
            (b'"sequence":7', b'"sequence":0', "the document does not"),
            (b'"tool":', b'"x":' + b"[" * 50_000 + b"]" * 50_000 + b',"tool":', "the document does not"),
            (b"is lost", b"is fine", "content_sha256 is not the digest"),
            (b'"sha256":"abab', b'"sha256":"xbab', "the document does not"),
            (b"etcdfix/audit.jsonl", b"etcdfix\\u0000/audit.jsonl", "the path of its audit log is not valid"),
        ],
    )
    def test_sealed_anew(self, written: Path, old: bytes, new: bytes, match: str) -> None:
        body = body_of(written)
        assert body.count(old) == 1
        written.write_bytes(seal(body.replace(old, new)))
        self.refused(written, BackupDamaged, match)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"value_base64": STORED.value[:-1] + b"\0"}, "value_sha256 is not the digest"),
            ({"value_size": 5}, "value_sha256 is not the digest"),
            ({"key_base64": b"/other"}, "key and key_base64 differ"),
            ({"key_base64": b"", "key": ""}, "the document does not"),
            ({"stored_as_plaintext": True}, "calls an encrypted value plaintext"),
            ({"lease": "0x1"}, "the document does not"),
        ],
    )
    def test_contradicts_itself(
        self, directories: list[SafeDirectory], changes: dict[str, object], match: str
    ) -> None:
        plan = BackupPlan(msgspec.structs.replace(content(), **changes), directories, sequence=7)
        plan.write(INTENT, audit_log=Path("/a"))
        self.refused(plan.paths[0], BackupDamaged, match)


def anchors_of(directories: list[SafeDirectory], log: Path) -> list[Anchor]:
    return anchors_in([file for one in directories for file in look_into(one.path)], log)


def step_with(directories: list[SafeDirectory], step: Step) -> None:
    for directory in directories:
        directory.step = step


class TestWriting:
    def test_marker_comes_first_and_goes_last(self, directories: list[SafeDirectory]) -> None:
        plan = BackupPlan(content(), directories, sequence=7)
        seen: list[str] = []
        step_with(directories, seen.append)
        plan.write(INTENT, audit_log=Path("/a"))
        assert seen == [*WRITE_STEPS, *WRITE_STEPS]
        for directory, path in zip(directories, plan.paths, strict=True):
            assert directory.names() == [path.name, path.name + MARKER_SUFFIX]
        seen.clear()
        plan.confirm()
        assert seen == [*CONFIRM_STEPS, *CONFIRM_STEPS]
        assert [directory.names() for directory in directories] == [[path.name] for path in plan.paths]

    @pytest.mark.parametrize("skip", [0, 1], ids=["first directory", "second directory"])
    @pytest.mark.parametrize("at", WRITE_STEPS)
    def test_all_or_nothing(self, directories: list[SafeDirectory], at: str, skip: int) -> None:
        plan = BackupPlan(content(), directories, sequence=7)
        step_with(directories, FailAt(at, skip=skip))
        with pytest.raises(NotDurable, match="No space left") as caught:
            plan.write(INTENT, audit_log=Path("/a"))
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
        step_with(directories, FailAt("backup: before write file", skip=1))
        with pytest.raises(NotDurable, match="No space left"):
            plan.write(INTENT, audit_log=Path("/a"))
        name = plan.paths[0].name
        assert directories[0].names() == [name, name + MARKER_SUFFIX]
        assert anchors_of(directories, Path("/a")) == []

    def test_what_cannot_be_written(
        self, directories: list[SafeDirectory], folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No directory, one twice, or more than could be read again."""
        with pytest.raises(NotDurable, match="no directory"):
            BackupPlan(content(), [], sequence=1)
        with open_directory(folder / "two") as again, pytest.raises(NotDurable, match="named twice"):
            BackupPlan(content(), [*directories, again], sequence=1)
        size = len(encode_content(content())) + backup_file._FRAME_SIZE
        monkeypatch.setattr(backup_file, "MAX_BACKUP_SIZE", size)
        assert BackupPlan(content(), directories, sequence=1).paths
        monkeypatch.setattr(backup_file, "MAX_BACKUP_SIZE", size - 1)
        with pytest.raises(NotDurable, match="too large"):
            BackupPlan(content(), directories, sequence=1)


class TestIntent:
    def test_the_circle_closes(self, log: AuditLog, directories: list[SafeDirectory]) -> None:
        log.append(entry(RecordType.DRY_RUN))
        hostile = msgspec.structs.replace(GROUNDS, transformer="a\udce9")
        intent = record_intent(log, entry(grounds=hostile), content(), directories)
        assert intent.grounds == msgspec.structs.replace(GROUNDS, transformer="a\\udce9")
        assert log.head == intent.link == Link(2, intent.link.sha256)
        assert len(intent.backups) == 2
        assert intent.value_sha256 == content().value_sha256
        for path in map(Path, intent.backups):
            read = read_backup(path)
            assert read.intent.link == intent.link
            assert (read.intent.audit_log, read.content.grounds) == (str(log.path), intent.grounds)
            assert read.content_sha256 == intent.backup_sha256
        assert anchors_of(directories, log.path) == [
            Anchor(intent.link, f"backup {path}") for path in intent.backups
        ]
        assert log.open_intents() == (intent,)
        log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
        assert log.open_intents() == ()

    def test_a_backup_that_fails_leaves_no_intent(
        self, log: AuditLog, directories: list[SafeDirectory]
    ) -> None:
        step_with(directories, FailAt("backup: after fsync file", skip=1))
        with pytest.raises(NotDurable, match="No space left"):
            record_intent(log, entry(), content(), directories)
        assert log.head.sequence == 0
        assert [directory.names() for directory in directories] == [[], []]
        step_with(directories, no_step)
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
        assert anchors_of(directories, folder / "audit.jsonl") == []
        assert verify(folder / "audit.jsonl").records == 0

    @pytest.mark.parametrize("recorded", [True, False])
    def test_markers_that_cannot_be_removed_refuse(
        self, folder: Path, directories: list[SafeDirectory], *, recorded: bool
    ) -> None:
        """Where that cannot be recorded, the intent stays open, and the next one confirms."""
        step = no_step if recorded else FailAt("audit log: before write record", skip=1)
        step_with(directories, FailAt("backup marker: before unlink file"))
        with (
            AuditLog.open(folder / "audit.jsonl", step=step) as log,
            pytest.raises(NotDurable, match="backup marker"),
        ):
            record_intent(log, entry(), content(), directories)
        found = verify(folder / "audit.jsonl")
        if recorded:
            outcome = parse_record(log.path.read_bytes().splitlines()[1])
            assert (outcome.outcome, found.open_intents) == (Result.REFUSED, {})
            return
        assert (found.state, list(found.open_intents)) == (ChainState.UNFINISHED, [1])
        step_with(directories, no_step)
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
        anchors = anchors_of(directories, folder / "audit.jsonl")
        assert len(anchors) == 4
        assert verify(folder / "audit.jsonl", anchors=anchors).state is ChainState.WHOLE
        assert [len(directory.names()) for directory in directories] == [2, 2]
