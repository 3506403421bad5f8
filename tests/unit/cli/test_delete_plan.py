"""A plan of the same cluster saves the counting, one key at a time; of anything else it proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.change_runs import Registry
from tests.support.etcd_server import EtcdServer
from tests.support.objects import KEY_2, aescbc, secret

pytestmark = pytest.mark.etcd

LOST = ("lost-0", "lost-1", "lost-2")


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


@pytest.fixture
def plan(registry: Registry) -> Path:
    """A plan on disk for three Secrets under a key that is gone."""
    for name in LOST:
        registry.put(f"shop/{name}", aescbc(secret(name), name="gone", key=KEY_2))
    where = ["--endpoints", registry.endpoints, "--etcd-prefix", registry.prefix]
    where += ["--encryption-config", str(registry.config)]
    report, found = registry.folder / "scan.json", registry.folder / "plan.json"
    assert registry.run("scan", *where, "-o", "json", "--output-file", str(report)).code == 1
    ran = registry.run(
        "plan", "--from-report", str(report), *where, "-o", "json", "--output-file", str(found)
    )
    assert ran.code == 1, ran.err
    return found


def test_a_plan_saves_the_counting_and_still_deletes_one_key(registry: Registry, plan: Path) -> None:
    keys = [registry.key(f"shop/{name}") for name in LOST]
    for key in keys[:2]:
        ran = registry.delete(key, "--plan", str(plan), "--declare-key-lost", "aescbc/v1/gone")
        assert ran.code == 0, ran.err
        assert "counts and risk are those of the plan" in ran.err
        assert "aescbc/v1/gone: 0 open, 3 do not" in ran.err
        assert "Risk         LOW" in ran.err
        assert registry.stored(key) is None
        assert f"--plan {plan}" in registry.events()[-1].annotations.accepted
    assert registry.stored(keys[2]) is not None


def test_a_plan_lifts_no_rule(registry: Registry, plan: Path) -> None:
    key = registry.key("shop/lost-0")
    with registry.untouched():
        ran = registry.delete(key, "--plan", str(plan))
    registry.refused(ran, "the configuration alone can cure this", hint="--declare-key-lost aescbc/v1/gone")
    with registry.untouched():
        ran = registry.delete(registry.key("shop/good-0"), "--plan", str(plan))
    registry.refused(ran, "the object is readable", hint="kubectl delete")


def test_what_changed_since_is_counted_anew(registry: Registry, plan: Path) -> None:
    key = registry.put("shop/lost-0", aescbc(secret("lost-0"), name="gone", key=KEY_2))
    ran = registry.delete(key, "--plan", str(plan), "--declare-key-lost", "aescbc/v1/gone", "--dry-run")
    assert ran.code == 0, ran.err
    assert "the plan is not used: the value was changed since the plan was made" in ran.err
    ran = registry.delete(
        registry.key("shop/broken"), "--plan", str(plan), "--kubernetes-version", "1.36", "--dry-run"
    )
    assert "the plan is not used: the plan was made with another --kubernetes-version" in ran.err


def test_an_edited_plan_is_an_error(registry: Registry, plan: Path) -> None:
    plan.write_text(
        plan.read_text().replace('"failed": 3', '"failed": 1').replace('"failed":3', '"failed":1')
    )
    with registry.untouched():
        ran = registry.delete(registry.key("shop/lost-0"), "--plan", str(plan))
    assert ran.code == 2
    assert "is not what was written" in ran.err
