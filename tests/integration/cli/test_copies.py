"""``etcdfix copies`` on a real etcd, and its log: what is found, and commands that work as they are pasted."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from etcdfix.report.explain import ExplainReport
from etcdfix.report.schema import document_schema
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Ran, Registry
from tests.support.fixtures import Patch, StartEtcd
from tests.support.objects import aescbc, config_map, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]


def looked(registry: Registry, *words: str) -> Ran:
    return registry.run("copies", *words, *registry.common(reason=None))


def copies(registry: Registry, *words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(looked(registry, *words, "-o", "json").out)
    return document


def put_back(registry: Registry, copy: dict[str, Any]) -> None:
    ran = registry.paste(copy["fix"])
    assert ran.code == 0, ran.err
    assert registry.paste(copy["fix"].replace(" --dry-run", "")).code == 0


def test_everything_and_what_was_deleted(registry: Registry) -> None:
    key = registry.put("shop/web", WHOLE)
    registry.etcd.delete(key)
    ran = looked(registry)
    assert ran.code == 1  # shop/broken never read
    told = copies(registry)
    assert (told["unreadable"], told["deleted"], told["with_good_copy"], told["without_copy"]) == (1, 1, 1, 1)
    gone = next(one for one in told["objects"] if one["state"] == "deleted")
    assert gone["key"] == key.decode()
    put_back(registry, gone["copies"][0])
    assert registry.stored(key) == WHOLE
    assert copies(registry)["deleted"] == 0


def test_a_backup_that_the_audit_log_lists(registry: Registry) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    (one,) = copies(registry, key.decode())["objects"]
    put_back(registry, one["copies"][0])
    (undone,) = registry.kept()
    ran = registry.undo(undone.path, "--expect-mod-revision", str(registry.mod_revision(key)))
    assert ran.code == 0, ran.err
    registry.etcd.compact()
    assert registry.stored(key) == CUT
    (one,) = copies(registry, key.decode())["objects"]
    best, *_others = one["copies"]
    assert (best["place"], best["doubt"], best["reads"]) == ("backup", "", True)
    put_back(registry, best)
    assert registry.stored(key) == WHOLE


def test_a_printed_fix_keeps_backups_and_records_where_variables_say(
    registry: Registry, monkeypatch: Patch
) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    monkeypatch.setenv("ETCDFIX_BACKUP_DIR", str(registry.backups))
    monkeypatch.setenv("ETCDFIX_AUDIT_LOG", str(registry.log))
    ran = registry.run("copies", key.decode(), *registry.common(reason=None, places=False), "-o", "json")
    copy = json.loads(ran.out)["objects"][0]["copies"][0]
    words = shlex.split(copy["fix"])
    assert [words.count(option) for option in ("--backup-dir", "--audit-log")] == [1, 1]
    assert words[words.index("--backup-dir") + 1] == str(registry.backups)
    assert registry.run(*words[1:]).code == 0
    assert len(registry.records()) == 1
    assert "--backup-dir" not in copy["save"]


def test_a_report_names_what_is_looked_for(registry: Registry, tmp_path: Path) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    report = tmp_path / "report.json"
    scan = ["scan", "-o", "json", "--output-file", str(report), *registry.common(places=False, reason=None)]
    assert registry.run(*scan).code == 1
    told = copies(registry, "--from-report", str(report))
    assert [one["key"] for one in told["objects"]] == [registry.key("shop/broken").decode(), key.decode()]
    registry.etcd.delete(key)
    told = copies(registry, "--from-report", str(report))
    assert [one["state"] for one in told["objects"]] == ["unreadable", "deleted"]
    other = json.loads(report.read_text())
    other["source"]["kube_system_uid"] += "x"
    report.write_text(json.dumps(other))
    ran = looked(registry, "--from-report", str(report))
    assert ran.code == 2
    assert "the report is from another cluster" in ran.err


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


def part(logged: Registry, start_local_etcd: StartEtcd, folder: Path) -> int:
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
    for number in range(10):
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


def beat(logged: Registry, store: EtcdStore, count: int) -> None:
    for turn in range(count):
        name = f"beat-{turn % 2}"
        key = logged.key(f"shop/{name}", "configmaps")
        held = store.get(key)
        store.put(key, config_map(name), mod_revision=held.mod_revision if held is not None else 0)


def test_what_is_not_kept_any_more_is_told(logged: Registry) -> None:
    store = EtcdStore(logged.etcd.endpoint)
    key = logged.key("shop/web")
    beat(logged, store, 4)
    first = store.put(key, aescbc(secret("web")), mod_revision=0)
    assert first
    beat(logged, store, 4)
    second = store.put(key, b"k8s:enc:aescbc:v1:key1:", mod_revision=first)
    assert second
    third = store.delete(key, mod_revision=second)
    beat(logged, store, 20)
    logged.etcd.compact()
    store.close()
    common = logged.common(reason=None, places=False)
    ran = logged.run("explain", key.decode(), *common)
    assert ran.code == 5
    named = ("explain", key.decode(), "--history", "--in", f"log:{logged.folder}/data/member/wal", *common)
    report = json.loads(logged.run(*named, "-o", "json").out)
    jsonschema.validate(report, document_schema(ExplainReport))
    assert (report["exists"], report["kept"]) == (False, 0)
    writes = report["history"]["writes"]
    assert [(one["deletes"], one["mod_revision"], one["doubt"], one["outcome"]) for one in writes] == [
        (True, third, "", None), (False, second, "", "decrypt-failure"), (False, first, "", "readable"),
    ]  # fmt: skip
    assert writes[2]["place"].startswith("log entry ")
    assert writes[2]["place"] in logged.run(*named).out
    (copy, *_) = report["copies"]
    assert (copy["place"], copy["mod_revision"], copy["same_object"]) == ("log", first, "same")
    assert report["next"]["command"] == copy["fix"]
