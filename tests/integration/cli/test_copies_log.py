"""``etcdfix copies --wal`` on a real etcd: values that were overwritten or deleted and compacted away come back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from etcdfix.testing.places import Wanted, find_tools
from tests.integration.cli.test_copies import copies, put_back
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Registry
from tests.support.fixtures import StartEtcd
from tests.support.objects import aescbc, config_map, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

COUNT = 20


def wal_of(logged: Registry) -> Path:
    return logged.folder / "data" / "member" / "wal"


def fill(logged: Registry) -> dict[bytes, tuple[int, bytes]]:
    store = EtcdStore(logged.etcd.endpoint)
    held: dict[bytes, tuple[int, bytes]] = {}
    for number in range(COUNT):
        key, value = logged.key(f"shop/s-{number}"), aescbc(secret(f"s-{number}"))
        first = store.put(key, value, mod_revision=0)
        assert first is not None
        second = store.put(key, value, mod_revision=first)
        assert second is not None
        held[key] = (second, value)
    for number, (key, (revision, value)) in enumerate(held.items()):
        if number % 2:
            assert store.delete(key, mod_revision=revision) is not None
        else:
            assert store.put(key, value[:-5], mod_revision=revision) is not None
    logged.etcd.compact()
    for name in ("a", "b", "c", "d"):
        other, at = logged.key(f"shop/{name}", "configmaps"), 0
        for _ in range(50):
            at = store.put(other, config_map(name), mod_revision=at) or 0
    logged.etcd.compact()
    store.close()
    return held


def test_every_value_comes_back_at_its_revision(logged: Registry) -> None:
    held = fill(logged)
    without = copies(logged)
    assert without["with_good_copy"] == 0
    told = copies(logged, "--in", f"log:{wal_of(logged)}")
    assert told["complete"], told["incomplete_reasons"]
    assert (told["unreadable"], told["deleted"], told["with_good_copy"]) == (COUNT // 2, COUNT // 2, COUNT)
    for one in told["objects"]:
        best = one["copies"][0]
        assert (best["place"], best["mod_revision"]) == ("log", held[one["key"].encode()][0])
        assert best["later_writes"] == (1 if one["state"] == "unreadable" else 0)
    for one in [one for one in told["objects"] if one["state"] == "deleted"][:2]:
        put_back(logged, one["copies"][0])
        key = one["key"].encode()
        assert logged.stored(key) == held[key][1]


def test_a_log_of_another_cluster_is_never_offered(
    logged: Registry, start_local_etcd: StartEtcd, tmp_path: Path
) -> None:
    fill(logged)
    shutil.copytree(wal_of(logged).parent, tmp_path / "copied")
    logged.etcd.stop()
    logged.etcd = start_local_etcd()
    logged.endpoints = logged.etcd.endpoint
    store = EtcdStore(logged.etcd.endpoint)
    for number in range(60):
        store.put(
            logged.key(f"shop/other-{number}", "configmaps"), config_map(f"other-{number}"), mod_revision=0
        )
    store.put(logged.key("shop/s-0"), b"k8s:enc:aescbc:v1:key1:", mod_revision=0)
    told = copies(logged, "--in", f"log:{tmp_path}/copied/wal")
    (place,) = [place for place in told["places"] if place["place"] == "log"]
    assert place["history"] == "other"
    assert told["with_good_copy"] == told["with_doubtful_copy"] == 0
    assert "etcdfix fix" not in json.dumps(told["objects"])


def part(
    logged: Registry,
    start_local_etcd: StartEtcd,
    folder: Path,
    *,
    idle: bool = False,
    restored: str = "",
) -> int:
    fill(logged)
    parted = logged.etcd.revision()
    if restored:
        logged.etcd.etcdctl("snapshot", "save", folder / "snapshot.db")
    logged.etcd.stop()
    data = folder / "clone"
    if restored:
        Wanted(tools=find_tools(), folder=folder, snapshot=folder / "snapshot.db", token=restored).restore(
            data
        )
    else:
        shutil.copytree(folder / "data", data)
    clone = start_local_etcd(flags=(f"--data-dir={data}",), **({"token": restored} if restored else {}))
    store = EtcdStore(clone.endpoint)
    for number in range(1, COUNT, 2):
        value = aescbc(secret(f"s-{number}"))
        assert store.put(logged.key(f"shop/s-{number}"), value, mod_revision=0) is not None
    store.close()
    clone.compact()
    clone.stop()
    logged.etcd = start_local_etcd(flags=(f"--data-dir={folder / 'data'}",))
    logged.endpoints = logged.etcd.endpoint
    store = EtcdStore(logged.etcd.endpoint)
    for number in range(0 if idle else 10):
        key = logged.key(f"shop/mine-{number}", "configmaps")
        assert store.put(key, config_map(f"mine-{number}"), mod_revision=0) is not None
    store.close()
    return parted


def test_log_of_clone_is_never_offered(logged: Registry, start_local_etcd: StartEtcd, tmp_path: Path) -> None:
    """It has the same kube-system uid, and its own snap/db agrees with it."""
    parted = part(logged, start_local_etcd, tmp_path)
    told = copies(logged, "--in", f"log:{tmp_path}/clone/member/wal")
    (place,) = [place for place in told["places"] if place["place"] == "log"]
    assert place["history"] == "other", place
    assert "etcdfix fix" not in json.dumps(told["objects"])
    # Every command judges a log in the same way.
    wal, key = tmp_path / "clone" / "member" / "wal", logged.key("shop/s-1")
    restored = logged.put_back(key, f"log:{wal}", "--accept", "unknown-uid", "--dry-run")
    looked = ("--history", "--in", f"log:{wal}", *logged.common(places=False, reason=None))
    explained = logged.run("explain", key.decode(), *looked)
    assert (restored.code, explained.code) == (5, 5), (restored, explained)
    assert "snap/db beside it is of another history" in restored.err
    assert "it is of another history, so nothing of it is told" in explained.err
    # Without its db, it agrees up to the day when they parted: what came after that is never certain.
    alone = shutil.copytree(wal, tmp_path / "alone")
    told = copies(logged, "--in", f"log:{alone}")
    good = [copy for one in told["objects"] for copy in one["copies"] if copy["grade"] == "good"]
    assert all(copy["mod_revision"] <= parted for copy in good)


@pytest.mark.parametrize("beside", [True, False])
def test_the_log_of_a_restored_clone_is_never_offered(
    logged: Registry, start_local_etcd: StartEtcd, tmp_path: Path, beside: bool
) -> None:
    """A new cluster id, where the token is another one; its log begins with the snapshot."""
    part(logged, start_local_etcd, tmp_path, idle=True, restored="another-token")
    wal = tmp_path / "clone" / "member" / "wal"
    if not beside:
        wal = shutil.copytree(wal, tmp_path / "alone")
    keys = [logged.key(f"shop/s-{number}").decode() for number in range(1, COUNT, 2)]
    ran = logged.run(
        "explain", keys[0], "--history", "--in", f"log:{wal}", *logged.common(places=False, reason=None)
    )
    told = copies(logged, *keys, "--in", f"log:{wal}")
    (place,) = [place for place in told["places"] if place["place"] == "log"]
    assert place["history"] == "other", place
    assert "no more than what came before a restore can be of both" in place["detail"]
    assert ran.code == 5, ran
    assert not [copy for one in told["objects"] for copy in one["copies"]]


def test_nothing_of_a_clone_is_likely_while_the_cluster_is_idle(
    logged: Registry, start_local_etcd: StartEtcd, tmp_path: Path
) -> None:
    """Its log alone: nothing contradicts it, but it made revisions to which this etcd has not come."""
    parted = part(logged, start_local_etcd, tmp_path, idle=True)
    alone = shutil.copytree(tmp_path / "clone" / "member" / "wal", tmp_path / "alone")
    keys = [logged.key(f"shop/s-{number}").decode() for number in range(1, COUNT, 2)]
    told = copies(logged, *keys, "--in", f"log:{alone}")
    (place,) = [place for place in told["places"] if place["place"] == "log"]
    assert place["history"] == "same", place
    assert f"this etcd has come to {parted} only" in place["detail"]
    later = [
        copy
        for one in told["objects"]
        for copy in one["copies"]
        if not copy["mod_revision"] or copy["mod_revision"] > parted
    ]
    assert len(later) == COUNT // 2
    assert {(copy["confidence"], copy["grade"]) for copy in later} == {("possible", "doubtful")}
    looked = ("--history", "--in", f"log:{alone}", "-o", "json", *logged.common(places=False, reason=None))
    history = logged.run("explain", keys[0], *looked)
    newest, *others = json.loads(history.out)["history"]["writes"]
    assert newest["mod_revision"] is None
    assert f"this etcd has come to {parted} only" in newest["doubt"]
    assert others[0]["deletes"]
    # Its own log, whose newest writes nothing later shows either: they are of this etcd all the same.
    told = copies(logged, "--in", f"log:{wal_of(logged)}")
    best = [one["copies"][0]["confidence"] for one in told["objects"]]
    assert best == ["certain"] * COUNT


def test_value_that_changed_on_disk_does_not_make_log_another_ones(logged: Registry, tmp_path: Path) -> None:
    """The file beside the log has other bytes at the same revision: those here are the damaged ones."""
    fill(logged)
    key, value = logged.put("shop/rotten", aescbc(secret("rotten"))), aescbc(secret("rotten"))
    for number in range(6):
        logged.put(f"shop/later-{number}", aescbc(secret(f"later-{number}")))
    logged.etcd.stop()
    whole = tmp_path / "data" / "member" / "snap" / "db"
    rotten = tmp_path / "rotten.db"
    content = whole.read_bytes()
    assert value in content  # also in pages that bbolt has freed
    rotten.write_bytes(content.replace(value, value[:-1] + bytes([value[-1] ^ 1])))
    given = ("--snapshot", str(rotten), "--in", f"log:{wal_of(logged)}", "-o", "json")
    options = logged.common(places=False, reason=None)[2:]
    told = logged.run("copies", key.decode(), *given, *options, "--backup-dir", str(logged.backups))
    assert told.code == 1, told
    report = json.loads(told.out)
    (place,) = [one for one in report["places"] if one["place"] == "log"]
    assert place["history"] == "same", place
    (one,) = report["objects"]
    (copy,) = [copy for copy in one["copies"] if copy["place"] == "log"]
    assert (copy["outcome"], copy["confidence"]) == ("readable", "certain")
    told = logged.run("explain", key.decode(), "--history", *given, *options)
    assert told.code == 1, told
