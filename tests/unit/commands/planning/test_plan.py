"""What a plan of deletions lists, leaves out and asks for, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.commands import plan as plan_module
from etcdfix.commands.plan import build_plan
from etcdfix.commands.planning.steps import in_order, steps_for
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.graph.cluster import IndexBuilder
from etcdfix.model.errors import ConfigurationError, EndedEarly
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.report import rows as sorted_rows
from etcdfix.report.plan import DeletionPlan, PlanEntry, PlanGroup, PlanStep, declaration
from etcdfix.report.rows import SortedRows
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster
from tests.support.lost_key import (
    CERT_MANAGER,
    CONFIGURATION,
    base,
    certificate,
    examiner_of,
    lose,
    request_for,
    scan_to,
    using_pod,
)
from tests.support.memory_source import LiveMemory, MemorySource, stored
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, configuration, provider
from tests.support.plan_entries import entry, fixable
from tests.support.rendering import rendered

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def plan_of(
    cluster: Cluster,
    folder: Path,
    *,
    after: Source | None = None,
    config: EncryptionConfiguration = CONFIGURATION,
) -> DeletionPlan:
    """Scan a cluster, and plan it; ``after`` is what it has become meanwhile."""
    path = scan_to(folder / "report.json", cluster, config=config)
    source = after if after is not None else cluster.source()
    return build_plan(
        source, examiner_of(cluster, source, config), request_for(path, config), now=lambda: NOON
    )


NOWHERE = b"0" * 16


def test_a_group_says_what_the_others_under_its_transformer_do(tmp_path: Path) -> None:
    config = configuration(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    cluster = base()
    keys = [cluster.secret(name) for name in ("a", "b", "c", "d", "e", "f")]
    values = cluster.values
    values[keys[0]] = aescbc(values[keys[0]], KEY_1)
    values[keys[1]] = aescbc(values[keys[1]], KEY_1)[:-3]
    values[keys[2]] = aescbc(values[keys[2]], NOWHERE, name="gone")
    values[keys[3]] = aescbc(values[keys[3]], NOWHERE, name="gone")
    values[keys[5]] = aescbc(values[keys[5]], KEY_2, name="gone")  # these bytes are there, under another name
    values[keys[4]] = aescbc(b"no object", KEY_2, name="key2")
    values["/elsewhere/key"] = b"k8s:enc:aescbc:v1:key1:x"  # below another prefix
    plan = plan_of(cluster, tmp_path, config=config)
    found = {(group.transformer, group.count, group.opened, group.pattern) for group in plan.groups}
    assert found == {
        ("aescbc/v1/key1", 1, 1, False), ("aescbc/v1/gone", 2, 0, True), ("aescbc/v1/key2", 1, 0, False),
    }  # fmt: skip
    assert [(left.key, left.why) for left in plan.left_out] == [(keys[5], "curable-by-configuration")]


def test_what_changed_since_the_scan_is_left_out(tmp_path: Path) -> None:
    cluster = base()
    keys = {name: cluster.secret(name) for name in ("gone", "moved", "other", "fixed", "still")}
    lose(cluster, *keys.values())
    source = cluster.source()
    after: dict[bytes, StoredValue] = {r.key: r for r in source.current(b"")}
    del after[keys["gone"].encode()]
    for name, value, moved in (
        ("moved", None, 1),
        ("other", aescbc(b"else", KEY_2, name="lost"), 0),
        ("fixed", b"", 1),
    ):
        old = after[keys[name].encode()]
        new = old.value if value is None else value
        if name == "fixed":
            clean = base()
            new = clean.values[clean.secret("fixed")]
        after[old.key] = stored(old.key, new, mod_revision=old.mod_revision + moved)
    later = MemorySource(after.values())
    plan = plan_of(cluster, tmp_path, after=later)
    assert [entry.name for entry in plan.entries] == ["still"]
    assert {left.key.rpartition("/")[2]: left.why for left in plan.left_out} == {
        "gone": "gone", "moved": "changed", "other": "changed", "fixed": "readable",
    }  # fmt: skip


def test_what_a_deletion_would_refuse_whatever_is_declared_is_left_out(tmp_path: Path) -> None:
    only = configuration(provider("aescbc", key1=KEY_1))
    cluster = Cluster()
    cluster.namespace("kube-system")
    cluster.secret("in-the-clear")
    strange = cluster.add("v1", "ConfigMap", "newer", "shop")
    cluster.values[strange] = cluster.values[strange].replace(b"\x12\x09ConfigMap", b"\x12\x09ConfigMop")
    cluster.values["/registry/configmaps/shop/called-else"] = cluster.values[
        cluster.add("v1", "ConfigMap", "another-name", "shop")
    ]
    plan = plan_of(cluster, tmp_path, config=only)
    assert [(entry.name, entry.needs) for entry in plan.entries] == [("newer", ["--accept newer-than-known"])]
    assert {left.key.rpartition("/")[2]: left.why for left in plan.left_out} == {
        "in-the-clear": "curable-by-configuration",
        "called-else": "inconsistent",
    }


def test_broken_values_that_the_report_does_not_have_are_counted(tmp_path: Path) -> None:
    cluster = base()
    lose(cluster, cluster.secret("one"))
    path = scan_to(tmp_path / "report.json", cluster)
    lose(cluster, cluster.secret("two"))
    source = cluster.source()
    plan = build_plan(source, examiner_of(cluster, source), request_for(path))
    assert [entry.name for entry in plan.entries] == ["one"]
    assert plan.not_in_report == 1
    assert plan.groups[0].pattern


def test_a_report_of_another_configuration_is_refused(tmp_path: Path) -> None:
    cluster = base()
    lose(cluster, cluster.secret("one"))
    config = configuration(provider("aescbc", key2=KEY_2), IDENTITY)
    request = request_for(scan_to(tmp_path / "report.json", cluster), config)
    source = cluster.source()
    with pytest.raises(ConfigurationError, match="configuration sha256:"):
        build_plan(source, examiner_of(cluster, source, config), request)


def test_what_may_be_two_objects_is_the_only_copy_of_each(tmp_path: Path) -> None:
    """A deletion asks for that; a neighbour with the same verdict asks for nothing."""
    cluster = base()
    one, two, three = (cluster.secret(name) for name in ("one", "two", "three"))
    cluster.values[one] += b"rest" * 10
    cluster.values[three] += cluster.values[two]
    needs = {entry.name: (entry.cause, entry.needs) for entry in plan_of(cluster, tmp_path).entries}
    assert needs["three"] == ("trailing-bytes", ["--accept only-copy"])


UNLOOKED = "it was not looked at: the plan ended early"


def three_lost() -> tuple[Cluster, list[str]]:
    cluster = base()
    keys = [cluster.secret(name) for name in ("one", "three", "two")]
    for key in keys:
        lose(cluster, key)
    return cluster, keys


@pytest.mark.parametrize(
    "place",
    [
        None, (IndexBuilder, "finish"), (plan_module._Groups, "add"), (SortedRows, "add"),
        (SortedRows, "finish"),
    ],
)  # fmt: skip
def test_a_plan_that_was_interrupted_says_nothing_of_any_object(
    place: tuple[type, str] | None, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Who uses an object, and whether its key is lost, was not seen to the end, or was counted by half."""
    cluster, keys = three_lost()
    path, endings = scan_to(tmp_path / "report.json", cluster), list[EndedEarly]()
    source = cluster.source()
    if place is None:
        after = sorted(cluster.values).index(keys[2])
        source = MemorySource(cluster.values, fails_after=after, failure=EndedEarly("ended by SIGTERM", 143))
    examiner, request = examiner_of(cluster, source), request_for(path)

    def signal(*_: object) -> None:
        monkeypatch.undo()
        raise EndedEarly("ended by SIGTERM", 143)

    if place is not None:
        monkeypatch.setattr(*place, signal)
    plan = build_plan(source, examiner, request, on_ended=endings.append)
    assert [ended.exit_code for ended in endings] == [143]
    assert (plan.complete, plan.incomplete_reasons) == (False, ["ended by SIGTERM before the end"])
    assert (list(plan.entries), plan.steps, plan.groups) == ([], [], [])
    assert [(left.key, left.why, left.detail) for left in plan.left_out] == [
        (key, "undetermined", UNLOOKED) for key in keys
    ]
    assert plan.document().status.state == "incomplete"


def test_only_a_live_etcd_at_its_newest_revision_is_newest(tmp_path: Path) -> None:
    cluster = base()
    lose(cluster, cluster.secret("one"))
    path = scan_to(tmp_path / "report.json", cluster)
    for source, newest, expected in (
        (LiveMemory(cluster.values), True, True),
        (LiveMemory(cluster.values), False, False),
        (cluster.source(), True, False),
    ):
        request = msgspec.structs.replace(request_for(path), newest=newest)
        assert build_plan(source, examiner_of(cluster, source), request).newest is expected


def test_what_the_cluster_stands_on_comes_last(tmp_path: Path) -> None:
    cluster = base()
    system = cluster.secret("bootstrap-token-abcdef", "kube-system")
    used = cluster.secret("used")
    using_pod(cluster, "web", "used")
    free = cluster.secret("free")
    made = cluster.secret("site-tls")
    certificate(cluster, "site", "site-tls")
    lose(cluster, system, used, free, made)
    plan = plan_of(cluster, tmp_path)
    assert [entry.name for entry in plan.entries] == ["site-tls", "free", "used", "bootstrap-token-abcdef"]
    last = plan.entries[-1]
    assert last.protected
    assert last.what == "Secret"
    assert "--accept cluster-breaking" in last.needs


def test_what_was_there_before_a_deletion_says_nothing_of_an_object(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.secret("one", type="kubernetes.io/tls")
    old = stored(key, cluster.values[key], mod_revision=3, create_revision=3, version=1)
    lose(cluster, key)

    class Kept(LiveMemory):
        def history(self, key: bytes) -> Iterator[KeptRevision]:
            if key == old.key:
                yield KeptRevision(Revision(3, 0), old)
                yield KeptRevision(Revision(4, 0), None)
            yield from super().history(key)

    source = Kept(cluster.values)
    path = scan_to(tmp_path / "report.json", cluster, source=source)
    (entry,) = build_plan(source, examiner_of(cluster, source), request_for(path)).entries
    assert (entry.source, entry.save) == ("", "")  # of an earlier object, which nothing says is this one
    assert entry.what == "Secret"


def test_nothing_of_the_contents_is_in_a_plan_and_a_key_that_cannot_be_typed_is_named_in_base64(
    tmp_path: Path,
) -> None:
    cluster = base()
    hostile = "/registry/secrets/shop/\x1b[2Jevil\u202e"
    cluster.values[hostile] = aescbc(b"never-shown", KEY_2, name="lost")
    lose(
        cluster, cluster.secret("web", annotations={"note": "never-shown"}, data={"password": b"never-shown"})
    )
    plan = plan_of(cluster, tmp_path)
    assert [entry.key_base64 is not None and "base64:" in entry.command for entry in plan.entries] == [
        True,
        False,
    ]
    text = rendered(plan, "json")
    assert all(line.isprintable() for line in text.splitlines())
    assert "never-shown" not in text


def test_a_value_of_nobody_is_left_out(tmp_path: Path) -> None:
    cluster = base()
    cluster.values["/registry/example.org/things/shop/one"] = b"\x00no object"
    cluster.break_(cluster.add(f"{CERT_MANAGER}/v1", "Certificate", "site", "shop", spec={}))
    plan = plan_of(cluster, tmp_path)
    assert [(left.key, left.why) for left in plan.left_out] == [
        ("/registry/example.org/things/shop/one", "undetermined")
    ]
    assert [entry.what for entry in plan.entries] == ["Certificate"]


def test_what_fails_as_a_whole_kind_does_is_left_out(tmp_path: Path) -> None:
    """A deletion would refuse each of them, whatever is accepted: it is the tool or the release."""
    cluster = base()
    keys = sorted(cluster.secret(name) for name in ("one", "two"))
    for key in keys:
        cluster.values[key] = b"k8s:enc:what:v1:" + key.encode()
    alone = cluster.secret("alone")
    cluster.values[alone] = b"k8s:enc:else:v1:"
    plan = plan_of(cluster, tmp_path)
    assert [(left.key, left.why) for left in plan.left_out] == [(key, "newer-than-known") for key in keys]
    assert [entry.key for entry in plan.entries] == [alone]


def names(*entries: Any) -> list[str]:
    ordered = in_order(entries)
    assert [each.order for each in ordered] == list(range(1, len(entries) + 1))
    return [each.name for each in ordered]


def made(name: str, by: str = "cert-manager", comes_back: str = "by-itself", **change: Any) -> Any:
    settings = {"recreated_by": by, "comes_back": comes_back, "recreate_confidence": "certain", **change}
    return entry(name=name, key=f"/registry/secrets/shop/{name}", **settings)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"risk": "low", "users": 2}, {"risk": "high", "users": 1}),
        ({"risk": "none"}, {"risk": "low"}),
        ({"users": 1}, {"users": 2}),
        ({}, {"users": 1}),
        ({"comes_back": "not-needed"}, {"comes_back": "after-a-step"}),
        ({"comes_back": "by-itself"}, {"comes_back": "after-a-step"}),
        ({"comes_back": "after-a-step"}, {"comes_back": "no"}),
        # What is in use waits for a person, and so comes after what nobody makes again but nobody uses.
        ({"comes_back": "no"}, {"comes_back": "after-a-step", "users": 1}),
        ({"comes_back": "by-itself", "users": 9}, {"comes_back": "no"}),
        ({"users": 9, "risk": "high"}, {"outcome": "undetermined"}),
        ({"outcome": "undetermined"}, {"protected": "kube-system"}),
        ({"outcome": "undetermined"}, {"risk": "cluster-breaking"}),
    ],
)
def test_what_goes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    # Names sort the other way.
    base: dict[str, Any] = {"recreated_by": "by hand", "comes_back": "no", "risk": "low"}
    one = entry(name="z", key="/z", **(base | first))
    two = entry(name="a", key="/a", **(base | second))
    assert names(two, one) == ["z", "a"]


def test_many_are_sorted_on_disk_and_the_same_each_time_they_are_read(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sorted_rows, "_MEMORY_BYTES", 2000)
    entries = [
        made(f"n-{number % 7}-{number}", f"maker-{number % 3}", users=number % 5) for number in range(200)
    ]
    ordered = in_order(entries)
    assert [each.order for each in ordered] == list(range(1, 201))
    assert {each.name for each in ordered} == {each.name for each in entries}
    assert ordered == list(ordered)
    assert (ordered[3], ordered[-1], ordered[2:5]) == (
        list(ordered)[3],
        list(ordered)[-1],
        list(ordered)[2:5],
    )
    assert [each.users for each in ordered] == sorted(each.users for each in ordered)


def steps(entries: list[PlanEntry], groups: list[PlanGroup] | None = None) -> dict[str, PlanStep]:
    return {step.title: step for step in steps_for(in_order(entries), groups or [], "r.json", RunOptions())}


def test_the_snapshot_is_saved_of_the_etcd_that_was_read() -> None:
    again = RunOptions(source=("--endpoints", "one:1,two:2", "--cacert", "ca", "--revision", "5"))
    found = {step.title: step.command for step in steps_for(in_order([entry()]), [], "r.json", again)}
    assert found["Take a snapshot of etcd, and keep it"] == (
        "etcdctl --endpoints one:1 --cacert ca snapshot save before-deletions.db"
    )


def test_what_is_proven_wrong_goes_before_what_waits() -> None:
    """As the first lines of a scan do."""
    groups = [
        PlanGroup("undetermined", "kms-denied", "kms/v2/p", "", "", 1, 0, pattern=False, advice="wait"),
        PlanGroup(
            "decrypt-failure", "wrong-key", "aescbc/v1/k", "", "", 9, 0, pattern=True, advice="find it",
            declaration=declaration("aescbc/v1/k", ""),
        ),
    ]  # fmt: skip
    titles = list(steps([entry()], groups))
    assert titles[1] == "Look for the encryption key"
    assert titles[2].startswith("Let the KMS plugin decrypt again")


def test_earlier_revisions_are_saved_before_anything_that_takes_time() -> None:
    """They are gone in five minutes: also those of what comes back, and the worst loss is shown."""
    pod = {"resource": "pods", "cause": "value-truncated", "comes_back": "by-itself"}
    definition = {"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "namespace": ""}
    kept = [
        fixable(1, "revision:4", key="/registry/pods/shop/a", save="save a", **pod),
        entry(3, key="/registry/crd/c", cause="value-truncated", save="save c", **definition),
        entry(5),
    ]
    found = steps(kept)
    assert found["Save earlier revisions"].command == "save c"
    titles = list(found)
    assert titles[titles.index("Save earlier revisions") + 1] == "Look for every other copy"
