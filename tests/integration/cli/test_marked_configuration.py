"""A file that ``encryption merge`` made changes something once API servers write with it, and not before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.model.rules import Rule
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.objects import IDENTITY, KEY_2, aescbc, configuration_yaml, provider, secret

pytestmark = pytest.mark.etcd

UNDEPLOYED = "nothing shows that the API servers hold"
BY_MERGE = "etcdfix encryption merge made the configuration"


def merged(registry: Registry, *, deployed: bool = True) -> Path:
    """Join today's file with an older one; not deployed, the older one's key writes, which none has."""
    older, found = registry.folder / "older.yaml", registry.folder / "merged.yaml"
    older.write_bytes(configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY))
    files = [registry.config, older] if deployed else [older, registry.config]
    words = ["--output-file", str(found), "--audit-log", str(registry.log)]
    assert run(["encryption", "merge", *map(str, files), *words]) == 0
    return found


def indented(text: bytes) -> bytes:
    return b"\n".join(b"  " + line for line in text.split(b"\n"))


def newest(registry: Registry) -> None:
    registry.put("shop/good-9", aescbc(secret("good-9")))


def test_before_api_servers_write_with_it_nothing_is_changed_by_it(registry: Registry) -> None:
    key, other = (
        registry.put("shop/broken", aescbc(secret("broken"))),
        registry.put("settings", b"\xff", "configmaps"),
    )
    whole = registry.mod_revision(key)
    registry.put("shop/broken", BROKEN)
    newest(registry)
    registry.config.write_bytes(indented(merged(registry, deployed=False).read_bytes()))
    renamed = registry.config.rename(registry.folder / "mine.yaml")
    registry.config.symlink_to(renamed)
    attempts: list[Callable[[], Ran]] = [
        lambda: registry.delete(key),
        lambda: registry.delete(key, "--dry-run"),
        lambda: registry.put_back(key, f"revision:{whole}"),
    ]
    with registry.untouched():
        for attempt in attempts:
            ran = attempt()
            assert (ran.code, BY_MERGE in ran.err, UNDEPLOYED in ran.err) == (4, True, True), ran.err
    refusal = json.loads(registry.delete(key, "-o", "json").out)["refusal"]
    assert Rule.UNDEPLOYED_WRITE_KEY.value in refusal["rules"]
    # What API servers write of one resource says nothing of another one.
    with registry.untouched():
        assert UNDEPLOYED in registry.delete(other, "--accept", "newer-than-known").err
    assert registry.delete(key, "--accept", "undeployed-write-key").code == 0


def test_once_api_servers_write_with_it_changes_are_made_by_it(registry: Registry) -> None:
    newest(registry)
    registry.config.write_bytes(merged(registry).read_bytes())
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    assert registry.undo(registry.kept()[-1].path).code == 0
