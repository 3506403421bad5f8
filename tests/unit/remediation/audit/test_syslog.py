"""The head of the audit log, sent to syslog over real sockets."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, Result
from etcdfix.remediation.audit.syslog import Syslog, parse_address
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from tests.support.audit_logs import OPERATOR, entry
from tests.support.syslogs import PlayedSyslog

HEAD = Link(7, "ab" * 32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":514",
        "host:70000",
        "host:x",
        "[::1",
        "a@host:1",
        "host:1/a",
        "/a\0b",
        "host:1?a",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--audit-syslog"):
        parse_address(text)
    assert parse_address("logs.example:6514") == ("logs.example", 6514)
    assert parse_address("[::1]:514") == ("::1", 514)


def test_each_record_is_sent_once_it_is_durable(path: Path, tmp_path: Path) -> None:
    with PlayedSyslog(tmp_path / "socket") as syslog:
        kept = Syslog(str(syslog.path))
        with AuditLog.open(path, syslog=kept) as log:
            assert syslog.lines() == []
            intent = log.intent(log.append(entry()).sequence)
            head = path.with_name("audit.jsonl.head").read_text().strip()
            assert syslog.heads() == [head]
            log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
            assert kept.warning == ""
        assert syslog.heads() == [str(verify(path).head)]


def test_a_line_is_one_line_and_names_nothing_but_the_log(tmp_path: Path) -> None:
    with PlayedSyslog(tmp_path / "socket") as syslog:
        Syslog(str(syslog.path)).send(HEAD, Path("/var/a\n\x1b[31m\udcff.jsonl"))
        (line,) = syslog.lines()
    assert line.startswith(f"<86>etcdfix: audit head 7:{'ab' * 32} of /var/a")
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_over_tcp() -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as stream:
                received.append(stream.read())

        thread = threading.Thread(target=take)
        thread.start()
        Syslog(f"127.0.0.1:{server.getsockname()[1]}").send(HEAD, Path("/log"))
        thread.join(10)
    assert received == [f"<86>etcdfix: audit head {HEAD} of /log\n".encode()]


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("where", ["socket", "port"])
def test_one_that_cannot_be_reached_is_said_and_stops_nothing(path: Path, tmp_path: Path, where: str) -> None:
    address = str(tmp_path / "nothing") if where == "socket" else closed_port()
    syslog = Syslog(address)
    with AuditLog.open(path, syslog=syslog) as log:
        intent = log.intent(log.append(entry()).sequence)
        log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
    assert f"syslog at {address} " in syslog.warning
    assert syslog.warning.endswith(f"write its head down: {verify(path).head}")
    assert verify(path).state is ChainState.WHOLE
    assert len(list(read_records(path))) == 2


def test_one_that_does_not_answer_holds_nobody_up(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcdfix.remediation.audit.syslog.TIMEOUT_SECONDS", 0.1)
    with PlayedSyslog(tmp_path / "socket") as syslog:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:  # until nothing more goes in
            other.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    other.sendto(b"x", str(syslog.path))
        kept = Syslog(str(syslog.path))
        with AuditLog.open(path, syslog=kept) as log:
            log.append(entry())
            assert kept.warning
    assert socket.getdefaulttimeout() is None
