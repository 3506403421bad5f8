"""``etcdfix history`` on a real etcd: what is kept, what compaction leaves, and commands that work as pasted."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.support.change_runs import Ran, Registry
from tests.support.objects import aescbc, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]


def looked(registry: Registry, *words: str) -> Ran:
    return registry.run("history", *words, *registry.common(places=False, reason=None))


def history(registry: Registry, key: bytes, *words: str) -> dict[str, Any]:
    ran = looked(registry, key.decode(), "-o", "json", *words)
    document: dict[str, Any] = json.loads(ran.out)
    return document


def test_a_deleted_key_still_has_its_history(registry: Registry) -> None:
    key = registry.put("shop/web", WHOLE)
    registry.etcd.delete(key)
    assert looked(registry, key.decode()).code == 0
    document = history(registry, key)
    assert [one["event"] for one in document["revisions"]] == ["delete", "put"]
    assert not document["exists"]
    assert registry.run(*shlex.split(document["next"]["command"])[1:]).code == 0


def test_what_was_compacted_is_gone_and_what_stood_then_is_kept(registry: Registry) -> None:
    for number in range(3):
        key = registry.put("shop/web", aescbc(secret(f"web-{number}")))
    compacted = registry.etcd.compact()
    registry.put("shop/web", WHOLE)
    document = history(registry, key)
    assert [one["version"] for one in document["revisions"]] == [4, 3]
    assert document["older_versions"] == 2
    assert document["compacted_revision"] == compacted


def test_a_key_that_never_was(registry: Registry) -> None:
    ran = looked(registry, f"{registry.prefix}/secrets/shop/never")
    assert (ran.code, ran.out) == (5, "")
    assert "no revision of it is kept" in ran.err
    below = looked(registry, f"{registry.prefix}/secrets/shop")
    assert "it is a prefix of keys like" in below.err


def test_at_an_older_revision_what_came_later_is_not_there(registry: Registry) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    oldest = history(registry, key)["revisions"][1]
    document = history(registry, key, "--revision", str(oldest["mod_revision"]))
    (only,) = document["revisions"]
    assert (only["stands_until"], only["mod_revision"]) == (None, oldest["mod_revision"])
