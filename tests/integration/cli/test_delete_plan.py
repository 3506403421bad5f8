"""``etcdfix delete --plan``: a plan may add a refusal, and takes none away."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from etcdfix.report.plan import DeletionPlan
from etcdfix.report.planfile import load_plan, sealed
from etcdfix.report.render.machine import JSONWriter
from etcdfix.text.commands import RunOptions
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster as Made
from tests.support.impact_objects import owner
from tests.support.objects import KEY_2, aescbc, secret

pytestmark = pytest.mark.etcd


def planned(registry: Registry, *arguments: str) -> Path:
    where = registry.common(places=False, reason=None)
    report, plan = registry.folder / "scan.json", registry.folder / "plan.json"
    for file in (report, plan):
        file.unlink(missing_ok=True)
    ran = registry.run("scan", *where, *arguments, "-o", "json", "--output-file", str(report))
    assert ran.code in {1, 3}, ran.err
    made = ["--from-report", str(report), "-o", "json", "--output-file", str(plan)]
    ran = registry.run("plan", *where, *arguments, *made)
    assert ran.code in {1, 3}, ran.err
    return plan


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


def test_a_grade_in_a_plan_permits_nothing(registry: Registry) -> None:
    made = Made(registry.prefix)
    key = made.break_(made.add("apps/v1", "ReplicaSet", "web", "shop"))
    for number in range(100):
        made.pod(f"p-{number}", owners=(owner("ReplicaSet", "web"),))
    registry.etcd.put_all(made.pairs())
    plan = planned(registry)
    (grades,) = {entry.risk for entry in load_plan(plan).entries if entry.resource == "replicasets"}
    assert grades == "cluster-breaking"
    rewrite(
        plan,
        lambda p: {
            "entries": [
                replace(e, risk="low", reasons=[], protected="", needs=[], cascade=0) for e in p.entries
            ]
        },
    )
    registry.refused(
        dry(registry, plan, key.encode()),
        "the garbage collector deletes 100 dependents",
        hint="--accept cluster-breaking",
    )


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


def test_a_plan_from_the_environment_is_none(registry: Registry, monkeypatch: Patch) -> None:
    plan = planned(registry)
    rewrite(plan, lambda _: {"entries": []})
    for named in (str(plan), "/nowhere"):
        monkeypatch.setenv("ETCDFIX_PLAN", named)
        ran = registry.delete(registry.key("shop/broken"), "--dry-run")
        assert ran.code == 0, ran.err
        assert "--plan" not in str(registry.records()[-1].accepted)


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
