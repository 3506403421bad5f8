"""The runbook "Put a value back", from top to bottom as it stands there, each change with its printed undo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import BROKEN
from tests.support.fixtures import StartEtcd
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.object_files import json_secret, saved
from tests.support.objects import (
    KEY_1,
    KUBE_SYSTEM_UID,
    aescbc,
    config_map,
    configuration_yaml,
    namespace_object,
    provider,
    secret,
)
from tests.support.runbooks import Shell, commands_of

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEY = b"/registry/secrets/shop/db"
WHOLE = aescbc(secret("db"))


class Night:
    def __init__(self, etcd: EtcdServer, data: Path, folder: Path, kubeconfig: Path) -> None:
        self.store = EtcdStore(etcd.endpoint)
        for name in ("kube-system", "default", "kube-public", "shop"):
            self.store.put(b"/registry/namespaces/" + name.encode(), namespace_object(name), mod_revision=0)
        self.good = self.store.put(KEY, WHOLE, mod_revision=0)
        for number in range(6):
            name = f"other-{number}"
            self.store.put(b"/registry/secrets/shop/" + name.encode(), aescbc(secret(name)), mod_revision=0)
        etcd.put(KEY, BROKEN)
        self.go_on("first")
        (folder / "enc.yaml").write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1)))
        places = {
            "/var/lib/etcd/member": str(data / "member"),
            "/srv/etcd-member": str(folder / "copied"),
            "admin.conf": str(kubeconfig),
            ":db.json": f":{saved(folder, json_secret('db', resource_version=self.good or 0))}",
            "123400": str(self.good),
        }
        self.run = Shell(folder, places, ETCDCTL_ENDPOINTS=etcd.endpoint).run

    def go_on(self, word: str) -> None:
        for number in range(6):
            key = f"/registry/configmaps/shop/{word}-{number}".encode()
            self.store.put(key, config_map(f"{word}-{number}"), mod_revision=0)
        newest = self.store.get(b"/registry/secrets/shop/other-5")
        assert newest is not None
        self.store.put(newest.key, newest.value, mod_revision=newest.mod_revision)

    def there(self) -> Any:
        held = self.store.get(KEY)
        assert held is not None
        return held

    def put_back(self, line: str, *, equal: bool = True) -> None:
        """Try it, do it, look at it, and undo it with what is printed."""
        assert "--dry-run" in line
        before = self.there()
        assert before.value == BROKEN
        self.run(line)
        assert self.there() == before
        told = self.run(line.replace("--dry-run", "--yes"))
        assert (self.there().value == WHOLE) == equal
        commands = re.findall(r"^.*?(etcdfix (?:explain|get|scan|undo) (?!BACKUP).*)$", told, re.MULTILINE)
        (undo,) = [one for one in commands if one.startswith("etcdfix undo /")]
        for look in commands:
            if look != undo:
                self.run(look)
        self.run(f"{undo} --yes")
        assert self.there().value == BROKEN
        self.go_on(str(self.there().mod_revision))


def test_each_command_does_what_the_page_says(
    start_local_etcd: StartEtcd, tmp_path: Path, authority: CertificateAuthority
) -> None:
    data = tmp_path / "data"
    etcd = start_local_etcd(flags=(f"--data-dir={data}",))
    explain, history, save, revision, copy, log, file, _undo = commands_of("put-a-value-back.md")
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID) as api:
        night = Night(etcd, data, tmp_path, api.kubeconfig(tmp_path))
        assert "value-truncated" in night.run(explain, 1)
        assert f"{night.good}" in night.run(history, 1)
        assert save == "etcdctl snapshot save before.db"
        etcd.etcdctl(*save.split()[1:-1], str(tmp_path / save.split()[-1]))
        night.put_back(revision)
        etcd.compact()
        night.run(copy)
        night.put_back(log)
        night.put_back(re.sub(r"--from log:\S+", "--from snapshot:before.db", log))
        night.put_back(file, equal=False)
        night.store.close()
