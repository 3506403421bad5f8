"""The pages of the other commands, without a browser: what stands first, and that nothing gets out of its place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from etcdfix.graph.model import ObjectRef
from etcdfix.operations.look.impact import impact_report
from etcdfix.operations.look.index_cluster import ClusterIndexRequest, index_cluster
from etcdfix.reports.formats.graph_page import Graph, impact_graph
from tests.support.impact_objects import Cluster, owner
from tests.support.memory_source import MemorySource
from tests.support.pages import HOSTILE, Page
from tests.support.spoiled import WRITERS, document_of, spoiled, write

_GRIDS = {
    "impact": {"dependents"},
    "namespace": {"blockers"},
    "plan": {"objects", "left-out"},
    "copies": {"objects"},
    "compare": {"differences"},
    "fleet": {"clusters", "left-out"},
}


@pytest.fixture(scope="module", params=list(WRITERS))
def of_command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Return which page, and the report of a real command."""
    return request.param, document_of(request.param, tmp_path_factory.mktemp(request.param))


def test_the_page_has_what_the_report_has(of_command: tuple[str, Any], tmp_path: Path) -> None:
    name, document = of_command
    page = Page(write(name, document, tmp_path / "page.html").read_bytes())
    assert set(page.data) == _GRIDS[name]
    for grid in page.data:
        assert page.rows(grid)
    if name != "compare":  # nothing has to be done about what is new
        assert "Next" in page.texts[:30]
    if document.get("do_not_restart"):
        assert document["do_not_restart"] in page.words
    if not document["complete"]:
        assert "Incomplete: not everything was seen or could be decided" in page.words
        assert document["incomplete_reasons"][0] in page.words


def test_strangers_texts_stay_text(of_command: tuple[str, Any], tmp_path: Path) -> None:
    name, document = of_command
    page = Page(write(name, spoiled(copy.deepcopy(document)), tmp_path / "page.html").read_bytes())
    assert page.tags.isdisjoint({"img", "iframe", "link", "object", "form", "base"})
    assert {"onerror", "src", "style"}.isdisjoint(page.attributes)
    assert len(page.code) == 2
    assert set(page.data) == _GRIDS[name]
    assert all(character.isprintable() or character == "\n" for character in page.source)
    assert HOSTILE in page.everything


def graph_of(cluster: Cluster, key: str) -> Graph | None:
    found = index_cluster(
        MemorySource(cluster.values),
        ClusterIndexRequest(layout=cluster.layout),
        keep=lambda one: one.stored.key == key.encode(),
    )
    report = impact_report(found, key.encode())
    assert report is not None
    return impact_graph(report)


def test_an_object_alone_has_no_graph() -> None:
    cluster = Cluster()
    assert graph_of(cluster, cluster.add("v1", "ConfigMap", "lonely", "shop")) is None


def test_the_graph_has_layers_and_stops_at_some_sixty_boxes() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    for number in range(30):
        volumes = [{"name": "v", "configMap": {"name": "top"}}]
        cluster.pod(f"user-{number:02}", spec={"volumes": volumes, "containers": []})
    for number in range(60):
        mine = (owner("ConfigMap", "top", api_version="v1"),)
        cluster.add("v1", "Secret", f"owned-{number:02}", "shop", owners=mine)
    graph = graph_of(cluster, key)
    assert graph is not None
    assert len(graph.nodes) == 1 + 20 + 40
    assert len(graph.edges) == 60
    assert "20 more dependents not drawn; the list below has them." in graph.notes
    assert "10 more users not drawn; the list below has them." in graph.notes
    assert len({node.x for node in graph.nodes}) == 3
    assert len({(node.x, node.y) for node in graph.nodes}) == 61
    for node in graph.nodes:
        assert 0 <= node.x <= graph.width - graph.node_width
        assert 0 <= node.y <= graph.height - graph.node_height


def test_what_is_owned_in_turn_stands_further_right() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "Deployment", "web", "shop")
    cluster.add("apps/v1", "ReplicaSet", "web-1", "shop", owners=(owner("Deployment", "web"),))
    cluster.pod("web-1-a", owners=(owner("ReplicaSet", "web-1"),))
    graph = graph_of(cluster, key)
    assert graph is not None
    columns = {node.name: node.x for node in graph.nodes}
    assert columns["shop/web"] < columns["shop/web-1"] < columns["shop/web-1-a"]


def test_a_name_longer_than_its_box_is_cut_and_told_whole() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    mine = (owner("ConfigMap", "top", api_version="v1"),)
    name = "a-name-that-is-much-longer-than-any-box"
    cluster.add("v1", "Secret", name, "shop", owners=mine)
    graph = graph_of(cluster, key)
    assert graph is not None
    (node,) = (node for node in graph.nodes if node.what == "secrets")
    assert node.name.endswith("…")
    assert node.full == str(
        ObjectRef(key="", group="", resource="secrets", kind="Secret", namespace="shop", name=name)
    )
