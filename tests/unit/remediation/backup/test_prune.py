"""Pruning: only what the log means, only what is known to be done, and never without a record."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.backup import prune
from etcdfix.remediation.backup.file import MARKER_SUFFIX, encode_content, encode_document, read_backup
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.errors import (
    AuditError,
    AuditLogBroken,
    UnsafePlace,
)
from tests.support.audit_logs import OPERATOR, own_directory
from tests.support.backups import AFTER, OLD, Ground

OTHER = b"/registry/pods/shop/web"


def records(ground: Ground) -> list[tuple[str, str, str]]:
    return [(event.verb, event.type, event.outcome or "") for event in read_records(ground.log)]


class TestWhatGoes:
    def test_each_file_of_an_old_backup_with_a_record(self, ground: Ground) -> None:
        names = [ground.change(), ground.change(key=OTHER)]
        done = ground.prune()
        assert ground.files() == set()
        assert [(one.intent, one.removed) for one in done.backups] == [(1, True)] * 2 + [(3, True)] * 2
        assert [Path(one.path).name for one in done.backups] == [*names[:1] * 2, *names[1:] * 2]
        assert records(ground)[4:] == [("prune-backup", "prune", "")] * 2
        assert done.audit_log_head == str(verify(ground.log).head)
        assert (done.stopped, done.warnings, done.exit_code) == ("", [], 0)
        record = list(read_records(ground.log))[4]
        assert [Path(path).name for path in record.backups] == names[:1] * 2
        assert (record.reason, record.accepted) == ("aged", ("--accept only-copy",))
        assert verify(ground.log).state is ChainState.WHOLE

    def test_those_that_are_younger_stay(self, ground: Ground) -> None:
        ground.change()
        younger = ground.change()
        done = ground.prune(before=OLD + timedelta(hours=1))
        assert (done.count, done.younger) == (1, 2)
        assert ground.survey(before=OLD + timedelta(days=1)).younger == 2  # made then, and not before
        assert ground.files() == {f"one/{younger}", f"two/{younger}"}

    def test_the_later_word_on_its_age_counts(self, ground: Ground) -> None:
        """A file that says that it is older than its record is as old as the record, and the other way round."""
        ground.change()
        ground.change(made=OLD - timedelta(days=900))
        assert ground.survey(before=OLD + timedelta(hours=1)).younger == 2
        ground.change(made=AFTER + timedelta(days=900))
        assert ground.survey(before=AFTER).younger == 2

    def test_a_time_that_is_none_counts_as_now(self) -> None:
        assert datetime.now(UTC) - prune._time("yesterday") < timedelta(minutes=1)
        assert prune._time("2026-01-05T12:00:00") == prune._time("2026-01-05T14:00:00+02:00") == OLD

    def test_one_directory_of_two(self, ground: Ground) -> None:
        name = ground.change()
        ground.prune(places=type(ground.places)(ground.directories[:1], ground.log))
        assert ground.files() == {f"two/{name}"}
        ground.prune()
        assert ground.files() == set()

    def test_nothing_that_was_not_shown(self, ground: Ground) -> None:
        ground.change()
        agreed = ground.survey()
        later = ground.change()
        prune.prune_backups(ground.request(), agreed, operator=OPERATOR)
        assert ground.files() == {f"one/{later}", f"two/{later}"}


def spoil(path: Path, what: str, outside: Path) -> None:
    """Make a backup something else, or take it away."""
    raw = path.read_bytes()
    if what == "other content":
        read = read_backup(path)
        made = msgspec.structs.replace(read.content, reason="another")
        path.write_bytes(encode_document(encode_content(made), read.intent))
    elif what == "damaged":
        path.write_bytes(raw[:-40])
    elif what == "marked":
        path.with_name(path.name + MARKER_SUFFIX).touch(0o600)
    elif what in {"link", "gone"}:
        path.unlink()
        if what == "link":
            outside.write_bytes(raw)
            path.symlink_to(outside)
    else:
        path.chmod(int(what, 8))


class TestWhatStays:
    def rules(self, ground: Ground, **changes: Any) -> list[Rule]:
        survey = ground.survey(**changes)
        assert survey.backups == []
        before = ground.files()
        assert ground.prune(**changes).backups == []
        assert ground.files() == before
        return [Rule(kept.reason) for kept in survey.kept]

    @pytest.mark.parametrize(
        ("verb", "result", "only"),
        [
            (Verb.DELETE, Result.DELETED, True),
            (Verb.DELETE, Result.APPLIED_OR_GONE, True),
            (Verb.DELETE, Result.REFUSED, True),
            (Verb.DELETE, Result.NOT_APPLIED, True),
            (Verb.UNDO, Result.UNDONE, False),
            (Verb.FIX, Result.FIXED, False),
        ],
    )
    def test_the_only_copy(self, ground: Ground, verb: Verb, result: Result, *, only: bool) -> None:
        """What a put replaced is none."""
        ground.change(result, verb=verb)
        survey = ground.survey(accepted=Acceptances())
        assert [kept.reason for kept in survey.kept] == [Rule.ONLY_COPY] * 2 * only
        assert survey.count == (not only)

    @pytest.mark.parametrize("result", [None, Result.UNKNOWN])
    def test_what_nobody_knows(self, ground: Ground, result: Result | None) -> None:
        ground.change(result)
        assert self.rules(ground) == [Rule.BACKUP_OPEN] * 2
        # And its intent stays open: etcd alone can tell what became of it.
        assert list(verify(ground.log).open_intents) == [1]
        assert len(records(ground)) == (1 if result is None else 2)

    def test_an_anomaly_and_what_came_back_then(self, ground: Ground) -> None:
        ground.change(Result.ANOMALY)
        assert self.rules(ground) == [Rule.BACKUP_OPEN] * 4

    def test_a_backup_whose_intent_was_never_written(self, ground: Ground) -> None:
        """A crash left it with its marker: it proves nothing about the log, and the others go."""
        name = ground.change()
        lines = ground.log.read_bytes()
        head = ground.log.with_name("audit.jsonl.head").read_bytes()
        lost = ground.change(key=OTHER)
        ground.log.write_bytes(lines)
        ground.log.with_name("audit.jsonl.head").write_bytes(head)
        for path in ground.directories:
            (path / (lost + MARKER_SUFFIX)).touch(0o600)
        survey = ground.survey()
        assert [kept.reason for kept in survey.kept] == [Rule.BACKUP_UNLISTED] * 2
        assert [Path(one.path).name for one in survey.backups] == [name, name]

    @pytest.mark.parametrize("what", ["other content", "link", "damaged", "0620", "0640", "marked"])
    def test_a_file_that_is_not_as_it_was(self, ground: Ground, tmp_path: Path, what: str) -> None:
        """It stays, and so does what it leads to; its copy in the other directory goes."""
        name = ground.change()
        spoil(ground.directories[0] / name, what, tmp_path / "precious.json")
        (kept,) = ground.prune().kept
        assert kept.reason == (Rule.BACKUP_OPEN if what == "marked" else Rule.BACKUP_UNLISTED)
        assert {f"one/{name}"} <= ground.files() <= {f"one/{name}", f"one/{name}{MARKER_SUFFIX}"}
        assert (tmp_path / "precious.json").exists() == (what == "link")

    def test_a_copy_at_another_place(self, ground: Ground) -> None:
        name = ground.change()
        away = own_directory(ground.folder / "away")
        (away / name).write_bytes((ground.directories[0] / name).read_bytes())
        (away / name).chmod(0o600)
        places = type(ground.places)((away,), ground.log)
        assert self.rules(ground, places=places) == [Rule.BACKUP_UNLISTED]

    def test_backups_of_another_log(self, ground: Ground) -> None:
        ground.change()
        other = Ground(own_directory(ground.folder / "second"))
        other.change()
        survey = ground.survey(places=type(ground.places)(other.directories, ground.log))
        assert [kept.reason for kept in survey.kept] == [Rule.BACKUP_UNLISTED] * 2
        assert "another log" in survey.kept[0].message


class TestWhatRefusesAll:
    @pytest.mark.parametrize("what", ["not there", "edited", "without a head"])
    def test_a_log_that_is_broken(self, ground: Ground, what: str) -> None:
        ground.change()
        if what == "edited":
            ground.log.write_bytes(ground.log.read_bytes().replace(b"key is lost", b"key was old", 1))
        else:
            (ground.log if what == "not there" else ground.log.with_name("audit.jsonl.head")).unlink()
        with pytest.raises(AuditLogBroken):
            ground.survey()

    def test_a_log_that_a_backup_speaks_against(self, ground: Ground) -> None:
        """Cut with its head file made to fit: the backup remembers the record that was cut off."""
        ground.change()
        ground.change()
        lines = ground.log.read_bytes().splitlines(keepends=True)
        agreed = ground.survey()
        ground.log.write_bytes(b"".join(lines[:2]))
        head = list(read_records(ground.log))[1].link
        ground.log.with_name("audit.jsonl.head").write_text(f"{head}\n")
        with pytest.raises(AuditLogBroken, match="cut off the end"):
            ground.survey()
        before = ground.files()
        with pytest.raises(AuditLogBroken, match="cut off the end"):
            prune.prune_backups(ground.request(), agreed, operator=OPERATOR)
        assert ground.files() == before

    def test_a_directory_that_others_may_write_to(self, ground: Ground) -> None:
        ground.change()
        ground.directories[0].chmod(0o770)
        with pytest.raises(UnsafePlace):
            ground.survey()


class Once:
    """Does something at a step, the given time that it comes."""

    def __init__(self, at: str, action: Callable[[], object], *, skip: int = 0) -> None:
        self.at, self.action, self.skip = at, action, skip

    def __call__(self, name: str) -> None:
        if name == self.at:
            self.skip -= 1
            if self.skip == -1:
                self.action()


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestWhatGoesWrong:
    @pytest.mark.parametrize("first", [True, False])
    def test_a_full_disk(self, ground: Ground, first: bool) -> None:
        ground.change()
        second, third = ground.change(), ground.change(key=OTHER)
        step = Once("audit log: before write record", full, skip=0 if first else 1)
        if first:
            with pytest.raises(AuditError, match="could not be made durable"):
                ground.prune(step=step)
            assert (len(ground.files()), len(records(ground))) == (6, 6)
        else:
            done = ground.prune(step=step)
            assert ("could not be made durable" in done.stopped, done.count, done.exit_code) == (True, 1, 3)
            assert ground.files() == {
                f"{folder}/{name}" for folder in ("one", "two") for name in (second, third)
            }

    def test_a_file_that_cannot_be_removed(self, ground: Ground) -> None:
        name = ground.change()
        done = ground.prune(step=Once("backup pruned: before unlink file", full))
        assert [(one.removed, one.record is not None) for one in done.backups] == [(False, True)] * 2
        assert (done.exit_code, [one.reason for one in done.kept]) == (3, [prune.NOT_REMOVED])
        assert "No space left" in done.kept[0].message
        assert ground.files() == {f"one/{name}", f"two/{name}"}
        assert ground.prune().exit_code == 0
        assert ground.files() == set()

    @pytest.mark.parametrize("what", ["other backup", "other content", "damaged", "link", "gone", "0666"])
    def test_a_file_that_changes_meanwhile(self, ground: Ground, what: str, tmp_path: Path) -> None:
        path, other = (ground.directories[0] / ground.change() for _ in range(2))

        def change() -> None:
            if what == "other backup":
                path.write_bytes(other.read_bytes())
            else:
                spoil(path, what, tmp_path / "outside")

        done = ground.prune(step=Once("audit log: after read back", change))
        assert [one.removed for one in done.backups[:2]] == [False, False]
        assert (done.exit_code, done.kept[0].reason) == (3, prune.NOT_REMOVED)
        assert os.path.lexists(path) == (what != "gone")
        assert (tmp_path / "outside").exists() == (what == "link")

    def test_a_signal_waits_for_the_files(self, ground: Ground) -> None:
        ground.change()
        second = ground.change()
        interrupt = Once("backup pruned: before unlink file", lambda: os.kill(os.getpid(), signal.SIGTERM))
        done = ground.prune(step=interrupt)
        assert done.stopped == "SIGTERM arrived"
        assert ground.files() == {f"one/{second}", f"two/{second}"}
        assert verify(ground.log).state is ChainState.WHOLE
