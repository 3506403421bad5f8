"""``etcdfix namespace``: KEP-3926's second story on a real etcd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.remediation.audit.record import RecordType
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import Registry
from tests.support.fixtures import Captured
from tests.support.impact_objects import Cluster


@pytest.mark.etcd
def test_second_story_of_kep_3926(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> None:
    """A namespace depends on one object that cannot be read; the plan's own commands free it."""
    registry = Registry(etcd, prefix, tmp_path, capfd)
    cluster = Cluster(registry.prefix)
    cluster.namespace("shop", terminating=True)
    cluster.add("v1", "ConfigMap", "settings", "shop")
    etcd.put_all(cluster.pairs())
    reading = registry.common(places=False, reason=None)
    ran = registry.run("namespace", "shop", *reading, "-o", "json")
    assert ran.code == 1, ran.err
    report = json.loads(ran.out)
    assert report["state"] == "stuck"
    assert [b["object"]["name"] for b in report["namespace"]["stages"][1]["blockers"]] == ["broken"]

    copies, delete, *_ = (step["command"] for step in report["plan"])
    assert copies.startswith("etcdfix copies ")
    assert (delete.split()[1], delete.split()[-1]) == ("delete", "--dry-run")
    key = registry.key("shop/broken")
    ran = registry.paste(delete)
    assert ran.code == 0, ran.err
    assert registry.stored(key) is not None
    assert [event.type for event in registry.records()] == [RecordType.DRY_RUN]

    ran = registry.paste(delete.removesuffix(" --dry-run"))
    assert ran.code == 0, ran.err
    assert registry.stored(key) is None
    ran = registry.run("namespace", "shop", *reading)
    assert ran.code == 0, ran.out
    assert "is Terminating" in ran.out
