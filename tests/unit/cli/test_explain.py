"""``etcdfix explain``: causes, and what a deletion would set off."""

from __future__ import annotations

import base64
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from etcdfix.cli.root import run
from etcdfix.commands.explaining import cause as explain_cause
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.report.schema import SCHEMAS
from tests.support.cluster_index_runs import HOSTILE, Ran, Runner, assert_harmless
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import Cluster, owner
from tests.support.kms_plugin import KMSPlugin
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import IDENTITY, configuration_yaml

Impact = Callable[..., Ran]


@pytest.fixture
def impact(monkeypatch: Patch, capfd: Captured) -> Impact:
    runner = Runner("explain", monkeypatch, capfd)
    return lambda cluster, *words: runner(cluster, "--impact", *words)


def told(ran: Ran) -> Any:
    """Return the impact in a JSON report."""
    return ran.document["impact"]


def web(*, pods: int = 2) -> tuple[Cluster, str]:
    """Return a cluster with a Deployment that cannot be read, its ReplicaSet, and pods."""
    cluster = Cluster()
    key = cluster.add("apps/v1", "Deployment", "web", "shop")
    cluster.break_(key)
    cluster.add("apps/v1", "ReplicaSet", "web-1", "shop", owners=(owner("Deployment", "web"),))
    for number in range(pods):
        cluster.pod(f"web-1-{number}", owners=(owner("ReplicaSet", "web-1"),))
    return cluster, key


def test_a_source_that_breaks_off(impact: Impact) -> None:
    cluster, key = web()
    records = [stored(k, v) for k, v in cluster.values.items()]
    assert impact(MemorySource(records, fails_after=2), key).code == 3
    assert impact(MemorySource(records, fails_after=0), key).code == 5
    damaged = MemorySource(records, problems=["page 7 is damaged"])
    ran = impact(damaged, key)
    assert (ran.code, "incomplete: page 7 is damaged" in ran.err) == (3, True)
    assert impact(damaged, "/registry/pods/shop/nobody").code == 5


@pytest.mark.parametrize(
    ("policy", "action", "result", "risk"),
    [
        ([], "cascade-deleted", "gone", "high"),
        (["--policy", "foreground"], "cascade-deleted", "terminating", "high"),
        (["--policy", "orphan"], "orphaned", "gone", "low"),
    ],
)
def test_an_ordinary_deletion_is_forecast(
    impact: Impact, policy: list[str], action: str, result: str, risk: str
) -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    blocks = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("v1", "ConfigMap", "below", "shop", owners=blocks, finalizers=("example.com/hold",))
    ran = impact(cluster, key, *policy, "-o", "json")
    deletion = told(ran)["deletion"]
    assert ran.code == 0
    assert (deletion["possible"], deletion["by_default"], deletion["result"]) == (True, not policy, result)
    assert [d["action"] for d in told(ran)["dependents"]["tree"]] == [action]
    assert told(ran)["risk"] == risk
    (below,) = told(ran)["dependents"]["tree"]
    assert ("example.com/hold" in below.get("stays", "")) == (action != "orphaned")
    cascade = f" --cascade={policy[1]}" if policy else ""
    command = f"kubectl delete configmaps top -n shop{cascade} --dry-run=server"
    assert [remedy["command"] for remedy in ran.document["remedies"]] == [command]


def test_what_the_api_cannot_delete(impact: Impact) -> None:
    cluster, key = web()

    def deletion(of: str, *options: str) -> tuple[bool | None, str]:
        found = told(impact(cluster, of, *options, "-o", "json"))["deletion"]
        return found["possible"], found["result"]

    assert deletion(key, "--policy", "orphan") == (False, "refused")
    gone = cluster.key("configmaps", "shop", "gone")
    cluster.pod("p", spec={"volumes": [{"name": "v", "configMap": {"name": "gone"}}]})
    assert deletion(gone, "--policy", "orphan") == (False, "refused")
    sealed, empty = (cluster.key("secrets", "shop", name) for name in ("sealed", "empty"))
    cluster.values |= {sealed: b"k8s:enc:aescbc:v1:key1:" + bytes(48), empty: b""}
    assert deletion(sealed, "--policy", "foreground") == (None, "cannot-be-told")
    assert deletion(empty, "--policy", "orphan")[0] is None
    system = cluster.namespace("kube-system")
    assert deletion(system) == (False, "refused")
    assert "kubectl delete" not in impact(cluster, system, "-o", "wide").out


def commands(ran: Ran) -> list[str]:
    return [step["command"] for step in ran.document["remedies"]]


def test_a_definition_that_is_gone_while_its_objects_are_stored(impact: Impact) -> None:
    cluster = Cluster()
    definition = cluster.define("example.com", "Widget")
    instance = cluster.add("example.com/v1", "Widget", "w", "shop")
    delete = "kubectl delete widgets.example.com w -n shop --dry-run=server"
    assert commands(impact(cluster, instance, "-o", "json")) == [delete]
    del cluster.values[definition]
    ran = impact(cluster, definition, "-o", "json")
    assert (ran.code, told(ran)["risk"]) == (1, "cluster-breaking")
    assert commands(impact(cluster, instance, "-o", "json")) == ["kubectl apply -f FILE"]


@pytest.mark.parametrize("uid", ["uid-r", "uid-gone"])
def test_what_the_collector_is_about_to_delete(impact: Impact, uid: str) -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "ReplicaSet", "r", "pay")
    ran = impact(cluster, cluster.pod("p", owners=(owner("ReplicaSet", "r", uid=uid),)), "-o", "json")
    assert f'/ownerReferences/0/uid","value":"{uid}"' in commands(ran)[0]
    assert len(told(ran)["warnings"]) == 1


def hostile() -> tuple[Cluster, str]:
    cluster = Cluster()
    key = cluster.break_(cluster.key("secrets", "shop", HOSTILE))
    reference = {"volumes": [{"name": "v", "secret": {"secretName": HOSTILE}}]}
    cluster.pod(HOSTILE, spec=reference)
    me = {"apiVersion": "v1", "kind": "Secret", "name": HOSTILE, "uid": HOSTILE}
    cluster.add("v1", "ConfigMap", HOSTILE, "shop", owners=(me,), finalizers=(HOSTILE,))
    return cluster, key


@pytest.mark.parametrize("form", ["wide", "html", "json"])
def test_hostile_names_act_upon_nothing(impact: Impact, form: str) -> None:
    cluster, key = hostile()
    ran = impact(cluster, f"base64:{base64.b64encode(key.encode()).decode()}", "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)


def test_no_contents_in_any_form(impact: Impact) -> None:
    cluster = Cluster()
    contents: dict[str, Any] = {
        "annotations": {"note": "never-to-be-shown"},
        "data": {"a": "never-to-be-shown"},
    }
    key = cluster.add("v1", "ConfigMap", "settings", "shop", **contents)
    for form in ("wide", "html", "json"):
        ran = impact(cluster, key, "-o", form)
        assert (ran.code, "never-to-be-shown" in ran.out + ran.err) == (0, False)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as running:
        yield running


def test_values_that_wait_for_a_plugin_are_looked_into(
    impact: Impact, plugin: KMSPlugin, tmp_path: Path
) -> None:
    cluster, key = web()
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}}
    config = tmp_path / "config.yaml"
    config.write_bytes(configuration_yaml(kms, IDENTITY, resources=("pods", "secrets")))
    sealed = cluster.pod("sealed", owners=(owner("ReplicaSet", "web-1"),))
    cluster.values[sealed] = plugin.stored_v2(cluster.values[sealed], sealed.encode())
    ran = impact(cluster, key, "--encryption-config", str(config), "-o", "json")
    assert ran.code == 1
    assert "sealed" in {d["object"]["name"] for d in told(ran)["dependents"]["tree"]}
    ran = impact(cluster, sealed, "--encryption-config", str(config), "-o", "json")
    assert (ran.code, told(ran)["last_known"]["uid"]) == (0, "uid-sealed")
    assert impact(cluster, key, "--encryption-config", str(config), "--no-kms").code == 3


REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_shown_as_plain_text(cause: Cause, capfd: Captured) -> None:
    assert run(["explain", cause.value]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith(f"{cause}: ")
    assert len(shown.splitlines()) <= 24
    assert run(["explain", cause.value, "-o", "wide"]) == 0
    shown = capfd.readouterr().out
    assert "**" not in shown
    assert "```" not in shown
    assert "<!--" not in shown
    assert "](" not in shown


@pytest.mark.parametrize(("word", "schema"), [("wrong-key", "cause"), ("", "cause-list")])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_document_keeps_to_its_schema(word: str, schema: str, form: str, capfd: Captured) -> None:
    import yaml

    assert run(["explain", *([word] if word else []), "-o", form]) == 0
    shown = capfd.readouterr().out
    document = json.loads(shown) if form == "json" else yaml.safe_load(shown)
    jsonschema.validate(document, SCHEMAS[schema]())


def test_a_strangers_word_is_shown_safely(capfd: Captured) -> None:
    assert run(["explain", "\x1b[2Jkey" + "x" * 1000]) == 2
    told = capfd.readouterr().err
    assert "\x1b" not in told
    assert len(told) < 200


def test_installation_has_its_own_copy_of_pages(tmp_path: Path, monkeypatch: Patch, capfd: Captured) -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs/causes": f"etcdfix/{explain_cause._INSTALLED.name}"}
    (tmp_path / "wrong-key.md").write_text("# wrong-key\n\n## What you see\n\nthe installed page\n")
    monkeypatch.setattr(explain_cause, "_INSTALLED", tmp_path)
    assert run(["explain", "wrong-key", "-o", "wide"]) == 0
    assert "the installed page" in capfd.readouterr().out


def test_a_key_without_its_slash_is_no_cause(capfd: Captured) -> None:
    assert run(["explain", "registry/secrets/shop/web"]) == 2
    assert "an etcd key, which starts with /" in capfd.readouterr().err
