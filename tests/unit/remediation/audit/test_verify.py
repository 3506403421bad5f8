"""What verification finds, and what it honestly cannot know."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.inputs.ownfiles import MAX_RECORD_SIZE
from etcdfix.model.errors import ConfigurationError
from etcdfix.remediation.audit import verify as audit_verify
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import BEGINNING, Link, Operator, RecordType, Result, placed
from etcdfix.remediation.audit.verify import (
    MAX_FINDINGS,
    Anchor,
    ChainFaultKind,
    ChainState,
    Verification,
    _parse_head,
    parse_link,
    read_records,
    verify,
)
from etcdfix.remediation.errors import AuditLogLocked, AuditLogUnreadable
from tests.support.audit_logs import NOON, OPERATOR, entry, own_directory, write_log
from tests.support.thorough import some


def head_of(path: Path) -> Path:
    return path.with_name("audit.jsonl.head")


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def put(path: Path, *parts: bytes) -> None:
    path.write_bytes(b"".join(parts))


def rechain(written: list[bytes]) -> list[bytes]:
    """Make every sequence and hash anew, as somebody would who knows the format."""
    previous, made = "0" * 64, []
    for number, line in enumerate(written, start=1):
        event = json.loads(line)
        event["annotations"]["etcdfix.io/sequence"] = str(number)
        event["annotations"]["etcdfix.io/previous"] = f"sha256:{previous}"
        made.append(json.dumps(event).encode() + b"\n")
        previous = hashlib.sha256(made[-1]).hexdigest()
    return made


def record(*, sequence: str = "7", **changes: str) -> bytes:
    line = placed(entry(RecordType.REVEAL), BEGINNING, at=NOON).line
    event = json.loads(line.replace(b'sequence":"1"', b'sequence":"%s"' % sequence.encode()))
    return json.dumps(event | changes).encode() + b"\n"


def kinds(found: Verification) -> list[tuple[str, int]]:
    return [(finding.kind, finding.record) for finding in found.findings]


def tampered(path: Path, *anchors: Anchor) -> Verification:
    found = verify(path, anchors=anchors)
    assert (found.state, found.warnings) == (ChainState.TAMPERED, [])
    return found


class TestWhole:
    def test_whole(self, path: Path) -> None:
        links = write_log(path)
        found = verify(path)
        assert (found.state, found.warnings) == (ChainState.WHOLE, [])
        assert (found.records, found.head, found.size) == (6, links[-1], path.stat().st_size)
        assert found.open_intents == {}

    def test_through_a_link_and_read_only(self, path: Path, tmp_path: Path) -> None:
        write_log(path)
        path.chmod(0o400)
        path.parent.chmod(0o500)
        (tmp_path / "audit.jsonl").symlink_to(path)
        (tmp_path / "audit.jsonl.head").symlink_to(head_of(path))
        assert verify(tmp_path / "audit.jsonl").warnings == []
        path.parent.chmod(0o700)


class TestUnfinished:
    def test_an_open_intent_that_cannot_be_read(self, path: Path) -> None:
        with AuditLog.open(path) as log:
            log.append(entry())
        (line,) = lines(path)
        put(path, *rechain([line.replace(b'key-base64":"', b'key-base64":"?')]))
        head_of(path).unlink()
        assert kinds(tampered(path)) == [(ChainFaultKind.MALFORMED, 1)]

    @pytest.mark.parametrize(
        ("result", "reconciled", "state"),
        [
            (Result.UNKNOWN, False, ChainState.UNFINISHED),
            (Result.UNKNOWN, True, ChainState.UNFINISHED),
            (Result.REFUSED, False, ChainState.WHOLE),
            (Result.APPLIED_OR_GONE, True, ChainState.WHOLE),
        ],
    )
    def test_what_closes_it(self, path: Path, result: Result, reconciled: bool, state: ChainState) -> None:
        with AuditLog.open(path) as log:
            log.append(entry())
            log.append(log.intent(1).closed_by(result, operator=OPERATOR, settled=reconciled))
        assert verify(path).state is state

    @pytest.mark.parametrize("torn", [b'{"kind":', bytes(3 * MAX_RECORD_SIZE)], ids=["half", "long"])
    def test_torn_last_line(self, path: Path, torn: bytes) -> None:
        links = write_log(path)
        put(path, path.read_bytes(), torn)
        found = verify(path)
        assert (found.state, found.torn_size) == (ChainState.UNFINISHED, len(torn))
        assert (found.records, found.head) == (6, links[-1])


EDITED, DROPPED, REORDERED = ChainFaultKind.EDITED, ChainFaultKind.DROPPED, ChainFaultKind.REORDERED
STRAY, MALFORMED = ChainFaultKind.STRAY_OUTCOME, ChainFaultKind.MALFORMED
NO_RECORDS = (
    *(b"\n", b"{}\n", b"not JSON\n", b"[" * 5000 + b"\n", b"\xff\n", record(kind="Other")),
    *(record(sequence="-7"), record(sequence="9" * 5000), record(apiVersion="audit.k8s.io/v2")),
)


class TestTampered:
    @pytest.mark.parametrize("field", ["reason", "os-user", "detail"])
    def test_edited_field(self, path: Path, field: str) -> None:
        write_log(path)
        written = lines(path)
        event = json.loads(written[1])
        event["annotations"][f"etcdfix.io/{field}"] = "x"
        put(path, written[0], json.dumps(event).encode() + b"\n", *written[2:])
        assert (ChainFaultKind.EDITED, 2) in kinds(tampered(path))

    def test_every_changed_byte_is_found(self, path: Path) -> None:
        """In the last record too, which only the head file names."""
        write_log(path, pairs=1)
        whole = path.read_bytes()
        for position in some(range(len(whole)), of=19):
            changed = bytearray(whole)
            changed[position] ^= 1
            put(path, bytes(changed))
            assert verify(path).state is ChainState.TAMPERED, position

    @pytest.mark.parametrize(
        ("edit", "found"),
        [
            (
                lambda log: [log[0].replace(b"sha256:000", b"sha256:111"), *log[1:]],
                [(EDITED, 1), (EDITED, 1)],
            ),
            (lambda log: [*log[:2], *log[3:]], [(DROPPED, 3), (STRAY, 4)]),
            (lambda log: [*log[:2], *log[4:]], [(DROPPED, 3)]),
            (lambda log: log[1:], [(DROPPED, 1), (STRAY, 2)]),
            (lambda log: log[2:], [(DROPPED, 1)]),
            (lambda log: [*log[:2], log[3], log[2], *log[4:]], [(DROPPED, 3), (STRAY, 4), (REORDERED, 3)]),
            (lambda log: [*log, log[5], log[1]], [(REORDERED, 6), (REORDERED, 2)]),
            (lambda log: [*log[:2], b"x" * (2 * MAX_RECORD_SIZE + 5) + b"\n", *log[3:]], [(MALFORMED, 3)]),
            *((lambda log, line=line: [*log, line], [(MALFORMED, 7)]) for line in NO_RECORDS),
        ],
    )
    def test_lines(
        self, path: Path, edit: Callable[[list[bytes]], list[bytes]], found: list[tuple[str, int]]
    ) -> None:
        write_log(path)
        put(path, *edit(lines(path)))
        told = kinds(tampered(path))
        assert [one for one in told if one in found] == found, told

    def test_many_findings_are_counted(self, path: Path) -> None:
        put(path, b"x\n" * (MAX_FINDINGS + 20))
        found = tampered(path)
        assert (len(found.findings), found.more_findings) == (MAX_FINDINGS, 20)

    @pytest.mark.parametrize("intent", ["2", "9"])
    def test_outcome_of_an_intent_that_is_not_open(self, path: Path, intent: str) -> None:
        write_log(path)
        written = lines(path)
        event = json.loads(written[5])
        event["annotations"]["etcdfix.io/intent"] = intent
        put(path, *rechain([*written[:5], json.dumps(event).encode()]))
        head_of(path).unlink()
        assert kinds(tampered(path)) == [(ChainFaultKind.STRAY_OUTCOME, 6)]

    def test_damaged_head_file(self, path: Path) -> None:
        write_log(path)
        head_of(path).write_text("6:nothing\n")
        found = tampered(path)
        assert kinds(found) == [(ChainFaultKind.HEAD, 0)]
        assert not found.head_missing

    def test_head_put_back_to_the_beginning(self, path: Path) -> None:
        """The head of a new log fits a first record, whose writer was stopped, and no more."""
        links = write_log(path)
        head_of(path).write_text(f"{BEGINNING}\n")
        assert kinds(tampered(path)) == [(ChainFaultKind.HEAD, 0)]
        put(path, lines(path)[0])
        found = verify(path)
        assert (found.findings, found.head) == ([], links[0])
        assert len(found.warnings) == 1

    def test_tampering_wins_over_open_intents(self, path: Path) -> None:
        write_log(path)
        with AuditLog.open(path) as log:
            log.append(entry())
        put(path, path.read_bytes().replace(b"lost", b"fine", 1), b"half")
        assert tampered(path).open_intents


class TestCutTail:
    def cut(self, path: Path, left: int) -> list[Link]:
        links = write_log(path)
        put(path, *lines(path)[:left])
        return links

    @pytest.mark.parametrize("left", [0, 2, 5])
    def test_with_the_head_file(self, path: Path, left: int) -> None:
        self.cut(path, left)
        assert kinds(tampered(path)) == [(ChainFaultKind.CUT, 6)]

    def test_with_a_backup_only(self, path: Path) -> None:
        links = self.cut(path, 4)
        head_of(path).unlink()
        found = tampered(path, Anchor(links[0], "backup /b/1"), Anchor(links[4], "backup /b/5"))
        assert kinds(found) == [(ChainFaultKind.CUT, 5)]

    def test_an_anchor_that_does_not_reach_the_end_is_not_enough(self, path: Path) -> None:
        links = self.cut(path, 4)
        head_of(path).unlink()
        found = verify(path, anchors=[Anchor(links[2], "backup /b/3")])
        assert found.warnings == ["whole up to record 4; nothing here can show that later records existed"]
        assert verify(path, anchors=[Anchor(links[3], "--expect-head")]).warnings == []

    def test_cut_within_a_line_is_not_taken_for_a_torn_write(self, path: Path) -> None:
        write_log(path)
        put(path, path.read_bytes()[:-10])
        found = tampered(path)
        assert found.torn_size > 0
        assert kinds(found) == [(ChainFaultKind.CUT, 6)]


class TestRewritten:
    def test_expect_head(self, path: Path) -> None:
        """The first reason was changed, every hash made anew, and the head file with them: by itself it looks whole."""
        links = write_log(path)
        written = lines(path)
        made = rechain([written[0].replace(b"lost", b"fine"), *written[1:]])
        put(path, *made)
        head_of(path).write_text(f"6:{hashlib.sha256(made[-1]).hexdigest()}\n")
        assert verify(path).state is ChainState.WHOLE
        assert kinds(tampered(path, Anchor(links[-1], "--expect-head"))) == [(ChainFaultKind.EDITED, 6)]

    def test_expected_head_of_a_log_that_grew(self, path: Path) -> None:
        links = write_log(path)
        assert verify(path, anchors=[Anchor(links[1], "--expect-head")]).state is ChainState.WHOLE


class TestLinks:
    @pytest.mark.parametrize("text", ["12:{}", "12:sha256:{}", " 12:{}\n"])
    def test_understood(self, text: str) -> None:
        digest = "0123456789abcdef" * 4
        assert parse_link(text.format(digest)) == Link(12, digest)
        assert parse_link(text.format(digest.upper())) == Link(12, digest)
        assert str(Link(12, digest)) == f"12:{digest}"

    @pytest.mark.parametrize(
        "text",
        [
            *("", ":", "12", f":{'0' * 64}", f"-1:{'0' * 64}", f"١:{'0' * 64}"),
            *(f"1:{'0' * 63}", f"1:{'g' * 64}", f"{'9' * 16}:{'0' * 64}"),
        ],
    )
    def test_not_understood(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="SEQ:SHA256"):
            parse_link(text)
        assert _parse_head(text.encode()) is None


class TestUnreadable:
    def unreadable(self, path: Path, match: str) -> None:
        for read in (verify, lambda p: list(read_records(p))):
            with pytest.raises(AuditLogUnreadable, match=match) as caught:
                read(path)
            assert caught.value.exit_code == 5

    @pytest.mark.parametrize("make", ["folder", "loop"])
    def test_head_file(self, path: Path, make: str) -> None:
        write_log(path)
        head_of(path).unlink()
        if make == "folder":
            head_of(path).mkdir()
        else:
            head_of(path).symlink_to(head_of(path))
        with pytest.raises(
            AuditLogUnreadable, match=r"head file .*: ([Nn]ot a regular file|Is a directory|Too many levels)"
        ):
            verify(path)

    def test_disk_that_fails(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_log(path)

        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(audit_verify, "_lines", broken)
        self.unreadable(path, "Input/output error")

    def test_held_by_a_writer(self, path: Path) -> None:
        held = r"ada@\S+ holds it since 2026-03-01T12:00:00\.123456Z: etcdfix.* \(process \d+\)"
        operator = Operator(os_user="ada", host=socket.gethostname())
        note = path.with_name("audit.jsonl.lock")
        with AuditLog.open(path, operator=operator, clock=lambda: NOON):
            assert stat.S_IMODE(note.stat().st_mode) == 0o600
            with pytest.raises(AuditLogUnreadable, match=held):
                verify(path, wait_seconds=0)
            with pytest.raises(AuditLogLocked, match=held):
                AuditLog.open(path, wait_seconds=0)
            told = json.loads(note.read_bytes())
            for other in (b"", json.dumps(told | {"pid": 1 << 22}).encode(), b'{"user":7}'):
                note.write_bytes(other)
                with pytest.raises(AuditLogLocked, match="another process holds it"):
                    AuditLog.open(path, wait_seconds=0)
            note.write_text(
                json.dumps(told | {"command": "etcdfix \x1b[2J", "host": "elsewhere", "pid": 1 << 22})
            )
            with pytest.raises(AuditLogLocked, match=r"ada@elsewhere .*\[2J") as caught:
                AuditLog.open(path, wait_seconds=0)
            assert caught.value.message.isprintable()
        assert not note.exists()

    def test_held_by_a_writer_who_ends(self, path: Path) -> None:
        log = AuditLog.open(path)
        threading.Timer(0.1, log.close).start()
        assert verify(path, wait_seconds=60).state is ChainState.WHOLE


@pytest.mark.thorough
def test_memory_stays_flat(tmp_path: Path) -> None:
    """A log ten times as long is verified in the same memory."""
    script = """
import re, sys
from pathlib import Path
from etcdfix.remediation.audit.verify import ChainState, verify
peaks = []
for name in sys.argv[1:]:
    found = verify(Path(name))
    assert found.state is ChainState.UNFINISHED, found  # there is no head file
    status = Path("/proc/self/status").read_text()
    peaks.append(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]))
print(*peaks)
"""
    names = []
    for pairs in (500, 5000):
        names.append(own_directory(tmp_path / str(pairs)) / "audit.jsonl")
        put(names[-1], *rechain([record(sequence="1")] * 2 * pairs))
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    small, large = map(int, done.stdout.split())
    assert large - small < 4096, "kilobytes"
