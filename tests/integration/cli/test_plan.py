"""The plan command over a live etcd: its commands do what it says."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.model.model import KeptRevision, key_id_digest
from etcdfix.report.plan import DeletionPlan, PlanEntry
from etcdfix.report.planfile import load_plan
from etcdfix.sources.live import LiveSource
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    keks = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
    with KMSPlugin("v2", f"@etcdfix-plan-{os.getpid()}-{tmp_path.name}", keks) as running:
        yield running


def planned(registry: Registry, *options: str) -> DeletionPlan:
    where = ["--endpoints", registry.endpoints, "--etcd-prefix", registry.prefix]
    where += ["--encryption-config", str(registry.config)]
    report, file = registry.folder / "scan.json", registry.folder / "plan.json"
    registry.run("scan", *where, "-o", "json", "--output-file", str(report))
    into = ["-o", "json", "--output-file", str(file)]
    ran = registry.run("plan", "--from-report", str(report), *where, *into, *options)
    assert ran.code in {1, 3}, ran.err
    return load_plan(file)


def paste(registry: Registry, entry: PlanEntry, *more: str) -> Ran:
    words = shlex.split(" ".join([entry.command, *more]))
    assert words[0] == "etcdfix"
    return registry.run(*words[1:], "--backup-dir", str(registry.backups), "--audit-log", str(registry.log))


ALONE = ("--accept", "no-api-server")
"""What a run without a kubeconfig has to accept; a plan cannot know whether one will be given."""
ENDS = "--accept ends-cached-reads"


def test_commands_work_once_flags_are_added_that_plan_names(registry: Registry, plugin: KMSPlugin) -> None:
    """And are refused without: what a person must decide, no command decides."""
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint}}
    registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY)
    for name, key_id in (("dead", "kek-1"), ("alive", "kek-2")):
        key = registry.key(f"shop/{name}")
        registry.etcd.put(key, plugin.stored_v2(secret(name), key, key_id=key_id))
    del plugin.keks["kek-1"]
    for name in ("lost-0", "lost-1"):
        registry.put(f"shop/{name}", aescbc(secret(name), KEY_2, name="lost"))
    registry.put("kube-system/bootstrap-token-abcdef", aescbc(secret("x"), KEY_2, name="lost"))
    plan = planned(registry)
    found = {entry.name: entry.needs for entry in plan.entries}
    dead = next(entry for entry in plan.entries if entry.name == "dead")
    assert found == {
        "broken": [ENDS],
        "dead": [f"--declare-key-lost kms/v2/prov/{key_id_digest('kek-1')}", ENDS],
        "lost-0": ["--declare-key-lost aescbc/v1/lost", ENDS],
        "lost-1": ["--declare-key-lost aescbc/v1/lost", ENDS],
        "bootstrap-token-abcdef": ["--declare-key-lost aescbc/v1/lost", "--accept cluster-breaking", ENDS],
    }
    advice = {group.transformer: group.advice for group in plan.groups}
    assert advice[dead.transformer].endswith(found["dead"][0])
    for entry in plan.entries:
        last = entry.order == len(plan.entries)  # of which no other object is lost with it any more
        flags = found[entry.name]
        for missing in flags[:-1] if last else flags:
            rest = [flag for flag in flags if flag != missing]
            assert paste(registry, entry, *ALONE, *rest).code == 4, entry.name
        ran = paste(registry, entry, *ALONE, *flags)
        assert ran.code == 0, (entry.name, ran.err)


@pytest.mark.parametrize("name", ["q'uo\"te $(reboot)*[1]?", "new\nline"])
def test_a_command_names_its_key_whatever_that_looks_like(registry: Registry, name: str) -> None:
    registry.etcd.delete(registry.key("shop/broken"))
    registry.put(f"shop/{name}", BROKEN)
    (entry,) = planned(registry).entries
    ran = paste(registry, entry)
    assert ran.code == 0, ran.err


def test_a_plan_opens_as_few_watches_as_a_scan(registry: Registry, monkeypatch: Patch) -> None:
    """A watch for each of 1,200 keys would take two minutes, and a plan holds for fifteen."""
    watched: list[bytes] = []
    history = LiveSource.history

    def counted(source: LiveSource, key: bytes) -> Iterator[KeptRevision]:
        watched.append(key)
        return history(source, key)

    for number in range(12):
        registry.put(f"shop/never-{number:02}", BROKEN)
    monkeypatch.setattr(LiveSource, "history", counted)
    monkeypatch.setattr("etcdfix.examine.readable_revision._MOST_HISTORIES", 3)
    assert len(planned(registry).entries) == 13
    assert len(watched) == 3 + 3  # the scan, then the plan


def test_a_value_that_stood_through_a_compaction_can_be_put_back(registry: Registry) -> None:
    """Its own revision is compacted; at later ones it still stood, until the damage."""
    key = registry.key("shop/broken")
    made = Cluster(registry.prefix)
    whole = made.secret("broken", type="kubernetes.io/tls")
    registry.etcd.put(key, aescbc(made.values[whole]))
    registry.put("shop/another", aescbc(secret("another")))
    registry.etcd.compact()
    registry.etcd.put(key, BROKEN)
    (entry,) = planned(registry).entries
    assert entry.what == "Secret (kubernetes.io/tls)"
    assert f" --revision {entry.mod_revision - 1} " in entry.save
    for command in (entry.save, entry.command):
        ran = registry.run(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err
