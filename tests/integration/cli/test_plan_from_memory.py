"""A plan that knows what was rescued: its run has API servers write many objects anew, each by its own PATCH."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from etcdfix.commands.planning import run
from etcdfix.remediation.checks.plan import Expectation, expectation_by
from tests.support.change_runs import ACKNOWLEDGED, Ran
from tests.support.fixtures import Patch
from tests.support.healing import OLD, LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd

NAMES = ("one", "two", "three", "four")


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key(NAMES) as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


def decided(cluster: LostKeyCluster, *rescued: str) -> dict[str, tuple[str, str]]:
    common = [*cluster.where, "--etcd-prefix", cluster.prefix, "--encryption-config", str(cluster.config)]
    plan = cluster.folder / "plan.json"
    plan.unlink(missing_ok=True)
    into = ["-o", "json", "--output-file", str(plan)]
    ran = cluster.run("plan", "--from-report", str(cluster.report()), *rescued, *common, *into)
    assert ran.code in {1, 3}, ran
    document = json.loads(plan.read_bytes())
    pairs = zip(document["entries"], document["decisions"], strict=True)
    return {entry["name"]: (decision["decision"], entry["from"]) for entry, decision in pairs}


def work(cluster: LostKeyCluster, *more: str) -> Ran:
    words = ["plan", "--run", str(cluster.folder / "plan.json"), ACKNOWLEDGED]
    words += ["--rescued", str(cluster.saved), "--kubeconfig", str(cluster.kubeconfig), *cluster.common()]
    dry = cluster.run(*words, "--dry-run", "-o", "json")
    if "--dry-run" in more or dry.code:
        return dry
    digest = json.loads(dry.out)["plan_sha256"]
    return cluster.run(*words, "--yes", "--expect-plan", digest, *more)


def test_every_object_that_was_rescued_is_written_anew(cluster: LostKeyCluster) -> None:
    assert set(decided(cluster).values()) == {("leave", "")}  # the key may turn up
    assert decided(cluster, "--rescued", str(cluster.saved)) == dict.fromkeys(NAMES, ("fix", "memory"))
    before = {key: cluster.stored_value(key) for key in cluster.keys}
    with cluster.unwritten():
        assert work(cluster, "--dry-run").code == 0
    assert cluster.patches() == []
    ran = work(cluster)
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    for key, old in before.items():
        new = cluster.stored_value(key)
        assert new.value.startswith(b"k8s:enc:aescbc:v1:key2:")
        assert (new.create_revision, new.version) == (old.create_revision, old.version + 1)
    assert len(cluster.patches()) == len(cluster.kept()) == len(NAMES)
    assert len(set(cluster.outcomes())) == 1
    assert work(cluster, "--dry-run").code == 0  # nothing is left


def test_what_is_not_remembered_any_more_stops_the_run(cluster: LostKeyCluster) -> None:
    """A server that has loaded the old key shows that the configuration is wrong, and nothing is written."""
    decided(cluster, "--rescued", str(cluster.saved))
    cluster.p1.reload(OLD)
    with cluster.unwritten():
        ran = work(cluster)
    assert ran.code == 4, ran
    assert cluster.patches() == []


@pytest.mark.parametrize("differs", ["mod_revision", "value_sha256", "cause"])
def test_what_is_not_as_it_was_reviewed_is_not_written(
    cluster: LostKeyCluster, monkeypatch: Patch, differs: str
) -> None:
    """The reviewer decided on another write, another value, or for another reason."""
    decided(cluster, "--rescued", str(cluster.saved))
    other = {"mod_revision": 7, "value_sha256": "sha256:" + "0" * 64, "cause": "authentication-failed"}[
        differs
    ]

    def expected(*entry: Any) -> Expectation:
        return msgspec.structs.replace(expectation_by(*entry), **{differs: other})

    monkeypatch.setattr(run, "expectation_by", expected)
    with cluster.unwritten():
        ran = work(cluster)
    assert ran.code == 4, ran
    assert ("the plan has it as" if differs == "cause" else "; the plan has") in ran.err
    assert cluster.patches() == []
