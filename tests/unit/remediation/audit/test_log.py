"""The audit log as it is written: records, head, lock, what a crash or a full disk leaves."""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from etcdfix.inputs.ownfiles import MAX_RECORD_SIZE
from etcdfix.remediation import durable
from etcdfix.remediation.audit import log as audit
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import (
    BEGINNING,
    NO_SUBJECT,
    Link,
    RecordType,
    Result,
    Verb,
    hash_of,
    parse_record,
    placed,
)
from etcdfix.remediation.audit.verify import ChainState, verify, without_head
from etcdfix.remediation.errors import AuditError, AuditLogBroken, AuditLogLocked
from tests.faults.dying_delete import killed_at_every_step
from tests.support.audit_logs import (
    NOON,
    OPERATOR,
    entry,
    mounted,
    subject,
    write_log,
)
from tests.support.durable_steps import (
    APPEND_STEPS,
    CREATE_STEPS,
    RELEASE_STEPS,
    RESERVE_STEPS,
    TORN_STEPS,
    FailAt,
)


def head_of(path: Path) -> Path:
    return path.with_name("audit.jsonl.head")


def reserve_of(path: Path) -> Path:
    return path.with_name("audit.jsonl.reserve")


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def tear(path: Path, fragment: bytes) -> None:
    with path.open("ab") as file:
        file.write(fragment)


class TestAppend:
    def test_first_records(self, path: Path) -> None:
        seen: list[str] = []
        with AuditLog.open(path, step=seen.append) as log:
            assert log.head == BEGINNING
            first = log.append(entry(RecordType.DRY_RUN))
            second = log.append(entry(RecordType.REVEAL, verb=Verb.REVEAL))
            assert log.head == second
        written = lines(path)
        assert first == Link(1, hash_of(written[0]))
        assert second == Link(2, hash_of(written[1]))
        assert json.loads(written[0])["annotations"]["etcdfix.io/previous"] == "sha256:" + "0" * 64
        assert head_of(path).read_text() == f"2:{second.sha256}\n"
        for file in (path, head_of(path)):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert seen == [*CREATE_STEPS, *APPEND_STEPS, *APPEND_STEPS]
        assert sorted(p.name for p in path.parent.iterdir()) == ["audit.jsonl", "audit.jsonl.head"]

    def test_open_intents(self, path: Path) -> None:
        with AuditLog.open(path) as log:
            log.append(entry(RecordType.DRY_RUN))
            one = log.append(entry())
            two = log.append(entry(subject=subject(b"/registry/secrets/shop/other")))
            assert [i.link for i in log.open_intents()] == [one, two]
            log.append(log.intent(2).closed_by(Result.UNKNOWN, operator=OPERATOR))
            assert [i.link for i in log.open_intents()] == [one, two]
        with AuditLog.open(path) as log:
            first, second = log.open_intents()
            assert (first.link, second.subject.key) == (one, b"/registry/secrets/shop/other")
            log.append(first.closed_by(Result.NOT_APPLIED, operator=OPERATOR, settled=True))
            log.append(second.closed_by(Result.APPLIED_OR_GONE, operator=OPERATOR, settled=True))
            assert log.open_intents() == ()
            with pytest.raises(AuditError, match="intent 2 is not open"):
                log.intent(2)
            with pytest.raises(AuditError, match="intent 2 is not open"):
                log.append(first.closed_by(Result.DELETED, operator=OPERATOR))
        assert verify(path).state is ChainState.WHOLE

    def test_a_draft_is_for_one_place(self, path: Path) -> None:
        with AuditLog.open(path) as log:
            draft = log.draft(entry())
            log.append(entry(RecordType.DRY_RUN))
            with pytest.raises(AuditError, match="record 1 was drafted for another place"):
                log.append_draft(draft)
            assert log.append_draft(log.draft(entry())).sequence == 2

    def test_the_longest_record_is_kept(self, path: Path) -> None:
        with AuditLog.open(path) as log:
            empty = len(log.draft(entry(reason="x")).line) - 1
            fits = entry(reason="x" * (MAX_RECORD_SIZE - empty))
            assert len(log.draft(fits).line) == MAX_RECORD_SIZE
            with pytest.raises(AuditError, match=f"would have {MAX_RECORD_SIZE + 1} bytes"):
                log.draft(entry(reason="x" * (MAX_RECORD_SIZE - empty + 1)))
            log.append(fits)
        assert verify(path).state is ChainState.UNFINISHED


class TestFailures:
    @pytest.mark.parametrize("at", CREATE_STEPS)
    def test_making_the_log(self, path: Path, at: str) -> None:
        with pytest.raises(AuditError, match="No space left"):
            AuditLog.open(path, step=FailAt(at))
        write_log(path)
        assert verify(path).state is ChainState.WHOLE

    @pytest.mark.parametrize("at", sorted(set(APPEND_STEPS)))
    def test_append(self, path: Path, at: str) -> None:
        write_log(path)
        step = FailAt("")
        with AuditLog.open(path, step=step) as log:
            step.at = at
            with pytest.raises(AuditError, match="No space left on device"):
                log.append(entry(RecordType.DRY_RUN))
            with pytest.raises(AuditError, match="an earlier record failed"):
                log.append(entry(RecordType.DRY_RUN))
        # What could not be made durable is taken back; only a head that failed leaves its record.
        assert len(lines(path)) == (7 if at.startswith("audit head") else 6)
        assert verify(path).state is ChainState.WHOLE
        with AuditLog.open(path) as log:
            log.append(entry(RecordType.DRY_RUN))
        assert verify(path).state is ChainState.WHOLE

    def test_outcome_has_room_on_a_full_disk(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "small", "size=4m") as disk:
            path = disk / "audit.jsonl"
            for reserved in (False, True):
                with AuditLog.open(path) as log:
                    if reserved:
                        log.reserve()
                    intent = log.intent(log.append(entry()).sequence)
                    long = intent.closed_by(Result.DELETED, operator=OPERATOR, detail="x" * 250_000)
                    filler = disk / "filler"
                    with suppress(OSError), filler.open("wb", buffering=0) as file:
                        while True:
                            file.write(bytes(4096))
                    if reserved:
                        assert log.append(long) == log.head
                        assert [left.link.sequence for left in log.open_intents()] == [1]
                    else:
                        with pytest.raises(AuditError, match="No space left"):
                            log.append(long)
                filler.unlink()
            assert verify(path).open_intents.keys() == {1}
            assert sorted(left.name for left in disk.iterdir()) == ["audit.jsonl", "audit.jsonl.head"]

    @pytest.mark.parametrize("at", RESERVE_STEPS)
    def test_no_room_for_the_outcome(self, path: Path, at: str) -> None:
        write_log(path)
        before = path.read_bytes()
        with (
            AuditLog.open(path, step=FailAt(at)) as log,
            pytest.raises(AuditError, match=r"no room for the record of the outcome"),
        ):
            log.reserve()
        assert path.read_bytes() == before
        assert not reserve_of(path).exists()

    @pytest.mark.parametrize("at", RELEASE_STEPS)
    def test_room_that_cannot_be_given_back_hinders_no_record(self, path: Path, at: str) -> None:
        step = FailAt("")
        with AuditLog.open(path, step=step) as log:
            log.reserve()
            step.at = at
            intent = log.intent(log.append(entry()).sequence)
            log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
        assert verify(path).state is ChainState.WHOLE
        AuditLog.open(path).close()
        assert not reserve_of(path).exists()

    def test_room_is_given_back(self, path: Path) -> None:
        """Where nothing was done, and what a crash left."""
        write_log(path)
        reserve_of(path).write_bytes(b"left")
        with AuditLog.open(path) as log:
            assert not reserve_of(path).exists()
            log.reserve()
        assert not reserve_of(path).exists()
        with pytest.raises(AuditError, match="it was closed"):
            log.reserve()
        assert verify(path).state is ChainState.WHOLE

    @pytest.mark.parametrize("stuck", [False, True])
    def test_half_a_line_is_taken_back(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, *, stuck: bool
    ) -> None:
        """Where it cannot be, it is a torn line for the next writer."""
        write_log(path)
        before = path.read_bytes()

        def half(descriptor: int, data: bytes) -> None:
            os.write(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        def broken(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch, AuditLog.open(path) as log:
            patch.setattr(audit, "write_fully", half)
            if stuck:
                patch.setattr(os, "ftruncate", broken)
            with pytest.raises(AuditError, match="record 7 could not be made durable: No space left"):
                log.append(entry())
        assert (path.read_bytes() == before) is not stuck
        with AuditLog.open(path) as log:
            assert len(log.recovered) == stuck

    def test_other_bytes_come_back(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_log(path)
        with AuditLog.open(path) as log:
            monkeypatch.setattr(os, "pread", lambda *_: b"other")
            with pytest.raises(AuditError, match="record 7: other bytes came back"):
                log.append(entry())
        assert len(lines(path)) == 6


class TestBrokenLogs:
    def refused(self, path: Path, match: str) -> None:
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(AuditLogBroken, match=match) as caught:
            AuditLog.open(path)
        assert caught.value.exit_code == 4
        assert (path.read_bytes() if path.exists() else None) == before

    @pytest.mark.parametrize("of_head", [False, True])
    def test_symbolic_link(self, path: Path, tmp_path: Path, *, of_head: bool) -> None:
        write_log(path)
        linked = head_of(path) if of_head else path
        linked.rename(tmp_path / "elsewhere")
        linked.symlink_to(tmp_path / "elsewhere")
        before = (tmp_path / "elsewhere").read_bytes()
        with pytest.raises(AuditError, match="symbolic link"):
            AuditLog.open(path)
        assert (tmp_path / "elsewhere").read_bytes() == before

    def test_edited_in_the_middle(self, path: Path) -> None:
        write_log(path)
        path.write_bytes(path.read_bytes().replace(b"lost", b"fine", 1))
        self.refused(path, "record 1 is not the one")

    def test_gone(self, path: Path) -> None:
        write_log(path)
        path.unlink()
        self.refused(path, "the log is gone, and its head file is still there")

    @pytest.mark.parametrize("pairs", [1, 3])
    def test_how_to_go_on_without_head(self, path: Path, pairs: int) -> None:
        """Verification and the writer agree, also where nothing but the first record is left."""
        links = write_log(path, pairs=pairs)
        path.write_bytes(b"".join(lines(path)[:1] if pairs == 1 else lines(path)))
        head_of(path).unlink()
        last = links[0] if pairs == 1 else links[-1]
        found = verify(path)
        assert (found.state, found.head_missing) == (ChainState.UNFINISHED, True)
        with pytest.raises(AuditLogBroken) as caught:
            AuditLog.open(path)
        assert caught.value.exit_code == 4
        assert caught.value.hint == without_head(path, last)
        assert f"put this line into {head_of(path)}: {last}" in caught.value.hint
        head_of(path).write_text(f"{last}\n")
        AuditLog.open(path).close()
        assert not verify(path).head_missing

    @pytest.mark.parametrize("text", ["", "6:abc", "6:" + "0" * 64 + "\0" * 300, "ü"])
    def test_damaged_head(self, path: Path, text: str) -> None:
        write_log(path)
        head_of(path).write_text(text)
        self.refused(path, "head file is not valid")

    def test_somebody_writes_past_the_lock(self, path: Path) -> None:
        write_log(path)
        with AuditLog.open(path) as log:
            tear(path, b"{}\n")
            with pytest.raises(AuditLogBroken, match="somebody wrote past the lock"):
                log.append(entry())

    @pytest.mark.parametrize("there", [True, False])
    def test_path_leads_elsewhere(self, path: Path, *, there: bool) -> None:
        write_log(path)
        with AuditLog.open(path) as log:
            path.rename(path.with_name("moved"))
            if there:
                path.touch(0o600)
            with pytest.raises(AuditLogBroken, match="another file"):
                log.append(entry())
            assert not there or path.read_bytes() == b""


class TestCrashes:
    def test_head_that_lags_by_one_is_moved_on(self, path: Path) -> None:
        links = write_log(path)
        head_of(path).write_text(f"{links[4]}\n")
        AuditLog.open(path).close()
        assert head_of(path).read_text() == f"{links[5]}\n"
        assert len(lines(path)) == 6

    def test_log_that_was_made_and_no_head_yet(self, path: Path) -> None:
        AuditLog.open(path).close()
        assert head_of(path).read_text() == f"{BEGINNING}\n"
        head_of(path).unlink()
        found = verify(path)
        assert (found.records, found.state) == (0, ChainState.UNFINISHED)
        assert "the next writer makes a head file" in without_head(path, found.head)
        AuditLog.open(path).close()
        assert verify(path).state is ChainState.WHOLE

    @pytest.mark.parametrize(
        "fragment", [b"{", b"\0" * 4096, placed(entry(), Link(6, "0" * 64), at=NOON).line[:-1]]
    )
    def test_torn_last_line_is_kept_aside_and_recorded(self, path: Path, fragment: bytes) -> None:
        write_log(path)
        whole = path.read_bytes()
        tear(path, fragment)
        assert verify(path).state is ChainState.UNFINISHED
        seen: list[str] = []
        with AuditLog.open(path, step=seen.append, operator=OPERATOR) as log:
            assert log.head.sequence == 7
            (kept,) = log.recovered
        assert kept.read_bytes() == fragment
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert path.read_bytes().startswith(whole)
        event = parse_record(lines(path)[6])
        assert (event.type, event.verb, event.subject) == (RecordType.TORN_LINE, Verb.RECOVER, NO_SUBJECT)
        assert event.value_sha256 == f"sha256:{hash_of(fragment)}"
        assert str(kept) in event.detail
        assert event.operator.os_user == "ada"
        assert tuple(seen) == TORN_STEPS
        assert verify(path).state is ChainState.WHOLE

    def test_torn_with_a_cut_tail_before_it(self, path: Path) -> None:
        write_log(path)
        path.write_bytes(path.read_bytes()[:-20])
        assert verify(path).state is ChainState.TAMPERED
        with pytest.raises(AuditLogBroken, match="the head file names record 6"):
            AuditLog.open(path)
        assert not list(path.parent.glob("*.torn-*"))

    @pytest.mark.parametrize("at", sorted(set(TORN_STEPS)))
    def test_setting_aside_fails(self, path: Path, at: str) -> None:
        write_log(path)
        tear(path, b"half")
        with pytest.raises(AuditError, match="No space left"):
            AuditLog.open(path, step=FailAt(at))
        with AuditLog.open(path) as log:
            assert log.head.sequence == 7
        assert [kept.read_bytes() for kept in path.parent.glob("*.torn-7-*")] == [b"half"]
        assert verify(path).state is ChainState.WHOLE

    def test_killed_at_every_step_of_putting_right(self, tmp_path: Path) -> None:
        def prepare(folder: Path) -> None:
            links = write_log(folder / "audit.jsonl", pairs=2)
            head_of(folder / "audit.jsonl").write_text(f"{links[2]}\n")  # it lags too
            tear(folder / "audit.jsonl", b"half")

        names = []
        for name, folder in killed_at_every_step("files: reopen", tmp_path, prepare):
            names.append(name)
            path = folder / "audit.jsonl"
            assert verify(path).state is not ChainState.TAMPERED, name
            with AuditLog.open(path) as log:
                log.append(entry(RecordType.DRY_RUN))
            assert verify(path).state is ChainState.WHOLE, name
            torn_lines = [e for e in map(parse_record, lines(path)) if e.type == "torn-line"]
            assert len(torn_lines) == len(list(folder.glob("*.torn-*"))) == 1, name
        head_steps = [s for s in APPEND_STEPS if s.startswith("audit head")]
        assert names == [*head_steps, *TORN_STEPS, ""]


class TestLock:
    def test_held_by_ourselves(self, path: Path) -> None:
        with AuditLog.open(path), pytest.raises(AuditLogLocked):
            AuditLog.open(path, wait_seconds=0)
        AuditLog.open(path, wait_seconds=0).close()

    @pytest.mark.parametrize("another", [False, True])
    def test_log_moved_away_while_waiting(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, *, another: bool
    ) -> None:
        write_log(path)
        real = durable.lock
        moved: list[bool] = []

        def move_first(descriptor: int, operation: int, *, wait_seconds: float) -> bool:
            if not moved:
                moved.append(True)
                path.rename(path.with_name("rotated"))
                head_of(path).rename(path.with_name("rotated.head"))
                if another:
                    write_log(path, pairs=1)
            return real(descriptor, operation, wait_seconds=wait_seconds)

        monkeypatch.setattr(durable, "lock", move_first)
        with AuditLog.open(path) as log:
            assert log.head.sequence == (2 if another else 0)
        assert verify(path.with_name("rotated")).records == 6
