"""The graph: which nodes and edges it has."""

from __future__ import annotations

import io

from etcdfix.operations.look.impact import impact_report
from etcdfix.operations.look.index_cluster import ClusterIndexRequest, index_cluster
from etcdfix.reports.formats.dot import write_dot
from etcdfix.reports.impact_model import ImpactReport
from tests.support.impact_objects import Cluster, owner


def report_of(cluster: Cluster, key: str) -> ImpactReport:
    source = cluster.source()
    request = ClusterIndexRequest(layout=cluster.layout)
    found = index_cluster(source, request, keep=lambda e: e.stored.key == key.encode())
    report = impact_report(found, key.encode())
    assert report is not None
    return report


def graph_of(cluster: Cluster, key: str) -> list[str]:
    stream = io.BytesIO()
    write_dot(report_of(cluster, key), stream)
    return stream.getvalue().decode().splitlines()


def test_dependents_hang_below_their_owners() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.add("apps/v1", "Deployment", "web", "shop"))
    cluster.add("apps/v1", "ReplicaSet", "web-1", "shop", owners=(owner("Deployment", "web"),))
    cluster.pod("web-1-a", owners=(owner("ReplicaSet", "web-1"),))
    lines = graph_of(cluster, key)
    edges = [line.split("[")[0].strip() for line in lines if " -> " in line]
    assert edges == ["n0 -> n1", "n1 -> n2"]
    assert 'label="deployments.apps shop/web\\ndecode-failure"' in "\n".join(lines)


def test_users_point_at_it_and_pods_stand_behind_their_volume() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("db"))
    reference = {"name": "db", "namespace": "shop"}
    csi = {"driver": "csi.example.com", "volumeHandle": "h", "nodeStageSecretRef": reference}
    claim = {"namespace": "shop", "name": "data", "uid": "uid-data"}
    cluster.add("v1", "PersistentVolume", "pv", spec={"csi": csi, "claimRef": claim})
    cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv"})
    mounted = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    cluster.pod("web", spec=mounted)
    lines = graph_of(cluster, key)
    labels = {line.split()[0]: line for line in lines if line.startswith("  n") and " -> " not in line}
    assert "persistentvolumes pv" in labels["n1"]
    assert "pods shop/web" in labels["n2"]
    edges = [line.split("[")[0].strip() for line in lines if " -> " in line]
    assert edges == ["n1 -> n0", "n2 -> n1"]


def test_an_object_that_is_dependent_and_user_is_one_node() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("db"))
    me = owner("Secret", "db", api_version="v1")
    cluster.pod("web", owners=(me,), spec={"volumes": [{"name": "v", "secret": {"secretName": "db"}}]})
    lines = graph_of(cluster, key)
    assert sum(line.startswith("  n") and " -> " not in line for line in lines) - 1 == 2  # one is the style
    assert len([line for line in lines if " -> " in line]) == 2


def test_entities_in_names_stay_text() -> None:
    """Graphviz replaces them: this one would turn the direction of the text around."""
    cluster = Cluster()
    key = cluster.break_(cluster.key("secrets", "shop", "a&#8238;b"))
    lines = graph_of(cluster, key)
    assert "shop/a&amp;#8238;b" in lines[4]
    assert "&#" not in "\n".join(lines)
