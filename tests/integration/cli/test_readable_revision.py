"""Every command says that etcd still keeps a readable revision, with a command that works as it is pasted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import Ran, Registry
from tests.support.fixtures import Captured
from tests.support.objects import KEY_2, aescbc, config_map, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WHOLE = aescbc(secret("broken"))
CUT = WHOLE[:-5]


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Registry:
    registry = Registry(etcd, prefix, tmp_path, capfd)
    registry.put("shop/broken", WHOLE)
    registry.put("shop/broken", CUT)
    return registry


def looked(registry: Registry, *words: str, **common: Any) -> Ran:
    return registry.run(*words, *registry.common(places=False, reason=None, **common))


def scanned(registry: Registry, *words: str) -> dict[str, Any]:
    document = json.loads(looked(registry, "scan", *words, "-o", "json").out)
    (finding,) = document["findings"]
    return dict(finding)


def fixes(text: str) -> set[str]:
    return set(re.findall(r"etcdfix fix \S+(?: --(?:dry-run|no-encryption|no-kms)| --\S+ [^\s;]+)*", text))


def put_back(registry: Registry, command: str) -> None:
    ran = registry.paste(command.replace(" --dry-run", " --yes"))
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) == WHOLE


def test_where_many_fail_the_first_lines_save_what_could_not_be_written_over(registry: Registry) -> None:
    """A change of one value is refused there, and the next command of a scan has to work as pasted."""
    for number in range(12):
        whole = config_map(f"cut-{number}")
        registry.put(f"shop/cut-{number}", whole, "configmaps")
        registry.put(f"shop/cut-{number}", whole[:-7], "configmaps")
    lines = looked(registry, "scan", "configmaps").out.splitlines()
    following = next(number for number, line in enumerate(lines) if line.startswith("Next: "))
    assert lines[following].startswith("Next: Save revision ")
    assert registry.paste(lines[following + 1].strip()).code == 0


@pytest.mark.parametrize("command", ["get", "explain", "delete"])
def test_other_commands(registry: Registry, command: str) -> None:
    key = registry.key("shop/broken")
    ran = (
        registry.delete(key, "--dry-run") if command == "delete" else looked(registry, command, key.decode())
    )
    (shown,) = fixes(ran.out + ran.err)
    put_back(registry, shown)


def planned(registry: Registry) -> dict[str, Any]:
    report = registry.folder / "report.json"
    report.write_text(looked(registry, "scan", "-o", "json").out)
    (entry,) = json.loads(looked(registry, "plan", "--from-report", str(report), "-o", "json").out)["entries"]
    found: dict[str, Any] = entry
    return found


@pytest.mark.parametrize("by", ["scan", "plan"])
def test_after_our_own_deletion_and_its_undo(registry: Registry, by: str) -> None:
    assert registry.undo(str(registry.deleted().path)).code == 0
    finding = scanned(registry)
    assert finding["version"] == 1
    command = finding["remedies"][0]["command"] if by == "scan" else planned(registry)["command"]
    put_back(registry, command)


def test_an_object_that_somebody_made_again_is_not_put_back(registry: Registry) -> None:
    """Neither a scan nor a plan says to put back what may be of another object."""
    registry.etcd.delete(registry.key("shop/broken"))
    registry.put("shop/broken", aescbc(secret("broken"))[:-7])
    finding = scanned(registry)
    way = finding["remedies"][0]
    assert way["action"].startswith("Save revision ")
    assert "unknown-uid" in way["note"]
    assert json.loads(registry.paste(way["command"]).out)["metadata"]["name"] == "broken"
    assert planned(registry)["command"].startswith("etcdfix delete ")


def test_nothing_is_claimed_that_does_not_read(registry: Registry) -> None:
    """Neither what the configuration does not open, nor what etcd has compacted."""
    registry.put("shop/broken", aescbc(secret("broken"), KEY_2))
    registry.put("shop/broken", CUT)
    registry.etcd.etcdctl("compact", str(registry.etcd.revision() - 1))
    finding = scanned(registry)
    assert not any(remedy["verb"] in {"fix", "save"} for remedy in finding["remedies"])
    unread = looked(registry, "scan", registry.key("shop/broken").decode(), configured=False)
    assert "earlier revision" not in unread.out
