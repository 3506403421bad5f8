"""``etcdfix namespace``: webhooks that nobody answers, and the ways out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from tests.support.cluster_index_runs import HOSTILE, Runner, assert_harmless
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import Cluster

CASE = Path(__file__).parents[3] / "fixtures/cases/03-conversion-webhook-gone.db"


@pytest.fixture
def namespace(monkeypatch: Patch, capfd: Captured) -> Runner:
    return Runner("namespace", monkeypatch, capfd)


def commands(report: dict[str, Any]) -> list[list[str]]:
    return [shlex.split(step["command"]) for step in report["plan"]]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_conversion_webhook_whose_service_is_gone(capfd: Captured, jobs: str) -> None:
    reading = ["--snapshot", str(CASE), "--no-encryption", "--jobs", jobs]
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


def guarded(**fields: Any) -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True)
    cluster.namespace("other")
    cluster.add("v1", "ConfigMap", "settings", "shop")
    cluster.add("v1", "ConfigMap", "settings", "other")
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    entry = {
        "name": "guard.example.com",
        "clientConfig": {"service": {"namespace": "ops", "name": "hook"}},
        "rules": [rule],
        "failurePolicy": "Fail",
        **fields,
    }
    entries = [{"name": "first.example.com", "clientConfig": {"url": "https://x"}}, entry]
    cluster.add(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "guard", webhooks=entries
    )
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
    service = {"service": {"namespace": "ops", "name": "hook"}}
    entries = [
        {"name": f"{name}.example.com", "clientConfig": service, "rules": [rule], "failurePolicy": "Fail"}
        for name in ("a", "b")
    ]
    for kind in ("Validating", "Mutating"):
        api = "admissionregistration.k8s.io/v1"
        cluster.add(api, f"{kind}WebhookConfiguration", "guard", webhooks=entries)
    report = namespace(cluster, "shop", "-o", "json").document
    assert len(report["namespace"]["webhooks"]) == 4
    found = commands(report)[:-2]
    assert [words[1:3] for words in found] == [
        ["apply", "-f"],
        ["patch", "mutatingwebhookconfigurations"],
        ["patch", "validatingwebhookconfigurations"],
    ]
    assert [one["path"] for one in json.loads(found[1][-1])][::2] == ["/webhooks/0/name", "/webhooks/1/name"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_hostile_names_act_upon_nothing(namespace: Runner, form: str) -> None:
    service = {"service": {"namespace": HOSTILE, "name": HOSTILE}}
    ran = namespace(guarded(name=HOSTILE, clientConfig=service), "shop", "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out)
