"""``etcdfix copies`` on a real etcd: what is found, and commands that work as they are pasted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.change_runs import Ran, Registry
from tests.support.objects import aescbc, secret

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


def test_an_older_snapshot_after_a_compaction(registry: Registry, tmp_path: Path) -> None:
    key = registry.put("shop/web", WHOLE)
    old = tmp_path / "old.db"
    registry.etcd.etcdctl("snapshot", "save", str(old))
    registry.put("shop/web", CUT)
    registry.etcd.compact()
    assert looked(registry, key.decode()).code == 1
    told = copies(registry, key.decode(), "--in", f"snapshot:{old}")
    (one,) = told["objects"]
    assert [place["history"] for place in told["places"] if place["place"] == "snapshot"] == ["same"]
    put_back(registry, one["copies"][0])
    assert registry.stored(key) == WHOLE


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
    assert "the report is of the cluster" in ran.err
