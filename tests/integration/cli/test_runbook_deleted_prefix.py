"""The runbook "Somebody deleted a prefix", from top to bottom as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apiserver import EtcdStore
from tests.support.fixtures import StartEtcd
from tests.support.objects import (
    KEY_1,
    aescbc,
    config_map,
    configuration_yaml,
    namespace_object,
    provider,
    secret,
)
from tests.support.runbooks import Shell, commands_of

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

NAMES = ("db", "web", "cache", "mail", "queue", "auth")


def beat(store: EtcdStore, word: str) -> None:
    at: dict[str, int] = {}
    for turn in range(40):
        name = f"{word}-{turn % 5}"
        at[name] = (
            store.put(
                f"/registry/configmaps/shop/{name}".encode(), config_map(name), mod_revision=at.get(name, 0)
            )
            or 0
        )


def test_each_command_does_what_the_page_says(start_local_etcd: StartEtcd, tmp_path: Path) -> None:
    data = tmp_path / "data"
    etcd = start_local_etcd(flags=(f"--data-dir={data}",))
    store = EtcdStore(etcd.endpoint)
    for name in ("kube-system", "default", "kube-public", "shop"):
        store.put(b"/registry/namespaces/" + name.encode(), namespace_object(name), mod_revision=0)
    values = {}
    for name in NAMES:
        key = b"/registry/secrets/shop/" + name.encode()
        values[key] = aescbc(secret(name))
        store.put(key, values[key], mod_revision=0)
    beat(store, "before")
    etcd.etcdctl("del", "--prefix", "/registry/secrets/shop/")
    beat(store, "after")
    etcd.compact()

    (tmp_path / "config.yaml").write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1)))
    places = {
        "/var/lib/etcd/member": str(data / "member"),
        "/srv/etcd-member": str(tmp_path / "copied"),
        "/etc/kubernetes/encryption-config.yaml": str(tmp_path / "config.yaml"),
    }
    run = Shell(tmp_path, places, ETCDCTL_ENDPOINTS=etcd.endpoint).run
    copy, copies, history, restore = commands_of("deleted-prefix.md")
    run(copy)
    assert "6 of 6 objects have a good copy" in run(copies)
    told = run(history, 1)
    assert all(word in told for word in ("deleted", "readable", "log entry"))
    run(restore)
    for key, value in values.items():
        line = restore.replace("/registry/secrets/shop/db", key.decode()).replace("--dry-run", "--yes")
        run(line)
        held = store.get(key)
        assert held is not None
        assert held.value == value
    store.close()
