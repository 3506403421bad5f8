"""A printed command keeps backups and records where the one that printed it was told to, and names each place once."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.change_runs import Registry
from tests.support.fixtures import Patch
from tests.support.objects import aescbc, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WHOLE = aescbc(secret())
REPAIRABLE = secret("trailing") + b"left"
_COMMANDS = re.compile(r"\betcdfix (?:delete|fix|undo|copies|get) [^\n;]*")
PLACES = ("--backup-dir", "--audit-log")


@pytest.fixture(autouse=True)
def nowhere_else(registry: Registry, monkeypatch: Patch) -> Path:
    default = registry.folder / "default"
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: default)
    monkeypatch.setattr("etcdfix.remediation.places.default_audit_log", lambda: default / "audit.jsonl")
    return default


def commands(text: str, name: str) -> list[list[str]]:
    found = [shlex.split(match.group())[1:] for match in _COMMANDS.finditer(text)]
    return [words for words in found if words[0] == name]


def places(words: list[str]) -> dict[str, list[str]]:
    return {
        option: [words[at + 1] for at, word in enumerate(words) if word == option]
        for option in PLACES
        if option in words
    }


def expected(registry: Registry) -> dict[str, list[str]]:
    return {"--backup-dir": [str(registry.backups)], "--audit-log": [str(registry.log)]}


def test_refused_deletion_names_repair_that_is_recorded_there(registry: Registry, nowhere_else: Path) -> None:
    ran = registry.delete(registry.put("shop/trailing", REPAIRABLE))
    assert ran.code == 4
    (repair,) = commands(ran.err, "fix")
    assert places(repair) == expected(registry)
    assert not registry.log.exists()
    assert registry.run(*repair).code == 0
    assert len(registry.records()) == 1
    assert not nowhere_else.exists()


@pytest.mark.parametrize("told", ["options", "variables"])
def test_what_copies_says_to_put_back(
    registry: Registry, monkeypatch: Patch, nowhere_else: Path, told: str
) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", WHOLE[:-3])
    if told != "options":
        monkeypatch.setenv("ETCDFIX_BACKUP_DIR", str(registry.backups))
        monkeypatch.setenv("ETCDFIX_AUDIT_LOG", str(registry.log))
    words = registry.common(reason=None, places=told != "variables")
    ran = registry.run("copies", key.decode(), *words, "-o", "json")
    copy = json.loads(ran.out)["objects"][0]["copies"][0]
    restore = shlex.split(copy["fix"])[1:]
    assert places(restore) == expected(registry)
    assert registry.run(*restore).code == 0
    assert len(registry.records()) == 1
    assert not nowhere_else.exists()
    assert places(shlex.split(copy["save"])[1:]) == {"--audit-log": [str(registry.log)]}


def test_a_get_that_is_recorded(registry: Registry) -> None:
    registry.put("shop/web", WHOLE)
    key = registry.put("shop/web", WHOLE[:-3])
    words = registry.common(reason=None, places=False)
    ran = registry.run("get", key.decode(), *words, "--reveal", "--audit-log", str(registry.log))
    restore = commands(ran.err, "fix")
    assert restore
    assert all(places(words) == {"--audit-log": [str(registry.log)]} for words in restore)
