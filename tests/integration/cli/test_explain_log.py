"""``etcdfix explain --history --in log:DIR`` on a real etcd: what is not kept any more, and how sure it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from etcdfix.report.explain import ExplainReport
from etcdfix.report.schema import document_schema
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Registry
from tests.support.objects import aescbc, json_object, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


class Logged(Registry):
    wal: Path

    def beat(self, store: EtcdStore, first: int, count: int) -> None:
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
    ran = logged.run("explain", key.decode(), *common)
    assert ran.code == 5
    named = ("explain", key.decode(), "--history", "--in", f"log:{logged.wal}", *common)
    report = json.loads(logged.run(*named, "-o", "json").out)
    jsonschema.validate(report, document_schema(ExplainReport))
    assert (report["exists"], report["kept"]) == (False, 0)
    writes = report["history"]["writes"]
    assert [(one["deletes"], one["mod_revision"], one["doubt"], one["outcome"]) for one in writes] == [
        (True, third, "", None),
        (False, second, "", "decrypt-failure"),
        (False, first, "", "readable"),
    ]
    assert writes[2]["place"].startswith("log entry ")
    assert writes[2]["place"] in logged.run(*named).out
    (copy, *_) = report["copies"]
    assert (copy["place"], copy["mod_revision"], copy["same_object"]) == ("log", first, "same")
    assert report["next"]["command"] == copy["fix"]


def test_what_is_kept_is_told_once(logged: Logged) -> None:
    store = EtcdStore(logged.etcd.endpoint)
    key = logged.key("shop/web")
    store.put(key, aescbc(secret("web")), mod_revision=0)
    logged.beat(store, 0, 30)
    store.close()
    common = logged.common(reason=None, places=False)
    ran = logged.run("explain", key.decode(), "--history", *common, "--in", f"log:{logged.wal}")
    assert ran.code == 0
    assert "log entry" not in ran.out
