from __future__ import annotations

from pathlib import Path

from tests.support.lost_key import base
from tests.unit.graph.test_recreation import entry_of, of_history


def test_a_list_of_an_account_makes_no_token_of_what_a_pod_uses(tmp_path: Path) -> None:
    cluster = base()
    cluster.add("v1", "ServiceAccount", "robot", "shop", secrets=[{"name": "odd"}])
    container = {"name": "main", "envFrom": [{"secretRef": {"name": "odd"}}]}
    cluster.pod("web", spec={"containers": [container]})
    entry = entry_of(cluster, cluster.secret("odd"), tmp_path)
    assert entry.what == "Secret (type not known), used by serviceaccounts robot, pods web"


def test_types_out_of_objects_are_safe_and_short(tmp_path: Path) -> None:
    cluster = base()
    entry = of_history(cluster, cluster.secret("target", type="x\x1b[2J" + "y" * 300), tmp_path)
    assert entry.what.startswith(r"Secret (type x\x1b[2Jyyy")
    assert entry.what.endswith("y…)")
    assert len(entry.what) < 150
