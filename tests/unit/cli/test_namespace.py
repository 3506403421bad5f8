"""``etcdfix namespace``: states, stages, cycles, the plan."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_index_runs import HOSTILE, Runner, assert_harmless
from tests.support.impact_objects import NOW, Cluster, owner
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    configuration_yaml,
    json_object,
    provider,
    secret,
)


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Runner:
    return Runner("namespace", monkeypatch, capfd)


def shop(*, terminating: bool = True) -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=terminating)
    cluster.add("v1", "ConfigMap", "settings", "shop")
    return cluster


def aggregated_api(group: str) -> bytes:
    service = {"name": "server", "namespace": "apis"}
    spec = {"group": group, "version": "v1", "service": service}
    status = {"conditions": [{"type": "Available", "status": "True"}]}
    name = f"v1.{group}"
    return json_object("apiregistration.k8s.io/v1", "APIService", name, "", spec=spec, status=status)


def condition(name: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def deletions(report: dict[str, Any]) -> list[dict[str, str]]:
    return [step for step in report["plan"] if step["command"].startswith("etcdfix delete ")]


def test_an_unreadable_object_is_named_and_removed_first(namespace: Runner) -> None:
    cluster = shop()
    cluster.break_(cluster.secret("lost"))
    cluster.secret("fine")
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert ran.out.startswith(
        f"NAMESPACE shop IS STUCK: Terminating since {NOW}: 1 object in it cannot be read or judged\n"
    )
    assert re.search(r"secrets shop/lost +unreadable \([a-z-]+\): ", ran.out)
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["apiVersion"], report["kind"], report["state"]) == (
        "etcdfix/v1", "NamespaceReport", "stuck",
    )  # fmt: skip
    (delete,) = deletions(report)
    assert shlex.split(delete["command"]) == [
        "etcdfix", "delete", "/registry/secrets/shop/lost", "--no-encryption", "--reason", "REASON",
        "--ignore-store-read-error-with-cluster-breaking-potential", "--dry-run",
    ]  # fmt: skip
    assert [step["number"] for step in report["plan"]] == list(range(1, len(report["plan"]) + 1))
    assert report["plan"][-1]["command"] == "etcdfix namespace shop"


def test_what_its_own_bytes_give_back_is_repaired_before_it_is_deleted(namespace: Runner) -> None:
    cluster = shop()
    key = cluster.secret("magic")
    cluster.values[key] = b"k9s\0" + cluster.values[key][4:]
    ran = namespace(cluster, "shop", "-o", "json")
    assert ran.code == 1
    repair, delete, *_ = ran.document["plan"]
    assert repair["action"].startswith("Repair it: ")
    assert repair["command"].startswith(f"etcdfix repair {key} ")
    assert repair["key"] == delete["key"] == key
    assert delete["command"].startswith(f"etcdfix delete {key} ")
    assert delete["action"].startswith(
        "Only where the step before this one did not help: delete, dry run first, "
    )


@pytest.mark.parametrize("where", ["shop", "pay"])
def test_other_copies_are_looked_for_before_anything_is_deleted(namespace: Runner, where: str) -> None:
    cluster = shop()
    key = cluster.break_(cluster.secret("lost", where))
    report = namespace(cluster, "shop", "-o", "json").document
    first, delete, *_ = report["plan"]
    assert first["command"].startswith(f"etcdfix copies {key} ")
    assert first["command"] == report["next"]["command"]
    assert delete["command"].startswith(f"etcdfix delete {key} ")
    assert first["key"] == delete["key"] == key


def test_no_object_is_deleted_before_its_own_way_out(namespace: Runner) -> None:
    cluster = shop()
    cluster.values[cluster.secret("magic", "a")] = b"k9s\0" + cluster.values[cluster.secret("magic", "a")][4:]
    cluster.break_(cluster.secret("lost", "b"))
    cluster.break_(cluster.namespace("c"))
    cluster.break_(cluster.pod("lost"))
    plan = namespace(cluster, "shop", "-o", "json").document["plan"]
    for key in {step["key"] for step in plan if step["key"]}:
        own = [step["command"].split()[1] for step in plan if step["key"] == key]
        assert (own[0] in {"copies", "repair"}, own[-1]) == (True, "delete"), key


def test_unreadable_pods_go_before_everything_else(namespace: Runner) -> None:
    cluster = shop()
    cluster.break_(cluster.secret("a-lost"))
    pod = cluster.break_(cluster.pod("z-lost"))
    cluster.add("v1", "ConfigMap", "owned", "shop", owners=(owner("Pod", "z-lost", api_version="v1"),))
    ran = namespace(cluster, "shop", "-o", "json")
    assert ran.document["order_lost"] is True
    steps = deletions(ran.document)
    assert [step["key"] for step in steps] == [pod, "/registry/secrets/shop/a-lost"]
    assert "then deletes 1 dependent" in steps[0]["note"]
    assert "the rest is deleted while pods may still run" in namespace(cluster, "shop").out


def test_pods_before_network_policies_and_the_cycle_is_named(namespace: Runner) -> None:
    cluster = shop()
    cluster.pod("web", finalizers=("example.com/wait-for-networkpolicy",), terminating=True)
    cluster.add("networking.k8s.io/v1", "NetworkPolicy", "deny", "shop")
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    order = [line for line in ran.out.splitlines() if re.match(r"  \d\. (pods|everything)", line)]
    assert [line.split()[1].rstrip(";") for line in order] == ["pods", "everything"]
    assert "pods shop/web waits for networkpolicies.networking.k8s.io shop/deny" in ran.out
    report = namespace(cluster, "shop", "-o", "json").document
    assert [c["confidence"] for c in report["cycles"]] == ["likely"]
    controller, end = report["plan"][:2]
    assert controller["action"].startswith("See that the controllers of these finalizers run")
    assert "example.com/wait-for-networkpolicy (1 object)" in controller["action"]
    assert end["action"].startswith("End the cyclic wait of pods shop/web")
    assert end["command"] == "kubectl edit pod web -n shop"


def test_a_domain_is_no_reason_to_take_a_finalizer_off(namespace: Runner) -> None:
    cluster = shop()
    cluster.define("example.com", "Widget")
    cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.pod("web", finalizers=("example.com/drain-connections",), terminating=True)
    report = namespace(cluster, "shop", "-o", "json").document
    assert [c["confidence"] for c in report["cycles"]] == ["possible"]
    assert report["cycles"][0]["way_out"].startswith(
        "see that the controller of finalizer example.com/drain-"
    )
    assert "pods shop/web may wait for widgets.example.com shop/w" in namespace(cluster, "shop").out
    assert report["plan"][0]["action"].startswith("See that the controllers of these finalizers run")
    assert not [step for step in report["plan"] if "cyclic" in step["action"]]


def test_finalizers_of_others_on_the_namespace(namespace: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True, finalizers=("example.com/account",))
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert "its own metadata.finalizers example.com/account\n" in ran.out
    assert "The Namespace itself has metadata.finalizers: example.com/account; see" in ran.out
    assert "/finalize" not in ran.out


def test_spec_finalizers_of_others_go_through_finalize_alone(namespace: Runner) -> None:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True, spec={"finalizers": ["kubernetes", "example.com/audit"]})
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert ran.out.startswith(
        f"NAMESPACE shop IS STUCK: Terminating since {NOW}: its own spec.finalizers example.com/audit, which only "
        "/finalize takes off\n"
    )
    assert "kubectl replace --raw /api/v1/namespaces/shop/finalize -f FILE" in ran.out
    assert "has metadata.finalizers" not in ran.out


def test_the_namespace_object_itself(namespace: Runner) -> None:
    cluster = shop()
    key = cluster.break_("/registry/namespaces/shop")
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert ran.out.startswith("NAMESPACE shop CANNOT BE READ")
    assert "NO namespace of the cluster is processed" in ran.out
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["frozen"], report["plan"][0]["key"]) == (True, key)
    (delete,) = deletions(report)
    assert "--accept cluster-breaking" in delete["note"]
    assert "cleaned up" not in delete["note"]
    after = report["plan"].index(delete) + 1
    assert_both_ways(report["plan"][after : after + 2])
    del cluster.values[key]
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert ran.out.startswith("NAMESPACE shop DOES NOT EXIST, but 1 object in it does")
    assert "What to do, in this order" in ran.out
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["state"], report["exists"]) == ("missing", False)
    assert_both_ways(report["plan"][:2])


def assert_both_ways(steps: list[dict[str, str]]) -> None:
    """Check that keeping comes first, deletes nothing, and stands by itself."""
    keep, end = steps
    assert keep["action"].startswith("To keep what is in it: re-create it")
    assert keep["action"].endswith(", and stop")
    assert keep["command"] == "kubectl create namespace shop"
    assert end["action"].startswith("Only if it was meant to go: ")
    assert end["command"] == "kubectl delete namespace shop --dry-run=server"


@pytest.mark.parametrize("broken", [True, False])
def test_nobody_deletes_what_the_api_server_itself_needs(namespace: Runner, broken: bool) -> None:
    cluster = Cluster()
    cluster.add("v1", "ConfigMap", "coredns", "kube-system")
    if broken:
        cluster.break_("/registry/namespaces/kube-system")
    plan = namespace(cluster, "kube-system", "-o", "json").document["plan"]
    assert "kubectl create namespace kube-system" in [step["command"] for step in plan]
    assert not [step for step in plan if "meant to go" in step["action"]]


def test_a_namespace_that_was_not_seen_may_be_there(namespace: Runner) -> None:
    cluster = Cluster()
    cluster.pod("web")
    cluster.add("gone.example.com/v1", "Widget", "w", "shop")
    ran = namespace(MemorySource(cluster.values, problems=["page 7 is damaged"]), "shop")
    assert ran.code == 3
    assert ran.out.startswith("Namespace shop WAS NOT SEEN; not everything could be read")
    assert "its CustomResourceDefinition was not seen" in ran.out
    source = MemorySource(cluster.values, problems=["page 7 is damaged"])
    report = namespace(source, "shop", "-o", "json").document
    assert (report["state"], report["exists"], report["missing_apis"]) == ("unknown", None, [])
    commands = [step["command"] for step in report["plan"]]
    assert commands == ["kubectl get namespace shop", "etcdfix namespace shop"]
    ran = namespace(MemorySource(cluster.values, problems=["page 7 is damaged"]), "pay")
    assert (ran.code, ran.out) == (3, "")
    assert "not seen, nor anything in it; not everything could be read" in ran.err
    assert "incomplete: page 7 is damaged" in ran.err


def test_what_was_not_seen_is_not_called_well(namespace: Runner) -> None:
    source = MemorySource(shop(terminating=False).values, problems=["page 7 is damaged"])
    ran = namespace(source, "shop")
    assert ran.out.startswith("Namespace shop is Active; every object that was seen in it can be read\n")
    assert ran.out.endswith("Nothing that was seen has to be done now.\n")


def test_what_the_server_shows_as_empty(namespace: Runner) -> None:
    cluster = shop()
    key = cluster.key("secrets", "shop", "empty")
    cluster.values[key] = b""
    report = namespace(cluster, "shop", "-o", "json").document
    assert [b["reason"] for b in report["stages"][0]["blockers"]] == ["serves-empty"]
    assert report["plan"][0]["key"] == key
    assert "fails every LIST" not in report["plan"][0]["action"]
    assert "LISTs show an empty object" in report["plan"][0]["action"]
    cluster.values["/registry/namespaces/shop"] = b""
    ran = namespace(cluster, "shop")
    assert "the API server shows an empty object in its place" in ran.out
    assert "NO namespace of the cluster is processed" not in ran.out


def test_the_namespace_and_its_pods_are_never_crowded_out(namespace: Runner) -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.namespace("shop"))
    for number in range(1001):
        cluster.break_(cluster.key("configmaps", "shop", f"lost-{number:04}"))
    pod = cluster.break_(cluster.pod("web"))
    report = namespace(cluster, "shop", "-o", "json").document
    steps = [step["key"] for step in report["plan"] if "etcdfix delete" in step["command"]]
    assert steps[:2] == [key, pod]
    assert len(steps) == 21
    assert any(step["action"].startswith("Then 982 more objects") for step in report["plan"])
    assert report["stages"][0]["blockers"][0]["object"]["key"] == pod


def test_a_deletion_says_which_risk_it_takes_and_what_goes_with_it(namespace: Runner) -> None:
    cluster = shop()
    claim = cluster.break_(cluster.add("v1", "PersistentVolumeClaim", "data", "shop"))
    reference = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    cluster.add("v1", "PersistentVolume", "pv-7", spec={"claimRef": reference})
    binding = cluster.break_(cluster.add("rbac.authorization.k8s.io/v1", "RoleBinding", "rb", "shop"))
    plain = cluster.break_(cluster.secret("plain"))
    steps = deletions(namespace(cluster, "shop", "-o", "json").document)
    notes = {step["key"]: step["note"] for step in steps}
    assert "--accept cluster-breaking" in notes[claim]
    assert "its volume (persistentvolumes pv-7) and the data on it go too" in notes[claim]
    assert "--accept cluster-breaking" in notes[binding]
    assert "--accept" not in notes[plain]
    assert "volume" not in notes[binding] + notes[plain]
    del cluster.values["/registry/persistentvolumes/pv-7"]
    steps = deletions(namespace(cluster, "shop", "-o", "json").document)
    note = next(step["note"] for step in steps if step["key"] == claim)
    assert "With reclaim policy Delete, its volume and the data on it go too" in note


def test_an_unreadable_crd_is_looked_at_where_it_can_be_seen(namespace: Runner) -> None:
    cluster = shop()
    key = cluster.break_(cluster.define("example.com", "Widget"))
    cluster.add("example.com/v1", "Widget", "w", "shop")
    plan = namespace(cluster, "shop", "-o", "json").document["plan"]
    (step,) = [step for step in plan if "Fix the CustomResourceDefinition" in step["action"]]
    assert step["command"] == f"etcdfix impact {key}"
    assert "before any API server is restarted" in step["action"]
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert ran.out.startswith(
        f"Namespace shop is Terminating since {NOW}; nothing that can be read holds it up; 1 object in it MAY BE LEFT "
        "BEHIND: its CustomResourceDefinition cannot be read\n"
    )
    assert "1 widgets.example.com (its CustomResourceDefinition cannot be read)" in ran.out
    assert "not served" not in ran.out
    assert not [step for step in plan if "kubectl get customresourcedefinitions" in step["command"]]


def test_an_aggregated_api_holds_nothing_up(namespace: Runner) -> None:
    cluster = shop()
    cluster.values[cluster.key("apiregistration.k8s.io/apiservices", "", "v1.wardle.example.com")] = (
        aggregated_api("wardle.example.com")
    )
    cluster.add("wardle.example.com/v1", "Flunder", "f", "shop")
    cluster.add("v1", "Service", "server", "apis")
    ran = namespace(cluster, "shop")
    assert ran.code == 0
    assert "served by an aggregated API, which keeps them elsewhere or here" in ran.out
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["state"], report["missing_apis"], report["plan"]) == ("terminating", [], [])


def test_a_configuration_is_cured_not_deleted(namespace: Runner, tmp_path: Path) -> None:
    cluster = shop()
    for name in "abcd":
        cluster.values[cluster.key("secrets", "shop", name)] = b"k8s:enc:aescbc:v1:gone:" + bytes(48)
    config = tmp_path / "config.yaml"
    config.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY))
    report = namespace(cluster, "shop", "--encryption-config", str(config), "-o", "json").document
    cure = report["plan"][0]
    assert (
        "4 objects under aescbc/v1/gone (secrets shop/a, secrets shop/b, secrets shop/c, …)" in cure["action"]
    )
    assert "Delete none of them" in cure["note"]
    assert cure["command"].startswith("etcdfix scan --encryption-config FILE ")
    assert not [step for step in report["plan"] if "etcdfix delete" in step["command"]]


def test_a_key_that_opens_nothing_is_looked_for_not_deleted(namespace: Runner, tmp_path: Path) -> None:
    cluster = shop()
    for name in "ab":
        cluster.values[cluster.key("secrets", "shop", name)] = aescbc(secret(name), key=KEY_2)
    config = tmp_path / "config.yaml"
    config.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY))
    plan = namespace(cluster, "shop", "--encryption-config", str(config), "-o", "json").document["plan"]
    assert "2 objects under aescbc/v1/key1" in plan[0]["action"]
    assert not [step for step in plan if "etcdfix delete" in step["command"]]
    # With one that opens it is still the key that wrote them; once they are damaged, it is the objects.
    cluster.values[cluster.key("secrets", "shop", "c")] = aescbc(secret("c"))
    plan = namespace(cluster, "shop", "--encryption-config", str(config), "-o", "json").document["plan"]
    assert not [step for step in plan if "etcdfix delete" in step["command"]]
    for name in "ab":
        cluster.values[cluster.key("secrets", "shop", name)] = aescbc(secret(name))[:-16]
    plan = namespace(cluster, "shop", "--encryption-config", str(config), "-o", "json").document["plan"]
    assert sum("etcdfix delete" in step["command"] for step in plan) == 2


def test_finalizers_of_a_namespace_that_stays_are_in_order(namespace: Runner) -> None:
    cluster = shop(terminating=False)
    cluster.pod("web", finalizers=("example.com/wait-for-configmap",))
    ran = namespace(cluster, "shop")
    assert ran.code == 0
    assert "pods shop/web waits for configmaps shop/settings" in ran.out
    assert "kubectl edit" not in ran.out


def test_the_namespace_object_under_a_key_that_is_not_configured(namespace: Runner, tmp_path: Path) -> None:
    cluster = shop()
    cluster.values["/registry/namespaces/shop"] = b"k8s:enc:aescbc:v1:gone:" + bytes(48)
    config = tmp_path / "config.yaml"
    providers = (provider("aescbc", key1=KEY_1), IDENTITY)
    config.write_bytes(configuration_yaml(*providers, resources=("namespaces",)))
    report = namespace(cluster, "shop", "--encryption-config", str(config), "-o", "json").document
    assert report["state"] == "unreadable"
    assert "(namespaces shop)" in report["plan"][0]["action"]
    assert not [step for step in report["plan"] if "etcdfix delete" in step["command"]]


def test_what_could_not_be_judged(namespace: Runner) -> None:
    cluster = shop(terminating=False)
    cluster.values[cluster.key("secrets", "shop", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    cluster.values[cluster.key("secrets", "pay", "sealed")] = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
    ran = namespace(cluster, "shop")
    assert ran.code == 3
    assert "incomplete: undetermined: 2 objects; " in ran.err
    assert (
        "Find out about 1 object of other namespaces that could not be judged; delete none of them" in ran.out
    )
    assert "Find out about 1 object that could not be judged; delete none of them" in ran.out
    assert "Nobody deletes it now. Before somebody does" in ran.out
    assert "etcdfix delete" not in ran.out
    cluster.namespace("infra")
    assert namespace(cluster, "infra").code == 3  # what is elsewhere holds it, too, if it cannot be read


SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)


def test_what_could_not_be_judged_holds_nothing_for_certain(namespace: Runner) -> None:
    """Without the configuration nothing that is encrypted can be judged: an API server may well read it."""
    cluster = shop()
    cluster.values[cluster.key("secrets", "pay", "sealed")] = SEALED
    ran = namespace(cluster, "shop")
    assert ran.code == 3
    assert ran.out.startswith(
        f"Namespace shop is Terminating since {NOW}; whether anything holds it up is NOT KNOWN: 1 object elsewhere "
        "cannot be read or judged\n"
    )
    assert (
        "Outside of it; what no API server can read holds every namespace of the cluster: these first\n"
        in ran.out
    )
    assert "STUCK" not in ran.out
    assert namespace(cluster, "shop", "-o", "json").document["certain"] is False
    cluster.namespace("infra")
    cluster.secret("guarded", "infra", finalizers=("example.com/guard",))  # in order while nobody deletes it
    assert namespace(cluster, "infra").out.startswith(
        "Namespace infra is Active; whether it could be deleted is NOT KNOWN: 1 object elsewhere"
    )
    cluster.secret("held", finalizers=("example.com/guard",), terminating=True)
    assert "NAMESPACE shop IS STUCK" in namespace(cluster, "shop").out
    del cluster.values[cluster.key("secrets", "shop", "held")]
    failure = condition("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", "no")
    cluster.namespace("shop", terminating=True, status={"phase": "Terminating", "conditions": [failure]})
    assert "NAMESPACE shop IS STUCK" in namespace(cluster, "shop").out
    cluster.namespace("shop", terminating=True)
    cluster.break_(cluster.secret("lost", "pay"))
    ran = namespace(cluster, "shop")
    assert "NAMESPACE shop IS STUCK" in ran.out
    assert namespace(cluster, "shop", "-o", "json").document["certain"] is True


def test_a_pod_that_could_not_be_judged_loses_no_order_for_certain(namespace: Runner) -> None:
    cluster = shop()
    cluster.values[cluster.key("pods", "pay", "sealed")] = SEALED
    out = namespace(cluster, "shop").out
    assert "a pod could not be judged: if no API server can read it, the order is lost" in out
    assert "a pod cannot be read" not in out


def test_a_namespace_object_that_could_not_be_judged_freezes_nothing_for_certain(namespace: Runner) -> None:
    cluster = shop()
    cluster.values["/registry/namespaces/shop"] = SEALED
    ran = namespace(cluster, "shop")
    assert ran.code == 3
    first, severity, step, command, frozen, *_rest = ran.out.splitlines()
    assert first == "NAMESPACE shop COULD NOT BE JUDGED"
    assert severity.startswith("SEVERITY NOT KNOWN: ")
    assert step.startswith("Next: Scan again with the EncryptionConfiguration")
    assert command.endswith("--encryption-config FILE /registry/namespaces/shop")
    assert frozen.startswith("  if no API server can read its object, NO namespace")
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["state"], report["judged"], report["certain"]) == ("unreadable", False, False)
    cluster.break_(cluster.secret("lost", "pay"))
    ran = namespace(cluster, "shop")
    assert ran.out.startswith(
        "NAMESPACE shop COULD NOT BE JUDGED: 1 object elsewhere cannot be read or judged\n"
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_hostile_names_act_upon_nothing(namespace: Runner, form: str) -> None:
    cluster = shop()
    cluster.break_(cluster.key("secrets", "shop", HOSTILE))
    cluster.break_(cluster.key("secrets", "shop", "$(touch x)"))
    cluster.pod(HOSTILE, finalizers=(f"example.com/wait-for-configmap{HOSTILE}",), terminating=True)
    cluster.secret(HOSTILE + "2", finalizers=(HOSTILE,))
    ran = namespace(cluster, "shop", "-o", form)
    assert ran.code == 1
    assert_harmless(ran.out + ran.err)
    if form == "json":
        deletions = [shlex.split(s["command"]) for s in ran.document["plan"] if "delete" in s["command"]]
        assert deletions[0][2] == "/registry/secrets/shop/$(touch x)"
        assert deletions[1][2].startswith("base64:")
        assert not [s for s in ran.document["plan"] if "kubectl" in s["command"] and "script" in s["command"]]


# ------------------------------------------------------------------------------------------- on a real etcd


def test_a_pod_that_is_told_to_go_is_named_whoever_told_it(namespace: Runner) -> None:
    cluster = shop(terminating=False)
    pod = cluster.pod("web", spec={"nodeName": "n1"}, terminating=True)
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert "Nobody deletes it now. Before somebody does, in this order" in ran.out
    plan = namespace(cluster, "shop", "-o", "json").document["plan"]
    assert [step["key"] for step in plan] == [pod, None]
    assert plan[0]["command"] == "kubectl delete pod web -n shop --grace-period=0 --force --dry-run=server"


def test_what_cannot_be_read_elsewhere_comes_first(namespace: Runner) -> None:
    cluster = shop()
    elsewhere = cluster.break_(cluster.secret("lost", "pay"))
    here = cluster.break_(cluster.secret("lost"))
    other = cluster.break_(cluster.namespace("other"))
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert "IS STUCK" in ran.out
    assert "2 objects elsewhere cannot be read or judged, 1 object in it cannot be read or judged" in ran.out
    assert (
        "Outside of it, and holding every namespace from about 30 s after the damage on: these first\n"
        in ran.out
    )
    report = namespace(cluster, "shop", "-o", "json").document
    steps = deletions(report)
    assert [step["key"] for step in steps] == [other, elsewhere, here]
    assert "and so holds every namespace of the cluster" in steps[1]["action"]
    assert [entry["object"]["key"] for entry in report["elsewhere"]] == [other, elsewhere]
    assert [entry["cause"] for entry in report["elsewhere"]] == ["protobuf-damaged"] * 2
    assert "What is in it stays: re-create it right after" in steps[0]["note"]
    assert "What is in it stays" not in steps[1]["note"]
    empty = Cluster()
    empty.namespace("shop")
    empty.break_(empty.secret("lost", "pay"))
    ran = namespace(empty, "shop")
    assert (ran.code, ran.out.splitlines()[0]) == (
        1, "Namespace shop is Active, but could not be deleted: 1 object elsewhere cannot be read or judged",
    )  # fmt: skip


def test_whether_an_api_answers_whose_service_cannot_be_read_is_not_known(namespace: Runner) -> None:
    services = "apiregistration.k8s.io/apiservices"
    cluster = shop()
    cluster.break_(cluster.key(services, "", "v1.apps"))  # of the API server itself
    assert namespace(cluster, "shop").code == 0
    cluster.break_(cluster.key(services, "", "v1beta1.metrics.k8s.io"))
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    first = ran.out.splitlines()[0]
    assert first.endswith(
        "holds it up; whether 1 API answers is not known, and one that does not would hold it"
    )
    assert "its APIService cannot be read or judged, so whether it answers is not known" in ran.out
    report = namespace(cluster, "shop", "-o", "json").document
    assert (report["unknown_apis"], report["unavailable_apis"]) == (1, 0)
    assert [api["api"] for api in report["missing_apis"]] == ["v1beta1.metrics.k8s.io"]
    step = report["plan"][0]
    assert step["action"].startswith(
        "See whether 1 API answers whose APIService cannot be read: v1beta1.metrics"
    )
    assert step["command"] == "kubectl api-resources"
    cluster.namespace("shop")
    assert namespace(cluster, "shop").code == 0


def test_an_unreadable_crd_matters_where_its_objects_are(namespace: Runner) -> None:
    cluster = shop()
    cluster.break_(cluster.define("example.com", "Widget"))
    assert (namespace(cluster, "shop").code, namespace(cluster, "shop", "-o", "json").document["plan"]) == (
        0,
        [],
    )


def test_a_crd_that_is_gone_comes_back_first(namespace: Runner) -> None:
    cluster = shop()
    cluster.break_(cluster.secret("lost", "pay"))
    cluster.add("example.com/v1", "Widget", "w", "shop")
    report = namespace(cluster, "shop", "-o", "json").document
    first = report["plan"][0]
    assert first["action"].startswith("First bring back the CustomResourceDefinition widgets.example.com")
    assert first["command"] == "kubectl apply -f FILE"
    assert first["key"] == "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    cluster = shop()
    cluster.add("example.com/v1", "Widget", "w", "shop")
    ran = namespace(cluster, "shop")
    assert ran.code == 1
    assert "1 object in it WILL BE LEFT BEHIND" in ran.out
    assert namespace(cluster, "shop", "-o", "json").document["state"] == "terminating"
