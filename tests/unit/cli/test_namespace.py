"""``etcdfix namespace`` and ``scan --orphans``: states, stages, webhooks, and the plan."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from tests.support.cluster_index_runs import HOSTILE, Runner, assert_harmless
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import NOW, Cluster, owner
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    configuration_yaml,
    provider,
    secret,
)

SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)


class Namespace(Runner):
    """Runs ``etcdfix namespace``, most often for its JSON."""

    def report(self, cluster: Cluster | MemorySource, name: str = "shop", *options: str) -> Any:
        return self(cluster, name, *options, "-o", "json").document

    def plan(
        self, cluster: Cluster | MemorySource, name: str = "shop", *options: str
    ) -> list[dict[str, str]]:
        steps: list[dict[str, str]] = self.report(cluster, name, *options)["plan"]
        return steps


@pytest.fixture
def namespace(monkeypatch: Patch, capfd: Captured) -> Namespace:
    monkeypatch.setenv("COLUMNS", "100")
    return Namespace("namespace", monkeypatch, capfd)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    providers = (provider("aescbc", key1=KEY_1), IDENTITY)
    path.write_bytes(configuration_yaml(*providers, resources=("secrets", "namespaces")))
    return str(path)


def shop(*, terminating: bool = True) -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=terminating)
    cluster.add("v1", "ConfigMap", "settings", "shop")
    return cluster


def condition(name: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def deletions(plan: list[dict[str, str]]) -> list[dict[str, str]]:
    return [step for step in plan if step["command"].startswith("etcdfix delete ")]


@pytest.mark.parametrize("form", ["text", "wide", "html", "json"])
def test_hostile_names_act_upon_nothing(namespace: Namespace, form: str) -> None:
    cluster = shop()
    cluster.break_(cluster.key("secrets", "shop", HOSTILE))
    cluster.break_(cluster.key("secrets", "shop", "$(touch x)"))
    cluster.pod(HOSTILE, finalizers=(f"example.com/wait-for-configmap{HOSTILE}",), terminating=True)
    cluster.secret(HOSTILE + "2", finalizers=(HOSTILE,))
    ran = namespace(cluster, "shop", "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out.replace("\t", "") + ran.err)
    if form == "json":
        steps = [shlex.split(s["command"]) for s in ran.document["plan"] if "delete" in s["command"]]
        assert steps[0][2] == "/registry/secrets/shop/$(touch x)"
        assert steps[1][2].startswith("base64:")
        assert not [s for s in ran.document["plan"] if "kubectl" in s["command"] and "script" in s["command"]]


def test_no_object_is_deleted_before_its_own_way_out(namespace: Namespace) -> None:
    cluster = shop()
    cluster.values[cluster.secret("magic", "a")] = b"k9s\0" + cluster.values[cluster.secret("magic", "a")][4:]
    cluster.break_(cluster.secret("lost", "b"))
    cluster.break_(cluster.namespace("c"))
    cluster.break_(cluster.pod("lost"))
    plan = namespace.plan(cluster)
    for key in {step["key"] for step in plan if step["key"]}:
        own = [step["command"].split()[1] for step in plan if step["key"] == key]
        assert (own[0] in {"copies", "fix"}, own[-1]) == (True, "delete"), key


def test_what_cannot_be_read_elsewhere_comes_first(namespace: Namespace) -> None:
    cluster = shop()
    elsewhere = cluster.break_(cluster.secret("lost", "pay"))
    here = cluster.break_(cluster.secret("lost"))
    other = cluster.break_(cluster.namespace("other"))
    report = namespace.report(cluster)
    steps = deletions(report["plan"])
    assert [step["key"] for step in steps] == [other, elsewhere, here]
    blockers = report["namespace"]["stages"][0]["blockers"]
    assert [entry["object"]["key"] for entry in blockers] == [other, elsewhere]
    empty = Cluster()
    empty.namespace("shop")
    empty.break_(empty.secret("lost", "pay"))
    assert namespace(empty, "shop").code == 1
    assert namespace.report(empty)["state"] == "active-with-blockers"


def test_a_deletion_says_which_risk_it_takes_and_what_goes_with_it(namespace: Namespace) -> None:
    cluster = shop()
    claim = cluster.break_(cluster.add("v1", "PersistentVolumeClaim", "data", "shop"))
    binding = cluster.break_(cluster.add("rbac.authorization.k8s.io/v1", "RoleBinding", "rb", "shop"))
    plain = cluster.break_(cluster.secret("plain"))
    notes = {step["key"]: step["note"] for step in deletions(namespace.plan(cluster))}
    needed = ["--accept cluster-breaking" in notes[key] for key in (claim, binding, plain)]
    assert needed == [True, True, False]


def test_a_configuration_is_cured_not_deleted(namespace: Namespace, config: str) -> None:
    cluster = shop()
    for name in "abcd":
        cluster.values[cluster.key("secrets", "shop", name)] = b"k8s:enc:aescbc:v1:gone:" + bytes(48)
    plan = namespace.plan(cluster, "shop", "--encryption-config", config)
    assert "4 objects under aescbc/v1/gone" in plan[0]["action"]
    assert plan[0]["command"].startswith("etcdfix encryption try ")
    assert not deletions(plan)
    cluster.values["/registry/namespaces/shop"] = b"k8s:enc:aescbc:v1:gone:" + bytes(48)
    report = namespace.report(cluster, "shop", "--encryption-config", config)
    assert report["state"] == "unreadable"
    assert "(namespaces shop)" in report["plan"][0]["action"]
    assert not deletions(report["plan"])


def test_a_key_that_opens_nothing_is_looked_for_not_deleted(namespace: Namespace, config: str) -> None:
    cluster = shop()

    def deleted() -> int:
        return len(deletions(namespace.plan(cluster, "shop", "--encryption-config", config)))

    for name in "ab":
        cluster.values[cluster.key("secrets", "shop", name)] = aescbc(secret(name), key=KEY_2)
    assert deleted() == 0
    # With one that opens it is still the key that wrote them; once they are damaged, it is the objects.
    cluster.values[cluster.key("secrets", "shop", "c")] = aescbc(secret("c"))
    assert deleted() == 0
    for name in "ab":
        cluster.values[cluster.key("secrets", "shop", name)] = aescbc(secret(name))[:-16]
    assert deleted() == 2


def test_what_could_not_be_judged_holds_nothing_for_certain(namespace: Namespace) -> None:
    """Without the configuration nothing that is encrypted can be judged: an API server may well read it."""
    cluster = shop()
    cluster.values[cluster.key("secrets", "pay", "sealed")] = SEALED
    assert namespace(cluster, "shop").code == 3
    report = namespace.report(cluster)
    assert (report["state"], report["namespace"]["certain"]) == ("stuck", False)
    assert not deletions(report["plan"])
    failure = condition("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", "no")
    cluster.namespace("shop", terminating=True, status={"phase": "Terminating", "conditions": [failure]})
    assert namespace.report(cluster)["namespace"]["certain"] is True
    cluster.namespace("shop", terminating=True)
    cluster.break_(cluster.secret("lost", "pay"))
    assert namespace.report(cluster)["namespace"]["certain"] is True


def test_namespace_object_that_could_not_be_judged_freezes_nothing_for_certain(namespace: Namespace) -> None:
    cluster = shop()
    cluster.values["/registry/namespaces/shop"] = SEALED
    assert namespace(cluster, "shop").code == 3
    report = namespace.report(cluster)
    found = report["namespace"]
    assert (report["state"], found["judged"], found["certain"]) == ("unreadable", False, False)
    assert report["plan"][0]["command"].endswith("--encryption-config FILE /registry/namespaces/shop")


def test_the_namespace_object_itself(namespace: Namespace) -> None:
    cluster = shop()
    key = cluster.break_("/registry/namespaces/shop")
    assert namespace(cluster, "shop").code == 1
    report = namespace.report(cluster)
    assert (report["namespace"]["frozen"], report["plan"][0]["key"]) == (True, key)
    (delete,) = deletions(report["plan"])
    assert "--accept cluster-breaking" in delete["note"]
    after = report["plan"].index(delete) + 1
    assert_both_ways(report["plan"][after : after + 2])
    del cluster.values[key]
    report = namespace.report(cluster)
    assert (report["state"], report["namespace"]["exists"]) == ("missing", False)
    assert_both_ways(report["plan"][:2])


def assert_both_ways(steps: list[dict[str, str]]) -> None:
    """Check that keeping comes first, deletes nothing, and stands by itself."""
    assert [step["command"] for step in steps] == [
        "kubectl create namespace shop", "kubectl delete namespace shop --dry-run=server"
    ]  # fmt: skip


@pytest.mark.parametrize("broken", [True, False])
def test_nobody_deletes_what_the_api_server_itself_needs(namespace: Namespace, broken: bool) -> None:
    cluster = Cluster()
    cluster.add("v1", "ConfigMap", "coredns", "kube-system")
    if broken:
        cluster.break_("/registry/namespaces/kube-system")
    commands = [step["command"] for step in namespace.plan(cluster, "kube-system")]
    assert "kubectl create namespace kube-system" in commands
    assert not [command for command in commands if command.startswith("kubectl delete")]


def test_a_namespace_that_was_not_seen_may_be_there(namespace: Namespace) -> None:
    cluster = Cluster()
    cluster.pod("web")
    cluster.add("gone.example.com/v1", "Widget", "w", "shop")
    source = MemorySource(cluster.values, problems=["page 7 is damaged"])
    report = namespace.report(source)
    assert (report["state"], report["namespace"]["exists"]) == ("unknown", None)
    commands = [step["command"] for step in report["plan"]]
    assert commands == ["kubectl get namespace shop", "etcdfix namespace shop"]
    ran = namespace(source, "pay")
    assert (ran.code, ran.out) == (5, "")


def test_custom_resources_whose_definition_is_broken_or_gone(namespace: Namespace) -> None:
    cluster = shop()
    key = cluster.break_(cluster.define("example.com", "Widget"))
    assert (namespace(cluster, "shop").code, namespace.plan(cluster)) == (0, [])  # nothing of it is in there
    cluster.add("example.com/v1", "Widget", "w", "shop")
    assert namespace(cluster, "shop").code == 1
    assert f"etcdfix explain {key} --impact" in [step["command"] for step in namespace.plan(cluster)]
    del cluster.values[key]
    cluster.break_(cluster.secret("lost", "pay"))
    first = namespace.plan(cluster)[0]
    assert (first["command"], first["key"]) == ("kubectl apply -f FILE", key)


CASE = Path(__file__).parents[3] / "fixtures/cases/03-conversion-webhook-gone.db"


def commands(report: dict[str, Any]) -> list[list[str]]:
    return [shlex.split(step["command"]) for step in report["plan"]]


def test_a_conversion_webhook_whose_service_is_gone(capfd: Captured) -> None:
    reading = ["--snapshot", str(CASE), "--no-encryption"]
    assert run(["namespace", "mesh", *reading, "-o", "json"]) == 1
    report = json.loads(capfd.readouterr().out)
    (hold,) = report["namespace"]["webhooks"]
    assert (report["state"], report["namespace"]["certain"], hold["problem"], hold["certain"]) == (
        "stuck", False, "missing", False,
    )  # fmt: skip
    assert hold["configuration"]["name"] == "meshconfigs.config.mesh.example.io"
    assert (hold["service"]["namespace"], hold["service"]["name"]) == ("mesh-system", "bootstrap")
    back, none, *_ = commands(report)
    assert back[:2] == ["kubectl", "apply"]
    assert none[:4] == ["kubectl", "patch", "customresourcedefinitions", "meshconfigs.config.mesh.example.io"]
    # API servers refuse None beside the settings of a webhook.
    assert json.loads(none[-1]) == {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    assert run(["namespace", "shop", *reading]) == 0
    assert run(["namespace", "kube-system", *reading]) == 0


ADMISSION = "admissionregistration.k8s.io/v1"
HOOK = {"service": {"namespace": "ops", "name": "hook"}}


def guarded(**fields: Any) -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True)
    cluster.namespace("other")
    cluster.add("v1", "ConfigMap", "settings", "shop")
    cluster.add("v1", "ConfigMap", "settings", "other")
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    entry = {
        "name": "guard.example.com",
        "clientConfig": HOOK,
        "rules": [rule],
        "failurePolicy": "Fail",
        **fields,
    }
    entries = [{"name": "first.example.com", "clientConfig": {"url": "https://x"}}, entry]
    cluster.add(ADMISSION, "ValidatingWebhookConfiguration", "guard", webhooks=entries)
    return cluster


def test_the_ways_out_of_an_admission_webhook(namespace: Runner) -> None:
    ran = namespace(guarded(), "shop", "-o", "json")
    assert ran.code == 1
    back, ignore, *_ = commands(ran.document)
    assert back[:2] == ["kubectl", "apply"]
    assert ignore[:4] == ["kubectl", "patch", "validatingwebhookconfigurations", "guard"]
    assert json.loads(ignore[-1]) == [
        {"op": "test", "path": "/webhooks/1/name", "value": "guard.example.com"},
        {"op": "add", "path": "/webhooks/1/failurePolicy", "value": "Ignore"},
    ]
    assert ran.document["state"] == "stuck"
    assert namespace(guarded(), "other").code == 0


def test_webhooks_of_one_configuration_have_their_ways_out_once(namespace: Runner) -> None:
    cluster = guarded()
    rule = {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    entry = {"clientConfig": HOOK, "rules": [rule], "failurePolicy": "Fail"}
    entries = [entry | {"name": f"{name}.example.com"} for name in ("a", "b")]
    for kind in ("Validating", "Mutating"):
        cluster.add(ADMISSION, f"{kind}WebhookConfiguration", "guard", webhooks=entries)
    report = namespace(cluster, "shop", "-o", "json").document
    assert len(report["namespace"]["webhooks"]) == 4
    found = commands(report)[:-2]
    assert [words[1:3] for words in found] == [
        ["apply", "-f"],
        ["patch", "mutatingwebhookconfigurations"],
        ["patch", "validatingwebhookconfigurations"],
    ]
    assert [one["path"] for one in json.loads(found[1][-1])][::2] == ["/webhooks/0/name", "/webhooks/1/name"]


@pytest.fixture
def orphans(monkeypatch: Patch, capfd: Captured) -> Runner:
    return Runner("scan --orphans", monkeypatch, capfd)


def left_over() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop")
    for number in range(7):
        cluster.pod(f"p-{number}", owners=(owner("ReplicaSet", "gone"),))
    cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.secret("left", "gone")
    cluster.values["/registry/strange/thing"] = b"x" * 2048
    return cluster


def test_the_document(orphans: Runner) -> None:
    report = orphans(left_over(), "-o", "json").document
    assert (report["kind"], report["count"], report["complete"]) == ("OrphansReport", 10, True)
    groups = {group["reason"]: group for group in report["groups"]}
    assert {reason: group["count"] for reason, group in groups.items()} == {
        "owner-gone": 7, "crd-gone": 1, "namespace-gone": 1, "unclaimed": 1,
    }  # fmt: skip
    assert groups["unclaimed"]["size"] == 2048
    assert groups["crd-gone"]["confidence"] == "likely"


def test_nothing_left_over(orphans: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    ran = orphans(cluster)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "no orphaned keys were found")
    assert orphans(MemorySource({"/other/pods/a/b": b""})).code == 5


def test_what_was_not_seen_is_counted_and_not_called_gone(orphans: Runner) -> None:
    source = MemorySource(left_over().values, problems=["page 7 is damaged"])
    ran = orphans(source, "-o", "json")
    assert ran.code == 3
    report = ran.document
    assert report["undecided"] == 2
    assert {group["reason"] for group in report["groups"]} == {"unclaimed"}


def test_an_incomplete_look_says_so_first(orphans: Runner, tmp_path: Path) -> None:
    cluster = left_over()
    records = [stored(k, v) for k, v in cluster.values.items()]
    assert orphans(MemorySource(records, fails_after=3)).code == 3
    cluster.values[cluster.key("secrets", "shop", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    ran = orphans(cluster)
    assert (ran.code, ran.out.startswith("INCOMPLETE: 10 keys ")) == (3, True)
    file = tmp_path / "report.json"
    ran = orphans(cluster, "-o", "json", "--output-file", str(file))
    assert (ran.code, ran.out, file.stat().st_size > 0) == (3, "", True)


@pytest.mark.parametrize("form", ["text", "wide", "html", "json"])
def test_hostile_names_of_orphans(orphans: Runner, form: str) -> None:
    cluster = Cluster()
    cluster.secret(HOSTILE, HOSTILE.replace("/", ""))
    cluster.values[f"/registry/{HOSTILE}"] = b"x"
    cluster.values[f"/\x1b]0;{HOSTILE}"] = b"x"
    ran = orphans(cluster, "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)
