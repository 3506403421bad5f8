"""A file that ``encryption merge`` made changes something once API servers write with it, and not before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

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


def as_it_is(text: bytes) -> bytes:
    return text


def as_json(text: bytes) -> bytes:
    return json.dumps(yaml.safe_load(text)).encode()


def without_comments(text: bytes) -> bytes:
    return b"\n".join(line for line in text.split(b"\n") if not line.lstrip().startswith(b"#"))


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


@pytest.mark.parametrize("change", [as_json, without_comments])
def test_without_its_mark_nothing_is_sealed_by_it_either(
    registry: Registry, change: Callable[[bytes], bytes]
) -> None:
    old = registry.put("shop/old", aescbc(secret("old"), b"x" * 32, "key3"))
    newest(registry)
    candidate = registry.folder / "candidate.yaml"
    candidate.write_bytes(configuration_yaml(provider("aescbc", key3=b"x" * 32), IDENTITY))
    registry.config.write_bytes(change(merged(registry, deployed=False).read_bytes()))
    with registry.untouched():
        registry.refused(
            registry.put_back(old, f"candidate:{candidate}"), UNDEPLOYED, hint="undeployed-write-key"
        )


def test_once_api_servers_write_with_it_changes_are_made_by_it(registry: Registry) -> None:
    newest(registry)
    registry.config.write_bytes(merged(registry).read_bytes())
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    assert registry.undo(registry.kept()[-1].path).code == 0


def test_our_own_write_is_no_proof(registry: Registry) -> None:
    newest(registry)
    key = registry.key("shop/broken")
    registry.config.write_bytes(merged(registry, deployed=False).read_bytes())
    old = registry.put("shop/old", aescbc(secret("old"), b"x" * 32, "key3"))
    candidate = registry.folder / "candidate.yaml"
    candidate.write_bytes(configuration_yaml(provider("aescbc", key3=b"x" * 32), IDENTITY))
    ran = registry.put_back(old, f"candidate:{candidate}", "--accept", "undeployed-write-key")
    assert ran.code == 0, ran.err
    with registry.untouched():
        assert UNDEPLOYED in registry.delete(key).err


def test_it_may_be_the_candidate(registry: Registry) -> None:
    old = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    newest(registry)
    ran = registry.put_back(old, f"candidate:{merged(registry)}")
    assert ran.code == 0, ran.err


def test_it_serves_for_looking(registry: Registry) -> None:
    old = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.config.write_bytes(merged(registry).read_bytes())
    ran = registry.run("scan", old.decode(), *registry.common(places=False, reason=None))
    assert ran.code == 0
    assert "was made by etcdfix encryption merge: nothing is changed by it before" in ran.err
