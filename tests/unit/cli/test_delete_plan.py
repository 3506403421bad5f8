"""``etcdfix delete --plan``: the plan's counts stand in for a look at everything, while they hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from etcdfix.cli import delete as module
from etcdfix.planning.planfile import load_plan, sealed
from etcdfix.reports.plan_json import write_plan_json
from etcdfix.reports.plan_model import DeletionPlan
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.etcd_server import EtcdServer
from tests.support.impact_objects import Cluster as Made
from tests.support.impact_objects import owner
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, KEY_1, namespace_object, provider, secret

pytestmark = pytest.mark.etcd

USED = "those of the plan"


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


def planned(registry: Registry, *arguments: str) -> Path:
    """Scan, and plan what was found."""
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
    """Change a plan and seal it anew, as whoever owns the file can."""
    loaded = load_plan(plan)
    with plan.open("wb") as stream:
        write_plan_json(stream, sealed(msgspec.structs.replace(loaded, **change(loaded))))


def dry(registry: Registry, plan: Path, key: bytes | None = None, *arguments: str) -> Ran:
    return registry.delete(key or registry.key("shop/broken"), "--plan", str(plan), "--dry-run", *arguments)


def not_used(ran: Ran, why: str) -> None:
    assert USED not in ran.err
    assert f"Note         the plan is not used: {why}" in ran.err
    assert ran.code == 0, ran.err


def test_a_plan_that_holds_is_used_and_recorded(registry: Registry) -> None:
    before = os.umask(0)
    try:
        plan = planned(registry)
    finally:
        os.umask(before)
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    ran = dry(registry, plan)
    assert ran.code == 0, ran.err
    assert USED in ran.err
    # The preview says the same of what the deletion sets off as without a plan.
    without = registry.delete(registry.key("shop/broken"), "--dry-run").err
    effects = [line for line in without.splitlines() if line.startswith(("Risk", "Used by", "Finalizer"))]
    assert effects
    assert all(line in ran.err for line in effects)
    ran = registry.delete(registry.key("shop/broken"), "--plan", str(plan))
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) is None
    assert f"--plan {plan} ({load_plan(plan).content_sha256})" in registry.events()[-1].annotations.accepted


def test_one_deletion_of_a_plan_does_not_end_it_for_the_next(registry: Registry) -> None:
    """What the plan knew to be broken never counted as opening, so that its end changes no count."""
    names = ("shop/broken", "shop/broken-1", "shop/broken-2")
    for name in names[1:]:
        registry.put(name, BROKEN)
    plan = planned(registry)
    for name in names:
        ran = registry.delete(registry.key(name), "--plan", str(plan))
        assert (ran.code, USED in ran.err) == (0, True), ran.err


def test_what_was_written_since_counts(registry: Registry) -> None:
    plan = planned(registry)
    registry.put("shop/more", BROKEN)
    not_used(dry(registry, plan), "one of secrets under the same transformer was written since")


def test_dependents_that_came_since_count(registry: Registry) -> None:
    made = Made(registry.prefix)
    key = made.break_(made.add("apps/v1", "ReplicaSet", "web", "shop"))
    registry.etcd.put_all(made.pairs())
    plan = planned(registry)
    for number in range(100):
        made.pod(f"p-{number}", owners=(owner("ReplicaSet", "web"),))
    registry.etcd.put_all(made.pairs())
    # That wrote the ReplicaSet again, too: the plan must be of it as it stands.
    entry = registry.mod_revision(key.encode())
    rewrite(plan, lambda p: {"entries": [msgspec.structs.replace(e, mod_revision=entry) for e in p.entries]})
    registry.refused(
        dry(registry, plan, key.encode()),
        "the garbage collector deletes 100 dependents",
        hint="--accept-risk cluster-breaking",
    )


class Clock(datetime):
    """A clock that can be set."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return cls.fromtimestamp((datetime.now(UTC) + cls.ahead).timestamp(), tz)


@pytest.mark.parametrize(
    ("ahead", "why"),
    [(timedelta(minutes=16), "the plan is 16 minutes old"), (-timedelta(minutes=5), "the plan is from the future")],
)  # fmt: skip
def test_its_age(registry: Registry, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, why: str) -> None:
    plan = planned(registry)
    monkeypatch.setattr(Clock, "ahead", ahead)
    monkeypatch.setattr(module, "datetime", Clock)
    not_used(dry(registry, plan), why)


def test_another_configuration(registry: Registry) -> None:
    plan = planned(registry)
    registry.config.write_bytes(registry.config.read_bytes() + b"\n")
    not_used(dry(registry, plan), "the plan was made with another encryption configuration")


def test_another_cluster(registry: Registry) -> None:
    plan = planned(registry)
    registry.put("kube-system", namespace_object("kube-system", uid="another-uid"), resource="namespaces")
    not_used(dry(registry, plan), "the plan is of the cluster")


def test_a_clone_of_the_cluster(registry: Registry) -> None:
    """An etcd restored from the cluster's snapshot has the same kube-system, and nothing else in common."""
    plan = planned(registry)
    rewrite(plan, lambda p: {"source": msgspec.structs.replace(p.source, cluster_id="abc")})
    not_used(dry(registry, plan), "the plan is of etcd abc, this one is")


def test_another_storage_prefix(registry: Registry) -> None:
    plan = planned(registry)
    rewrite(plan, lambda _: {"etcd_prefix": "/another"})
    not_used(dry(registry, plan), "the plan is of keys below /another")


def test_a_plan_from_before_a_restore(registry: Registry) -> None:
    plan = planned(registry)
    ahead = registry.etcd.revision() + 10_000_000
    rewrite(plan, lambda p: {"source": msgspec.structs.replace(p.source, revision=ahead)})
    not_used(dry(registry, plan), "it was made at revision")


def test_a_plan_of_an_older_revision_proves_nothing(registry: Registry) -> None:
    plan = planned(registry, "--revision", str(registry.etcd.revision()))
    not_used(dry(registry, plan), "the plan was made from a snapshot or an old revision")


def test_a_plan_of_somebody_else_is_refused(registry: Registry, tmp_path: Path) -> None:
    plan = planned(registry)
    if os.geteuid() == 0:
        os.chown(plan, 65534, 65534)
        ran = dry(registry, plan)
        assert (ran.code, "belongs to somebody else (uid 65534)" in ran.err) == (2, True)
        os.chown(plan, 0, 0)
    plan.chmod(0o664)
    ran = dry(registry, plan)
    assert (ran.code, "others may write to it (mode 0664)" in ran.err) == (2, True)
    plan.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(plan)
    ran = dry(registry, link)
    assert (ran.code, "it is a symbolic link" in ran.err) == (2, True)


# KMS.


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    keks = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", keks) as running:
        yield running


def behind(registry: Registry, plugin: KMSPlugin) -> bytes:
    """Store two values that open and one whose key is gone; return its key."""
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint}}
    registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY, resources=("*.*",))
    keys = {name: registry.key(f"shop/{name}") for name in ("one", "two", "dead")}
    for name, key in keys.items():
        key_id = "kek-1" if name == "dead" else "kek-2"
        registry.etcd.put(key, plugin.stored_v2(secret(name), key, key_id=key_id))
    del plugin.keks["kek-1"]
    return keys["dead"]


def test_an_undetermined_value_never_rests_on_a_plan(registry: Registry, plugin: KMSPlugin) -> None:
    key = behind(registry, plugin)
    plan = planned(registry, "--no-kms")
    declared = ("--accept-no-api-server", "--declare-key-lost", "kms/v2/prov")
    without = registry.delete(key, "--dry-run", *declared)
    with_plan = dry(registry, plan, key, *declared)
    assert without.code == with_plan.code == 4
    assert without.err.splitlines()[-2:] == with_plan.err.splitlines()[-2:]


def test_a_plan_that_asked_no_plugin_says_nothing_of_the_risk(registry: Registry, plugin: KMSPlugin) -> None:
    behind(registry, plugin)
    made = Made(registry.prefix)
    key = made.break_(made.add("apps/v1", "ReplicaSet", "web", "shop"))
    for number in range(100):
        pod = made.pod(f"p-{number}", owners=(owner("ReplicaSet", "web"),))
        made.values[pod] = plugin.stored_v2(made.values[pod], pod.encode(), key_id="kek-2")
    registry.etcd.put_all(made.pairs())
    plan = planned(registry, "--no-kms")
    registry.refused(
        dry(registry, plan, key.encode()),
        "the garbage collector deletes 100 dependents",
        hint="--accept-risk cluster-breaking",
    )
