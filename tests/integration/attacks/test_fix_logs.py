"""A log that is not of this etcd's history is to be put back; nothing may change."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.objects import aescbc, config_map, secret

pytestmark = pytest.mark.etcd

ACCEPTED = ("--accept", "unknown-uid")
THERE = aescbc(secret("lost").replace(b"never-to-be-shown", b"of-the-clone-only"))


class Parted:
    def __init__(
        self, start_local_etcd: Callable[..., EtcdServer], folder: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._start, self._folder = start_local_etcd, folder
        first = self.start("data")
        prefix = b"/registry"
        mine = folder / "mine"
        mine.mkdir()
        self.registry = Registry(first, prefix, mine, capfd)
        self.key = self.registry.put("shop/lost", aescbc(secret("lost")))
        self.broken = self.registry.key("shop/broken")
        first.stop()
        shutil.copytree(folder / "data", folder / "clone")
        self.clone = self.start("clone")
        self.write(self.clone, "theirs", {self.key: THERE, self.broken: aescbc(secret("broken"))})

    def start(self, name: str) -> EtcdServer:
        return self._start(flags=(f"--data-dir={self._folder / name}",))

    def write(self, etcd: EtcdServer, name: str, values: dict[bytes, bytes], times: int = 10) -> None:
        store = EtcdStore(etcd.endpoint)
        for key, value in values.items():
            held = store.get(key)
            assert store.put(key, value, mod_revision=held.mod_revision if held else 0) is not None
        for number in range(times):
            key = self.registry.key(f"shop/{name}-{number}", "configmaps")
            assert store.put(key, config_map(f"{name}-{number}"), mod_revision=0) is not None
        store.close()

    def go_on(self, times: int = 10) -> None:
        etcd = self.start("data")
        self.registry.etcd, self.registry.endpoints = etcd, etcd.endpoint
        if times:
            self.write(etcd, "mine", {self.key: BROKEN}, times)
        etcd.compact()

    def fix(
        self, *arguments: str, key: bytes | None = None, wal: str = "clone/member/wal", entry: str = ""
    ) -> Ran:
        key = key or self.key
        return self.registry.put_back(key, f"log:{self._folder / wal}{entry}", *ACCEPTED, *arguments)


@pytest.fixture
def parted(
    start_local_etcd: Callable[..., EtcdServer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Parted:
    return Parted(start_local_etcd, tmp_path, capfd)


@pytest.mark.parametrize(("how", "times"), [("stopped", 1), ("stopped", 30), ("running", 30), ("copied", 1)])
def test_the_log_of_a_clone(parted: Parted, how: str, times: int, tmp_path: Path) -> None:
    """It has the same kube-system uid and cluster id, and its own snap/db agrees with it."""
    wal = _left(parted, how, tmp_path)
    parted.go_on(times)
    more = ("--accept", "unknown-cluster") if how == "copied" else ()
    with parted.registry.untouched():
        ran = parted.fix(*more, wal=wal)
    if how == "stopped" and times > 1:  # what is stored here tells it of the whole file
        assert ran.code == 5, ran.err
        return
    parted.registry.refused(ran, hint="--from log:")


@pytest.mark.parametrize("how", ["running", "copied"])
def test_the_log_of_what_was_before_a_restore(parted: Parted, how: str, tmp_path: Path) -> None:
    """This etcd stands where a snapshot was taken; what its log says of later revisions never was here."""
    wal = _left(parted, how, tmp_path)
    parted.go_on(0)
    with parted.registry.untouched():
        ran = parted.fix("--accept", "unknown-cluster", key=parted.broken, wal=wal)
    parted.registry.refused(ran, hint="--from log:")


def test_an_entry_of_a_running_clone(parted: Parted) -> None:
    """Its files are held by an etcd with the same cluster id, which is not the one that is written to."""
    parted.go_on()
    ran = parted.fix()
    (entry,) = re.findall(r"applied entry (\d+) of", ran.err)
    with parted.registry.untouched():
        ran = parted.fix(entry=f"#{entry}")
    parted.registry.refused(ran, hint="--accept unknown-cluster")


def test_a_database_beside_that_is_no_database(parted: Parted, tmp_path: Path) -> None:
    """It was copied while etcd wrote to it: the log is whole, and only what names the cluster is missing."""
    parted.clone.stop()
    parted.go_on(10)
    copied = tmp_path / "copy" / "member"
    shutil.copytree(tmp_path / "data" / "member", copied)
    database = copied / "snap" / "db"
    database.write_bytes(b"\xff" * 20000)
    with parted.registry.untouched():
        ran = parted.fix(wal="copy/member/wal")
    parted.registry.refused(ran, hint="--accept unknown-cluster")
    ran = parted.fix("--accept", "unknown-cluster", wal="copy/member/wal")
    assert ran.code == 0, ran.err


def _left(parted: Parted, how: str, folder: Path) -> str:
    if how == "running":
        return "clone/member/wal"
    parted.clone.stop()
    if how == "stopped":
        return "clone/member/wal"
    (folder / "copy").mkdir()
    shutil.copytree(folder / "clone" / "member" / "wal", folder / "copy" / "wal")
    return "copy/wal"
