"""A scan with four jobs, in which a worker, the scan itself, its etcd or its KMS plugin is killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import ALPHA
from tests.support.job_runs import (
    Ended,
    Ground,
    adopting,
    kms_pairs,
    moments,
    pairs,
    process_of,
    without_loss,
    without_times,
)
from tests.support.kms_plugin import PluginProcess, load_keks

pytestmark = pytest.mark.etcd

FINDINGS, INCOMPLETE, SOURCE = 1, 3, 5
KMS_VALUES = 2_000
SNAPSHOT = "snapshot.db"
KEYS = ALPHA / "kms1.keys"
LIMITS = ("--command-timeout", "500ms", "--dial-timeout", "500ms")


class Timed(Ground):
    """A store, and scans of it that take so long."""

    def __init__(self, endpoint: str, folder: Path, *more: str, configuration: Path | None = None) -> None:
        super().__init__(endpoint, folder, *more, *LIMITS, configuration=configuration)
        began = time.monotonic()
        together = self.scan().finish()
        self.life = time.monotonic() - began
        assert (together.code, together.err) == (self.alone.code, self.alone.err)
        assert without_times(together.document) == self.expected


@pytest.fixture(scope="module")
def start_etcd(start_local_etcd: Callable[..., EtcdServer]) -> Iterator[Callable[..., EtcdServer]]:
    with adopting():
        yield start_local_etcd


@pytest.fixture(scope="module")
def ground(start_etcd: Callable[..., EtcdServer], tmp_path_factory: pytest.TempPathFactory) -> Timed:
    folder = tmp_path_factory.mktemp("ground")
    server = start_etcd()
    server.put_all(pairs())
    server.etcdctl("snapshot", "save", folder / SNAPSHOT)
    found = Timed(server.endpoint, folder)
    assert (found.alone.code, found.alone.err) == (FINDINGS, "")
    return found


@pytest.mark.parametrize("moment", moments(50, 1, few=4))
def test_a_worker_is_killed(ground: Timed, moment: float) -> None:
    drawn = random.Random(moment)
    command = ground.scan()
    workers = command.wait_for_workers()
    time.sleep(moment * ground.life * 0.6)
    victim = drawn.choice(command.workers() or workers)
    killed = drawn.choice([signal.SIGKILL, signal.SIGSEGV])
    with suppress(ProcessLookupError):
        os.kill(victim, killed)
    ended = command.finish()
    document = ended.document
    assert without_loss(document) == without_loss(ground.expected)
    if document["complete"]:
        assert (ended.code, ended.err) == (FINDINGS, "")  # it had nothing to do any more
        return
    assert ended.code == INCOMPLETE
    (reason,) = document["incomplete_reasons"]
    assert reason.startswith("a worker process ended ")
    assert reason in ended.err


@pytest.mark.parametrize("moment", moments(50, 2, few=4))
def test_the_scan_is_killed(ground: Timed, tmp_path: Path, moment: float) -> None:
    target = tmp_path / "report.json"
    command = ground.scan("--output-file", target)
    time.sleep(moment * ground.life)
    command.kill()
    left = [entry.name for entry in tmp_path.iterdir()]
    if command.process.returncode == FINDINGS:
        assert left == ["report.json"]
    else:
        assert command.process.returncode == -signal.SIGKILL
        assert left in ([], ["report.json"])


@pytest.mark.parametrize("moment", moments(50, 3, few=3))
def test_etcd_is_killed(ground: Timed, start_etcd: Callable[..., EtcdServer], moment: float) -> None:
    server = start_etcd(snapshot=ground.folder / SNAPSHOT)
    try:
        command = ground.scan(where=("--endpoints", server.endpoint))
        time.sleep(moment * ground.life)
        os.kill(process_of(server), signal.SIGKILL)
        ended = command.finish()
    finally:
        server.stop()
    check_partial(ended, ground, INCOMPLETE)


def check_partial(ended: Ended, ground: Timed, *codes: int) -> None:
    assert "Traceback" not in ended.err
    if ended.out and ended.document["complete"]:  # it was written when the scan was disturbed
        told = ended.document
        assert ended.code in {FINDINGS, *codes}
        assert without_ways_back(told) == without_ways_back(ground.expected)
        return
    if not ended.out:
        assert ended.code in {SOURCE, *codes}
        assert ended.err
        return
    document = ended.document
    assert ended.code in (codes if document["summary"]["keys"] else {SOURCE, *codes})
    assert not document["complete"]
    assert document["incomplete_reasons"]
    known = {finding["key"]: finding["cause"] for finding in ground.expected["findings"]}
    for finding in document["findings"]:
        assert known[finding["key"]] == finding["cause"]
    assert document["summary"]["keys"] <= ground.expected["summary"]["keys"]
    assert document["incomplete_reasons"][0] in ended.err


def without_ways_back(document: dict[str, Any]) -> object:
    summary = document["summary"]
    findings = [(finding["key"], finding["cause"]) for finding in document["findings"]]
    return findings, summary["keys"], summary["by_resource"], summary["by_cause"]


ENDINGS: list[tuple[signal.Signals | None, int]] = [
    (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (None, INCOMPLETE),
]  # fmt: skip


@pytest.mark.parametrize("moment", moments(50, 4, few=1))
@pytest.mark.parametrize(("number", "code"), ENDINGS, ids=["ctrl-c", "sigterm", "sighup", "timeout"])
def test_it_is_told_to_end(ground: Timed, moment: float, number: signal.Signals | None, code: int) -> None:
    seconds = moment * ground.life
    if number is None:
        command = ground.scan("--timeout", f"{1 + int(seconds * 1000)}ms")
    else:
        command = ground.scan()
        time.sleep(seconds)
        if number is signal.SIGINT:
            os.killpg(command.process.pid, number)
        else:
            command.process.send_signal(number)
    ended = command.finish()
    if ended.out or not own_of_python(ended, number):
        check_partial(ended, ground, code, -(number or 0))


def own_of_python(ended: Ended, number: signal.Signals | None) -> bool:
    lines = ended.err.splitlines() or ["KeyboardInterrupt"]
    return ended.code in {-(number or 0), INCOMPLETE} and lines[-1] in {"KeyboardInterrupt", "interrupted"}


@pytest.fixture(scope="module")
def under_kms(start_etcd: Callable[..., EtcdServer], tmp_path_factory: pytest.TempPathFactory) -> Timed:
    folder = tmp_path_factory.mktemp("under-kms")
    socket, configuration = folder / "kms.sock", folder / "config.yaml"
    configuration.write_text(KMS_CONFIGURATION.format(socket=socket))
    server = start_etcd()
    server.put_all(kms_pairs(load_keks(KEYS), KMS_VALUES))
    with PluginProcess("v2", socket, KEYS):
        found = Timed(server.endpoint, folder, configuration=configuration)
    assert (found.alone.code, found.alone.err) == (0, "")
    return found


KMS_CONFIGURATION = """
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {{apiVersion: v2, name: prov, endpoint: "unix://{socket}", timeout: 500ms}}
"""


@pytest.mark.parametrize("moment", moments(50, 5, few=3))
def test_the_plugin_is_killed(under_kms: Timed, moment: float) -> None:
    with PluginProcess("v2", under_kms.folder / "kms.sock", KEYS) as plugin:
        command = under_kms.scan()
        time.sleep(moment * under_kms.life)
        plugin.kill()
        ended = command.finish(120)
    document = ended.document
    summary = document["summary"]
    assert summary["keys"] == under_kms.expected["summary"]["keys"]
    assert {finding["cause"] for finding in document["findings"]} <= {"kms-unreachable"}
    assert {finding["outcome"] for finding in document["findings"]} <= {"undetermined"}
    assert "Traceback" not in ended.err
    if document["findings"]:
        assert ended.code == INCOMPLETE
        assert not document["complete"]
    else:
        assert ended.code == 0
        assert document["complete"]
