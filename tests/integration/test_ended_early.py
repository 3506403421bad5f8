"""Commands that end before their work is done: etcd stands still, a signal comes, ``--timeout`` is over."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.servers import EtcdServer
from etcdfix.wire.etcd import message
from tests.support.collecting import REPOSITORY
from tests.support.etcd_proxy import RANGE, EtcdProxy
from tests.support.job_runs import process_of, stop_process

pytestmark = pytest.mark.etcd

BELOW = b"/registry/configmaps/"
MANY = 3000
SECOND_PAGE = re.escape(BELOW) + b"shop/.*\0$"
SHOW_CURSOR = b"\x1b[?25h"
HIDE_CURSOR = b"\x1b[?25l"
LIMITS = ["--command-timeout", "500ms", "--dial-timeout", "1s"]


@pytest.fixture(scope="module")
def full(start_local_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    server = start_local_etcd()
    value = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%04d","namespace":"shop"}}\n'
    server.put_all((BELOW + b"shop/%04d" % n, value % n) for n in range(MANY))
    return server


@pytest.fixture
def proxy(full: EtcdServer) -> Iterator[EtcdProxy]:
    with EtcdProxy(full.endpoint) as between:
        yield between


def at_second_page(act: Callable[[], Any]) -> Callable[[str, bytes], None]:
    def before(path: str, first: bytes) -> None:
        if path == RANGE and re.match(SECOND_PAGE, message("RangeRequest").FromString(first).key):
            act()

    return before


def start(*arguments: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ETCDFIX_", "ETCDCTL_"))
    }
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-m", "etcdfix", *map(str, arguments)], **options, env=kept, cwd=REPOSITORY
    )
    return process


def finish(process: subprocess.Popen[bytes], seconds: float = 60) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def stops(full: EtcdServer, proxy: EtcdProxy) -> Iterator[EtcdProxy]:
    pid = process_of(full)
    proxy.before = at_second_page(lambda: stop_process(pid))
    yield proxy
    os.kill(pid, signal.SIGCONT)


def test_a_scan_of_an_etcd_that_is_stopped_midway(stops: EtcdProxy) -> None:
    code, out, err = finish(start("scan", "-o", "json", "--endpoints", stops.endpoint, *LIMITS))
    document = json.loads(out)
    assert code == 3
    assert not document["complete"]
    assert 0 < document["summary"]["keys"] < MANY
    assert sum(line.endswith(", trying again") for line in err.splitlines()) == 2
    (reason,) = document["incomplete_reasons"]
    told = re.search(r"lost after key /registry/configmaps/shop/\d+: .* no answer for ([0-9.]+) s", reason)
    assert told is not None, reason
    # The page, a sign of life, and two more: half a second each.
    assert 1.9 < float(told[1]) < 6


def test_a_time_out_before_anything_was_read(proxy: EtcdProxy) -> None:
    proxy.before = lambda path, _first: time.sleep(3) if path == RANGE else None
    for command in (["scan"], ["delete", "/registry/configmaps/shop/0001", "--reason", "x",
                    "--ignore-store-read-error-with-cluster-breaking-potential"]):  # fmt: skip
        code, out, err = finish(start(*command, "--endpoints", proxy.endpoint, "--timeout", "1500ms"))
        assert (code, out) == (5, "")
        assert err.splitlines()[-1] == "etcdfix: ended by --timeout 1500ms; nothing was changed"


@pytest.fixture
def slow(proxy: EtcdProxy) -> Iterator[tuple[EtcdProxy, threading.Event]]:
    asked, go = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        go.wait(30)

    proxy.before = at_second_page(hold)
    yield proxy, asked
    go.set()


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_partial_report(
    slow: tuple[EtcdProxy, threading.Event], tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    proxy, asked = slow
    target = tmp_path / "report.json"
    target.write_text("of last night")
    where: list[str | Path] = ["--output-file", target, "--endpoints", proxy.endpoint]
    scan = start("scan", "-q", "-o", "json", *where, "--jobs", "1")
    assert asked.wait(30)
    time.sleep(1.5)  # the first page is worked on
    scan.send_signal(number)
    code, out, err = finish(scan)
    reason = "interrupted" if number is signal.SIGINT else f"ended by {number.name}"
    assert (code, out, err) == (expected, "", f"etcdfix: incomplete: {reason} before the end\n")
    document = json.loads(target.read_bytes())
    assert document["incomplete_reasons"] == [f"{reason} before the end"]
    assert not document["complete"]
    assert document["summary"]["keys"] == 500
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    "arguments",
    [["get", "configmaps", "-n", "shop", "-o", "yaml"], ["explain", "/registry/configmaps/shop/0001", "--impact"],
     ["encryption", "usage"]],
    ids=lambda arguments: "-".join(arguments[:2]).replace("/", ""),
)  # fmt: skip
def test_a_signal_to_other_readers(slow: tuple[EtcdProxy, threading.Event], arguments: list[str]) -> None:
    proxy, asked = slow
    reader = start(*arguments, "--endpoints", proxy.endpoint)
    assert asked.wait(30)
    time.sleep(0.5)
    reader.send_signal(signal.SIGTERM)
    code, out, err = finish(reader)
    assert code == 143
    assert out
    assert "ended by SIGTERM before the end" in out + err
    assert "Traceback" not in err


@pytest.mark.usefixtures("reported")
def test_a_report_that_is_ended_after_everything_was_read(proxy: EtcdProxy) -> None:
    """What the object was is looked up then; the report is given without it."""
    key, asked, go = BELOW + b"shop/0000x", threading.Event(), threading.Event()
    turns = itertools.count()  # explain asks first what stands there

    def hold(path: str, first: bytes) -> None:
        if path == RANGE and message("RangeRequest").FromString(first).key == key and next(turns):
            asked.set()
            go.wait(30)

    proxy.before = hold
    words = ["explain", key.decode(), "--impact", "--no-encryption", "-o", "json"]
    reader = start(*words, "--endpoints", proxy.endpoint)
    assert asked.wait(30)
    reader.send_signal(signal.SIGTERM)
    code, out, err = finish(reader)
    go.set()
    assert (code, err) == (143, "etcdfix: incomplete: ended by SIGTERM before the end\n")
    document = json.loads(out)
    assert (document["complete"], document["incomplete_reasons"]) == (
        False,
        ["ended by SIGTERM before the end"],
    )
    assert "shop/0000x" in out


@pytest.fixture
def reported(full: EtcdServer, tmp_path: Path) -> Iterator[Path]:
    keys = [BELOW + b"shop/0000x", BELOW + b"shop/2999x"]
    full.put_all((key, b"broken") for key in keys)
    report = tmp_path / "report.json"
    where: list[str | Path] = ["--output-file", report, "--endpoints", full.endpoint]
    code, _out, err = finish(start("scan", "-q", "-o", "json", "--no-encryption", *where))
    assert (code, err) == (1, "")
    yield report
    for key in keys:
        full.delete(key)


def test_the_cursor_comes_back(slow: tuple[EtcdProxy, threading.Event]) -> None:
    proxy, asked = slow
    terminal, theirs = pty.openpty()
    # Once its bar is there, it has seen 512 keys; the second page is what is waited for.
    scan = start(
        "scan", "-o", "name", "--endpoints", proxy.endpoint, stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 1000):
                seen.extend(part)

    reading = threading.Thread(target=read)
    reading.start()
    assert asked.wait(30)
    time.sleep(2)
    scan.send_signal(signal.SIGTERM)
    assert scan.wait(30) == 143
    reading.join(10)
    os.close(terminal)
    assert seen.count(HIDE_CURSOR) == seen.count(SHOW_CURSOR)
    assert seen.rfind(SHOW_CURSOR) >= seen.rfind(HIDE_CURSOR)


def test_a_signal_that_is_ignored_stays_ignored(slow: tuple[EtcdProxy, threading.Event]) -> None:
    proxy, asked = slow
    scan = start(
        "scan", "-o", "json", "--endpoints", proxy.endpoint, "--timeout", "4s",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    assert asked.wait(30)
    scan.send_signal(signal.SIGHUP)
    code, out, _err = finish(scan)
    assert code == 3
    assert json.loads(out)["incomplete_reasons"] == ["ended by --timeout 4s before the end"]
