"""``etcdfix explain KEY`` on a real etcd: what lies beside a value, what is kept, and commands that work as pasted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.model import KeptRevision
from etcdfix.sources.live import LiveSource
from tests.support.change_runs import Ran, Registry
from tests.support.objects import aescbc, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WHOLE = aescbc(secret("web"))
CUT = WHOLE[:-5]


def looked(registry: Registry, *words: str, **common: Any) -> Ran:
    return registry.run("explain", *words, *registry.common(places=False, reason=None, **common))


def explained(registry: Registry, key: bytes, *words: str, **common: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(looked(registry, key.decode(), "-o", "json", *words, **common).out)
    return document


def test_a_cut_value_that_etcd_still_has_whole(registry: Registry) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    ran = looked(registry, key.decode())
    assert ran.code == 1
    assert ran.out.startswith(f"{key.decode()} cannot be read: ")
    assert len(ran.out.splitlines()) <= 24
    document = explained(registry, key)
    assert document["do_not_restart"]
    assert registry.paste(document["next"]["command"]).code == 0
    (beside,) = document["siblings"]
    assert (beside["keys"], beside["opened"], beside["failed"]) == (4, 2, 2)
    assert (document["kept"]["count"], document["kept"]["newest_readable"]["same_object"]) == (2, True)
    assert registry.paste(document["kept"]["command"]).code == 1
    assert registry.paste(document["cause_page"]).code == 0


def test_a_compaction_while_it_looks(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", CUT)
    history = LiveSource.history

    def compacted(source: LiveSource, key: bytes) -> Iterator[KeptRevision]:
        registry.put("shop/later", WHOLE)
        registry.etcd.compact()
        return history(source, key)

    monkeypatch.setattr(LiveSource, "history", compacted)
    ran = looked(registry, key.decode(), "-o", "json")
    document = json.loads(ran.out)
    assert ran.code == 1
    assert document["complete"]
    assert document["finding"]["outcome"] == "decrypt-failure"


def test_a_deleted_key_and_one_that_never_was(registry: Registry) -> None:
    key = registry.put("shop/web", WHOLE)
    registry.etcd.delete(key)
    ran = looked(registry, key.decode())
    assert ran.code == 1
    assert ran.out.startswith(f"{key.decode()} was deleted at revision ")
    command = explained(registry, key)["next"]["command"]
    assert registry.paste(command.replace(" --dry-run", "")).code == 0
    assert registry.stored(key) == WHOLE
    never = looked(registry, registry.key("shop/never").decode())
    assert (never.code, never.out) == (5, "")
    assert "no revision of it is kept" in never.err
