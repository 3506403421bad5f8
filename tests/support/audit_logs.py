"""Entries, backups and logs for tests of remediation, and a process that is killed at every step."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from etcdfix.cli.root import run
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.key_loss import KeyCounts
from etcdfix.model.model import Confidence, Outcome, ServerBehaviour, StoredValue
from etcdfix.remediation.audit.grounds import Grounds, RecordedAnswer
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, Operator, Record, RecordType, Result, Subject, Verb
from etcdfix.remediation.backup.file import BackupCluster, BackupContent, make_content, record_intent
from etcdfix.remediation.durable import Step, no_step, open_directory

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
OPERATOR = Operator(os_user="ada", host="node-1", sudo_user="grace", etcd_user="root")
KEY = b"/registry/secrets/shop/db"
STORED = StoredValue(
    key=KEY,
    value=b"k8s:enc:aesgcm:v1:old:" + bytes(range(256)),
    mod_revision=41,
    create_revision=12,
    version=3,
    lease=0x694D,
)
LOST = b"k8s:enc:aescbc:v1:lost:" + bytes(range(64))
"""A value whose encryption key nobody has."""
CLUSTER = BackupCluster("d4c1", "cdf818194e3a8c32", ("https://10.0.0.1:2379",), 77)
VERDICT = Verdict(
    outcome=Outcome.DECRYPT_FAILURE,
    cause=Cause.WRONG_KEY,
    confidence=Confidence.LIKELY,
    apiserver=ServerBehaviour.CORRUPT,
    message="No key of this name opens it.",
    upstream_message="cipher: message authentication failed",
)

GROUNDS = Grounds(
    configuration_sha256="sha256:c0",
    rule="secrets",
    transformer="aesgcm/v1/old",
    key_fingerprints=("fp:0011",),
    counts=(KeyCounts(opened=7, failed=1, undetermined=2, damaged=1),),
    release="1.34",
    release_source="--kubernetes-version",
    warnings=("TLS checks are off",),
    server_answers=(RecordedAnswer("https://10.0.0.1:6443", "500"),),
    peek=("protobuf header: 0 wrong bits",),
)


def subject(key: bytes = KEY, mod_revision: int = 41) -> Subject:
    return Subject(
        key=key,
        group="",
        api_version="v1",
        resource="secrets",
        namespace="shop",
        name="db",
        mod_revision=mod_revision,
    )


def entry(kind: RecordType = RecordType.INTENT, **changes: object) -> Record:
    made = Record(
        type=kind,
        verb=Verb.DELETE,
        operator=OPERATOR,
        subject=subject(),
        reason="the key is lost",
        cluster_uid="d4c1",
        header_revision=77,
    )
    return msgspec.structs.replace(made, **changes)


def content(stored: StoredValue = STORED, **changes: object) -> BackupContent:
    given: dict[str, object] = {
        "purpose": "delete",
        "verdict": VERDICT,
        "cluster": CLUSTER,
        "operator": OPERATOR,
        "reason": "the key is lost",
        "lease_ttl_seconds": 55,
        "at": NOON,
    }
    return make_content(stored, **(given | changes))  # type: ignore[arg-type]


def own_directory(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def write_log(path: Path, *, pairs: int = 3) -> list[Link]:
    """Make a log of intents, each with its outcome; return the links of its records."""
    links = []
    with AuditLog.open(path) as log:
        for _ in range(pairs):
            links.append(log.append(entry()))
            intent = log.intent(links[-1].sequence)
            links.append(log.append(intent.closed_by(Result.DELETED, operator=OPERATOR)))
    return links


def delete_with(folder: Path, step: Step = no_step) -> None:
    """Do what a deletion does around its transaction; the file ``sent`` stands for the transaction."""
    with ExitStack() as stack:
        log = stack.enter_context(AuditLog.open(folder / "audit.jsonl", step=step))
        directories = [
            stack.enter_context(open_directory(folder / name, step=step)) for name in ("one", "two")
        ]
        log.reserve()
        intent = record_intent(log, entry(), content(at=datetime.now(UTC)), directories)
        step("transaction: before")
        (folder / "sent").touch()
        step("transaction: after")
        log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))


class mounted:  # noqa: N801 - reads like contextlib's
    """A small tmpfs, where we may mount one."""

    def __init__(self, path: Path, options: str) -> None:
        self.path = own_directory(path)
        self.options = options

    def __enter__(self) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{self.options}", "etcdfix-test", str(self.path)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("may not mount a file system here")
        return self.path

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", self.path], check=True)


def audit(capfd: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Run ``etcdfix log``, and return its exit code and what it wrote: nothing that a terminal could act upon."""
    code = run(["log", *map(str, words)])
    captured = capfd.readouterr()
    assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())
    return code, captured.out, captured.err
