"""``etcdfix history --wal`` on a real etcd: what is not kept any more, and how sure it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from etcdfix.report.history import HistoryReport
from etcdfix.report.schema import document_schema
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Registry
from tests.support.objects import aescbc, json_object, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


class Logged(Registry):
    """A cluster and the log of its etcd."""

    wal: Path

    def beat(self, store: EtcdStore, first: int, count: int) -> None:
        """Renew the Leases of two nodes, one second after the other."""
        for turn in range(first, first + count):
            name = f"node-{turn % 2}"
            key = self.key(f"kube-node-lease/{name}", "leases")
            spec = {
                "renewTime": f"2026-01-01T00:{turn // 60:02}:{turn % 60:02}.000000Z",
                "holderIdentity": name,
            }
            lease = json_object("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", spec=spec)
            held = store.get(key)
            store.put(key, lease, mod_revision=held.mod_revision if held is not None else 0)


@pytest.fixture
def logged(
    start_local_etcd: Callable[..., EtcdServer],
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Logged:
    data = tmp_path / "data"
    registry = Logged(
        start_local_etcd(flags=(f"--data-dir={data}",)), prefix, tmp_path, capfd, furnished=False
    )
    registry.wal = data / "member" / "wal"
    return registry


def test_what_is_not_kept_any_more_is_told(logged: Logged) -> None:
    store = EtcdStore(logged.etcd.endpoint)
    key = logged.key("shop/web")
    logged.beat(store, 0, 4)
    first = store.put(key, aescbc(secret("web")), mod_revision=0)
    assert first
    logged.beat(store, 4, 4)
    second = store.put(key, b"k8s:enc:aescbc:v1:key1:", mod_revision=first)
    assert second
    third = store.delete(key, mod_revision=second)
    logged.beat(store, 8, 20)
    logged.etcd.compact()
    store.close()
    common = logged.common(reason=None, places=False)
    ran = logged.run("history", key.decode(), *common)
    assert ran.code == 5
    ran = logged.run("history", key.decode(), *common, "--wal", str(logged.wal), "-o", "json")
    report = json.loads(ran.out)
    jsonschema.validate(report, document_schema(HistoryReport))
    assert (report["exists"], report["count"]) == (False, 0)
    writes = report["log"]["writes"]
    assert [(one["event"], one["mod_revision"], one["confidence"], one["outcome"]) for one in writes] == [
        ("delete", third, "certain", None),
        ("put", second, "certain", "decrypt-failure"),
        ("put", first, "certain", "readable"),
    ]
    assert report["next"]["command"].startswith("etcdfix copies ")
    assert report["next"]["command"].endswith(f"--wal {logged.wal}")
    ran = logged.run("history", key.decode(), *common, "--wal", str(logged.wal), "-o", "wide")
    assert f"log entry {writes[2]['entry_index']}" in ran.out


def test_what_is_kept_is_told_once(logged: Logged) -> None:
    store = EtcdStore(logged.etcd.endpoint)
    key = logged.key("shop/web")
    store.put(key, aescbc(secret("web")), mod_revision=0)
    logged.beat(store, 0, 30)
    store.close()
    common = logged.common(reason=None, places=False)
    ran = logged.run("history", key.decode(), *common, "--wal", str(logged.wal))
    assert ran.code == 0
    assert "log entry" not in ran.out
    ran = logged.run("history", key.decode(), *common, "--wal", str(logged.wal), "-o", "json")
    (write,) = json.loads(ran.out)["log"]["writes"]
    assert write["kept"]


def test_what_makes_no_sense_is_refused(logged: Logged, tmp_path: Path) -> None:
    key, common = (
        logged.put("shop/web", aescbc(secret("web"))).decode(),
        logged.common(reason=None, places=False),
    )
    for words, code, told in (
        (("--wal", str(tmp_path)), 5, "no segment of a log"),
        (("--older-snapshot", str(tmp_path / "old.db")), 2, "give --wal DIR"),
    ):
        ran = logged.run("history", key, *common, *words)
        assert ran.code == code
        assert told in ran.err
        assert "Traceback" not in ran.err
