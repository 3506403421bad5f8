"""The format of a backup file: what it holds, and every way in which a file is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from etcdfix import __version__
from etcdfix.errors import (
    BackupEdited,
    BackupTooLarge,
    BackupTruncated,
    BackupUnreadable,
    BackupVersionUnknown,
    NotABackup,
)
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.remediation.audit.record import Link
from etcdfix.remediation.backup import file as backup_file
from etcdfix.remediation.backup.file import read_backup
from etcdfix.remediation.backup.write import BackupPlan
from etcdfix.remediation.durable import SafeDirectory
from tests.support.audit_logs import CLUSTER, KEY, OPERATOR, STORED, content

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
        assert read.content.stored == STORED
        assert read.intent.link == INTENT
        assert read.intent.audit_log == "/var/lib/etcdfix/audit.jsonl"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600

    def test_as_json(self, written: Path) -> None:
        raw = written.read_bytes()
        document = json.loads(raw)
        assert list(document) == ["format", "content", "content_sha256", "intent", "document_sha256"]
        assert document["format"] == "etcdfix.backup/v1"
        assert document["content"] == {
            "purpose": "delete",
            "created_at": "2026-03-01T12:00:00.123456Z",
            "tool": {"name": "etcdfix", "version": __version__},
            "key": KEY.decode(),
            "key_base64": base64.b64encode(KEY).decode(),
            "mod_revision": 41,
            "create_revision": 12,
            "version": 3,
            "lease": "694d",
            "lease_ttl_seconds": 55,
            "stored_as_plaintext": False,
            "value_size": len(STORED.value),
            "value_sha256": f"sha256:{hashlib.sha256(STORED.value).hexdigest()}",
            "verdict": {
                "outcome": "decrypt-failure",
                "cause": "wrong-key",
                "confidence": "likely",
                "message": "No key of this name opens it.",
                "upstream_message": "cipher: message authentication failed",
            },
            "cluster": {
                "kube_system_uid": "d4c1",
                "cluster_id": "cdf818194e3a8c32",
                "endpoints": ["https://10.0.0.1:2379"],
                "header_revision": 77,
                "identity": None,
            },
            "operator": {
                "os_user": "ada",
                "host": "node-1",
                "sudo_user": "grace",
                "etcd_user": "root",
                "authorization": "none",
                "api_user": "",
            },
            "reason": "the key is lost",
            "grounds": None,
            "value_base64": base64.b64encode(STORED.value).decode(),
        }
        body, _, tail = raw.rpartition(b",\n")
        assert tail == f'"document_sha256":"sha256:{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
        held = raw.split(b'"content":', 1)[1].split(b',\n"content_sha256"', 1)[0]
        assert document["content_sha256"] == f"sha256:{hashlib.sha256(held).hexdigest()}"
        assert raw.count(b"\n") == 5

    @pytest.mark.parametrize(
        "stored",
        [
            StoredValue(b"/\xff\n\x1b[2J\xe2\x80\xae", b"", 1, 1, 1, 0),
            StoredValue(b"/a", bytes(range(256)) * 4, 2**62, 2**61, 9, 2**63 - 1),
            StoredValue(b"/a", os.urandom(2 << 20), 3, 2, 2, 1),
        ],
        ids=["empty", "all bytes", "large"],
    )
    def test_any_value(self, directories: list[SafeDirectory], stored: StoredValue) -> None:
        plan = BackupPlan(content(stored), directories, sequence=1)
        plan.write(INTENT, audit_log=Path("/a"))
        for path in plan.paths:
            assert read_backup(path).content.stored == stored
            assert path.read_bytes().replace(b"\n", b"").decode().isprintable()

    @pytest.mark.parametrize(
        ("value", "said"),
        [(b"k8s\x00\x0a", True), (b"{}", True), (b"", True), (b"k8s:enc:aescbc:v1:a:xx", False)],
    )
    def test_plaintext_is_what_has_no_envelope(self, value: bytes, said: bool) -> None:
        stored = msgspec.structs.replace(STORED, value=value)
        assert content(stored).stored_as_plaintext is said

    def test_stored_bytes_are_in_no_repr(self) -> None:
        made = content(msgspec.structs.replace(STORED, value=b"hush"))
        assert "4 bytes" in repr(made)
        assert "hush" not in repr(made)

    def test_without_lease(self) -> None:
        made = content(msgspec.structs.replace(STORED, lease=0))
        assert (made.lease, made.lease_ttl_seconds, made.stored.lease) == (None, None, 0)

    def test_words_that_are_not_unicode(self, directories: list[SafeDirectory]) -> None:
        odd = os.fsdecode(b"caf\xe9")
        cluster = msgspec.structs.replace(CLUSTER, kube_system_uid=None, endpoints=(odd,))
        operator = msgspec.structs.replace(OPERATOR, host=odd)
        made = content(reason=odd, cluster=cluster, operator=operator)
        plan = BackupPlan(made, directories, sequence=1)
        plan.write(INTENT, audit_log=Path(odd))
        read = read_backup(plan.paths[0])
        assert read.content == made
        assert read.content.reason == read.intent.audit_log == "caf\\udce9"


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

    def test_every_truncation(self, written: Path) -> None:
        raw = written.read_bytes()
        for length in range(len(raw)):
            written.write_bytes(raw[:length])
            with pytest.raises((BackupTruncated, BackupEdited)) as caught:
                read_backup(written)
            # Only where a few bytes of the last line are missing does it look like a changed last line.
            assert type(caught.value) is BackupTruncated or length > len(raw) - 80, length

    def test_every_changed_byte(self, written: Path) -> None:
        raw = written.read_bytes()
        for position in range(len(raw)):
            changed = bytearray(raw)
            changed[position] ^= 0x01
            written.write_bytes(changed)
            with pytest.raises((NotABackup, BackupVersionUnknown, BackupTruncated, BackupEdited)):
                read_backup(written)

    @pytest.mark.parametrize("more", [b"\n", b" ", b"{}\n", b"\0" * 100])
    def test_more_at_the_end(self, written: Path, more: bytes) -> None:
        written.write_bytes(written.read_bytes() + more)
        self.refused(written, BackupEdited, "last line was changed")

    def test_what_was_changed(self, written: Path) -> None:
        body, raw = body_of(written), written.read_bytes()
        for changed, kind, match in (
            (raw.replace(b"is lost", b"is fine"), BackupEdited, "not the ones that its digest was made of"),
            (b"", BackupTruncated, "it ends after 0 bytes"),
            (
                seal(body.replace(b"backup/v1", b"backup/v2", 1)),
                BackupVersionUnknown,
                "its format is etcdfix",
            ),
            (seal(body.replace(b"backup/v1", b"backup/" + b"v" * 99, 1)), BackupEdited, "its first line"),
            (seal(body.replace(b",\n", b",", 1)), BackupEdited, "its first line was changed"),
            (body + b',\n"document":"other"}\n', BackupEdited, "its last line was changed"),
        ):
            written.write_bytes(changed)
            self.refused(written, kind, match)

    @pytest.mark.parametrize(
        "raw", [b"x", b"{}\n", b'{"format":"other/v1"}\n', b"\x1f\x8b\x08", b"\0" * 5000]
    )
    def test_something_else(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "a").write_bytes(raw)
        self.refused(tmp_path / "a", NotABackup, "is no backup of etcdfix")

    def test_too_large(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backup_file, "MAX_BACKUP_SIZE", written.stat().st_size - 1)
        self.refused(written, BackupTooLarge, "larger than")

    def test_as_large_as_can_be(self, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backup_file, "MAX_BACKUP_SIZE", written.stat().st_size)
        assert read_backup(written).content.value_base64 == STORED.value

    def test_folder_and_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        self.refused(tmp_path / "gone", BackupUnreadable, "No such file")
        self.refused(tmp_path, BackupUnreadable, "directory")
        self.refused(tmp_path / "pipe", BackupUnreadable, "no regular file")

    @pytest.mark.parametrize(
        ("old", "new", "match"),
        [
            (b'"content":{"', b'"content":["', "the document does not"),
            (b'"purpose":', b'"porpoise":', "the document does not"),
            (b'"mod_revision":41', b'"mod_revision":0', "the document does not"),
            (b'"sequence":7', b'"sequence":0', "the document does not"),
            (b'"reason":"', b'"reason":"\xff', "the document does not"),
            (
                b'"tool":',
                b'"x":' + b"[" * 50_000 + b"]" * 50_000 + b',"tool":',
                "the document does not",
            ),
            (b"is lost", b"is fine", "content_sha256 is not the digest"),
            (b'"sha256":"abab', b'"sha256":"xbab', "the hash of its intent is no hash"),
            (b"etcdfix/audit.jsonl", b"etcdfix\\u0000/audit.jsonl", "the path of its audit log is none"),
        ],
    )
    def test_sealed_anew(self, written: Path, old: bytes, new: bytes, match: str) -> None:
        body = body_of(written)
        assert body.count(old) == 1
        written.write_bytes(seal(body.replace(old, new)))
        self.refused(written, BackupEdited, match)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"value_base64": STORED.value[:-1] + b"\0"}, "value_sha256 is not the digest"),
            ({"value_base64": b"k8s:enc:other"}, "value_sha256 is not the digest"),
            ({"value_size": 5}, "value_sha256 is not the digest"),
            ({"key_base64": b"/other"}, "key and key_base64 differ"),
            ({"key_base64": b"", "key": ""}, "key and key_base64 differ"),
            ({"stored_as_plaintext": True}, "calls an encrypted value plaintext"),
            ({"lease": "0x1"}, "lease is no lease id"),
            ({"lease": "f" * 17}, "lease is no lease id"),
        ],
    )
    def test_contradicts_itself(
        self, directories: list[SafeDirectory], changes: dict[str, object], match: str
    ) -> None:
        plan = BackupPlan(msgspec.structs.replace(content(), **changes), directories, sequence=7)
        plan.write(INTENT, audit_log=Path("/a"))
        self.refused(plan.paths[0], BackupEdited, match)

    def test_errors_hold_no_contents(self, written: Path) -> None:
        body = body_of(written)
        texts = []
        for old, new in ((b'"purpose":"delete"', b'"purpose":7'), (b'"version":3', b'"version":"3"')):
            written.write_bytes(seal(body.replace(old, new)))
            with pytest.raises(BackupEdited) as caught:
                read_backup(written)
            texts.append(str(caught.value))
        value = base64.b64encode(STORED.value).decode()
        assert all(value[:20] not in text for text in texts)
