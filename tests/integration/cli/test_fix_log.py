"""``etcdfix fix --from log:DIR``: a value that was overwritten comes back as it was, from the log of a running etcd."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from etcdfix.testing import objects as stored_objects
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Captured, StartEtcd
from tests.support.objects import UID, aescbc, secret

pytestmark = pytest.mark.etcd

UNKNOWN_UID = "--accept=unknown-uid"
WHOLE = aescbc(secret("lost"))
NEWER = aescbc(
    stored_objects.secret("lost", "shop", {"password": b"the newer one"}, type="", uid=UID.decode())
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("member") / "data"


@pytest.fixture(scope="module")
def logged(start_local_etcd: StartEtcd, data: Path) -> EtcdServer:
    return start_local_etcd(flags=(f"--data-dir={data}",))


@pytest.fixture
def registry(logged: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Registry:
    return Registry(logged, prefix, tmp_path, capfd)


def from_wal(
    registry: Registry, data: Path, *arguments: str, name: str = "shop/lost", entry: str = ""
) -> Ran:
    key = registry.key(name)
    return registry.put_back(key, f"log:{data / 'member' / 'wal'}{entry}", *arguments)


def lose(registry: Registry, *, deleted: bool = False, first: bytes = WHOLE) -> bytes:
    key = registry.put("shop/lost", first)
    if deleted:
        registry.etcd.delete(key)
    else:
        registry.etcd.put(key, BROKEN)
    # A cluster writes on: what is stored afterwards shows that etcd applied what was logged before.
    for number in range(6):
        registry.etcd.put(registry.key(f"shop/later-{number}"), aescbc(secret(f"later-{number}")))
    registry.etcd.compact()
    return key


@pytest.mark.parametrize("deleted", [False, True])
def test_what_is_compacted_comes_back_byte_for_byte(registry: Registry, data: Path, deleted: bool) -> None:
    key = lose(registry, deleted=deleted)
    # Of the generation that is there, or was there last, the log shows that the value is of it: it has all of its life.
    ran = from_wal(registry, data)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == WHOLE
    assert registry.records()[-2].detail.startswith("from entry ")
    if not deleted:
        backup = registry.kept()[-1]
        ran = registry.undo(backup.path, "--expect-mod-revision", str(registry.mod_revision(key)))
        assert ran.code == 0, ran.err
        assert registry.stored(key) == BROKEN


def write_on(registry: Registry, times: int = 6) -> None:
    for number in range(times):
        name = f"later-{times}-{number}"
        registry.put(f"shop/{name}", aescbc(secret(name)))


def test_log_that_does_not_show_last_life(registry: Registry, data: Path, tmp_path: Path) -> None:
    """It ends too early, or the key had another object since: whose uid it was, nothing tells."""
    key = registry.put("shop/lost", WHOLE)
    registry.etcd.delete(key)
    write_on(registry, 7)
    copied = shutil.copytree(data / "member", tmp_path / "copy" / "member")
    registry.etcd.put(key, BROKEN)
    registry.etcd.delete(key)
    write_on(registry, 8)
    registry.etcd.compact()
    for wal in (copied / "wal", data / "member" / "wal"):
        with registry.untouched():
            ran = registry.put_back(key, f"log:{wal}", "--accept", "unknown-cluster")
        registry.refused(ran, "nothing that etcd keeps, and no backup, shows", hint="--accept unknown-uid")


def entry_of(registry: Registry, data: Path) -> int:
    ran = from_wal(registry, data, UNKNOWN_UID, "--dry-run")
    (line,) = (line for line in ran.err.splitlines() if line.startswith("From"))
    return next(int(word) for word in line.split() if word.isdecimal())


def test_an_entry_by_its_index(registry: Registry, data: Path) -> None:
    key = lose(registry)
    entry = entry_of(registry, data)
    with registry.untouched():
        ran = from_wal(registry, data, UNKNOWN_UID, entry=f"#{entry + 1}")
    registry.refused(ran, "too short", hint="--encryption-config")
    with registry.untouched():
        ran = from_wal(registry, data, UNKNOWN_UID, entry=f"#{entry + 2}")
    registry.refused(ran, f"entry {entry + 2} of the log in", "is no write of", hint="explain")
    ran = from_wal(registry, data, UNKNOWN_UID, entry=f"#{entry}")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == WHOLE


def test_a_log_without_its_database(registry: Registry, data: Path, tmp_path: Path) -> None:
    """Nothing says of which cluster it is."""
    key = lose(registry)
    shutil.copytree(data / "member" / "wal", tmp_path / "copy")
    given = (key, f"log:{tmp_path / 'copy'}", UNKNOWN_UID)
    with registry.untouched():
        ran = registry.put_back(*given)
    registry.refused(ran, "does not say which cluster it comes from", hint="--accept unknown-cluster")
    ran = registry.put_back(*given, "--accept", "unknown-cluster")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == WHOLE


@pytest.mark.parametrize("place", ["--from", "--in"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_newer_write_that_reads_is_not_passed_over(
    registry: Registry, data: Path, place: str, after: int
) -> None:
    """How sure the log is of the newest write depends on what was written since; an older one never goes before it."""
    key = registry.put("shop/lost", WHOLE)
    write_on(registry)
    registry.etcd.put(key, NEWER)
    registry.etcd.put(key, BROKEN)
    write_on(registry, after)
    registry.etcd.compact()
    log = f"log:{data / 'member' / 'wal'}"
    if place == "--from":
        from_wal(registry, data)
    else:
        registry.put_back(key, "", "--in", log, "--accept=unlisted-source")
    assert registry.stored(key) in {NEWER, BROKEN}
