"""A deletion killed at every step of its backups and records, without an etcd: both tell the truth, and it goes on."""

from __future__ import annotations

from pathlib import Path

from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.audit.verify import Anchor, ChainState, verify
from etcdfix.remediation.backup.file import MARKER_SUFFIX, Backup, confirm_backups, read_backup
from etcdfix.remediation.backup.folder import anchors_in, intent_of, look_into
from etcdfix.remediation.errors import BackupUnreadable
from tests.faults.dying_delete import killed_at_every_step
from tests.support.audit_logs import OPERATOR, STORED, delete_with
from tests.support.durable_steps import (
    APPEND_STEPS,
    CONFIRM_STEPS,
    CREATE_STEPS,
    RELEASE_STEPS,
    RESERVE_STEPS,
    WRITE_STEPS,
)


def test_killed_at_every_step_of_a_deletion(tmp_path: Path) -> None:
    """Whatever the moment, backups and log tell the truth, and the next run can go on from there."""
    names = []
    for name, folder in killed_at_every_step("files: delete", tmp_path, lambda _: None):
        names.append(name)
        check_what_is_left(folder, name)
        go_on(folder, name)
    write, confirm = [*WRITE_STEPS] * 2, [*CONFIRM_STEPS] * 2
    sent = ["transaction: before", "transaction: after"]
    room, given_back = RESERVE_STEPS, RELEASE_STEPS
    before = [*CREATE_STEPS, *room, *write, *APPEND_STEPS, *confirm]
    assert names == [*before, *sent, *given_back, *APPEND_STEPS, ""]


def whole_backups(folder: Path) -> list[Backup]:
    read = []
    for path in [*(folder / "one").iterdir(), *(folder / "two").iterdir()]:
        marked = path.with_name(path.name + MARKER_SUFFIX).exists()
        if path.name.endswith(MARKER_SUFFIX):
            continue
        try:
            read.append(read_backup(path))
        except BackupUnreadable:
            assert marked, path  # half written: then its marker is beside it
    return read


def anchors_of(folder: Path) -> list[Anchor]:
    files = [file for name in ("one", "two") for file in look_into(folder / name)]
    return anchors_in(files, folder / "audit.jsonl")


def check_what_is_left(folder: Path, name: str) -> None:
    path = folder / "audit.jsonl"
    sent = (folder / "sent").exists()
    if not path.exists():
        assert not sent, name
        return
    backups = whole_backups(folder)
    anchors = anchors_of(folder)
    found = verify(path, anchors=anchors)
    assert found.state is not ChainState.TAMPERED, (name, found)
    if not found.records:
        assert not sent, name
        assert anchors == [], name
        return
    # An intent is in the log: every backup that it lists is there, whole, and belongs to it.
    assert len(backups) == 2, name
    for read in backups:
        intent = intent_of(read, path)
        assert intent is not None, name
        assert str(read.path) in intent.backups, name
        assert read.content.stored == STORED, name
    if sent:
        assert len(anchors) == 2, name
    if found.records == 1:
        assert found.state is ChainState.UNFINISHED, name
        assert list(found.open_intents) == [1], name
    else:
        assert sent, name
        assert found.state is ChainState.WHOLE, name


def go_on(folder: Path, name: str) -> None:
    with AuditLog.open(folder / "audit.jsonl") as log:
        for intent in log.open_intents():
            confirm_backups(intent)
            log.append(intent.closed_by(Result.NOT_APPLIED, operator=OPERATOR, settled=True))
    delete_with(folder)
    anchors = anchors_of(folder)
    assert len(anchors) >= 2, name
    found = verify(folder / "audit.jsonl", anchors=anchors)
    assert (found.state, found.warnings) == (ChainState.WHOLE, []), name
