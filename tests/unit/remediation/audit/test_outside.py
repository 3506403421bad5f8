"""The head of the chain, told outside: over real sockets, before and after each record."""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etcdfix.errors import AnchorUnreachable, ConfigurationError
from etcdfix.remediation.audit import outside
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.outside import WORD, OutsideAnchor, head_line, parse_line, parse_outside
from etcdfix.remediation.audit.record import BEGINNING, Link, RecordType, Result, Verb
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.backup.file import read_backup
from etcdfix.remediation.backup.write import anchor_of, intent_of, record_intent
from etcdfix.remediation.durable import open_directory
from tests.support.anchors import PlayedAnchor
from tests.support.audit_logs import KEY, OPERATOR, content, entry, own_directory

HEAD = Link(7, "ab" * 32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log")


@pytest.fixture
def anchor(tmp_path: Path) -> Iterator[PlayedAnchor]:
    with PlayedAnchor(tmp_path / "socket") as played:
        yield played


class TestTargets:
    @pytest.mark.parametrize(
        "text",
        [
            "", "journal", "journald:", "journald:/run/x", "syslog:", "syslog:relative/path", "syslog:/a\0b", "syslog:udp://",
            "syslog:udp://:514", "syslog:tcp://host:0", "syslog:tcp://host:70000", "syslog:tcp://host:x",
            "syslog:tcp://[::1", "syslog:tcp://me@host:1", "syslog:tcp://host:1/path", "syslog:udp://host:1?a", "tcp://h:1",
            "syslog:http://host", "SYSLOG",
        ],
    )  # fmt: skip
    def test_what_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="--audit-anchor") as caught:
            parse_outside(text)
        assert "journald" in caught.value.hint

    def test_where_they_lead(self) -> None:
        assert parse_outside("journald").path == Path("/run/systemd/journal/socket")
        assert parse_outside("syslog").path == Path("/dev/log")
        assert parse_outside("syslog:/run/other").path == Path("/run/other")
        udp, tcp = parse_outside("syslog:udp://logs.example"), parse_outside("syslog:tcp://[::1]:6514")
        assert (udp.host, udp.port, tcp.host, tcp.port) == ("logs.example", 514, "::1", 6514)
        assert "UDP does not say" in udp.warnings[0]
        assert tcp.warnings == ()


class TestLines:
    def test_a_line_is_one_line_of_printable_words(self) -> None:
        line = head_line(HEAD, Path("/var/a b\n\x1b[31m%/ü\udcff.jsonl"))
        assert re.fullmatch(r"[!-~]+( [a-z0-9]+=[!-~]+){7}", line)
        read = parse_line(line)
        assert read is not None
        assert read.link == HEAD
        assert read.log == "/var/a b\n\x1b[31m%/ü".encode() + b"\xff.jsonl"
        assert read.host == socket.gethostname().encode()

    def test_the_words_are_as_documented(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "node-1")
        assert head_line(HEAD, Path("/var/lib/audit.jsonl")) == (
            f"etcdfix-audit-head v=1 seq=7 sha256={'ab' * 32} type=head log=/var/lib/audit.jsonl host=node-1 key=-"
        )

    @pytest.mark.parametrize(
        "change",
        [
            ("v=1", "v=2"), ("seq=7", "seq="), ("seq=7", "seq=-7"), ("seq=7", "seq=٧"), ("seq=7", f"seq={'9' * 16}"),
            ("ab" * 32, "AB" * 32), ("ab" * 32, "ab" * 31), ("type=head", "type="), ("log=", "log= "), (" key=-", ""),
            ("key=-", "key=- more"), ("key=-", "key=sha256:12"), ("host=", "host=\x00"),
        ],
    )  # fmt: skip
    def test_anything_else_is_no_line(self, change: tuple[str, str]) -> None:
        line = head_line(HEAD, Path("/a"))
        assert parse_line(line) is not None
        assert change[0] in line
        assert parse_line(line.replace(*change)) is None


class TestSending:
    def test_journald(self, anchor: PlayedAnchor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outside, "JOURNAL_SOCKET", anchor.path)
        parse_outside("journald").send(head_line(HEAD, Path("/a")))
        (message,) = anchor.received()
        fields = dict(line.split("=", 1) for line in message.decode().splitlines())
        assert fields == {
            "MESSAGE": head_line(HEAD, Path("/a")),
            "PRIORITY": "5",
            "SYSLOG_IDENTIFIER": "etcdfix",
        }

    def test_local_syslog(self, anchor: PlayedAnchor) -> None:
        parse_outside(anchor.target).send("words")
        (message,) = anchor.received()
        assert re.fullmatch(rb"<85>[A-Z][a-z]{2} [ 123]\d \d\d:\d\d:\d\d etcdfix\[\d+\]: words", message)

    def test_a_local_daemon_that_listens_for_connections(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(tmp_path / "stream"))
            listening.listen()
            parse_outside(f"syslog:{tmp_path}/stream").send("words")
            with listening.accept()[0] as connection:
                assert connection.recv(1000).endswith(b": words\n")

    def test_udp(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
            listening.bind(("127.0.0.1", 0))
            parse_outside(f"syslog:udp://127.0.0.1:{listening.getsockname()[1]}").send("words")
            message = listening.recv(1000)
        assert re.fullmatch(rb"<85>1 [0-9T:.-]+Z \S+ etcdfix \d+ audit-head - words", message)

    def test_tcp_counts_its_octets(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            taken: list[bytes] = []

            def take() -> None:
                with listening.accept()[0] as connection, connection.makefile("rb") as stream:
                    taken.append(stream.read())

            thread = threading.Thread(target=take)
            thread.start()
            parse_outside(f"syslog:tcp://127.0.0.1:{listening.getsockname()[1]}").send("words")
            thread.join()
        size, _, message = taken[0].partition(b" ")
        assert int(size) == len(message)
        assert message.endswith(b" audit-head - words")

    @pytest.mark.parametrize("kind", ["tcp", "unix", "name"])
    def test_nobody_there(self, kind: str, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        target = {
            "tcp": f"syslog:tcp://127.0.0.1:{port}",
            "unix": f"syslog:{tmp_path}/nothing",
            "name": "syslog:tcp://nowhere.invalid:1",
        }[kind]
        with pytest.raises(OSError):
            parse_outside(target).send("words")

    def test_a_name_without_an_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
        with pytest.raises(OSError, match="no address"):
            parse_outside("syslog:tcp://host:1").send("words")

    def test_a_socket_that_takes_nothing(self, anchor: PlayedAnchor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outside, "_TIMEOUT_SECONDS", 0.05)
        target = parse_outside(anchor.target)

        def fill() -> None:
            for _ in range(100_000):
                target.send("words" * 100)

        with pytest.raises(OSError):
            fill()


def links(lines: list[str]) -> list[Link]:
    found = [parse_line(line) for line in lines]
    return [line.link for line in found if line is not None]


class TestLog:
    def test_each_record_is_told_once_it_is_durable(self, folder: Path, anchor: PlayedAnchor) -> None:
        path = folder / "audit.jsonl"
        at_send: list[int] = []

        def step(name: str) -> None:
            if name == "audit anchor: before send head":
                at_send.append(len(path.read_bytes().splitlines()))

        with AuditLog.open(path, anchor=parse_outside(anchor.target), step=step) as log:
            first = log.append(entry())
            second = log.append(log.intent(1).closed_by(Result.DELETED, operator=OPERATOR))
            third = log.append(entry(RecordType.TORN_LINE, verb=Verb.RECOVER, subject=None))
            assert log.anchor_problem == ""
        lines = anchor.lines()
        assert links(lines) == [BEGINNING, first, second, third]
        assert at_send == [0, 1, 2, 3]
        assert [line.split()[4] for line in lines] == [
            "type=head",
            "type=intent",
            "type=outcome",
            "type=torn-line",
        ]
        digest = hashlib.sha256(KEY).hexdigest()
        assert [line.split()[-1] for line in lines] == ["key=-", *[f"key=sha256:{digest}"] * 2, "key=-"]
        assert all(f"log={path}" in line for line in lines)
        # Three letters may stand in any digest.
        words = [re.sub(r"[0-9a-f]{64}", "", line) for line in lines]
        assert not any("shop" in line or "ada" in line for line in words)

    def test_nothing_is_recorded_where_it_cannot_be_reached(self, folder: Path) -> None:
        path = folder / "audit.jsonl"
        AuditLog.open(path).close()
        path.write_bytes(b'{"torn')
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        with pytest.raises(AnchorUnreachable, match="does not take the head") as caught:
            AuditLog.open(path, anchor=parse_outside(f"syslog:{folder}/nothing"))
        assert caught.value.exit_code == 4
        assert "--audit-anchor" in caught.value.hint
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before

    def test_an_intent_that_it_does_not_take_is_closed(self, folder: Path, anchor: PlayedAnchor) -> None:
        path = folder / "audit.jsonl"
        with AuditLog.open(path, anchor=parse_outside(anchor.target)) as log:
            anchor.close()
            with pytest.raises(AnchorUnreachable):
                log.append(entry())
            assert log.open_intents() == ()
        (_, intent), (_, outcome) = list(read_records(path))
        assert intent.annotations.type == "intent"
        assert (outcome.annotations.outcome, outcome.annotations.intent) == ("refused", "1")
        assert "the anchor" in outcome.annotations.detail
        assert verify(path).state is ChainState.WHOLE

    def test_an_intent_that_cannot_be_closed_stays_open(self, folder: Path, anchor: PlayedAnchor) -> None:
        path = folder / "audit.jsonl"
        gone = False

        def step(name: str) -> None:
            nonlocal gone
            if name == "audit anchor: before send head" and path.read_bytes():
                gone = True
                anchor.close()
            if gone and name == "audit log: before write record":
                raise OSError(errno.ENOSPC, "full")

        with (
            AuditLog.open(path, anchor=parse_outside(anchor.target), step=step) as log,
            pytest.raises(AnchorUnreachable),
        ):
            log.append(entry())
        assert list(verify(path).open_intents) == [1]

    def test_backups_of_such_an_intent_are_confirmed(self, folder: Path, anchor: PlayedAnchor) -> None:
        path = folder / "audit.jsonl"
        with ExitStack() as stack:
            directory = stack.enter_context(open_directory(own_directory(folder / "one")))
            log = stack.enter_context(AuditLog.open(path, anchor=parse_outside(anchor.target)))
            anchor.close()
            with pytest.raises(AnchorUnreachable):
                record_intent(log, entry(), content(), [directory])
        (file,) = (folder / "one").iterdir()
        backup = read_backup(file)
        assert anchor_of(backup) is not None
        assert intent_of(backup, path) is not None

    def test_an_outcome_stands_although_it_was_not_told(self, folder: Path, anchor: PlayedAnchor) -> None:
        path = folder / "audit.jsonl"
        with AuditLog.open(path, anchor=parse_outside(anchor.target)) as log:
            log.append(entry())
            anchor.close()
            head = log.append(log.intent(1).closed_by(Result.DELETED, operator=OPERATOR))
            assert log.head == head
            assert "does not take the head" in log.anchor_problem
        assert verify(path).state is ChainState.WHOLE

    def test_the_next_one_tells_the_head_that_was_missed(self, folder: Path, tmp_path: Path) -> None:
        path = folder / "audit.jsonl"
        with AuditLog.open(path) as log:
            head = log.append(entry(RecordType.DRY_RUN))
        with PlayedAnchor(tmp_path / "again") as again:
            AuditLog.open(path, anchor=parse_outside(again.target)).close()
            assert links(again.lines()) == [head]


def test_what_is_named_is_shown(folder: Path) -> None:
    anchor = OutsideAnchor("syslog:/x", parse_outside("syslog:/x").transport, Path("/x"))
    assert outside.failure(anchor, OSError(errno.ENOENT, "No such file")) == (
        "the anchor syslog:/x does not take the head of the audit log: No such file"
    )
    assert WORD == "etcdfix-audit-head"
