"""``etcdfix copies --wal`` on a real etcd: values that were overwritten or deleted and compacted away come back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.cli.test_copies import copies, put_back
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Registry
from tests.support.fixtures import StartEtcd
from tests.support.objects import aescbc, config_map, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

COUNT = 6


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
        for _ in range(20):
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


def part(logged: Registry, start_local_etcd: StartEtcd, folder: Path, *, idle: bool = False) -> int:
    fill(logged)
    parted = logged.etcd.revision()
    logged.etcd.stop()
    data = shutil.copytree(folder / "data", folder / "clone")
    clone = start_local_etcd(flags=(f"--data-dir={data}",))
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
    # Without its db, it agrees up to the day when they parted: what came after that is never certain.
    alone = shutil.copytree(wal, tmp_path / "alone")
    told = copies(logged, "--in", f"log:{alone}")
    good = [copy for one in told["objects"] for copy in one["copies"] if copy["grade"] == "good"]
    assert all(copy["mod_revision"] <= parted for copy in good)


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
    later = [
        copy
        for one in told["objects"]
        for copy in one["copies"]
        if not copy["mod_revision"] or copy["mod_revision"] > parted
    ]
    assert len(later) == COUNT // 2
    assert {(copy["confidence"], copy["grade"]) for copy in later} == {("possible", "doubtful")}
    # Its own log, whose newest writes nothing later shows either: they are of this etcd all the same.
    told = copies(logged, "--in", f"log:{wal_of(logged)}")
    best = [one["copies"][0]["confidence"] for one in told["objects"]]
    assert best == ["certain"] * COUNT
