"""``etcdfix explain --history --in log:DIR`` on a real etcd: what is not kept any more, and how sure it is."""

from __future__ import annotations

import json

import jsonschema
import pytest

from etcdfix.report.explain import ExplainReport
from etcdfix.report.schema import document_schema
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import Registry
from tests.support.objects import aescbc, config_map, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def beat(logged: Registry, store: EtcdStore, count: int) -> None:
    for turn in range(count):
        name = f"beat-{turn % 2}"
        key = logged.key(f"shop/{name}", "configmaps")
        held = store.get(key)
        store.put(key, config_map(name), mod_revision=held.mod_revision if held is not None else 0)


def test_what_is_not_kept_any_more_is_told(logged: Registry) -> None:
    store = EtcdStore(logged.etcd.endpoint)
    key = logged.key("shop/web")
    beat(logged, store, 4)
    first = store.put(key, aescbc(secret("web")), mod_revision=0)
    assert first
    beat(logged, store, 4)
    second = store.put(key, b"k8s:enc:aescbc:v1:key1:", mod_revision=first)
    assert second
    third = store.delete(key, mod_revision=second)
    beat(logged, store, 20)
    logged.etcd.compact()
    store.close()
    common = logged.common(reason=None, places=False)
    ran = logged.run("explain", key.decode(), *common)
    assert ran.code == 5
    named = ("explain", key.decode(), "--history", "--in", f"log:{logged.folder}/data/member/wal", *common)
    report = json.loads(logged.run(*named, "-o", "json").out)
    jsonschema.validate(report, document_schema(ExplainReport))
    assert (report["exists"], report["kept"]) == (False, 0)
    writes = report["history"]["writes"]
    assert [(one["deletes"], one["mod_revision"], one["doubt"], one["outcome"]) for one in writes] == [
        (True, third, "", None), (False, second, "", "decrypt-failure"), (False, first, "", "readable"),
    ]  # fmt: skip
    assert writes[2]["place"].startswith("log entry ")
    assert writes[2]["place"] in logged.run(*named).out
    (copy, *_) = report["copies"]
    assert (copy["place"], copy["mod_revision"], copy["same_object"]) == ("log", first, "same")
    assert report["next"]["command"] == copy["fix"]
