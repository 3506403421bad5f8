"""``etcdfix explain KEY`` on a real etcd: what lies beside a value, what is kept, and commands that work as pasted."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
    assert (beside["opened"], beside["failed"]) == (2, 2)
    assert document["kept"] == 2
    (copy,) = document["copies"]
    assert (copy["outcome"], copy["same_object"], copy["later_writes"]) == ("readable", "same", 1)
    assert copy["fix"] == document["next"]["command"]
    assert registry.paste(copy["save"]).code == 0


def test_a_deleted_key_and_one_that_never_was(registry: Registry) -> None:
    key = registry.put("shop/web", WHOLE)
    registry.etcd.delete(key)
    ran = looked(registry, key.decode())
    assert ran.code == 1
    assert ran.out.startswith(f"{key.decode()} was deleted at revision ")
    told = explained(registry, key, "--history")
    assert [one["deletes"] for one in told["history"]["writes"]] == [True, False]
    assert registry.paste(told["next"]["command"].replace(" --dry-run", " --yes")).code == 0
    assert registry.stored(key) == WHOLE
    never = looked(registry, registry.key("shop/never").decode())
    assert (never.code, never.out) == (5, "")
    assert "no revision of it is kept" in never.err
    below = looked(registry, f"{registry.prefix}/secrets/shop")
    assert "it is a prefix of keys like" in below.err
