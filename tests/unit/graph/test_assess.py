"""Grades, their reasons, and who an unreadable object was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.graph.assess import assess
from etcdfix.graph.model import Action, Assessment, Risk
from etcdfix.model.model import Confidence, KeptRevision, Revision, StoredValue
from tests.support.impact_objects import BROKEN, Cluster, owner
from tests.support.memory_source import MemorySource, stored


class Remembering(MemorySource):
    """A source that also has older revisions of one key."""

    def __init__(self, cluster: Cluster, key: str, *older: StoredValue | None) -> None:
        super().__init__(cluster.values)
        self._key, self._older = key.encode(), older

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        if key == self._key:
            for number, old in enumerate(self._older, start=1):
                yield KeptRevision(Revision(number, 0), old)
        yield from super().history(key)


def assessed(cluster: Cluster, key: str, source: MemorySource | None = None) -> Assessment:
    source = source or cluster.source()
    examiner = cluster.examiner(source)
    found = assess(cluster.index(source), source, examiner, key.encode())
    assert found is not None
    return found


def codes(found: Assessment) -> dict[str, Risk]:
    return {reason.code: reason.risk for reason in found.reasons}


def test_a_key_that_nobody_knows(cluster: Cluster) -> None:
    cluster.secret("s")
    source = cluster.source()
    assert assess(cluster.index(), source, cluster.examiner(), b"/registry/secrets/shop/never") is None
    assert assess(cluster.index(), source, cluster.examiner(), b"elsewhere") is None


def test_references_that_disagree_on_the_uid(cluster: Cluster) -> None:
    key = cluster.break_(cluster.add("apps/v1", "ReplicaSet", "r1", "shop"))
    for name, uid in (("a", "u-1"), ("b", "u-2"), ("c", "u-2")):
        cluster.pod(name, owners=(owner("ReplicaSet", "r1", uid=uid),))
    found = assessed(cluster, key)
    assert (found.last_known.uid, found.last_known.confidence) == ("u-2", Confidence.POSSIBLE)
    assert found.last_known.conflicting_uids == {"u-1": 1}
    # Which uid is right is not sure: all of them may go.
    assert found.dependents.counts[Action.CASCADE_DELETED] == 3


def test_volumes_and_tokens_tell_uids_too(cluster: Cluster) -> None:
    claim = cluster.break_("/registry/persistentvolumeclaims/shop/data")
    reference = {"namespace": "shop", "name": "data", "uid": "u-claim"}
    cluster.add("v1", "PersistentVolume", "pv", spec={"claimRef": reference})
    account = cluster.break_("/registry/serviceaccounts/shop/robot")
    base = "kubernetes.io/service-account"
    annotations = {f"{base}.name": "robot", f"{base}.uid": "u-robot"}
    cluster.secret("t", type=f"{base}-token", annotations=annotations)
    assert assessed(cluster, claim).last_known.uid == "u-claim"
    assert assessed(cluster, account).last_known.uid == "u-robot"


class WalkedOnly(Remembering):
    """A source whose history costs too much; it counts the steps back."""

    steps = 0

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        self.steps += 1
        older = [kept.stored for kept in super().history(key) if kept.revision.main < revision]
        return older[-1] if older else None

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        raise AssertionError("the history was read")


def walking(cluster: Cluster, *older: StoredValue | None, present: StoredValue) -> WalkedOnly:
    key = present.key.decode()
    source = WalkedOnly(cluster, key, *older)
    source._records[present.key] = present
    return source


def test_the_last_readable_revision_tells_type_account_and_owners(cluster: Cluster) -> None:
    owners = (owner("ConfigMap", "a", api_version="v1"), owner("Deployment", "b", controller=True))
    annotations = {"kubernetes.io/service-account.name": "robot"}
    key = cluster.secret("web", type="kubernetes.io/tls", owners=owners, annotations=annotations)
    before = stored(key, cluster.values[key], mod_revision=1)
    cluster.break_(key)
    known = assessed(cluster, key, Remembering(cluster, key, before)).last_known
    assert (known.type, known.token_of) == ("kubernetes.io/tls", "robot")
    # The managing one comes first.
    assert [(one.api_version, one.name, one.controller) for one in known.owners] == [
        ("apps/v1", "b", True),
        ("v1", "a", False),
    ]


@pytest.mark.parametrize("lease", [0, 0x694D])
def test_an_earlier_value_tells_and_says_whether_it_had_a_lease(cluster: Cluster, lease: int) -> None:
    key = cluster.secret("s")
    good = StoredValue(key.encode(), cluster.values[key], 1, 1, 1, lease)
    found = assessed(
        cluster, key, walking(cluster, good, present=StoredValue(key.encode(), BROKEN, 9, 1, 2, 0))
    )
    readable = found.last_known.readable
    assert readable is not None
    assert (found.last_known.basis, readable.at, readable.leased) == ("history", 8, bool(lease))


def test_a_readable_revision_a_few_steps_back_is_found_without_the_history(cluster: Cluster) -> None:
    key = cluster.secret("s")
    good = StoredValue(key.encode(), cluster.values[key], 1, 1, 1, 0)
    worse = [StoredValue(key.encode(), BROKEN, number, 1, number, 0) for number in (2, 3)]
    source = walking(cluster, good, *worse, present=StoredValue(key.encode(), BROKEN, 9, 1, 4, 0))
    found = assessed(cluster, key, source)
    assert (found.last_known.basis, found.last_known.revision) == ("history", 1)


def test_one_of_many_is_not_looked_for_before_its_generation(cluster: Cluster) -> None:
    key = cluster.secret("s")
    good = StoredValue(key.encode(), cluster.values[key], 1, 1, 1, 0)
    cluster.break_(key)
    for version in (1, 2):  # its first value, so that no step is needed; or an earlier one is compacted
        present = StoredValue(key.encode(), BROKEN, 9, 9 - version + 1, version, 0)
        quick = walking(cluster, good, None, present=present)
        examiner = cluster.examiner(quick)
        found = assess(cluster.index(quick), quick, examiner, key.encode(), generations=False)
        assert found is not None
        assert found.last_known.basis == "none"
        assert quick.steps == version - 1


@pytest.mark.parametrize(
    ("name", "finalizers"),
    [
        ("import-x7k2p", ["batch.kubernetes.io/job-tracking"]),
        ("import-3-x7k2p", ["batch.kubernetes.io/job-tracking"]),
        ("other-x7k2p", []),
        ("import", []),
    ],
)
def test_a_pod_may_be_one_of_a_job(cluster: Cluster, name: str, finalizers: list[str]) -> None:
    cluster.add("batch/v1", "Job", "import", "shop")
    key = cluster.break_(cluster.pod(name))
    assert [f.name for f in assessed(cluster, key).finalizers] == finalizers


def test_an_earlier_generation_does_not_hide_the_dependents_of_this_one(cluster: Cluster) -> None:
    """One leftover still states the old uid; everything else belongs to the object that is there now."""
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    old = StoredValue(key.encode(), cluster.values[key], 3, 2, 2, 0)
    cluster.break_(key)
    cluster.pod("left", owners=(owner("ReplicaSet", "r1"),))
    for number in range(5):
        cluster.pod(f"p{number}", owners=(owner("ReplicaSet", "r1", uid="uid-new"),))
    found = assessed(cluster, key, Remembering(cluster, key, old, None))
    assert found.last_known.confidence is Confidence.POSSIBLE
    assert found.dependents.counts[Action.CASCADE_DELETED] == 6


@pytest.mark.parametrize(
    ("stated", "uid", "basis", "confidence"),
    [("another", "another", "references", Confidence.LIKELY), ("", "", "none", Confidence.POSSIBLE)],
)
def test_an_earlier_generation_is_another_object(
    cluster: Cluster, stated: str, uid: str, basis: str, confidence: Confidence
) -> None:
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    old = StoredValue(key.encode(), cluster.values[key], 3, 2, 2, 0)
    cluster.break_(key)
    if stated:
        cluster.pod("p", owners=(owner("ReplicaSet", "r1", uid=stated),))
    known = assessed(cluster, key, Remembering(cluster, key, old, None)).last_known
    assert (known.uid, known.basis, known.confidence) == (uid, basis, confidence)


@pytest.mark.parametrize(("create_revision", "node"), [(1, "n1"), (2, "")])
def test_a_broken_pod_ran_where_its_history_bound_it(
    cluster: Cluster, create_revision: int, node: str
) -> None:
    """Unless the key was created again since: then that was another Pod, which may have run elsewhere."""
    key = cluster.pod("p", spec={"nodeName": "n1"})
    old = StoredValue(key.encode(), cluster.values[key], 3, 1, 1, 0)
    cluster.break_(key)
    source = Remembering(cluster, key, old)
    source._records[key.encode()] = StoredValue(key.encode(), BROKEN, 9, create_revision, 2, 0)
    found = assessed(cluster, key, source)
    assert found.node == node


def test_custom_resource_definitions(cluster: Cluster) -> None:
    key = cluster.define("example.com", "Widget")
    assert codes(assessed(cluster, cluster.break_(key)))["kind"] is Risk.HIGH
    cluster.add("example.com/v1", "Widget", "w", "shop")
    found = assessed(cluster, key)
    assert codes(found)["kind"] is Risk.CLUSTER_BREAKING


def test_an_unreadable_claim_probably_had_its_finalizer(cluster: Cluster) -> None:
    key = cluster.break_("/registry/persistentvolumeclaims/shop/data")
    (lost,) = assessed(cluster, key).finalizers
    assert (lost.name, lost.confidence) == ("kubernetes.io/pvc-protection", Confidence.POSSIBLE)
    cluster.pod("p", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]})
    (lost,) = assessed(cluster, key).finalizers
    assert lost.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    ("api_version", "kind", "namespace", "risk"),
    [
        ("v1", "ConfigMap", "shop", Risk.NONE),
        ("v1", "Event", "shop", Risk.NONE),
        ("v1", "Pod", "shop", Risk.LOW),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "shop", Risk.LOW),
        ("apps/v1", "Deployment", "shop", Risk.HIGH),
        ("batch/v1", "CronJob", "shop", Risk.HIGH),
        ("networking.k8s.io/v1", "Ingress", "shop", Risk.HIGH),
        ("v1", "PersistentVolume", "", Risk.CLUSTER_BREAKING),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", Risk.HIGH),
        ("policy/v1", "PodDisruptionBudget", "shop", Risk.HIGH),
        ("v1", "ResourceQuota", "shop", Risk.HIGH),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", Risk.CLUSTER_BREAKING),
        ("v1", "ConfigMap", "kube-system", Risk.CLUSTER_BREAKING),
    ],
)
def test_a_kind_has_a_grade_of_its_own(
    cluster: Cluster, api_version: str, kind: str, namespace: str, risk: Risk
) -> None:
    key = cluster.break_(cluster.add(api_version, kind, "x", namespace))
    assert assessed(cluster, key).risk is risk


@pytest.mark.parametrize(
    ("kind", "name", "namespace"),
    [
        ("ConfigMap", "cluster-info", "kube-public"),
        ("ConfigMap", "kube-root-ca.crt", "shop"),
        ("ServiceAccount", "default", "shop"),
    ],
)
def test_objects_known_by_their_name(cluster: Cluster, kind: str, name: str, namespace: str) -> None:
    key = cluster.break_(cluster.add("v1", kind, name, namespace))
    assert codes(assessed(cluster, key)) == {"kind": Risk.LOW}


def test_what_a_reference_leaves_open_is_no_object(cluster: Cluster) -> None:
    cluster.define("example.com", "Widget", scope="Cluster")
    cluster.add("example.com/v1", "Widget", "w", spec={"passwordSecretRef": {"name": "db"}})
    source = cluster.source()
    key = cluster.secret("db")
    assert len(assessed(cluster, key).users) == 1
    star = cluster.key("secrets", "*", "db").encode()
    assert cluster.index(source).find(star) is not None
    assert assess(cluster.index(source), source, cluster.examiner(source), star) is None


def test_what_cannot_be_looked_into_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.graph.cluster._MOST_EDGES_OF_AN_OBJECT", 1)
    cluster = Cluster()
    key = cluster.break_(cluster.secret("s"))
    assert not assessed(cluster, key).may_be_worse
    spec = {"volumes": [{"name": f"v{n}", "secret": {"secretName": f"other-{n}"}} for n in range(3)]}
    cluster.pod("p", spec=spec)
    opaque = b"k8s\x00" + b"\n\x0b\n\x04x/v1\x12\x03Foo\x12\x00"
    cluster.values["/registry/strange.example.com/things/x"] = opaque
    found = assessed(cluster, key)
    assert [reason.code for reason in found.reasons] == ["not-looked-into", "not-looked-into"]
    assert "1 object cannot be looked into" in found.reasons[0].text
    assert "more references than are followed" in found.reasons[1].text
    assert (found.risk, found.may_be_worse) == (Risk.LOW, True)


def test_no_contents_of_a_secret_are_in_an_assessment(cluster: Cluster) -> None:
    key = cluster.secret(
        "s", data={"password": b"never-to-be-shown"}, annotations={"note": "never-to-be-shown"}
    )
    assert b"never-to-be-shown" in cluster.values[key]
    assert "never-to-be-shown" not in repr(assessed(cluster, key))
