"""``etcdfix heal`` against stand-ins of API servers and a real etcd: what it does, and what it tells."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.remediation.rescue.store import RescueStore
from tests.support.audit_logs import own_directory
from tests.support.change_runs import typing
from tests.support.healing import DATA, NEW, OLD, LoseKey, LostKeyCluster

pytestmark = pytest.mark.etcd


@pytest.fixture
def cluster(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    with lose_key() as cluster:
        cluster.rescue()
        cluster.p1.requests.clear()
        yield cluster


def test_one_object(cluster: LostKeyCluster) -> None:
    key = cluster.key("shop/one")
    before = cluster.stored_value(key)
    ran = cluster.heal("one")
    assert ran.code == 0, ran
    cluster.shows_nothing(ran)
    after = cluster.stored_value(key)
    assert f"HEALED {key.decode()} at revision {after.mod_revision}, by {cluster.p1.url}." in ran.out
    assert after.value.startswith(b"k8s:enc:aescbc:v1:key2:")
    assert (after.create_revision, after.version) == (before.create_revision, before.version + 1)
    (patch,) = cluster.patches()
    assert set(patch["metadata"]) == {"uid", "resourceVersion", "annotations"}
    assert patch["metadata"]["resourceVersion"] == str(before.mod_revision)
    assert list(patch["metadata"]["annotations"]) == ["etcdfix.io/healed-at"]
    assert [event.verb for event in cluster.events()] == ["heal", "heal"]
    assert cluster.outcomes() == ["healed"]
    (backup,) = cluster.kept()
    assert backup.content.stored.value == before.value
    shown = json.loads(
        cluster.run(
            "get", key.decode(), "--endpoints", cluster.endpoints, "--etcd-prefix", cluster.prefix,
            "--encryption-config", str(cluster.config), "-o", "json", "--reveal",
        ).out
    )  # fmt: skip
    assert shown["data"] == {"password": DATA}
    assert shown["metadata"]["annotations"] == patch["metadata"]["annotations"]


def test_everything_of_a_report(cluster: LostKeyCluster) -> None:
    report = cluster.report()
    ran = cluster.heal("--from-report", str(report))
    assert ran.code == 0, ran
    assert "Healed 2 of 2." in ran.out
    assert cluster.outcomes() == ["healed", "healed"]
    again = cluster.told("--from-report", str(report), code=4)
    assert again["refusal"]["rule"] == "readable"
    assert [alone["rule"] for alone in again["left_alone"]] == ["readable", "readable"]


def test_a_second_run_goes_on(cluster: LostKeyCluster) -> None:
    report = cluster.report()
    assert cluster.heal("one").code == 0
    told = cluster.told("--from-report", str(report))
    assert [each["result"] for each in told["objects"]] == ["healed"]
    assert [each["rule"] for each in told["left_alone"]] == ["readable"]
    assert (told["to_heal"], told["refusal"], told["exit_code"]) == (1, None, 0)


def test_dry_run_sends_no_change(cluster: LostKeyCluster) -> None:
    with cluster.unwritten():
        ran = cluster.heal("--from-report", str(cluster.report()), "--dry-run", yes=False)
    assert ran.code == 0, ran
    assert cluster.patches() == []
    assert "dryRun=All" in ran.err
    assert ran.out.count("DRY RUN: ") == 2
    assert [event.annotations.type for event in cluster.events()] == ["dry-run", "dry-run"]


def test_what_admission_changes_is_told_by_its_path(cluster: LostKeyCluster) -> None:
    cluster.p1.behaviour.stamp = {"shop": {"team": "never-a-value"}}
    told = cluster.told("one")
    (one,) = told["objects"]
    assert one["result"] == "healed"
    assert [path for path in one["changed_fields"] if path.startswith("metadata.labels")]
    assert "never-a-value" not in json.dumps(told) + cluster.log.read_text()


def test_cached_reads_have_ended(cluster: LostKeyCluster) -> None:
    cluster.p1.lose_cache("secrets")
    told = cluster.told("one")
    (one,) = told["objects"]
    assert one["result"] == "healed"
    assert one["changed_fields"] == []
    kept = Path(one["saved_file"])
    assert kept.parent == cluster.saved
    assert json.loads(kept.read_text())["metadata"]["resourceVersion"] == str(one["revision"])


@pytest.fixture
def ended(lose_key: LoseKey) -> Iterator[LostKeyCluster]:
    """Cached reads ended before anything was saved, as a rescue that came too late leaves it."""
    with lose_key(()) as cluster:
        RescueStore.open(cluster.saved).close()
        yield cluster


@pytest.mark.parametrize("kept_in", ["etcd", "backup"])
def test_the_uid_is_said_by_what_is_still_kept(ended: LostKeyCluster, kept_in: str) -> None:
    first = ended.written_twice("one")
    uid, origin = ended.uid("one"), f"mod_revision {first.mod_revision} in etcd"
    if kept_in == "backup":
        origin = f"backup {ended.back_up(first)}"
        ended.etcd.compact()
    ended.p1.lose_cache("secrets")
    shown = ended.heal("one", "--dry-run", yes=False)
    assert (shown.code, ended.patches()) == (0, []), shown
    assert f" as {origin} says" in shown.err
    (one,) = ended.told("one")["objects"]
    assert (one["result"], one["uid"], one["uid_from"]) == ("healed", uid, origin)
    assert [patch["metadata"]["uid"] for patch in ended.patches()] == [uid]
    kept = Path(one["saved_file"])
    assert kept.parent == ended.saved
    assert json.loads(kept.read_text())["metadata"]["resourceVersion"] == str(one["revision"])


def test_several_kinds(lose_key: LoseKey) -> None:
    with lose_key() as cluster:
        p1 = cluster.p1
        p1.reload(OLD)
        names = {"kind": "Widget", "plural": "widgets", "listKind": "WidgetList", "singular": "widget"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        p1.create(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com",
            spec={"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
        )  # fmt: skip
        p1.wait()
        p1.create("example.com/v1", "Widget", "w1", "shop", spec={"size": 4})
        p1.create("v1", "ConfigMap", "settings", "shop", data={"a": "b"})
        p1.wait()
        p1.reload(NEW)
        report = str(cluster.report())
        cluster.rescue()
        cluster.rescue("settings", resource="configmaps")
        missing = cluster.told("--from-report", report, code=4)
        assert missing["refusal"]["rule"] == "not-rescued"
        cluster.rescue("w1", resource="widgets", group="example.com")
        told = cluster.told("--from-report", report)
        assert [(each["result"], each["changed_fields"]) for each in told["objects"]] == [("healed", [])] * 4


def test_the_number_is_typed(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    report = str(cluster.report())
    with cluster.unwritten():
        for typed in ("1", "", "yes"):
            with typing(monkeypatch, typed):
                ran = cluster.heal("--from-report", report, yes=False)
            assert ran.code == 4
            assert "2 was not typed back; nothing was changed" in ran.err
    with typing(monkeypatch, "2"):
        assert cluster.heal("--from-report", report, yes=False).code == 0
    assert cluster.outcomes() == ["healed", "healed"]


def test_the_key_is_typed(cluster: LostKeyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cluster.key("shop/one").decode()
    with cluster.unwritten(), typing(monkeypatch, key[:-1]):
        assert cluster.heal("one", yes=False).code == 4
    with typing(monkeypatch, key):
        assert cluster.heal("one", yes=False).code == 0


# What the commands print for afterwards runs as it is printed.


def _rescued(cluster: LostKeyCluster, *words: str) -> list[list[str]]:
    """Rescue, and return the commands for afterwards."""
    ran = cluster.run(
        "rescue", *words, "--save-dir", str(cluster.saved), "--reveal", "--audit-log", str(cluster.log),
        "-o", "json",
    )  # fmt: skip
    cluster.shows_nothing(ran)
    return [shlex.split(step["command"])[1:] for step in json.loads(ran.out)["next"]]


def _heals(cluster: LostKeyCluster, words: list[str]) -> None:
    assert words[-1] == "--dry-run"
    places = ("--backup-dir", str(cluster.backups), "--audit-log", str(cluster.log))
    ran = cluster.run(*words, *places)
    assert ran.code == 0, (words, ran.err)
    ran = cluster.run(*words[:-1], *places, "--yes")
    assert ran.code == 0, (words, ran.err)


def test_what_comes_after_a_rescue(cluster: LostKeyCluster) -> None:
    report = cluster.report()
    (words,) = _rescued(
        cluster, "--from-report", str(report), "--kubeconfig", str(cluster.kubeconfig), "--server", cluster.p1.url
    )  # fmt: skip
    assert words[words.index("--server") + 1] == cluster.p1.url
    _heals(cluster, words)
    assert cluster.outcomes()[-2:] == ["healed", "healed"]


def test_what_comes_after_a_rescue_of_one_key(cluster: LostKeyCluster) -> None:
    """Nothing but the prefix is known of etcd, and which configuration holds is to be filled in."""
    key = cluster.key("shop/one").decode()
    (words,) = _rescued(
        cluster, key, "--kubeconfig", str(cluster.kubeconfig), "--etcd-prefix", cluster.prefix
    )
    words[words.index("FILE")] = str(cluster.config)
    words[1:1] = ["--endpoints", cluster.endpoints]
    _heals(cluster, words)
    assert cluster.outcomes()[-1:] == ["healed"]


def test_what_comes_after_a_rescue_that_found_nothing(cluster: LostKeyCluster) -> None:
    report = cluster.report()
    cluster.p1.lose_cache("secrets")
    cluster.saved = own_directory(cluster.folder / "nothing")
    (words,) = _rescued(cluster, "--from-report", str(report), "--kubeconfig", str(cluster.kubeconfig))
    assert words[0] == "copies"
    ran = cluster.run(*words, "-o", "json")
    assert [one["key"] for one in json.loads(ran.out)["objects"]] == [key.decode() for key in cluster.keys]
