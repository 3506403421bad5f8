"""Keys as `scan -o name` prints them are taken wherever a KEY goes; an encryption key by its whole name."""

from __future__ import annotations

import base64

import pytest

from tests.support.attacks import declared
from tests.support.change_runs import ACKNOWLEDGED, BROKEN, Registry
from tests.support.objects import KEY_2, aescbc, secret

pytestmark = pytest.mark.etcd

ODD = b"/secrets/shop/odd\x1b\xff"


def test_what_scan_prints_every_command_takes(registry: Registry) -> None:
    key = registry.prefix.encode() + ODD
    registry.etcd.put(key, BROKEN)
    common = registry.common(places=False, reason=None)
    listed = registry.run("scan", "-o", "name", *common)
    (word,) = [line for line in listed.out.splitlines() if line.startswith("base64:")]
    assert word == f"base64:{base64.b64encode(key).decode()}"
    assert registry.run("scan", word, "-o", "name", *common).out.splitlines() == [word]
    assert registry.run("get", word, *common).code == 1
    shown = registry.run("explain", word, *common)
    assert shown.code == 1
    assert word in shown.out
    ran = registry.run("delete", word, ACKNOWLEDGED, "--yes", *registry.common())
    assert ran.code == 0, ran.err
    assert registry.stored(key) is None
    source = f"revision:{registry.etcd.revision() - 1}"
    ran = registry.run("fix", word, "--from", source, "--yes", *registry.common())
    assert (
        f"{word}: revision" in ran.err or "too short" in ran.err
    )  # it is read as that key; the value is broken there too
    assert registry.run("delete", "base64:!", ACKNOWLEDGED, "--yes", *registry.common()).code == 2


def test_a_dry_run_without_its_backup_directory_begins_no_log(registry: Registry) -> None:
    registry.backups = registry.folder / "missing"
    for arguments in (["--dry-run"], []):
        ran = registry.delete(registry.key("shop/broken"), *arguments)
        assert ran.code == 4
        assert "missing does not exist" in ran.err
        assert list(registry.log.parent.iterdir()) == []


ONE = "aescbckey-2026-05-12T18:43:18+02:00"
OTHER = "aescbckey-2026-05-12T18:51:02+02:00"


def test_the_whole_name_of_an_encryption_key_is_declared_lost(registry: Registry) -> None:
    """As k3s and RKE2 name them: with colons."""
    for number, name in enumerate((ONE, ONE, OTHER, OTHER, OTHER)):
        registry.put(f"shop/rotated-{number}", aescbc(secret(f"rotated-{number}"), KEY_2, name))
    key = registry.key("shop/rotated-0")
    for name in (OTHER, ONE.partition(":")[0]):
        with registry.untouched():
            ran = registry.delete(key, *declared(f"aescbc/v1/{name}"))
        assert ran.code == 4, ran.err
    ran = registry.delete(key, *declared(f"aescbc/v1/{ONE}"), "--dry-run")
    assert ran.code == 0, ran.err
