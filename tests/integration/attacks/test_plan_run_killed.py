"""A run that is killed at any moment, and goes on: nothing is done twice, left out silently, or told wrongly."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.plan_runs import DECLARED, Planned
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.etcd

_CHILD: Final = """
import os, signal, sys
from functools import partial
from etcdfix.cli import plan
from etcdfix.cli.root import run

left = int(sys.argv[1])

def step(name):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

plan.run_plan = partial(plan.run_plan, step=step)
sys.exit(run(sys.argv[2:]))
"""


def test_killed_at_every_step(
    etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two keys, and a death at every so-manieth step, from the first check to the last record."""
    stride = 1 if THOROUGH else 41
    at, lived = stride, False
    deaths = 0
    while not lived:
        folder = tmp_path / str(at)
        folder.mkdir(mode=0o700)
        planned = Planned(etcd, prefix + b"%d/" % at, folder, capfd)
        keys = planned.furnish("a", "b")
        planned.make_plan(all="delete")
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(at), *planned.arguments(*DECLARED)],
            capture_output=True,
            check=False,
        )
        lived = child.returncode == 0
        assert lived or child.returncode == -signal.SIGKILL, child
        deaths += not lived
        left = planned.there(keys).count(True)
        ran = planned.work(*(DECLARED if left else ()))
        assert ran.code == 0, (at, ran)
        assert planned.there(keys) == [False, False]
        planned.agree()
        assert set(planned.outcomes().values()) <= {"deleted", "applied-or-gone"}, (at, planned.outcomes())
        closed = Counter(
            event.subject.name
            for event in planned.records()
            if event.outcome in {"deleted", "applied-or-gone"}
        )
        assert closed == {"a": 1, "b": 1}, (at, closed)
        places = ["--backup-dir", str(planned.backups), "--audit-log", str(planned.log)]
        verified = planned.run("log", "verify", str(planned.log))
        assert verified.code == 0, (at, verified)
        assert planned.run("log", "backups", *places).code in {0, 3}
        at += stride
    assert deaths >= 150 // stride


def test_etcd_that_dies_midway(
    etcd_servers: object, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etcdfix.commands.planning import run as module
    from etcdfix.testing.servers import EtcdServers

    assert isinstance(etcd_servers, EtcdServers)
    tmp_path.chmod(0o700)
    etcd = etcd_servers.start()
    planned = Planned(etcd, b"/registry", tmp_path, capfd)
    planned.to_delete("a", "b", "c")
    change, seen = module._Work._change, 0

    def changed(self: object, task: object, log: object) -> object:
        nonlocal seen
        seen += 1
        if seen == 2:
            etcd.stop()
        return change(self, task, log)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Work, "_change", changed)
    ran = planned.work(*DECLARED, "--command-timeout", "1s", "--dial-timeout", "1s")
    assert ran.code == 5, ran
    assert planned.outcomes() == {"a": "deleted", "b": "", "c": ""}
    assert "Stopped at" in ran.out
