"""``etcdfix plan``: its commands do what it says; ``delete --plan`` adds a refusal, and takes none away."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from etcdfix.model.model import KeptRevision, key_id_digest
from etcdfix.report.plan import DeletionPlan, PlanEntry
from etcdfix.report.planfile import load_plan, sealed
from etcdfix.report.render.machine import JSONWriter
from etcdfix.sources.live import LiveSource
from etcdfix.text.commands import RunOptions
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret
from tests.support.plan_runs import planned

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    keks = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
    with KMSPlugin("v2", f"@etcdfix-plan-{os.getpid()}-{tmp_path.name}", keks) as running:
        yield running


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
    plan = load_plan(planned(registry))
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
    (entry,) = load_plan(planned(registry)).entries
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
    assert len(load_plan(planned(registry)).entries) == 13
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
    (entry,) = load_plan(planned(registry)).entries
    assert entry.what == "Secret (kubernetes.io/tls)"
    assert f" --revision {entry.mod_revision - 1} " in entry.save
    for command in (entry.save, entry.command):
        ran = registry.run(*shlex.split(command)[1:])
        assert ran.code == 0, ran.err


def rewrite(plan: Path, change: Callable[[DeletionPlan], dict[str, Any]]) -> None:
    loaded = load_plan(plan)
    with plan.open("wb") as stream:
        JSONWriter(stream, RunOptions()).end(sealed(replace(loaded, **change(loaded))))


def dry(registry: Registry, plan: Path, key: bytes | None = None, *arguments: str) -> Ran:
    return registry.delete(key or registry.key("shop/broken"), "--plan", str(plan), "--dry-run", *arguments)


def test_a_plan_that_fits_is_recorded_and_everything_looked_at(registry: Registry) -> None:
    before = os.umask(0)
    try:
        plan = planned(registry)
    finally:
        os.umask(before)
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    ran = dry(registry, plan)
    assert ran.code == 0, ran.err
    assert ran.err == registry.delete(registry.key("shop/broken"), "--dry-run").err
    ran = registry.delete(registry.key("shop/broken"), "--plan", str(plan))
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) is None
    for event in registry.records()[-2:]:  # the intent, and its outcome
        assert f"--plan {plan} ({load_plan(plan).content_sha256})" in event.accepted


def two_broken(registry: Registry) -> None:
    for number in range(2):
        registry.etcd.delete(registry.key(f"shop/good-{number}"))
    registry.put("shop/more", aescbc(secret("more"), KEY_2))


def test_counts_in_a_plan_permit_nothing(registry: Registry) -> None:
    two_broken(registry)
    plan = planned(registry)
    rewrite(
        plan,
        lambda p: {
            "groups": [
                replace(g, count=1, opened=1000, pattern=False, advice="", declaration="") for g in p.groups
            ],
            "entries": [replace(e, needs=[]) for e in p.entries],
        },
    )
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--plan", str(plan))
    registry.refused(ran, "2 values fail and 0 do not: that is the encryption key", hint="--declare-key-lost")


def test_a_verdict_in_a_plan_permits_nothing(registry: Registry) -> None:
    """A healthy object that the plan calls broken is readable all the same."""
    plan = planned(registry)
    key = registry.key("shop/good-0")
    stored = registry.stored(key)
    assert stored is not None
    digest = f"sha256:{hashlib.sha256(stored).hexdigest()}"
    entry = replace(
        load_plan(plan).entries[0],
        key=key.decode(),
        mod_revision=registry.mod_revision(key),
        value_sha256=digest,
    )
    rewrite(plan, lambda _: {"entries": [entry]})
    with registry.untouched():
        ran = registry.delete(key, "--plan", str(plan))
    registry.refused(ran, "the object is readable", hint="kubectl delete")


def test_a_value_that_was_written_since(registry: Registry) -> None:
    plan = planned(registry)
    registry.put("shop/broken", BROKEN)
    again = f"etcdfix plan --from-report {registry.folder / 'scan.json'} --endpoints {registry.endpoints}"
    registry.refused(dry(registry, plan), "stands at mod_revision", hint=again)


def test_a_flag_that_the_plan_asks_for(registry: Registry) -> None:
    plan = planned(registry)
    risk = ("--accept", "cluster-breaking")
    rewrite(plan, lambda p: {"entries": [replace(e, needs=[" ".join(risk)]) for e in p.entries]})
    registry.refused(dry(registry, plan), "needs --accept cluster-breaking", hint="add it, if the cluster")
    assert dry(registry, plan, None, *risk).code == 0
