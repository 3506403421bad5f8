"""The runbook of a lost encryption key, top to bottom: its commands as they stand there, on stand-ins over etcd."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etcdfix.testing.places import find_tools
from tests.support.healing import (
    NEW,
    LoseKey,
    LostKeyCluster,
    beside,
)

pytestmark = pytest.mark.etcd

PAGE = Path(__file__).parents[2] / "docs" / "runbooks" / "key-lost-servers-running.md"
NAMES = ("one", "two", "three")


def _commands() -> list[str]:
    page, _, _ = PAGE.read_text().partition("## k3s and RKE2\n")
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines()]


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key(NAMES) as cluster:
        yield cluster


class Operator:
    def __init__(self, cluster: LostKeyCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        shutil.copy(cluster.config, folder / "enc.yaml")
        shutil.copy(cluster.kubeconfig, folder / "admin.conf")
        self.typed: list[str] = []

    def run(self, line: str) -> tuple[int, str]:
        line = line.replace("10.0.0.1:2379", self._cluster.endpoints)
        line = line.replace("/registry/", f"{self._cluster.prefix}/")
        words = shlex.split(line)
        if words[0] == "etcdfix":
            words += self._places(words)
            words[:1] = [sys.executable, "-m", "etcdfix"]
        elif words[0] == "etcdctl":
            words[0] = str(find_tools().ctl)
        shown, terminal = pty.openpty()
        home = {"HOME": str(self._folder), "PATH": os.environ["PATH"], "TERM": "dumb", "COLUMNS": "200"}
        done = subprocess.Popen(
            words, cwd=self._folder, env=home, stdin=terminal, stdout=terminal, stderr=terminal
        )
        os.close(terminal)
        text = self._converse(shown, done)
        os.close(shown)
        return done.wait(timeout=60), text

    def _places(self, words: list[str]) -> list[str]:
        found = [] if words[1] == "rescue" else ["--etcd-prefix", self._cluster.prefix]
        changes = words[1] == "fix" or "--run" in words
        if changes or words[1] == "rescue":
            found += ["--audit-log", str(self._cluster.log)]
        if changes or words[1] == "copies":
            found += ["--backup-dir", str(self._cluster.backups)]
        return found

    def _converse(self, shown: int, done: subprocess.Popen[bytes]) -> str:
        text = ""
        answers = list(self.typed)
        guard = threading.Timer(60, done.kill)
        guard.start()
        try:
            while True:
                try:
                    piece = os.read(shown, 1 << 16)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                text += piece.decode(errors="replace")
                if answers and text.endswith("\n> "):
                    os.write(shown, f"{answers.pop(0)}\n".encode())
        finally:
            guard.cancel()
        return text


def test_the_page_from_top_to_bottom(cluster: LostKeyCluster, tmp_path: Path) -> None:
    with beside(cluster, NEW) as p2, _fixed_by(cluster):
        _follow(cluster, tmp_path, _commands())
        assert p2.methods == {"GET"}


def _follow(cluster: LostKeyCluster, folder: Path, lines: list[str]) -> None:
    folder = folder / "operator"
    folder.mkdir()
    operator = Operator(cluster, folder)
    expected = {"scan": [1, 1, 0], "plan": [1, 0]}
    for line in lines:
        words = line.split()
        operator.typed = []
        if words[:2] == ["etcdfix", "fix"] and "--dry-run" not in words:
            operator.typed = [words[2].replace("/registry/", f"{cluster.prefix}/")]
        elif "--run" in words:
            operator.typed = [str(len(NAMES) - 1)]
        code, shown = operator.run(line)
        codes = expected.get(words[1])
        assert code == (codes.pop(0) if codes else 0), (line, shown)
        assert "never-to-be-shown" not in shown


@contextmanager
def _fixed_by(cluster: LostKeyCluster) -> Iterator[None]:
    values = {key: cluster.p1.store.get(key) for key in cluster.keys}
    assert len(values) == len(NAMES)
    yield
    assert cluster.p1.methods == {"GET", "PATCH"}
    assert len(cluster.patches()) == len(NAMES)
    for key, before in values.items():
        after = cluster.p1.store.get(key)
        assert before is not None
        assert after is not None
        assert after.mod_revision > before.mod_revision
        assert after.create_revision == before.create_revision, "it was never deleted"
    cluster.p1.restart()
    assert all(cache.ready for cache in cluster.p1.process.caches.values())
