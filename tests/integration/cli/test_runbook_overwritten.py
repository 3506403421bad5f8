"""The runbook "One value was overwritten", from top to bottom as it stands there, each change with its printed undo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.change_runs import BROKEN
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

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

PAGE = Path(__file__).parents[3] / "docs" / "runbooks" / "value-overwritten.md"
KEY = b"/registry/secrets/shop/db"
WHOLE = aescbc(secret("db"))


class Night:
    """The cluster of the page, and a shell."""

    def __init__(self, etcd: EtcdServer, data: Path, folder: Path, kubeconfig: Path) -> None:
        self.etcd, self._folder = etcd, folder
        self.store = EtcdStore(etcd.endpoint)
        for name in ("kube-system", "default", "kube-public", "shop"):
            self.store.put(b"/registry/namespaces/" + name.encode(), namespace_object(name), mod_revision=0)
        self.good = self.store.put(KEY, WHOLE, mod_revision=0)
        for number in range(6):
            name = f"other-{number}"
            self.store.put(b"/registry/secrets/shop/" + name.encode(), aescbc(secret(name)), mod_revision=0)
        etcd.put(KEY, BROKEN)
        self.go_on("first")
        (folder / "config.yaml").write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1)))
        for name in ("bin", "backups"):
            (folder / name).mkdir(mode=0o700)
        (folder / "bin" / "etcdfix").symlink_to(Path(sys.executable).with_name("etcdfix"))
        self._places = {
            "/var/lib/etcd/member": str(data / "member"),
            "/srv/etcd-member": str(folder / "copied"),
            "/etc/kubernetes/admin.conf": str(kubeconfig),
            "/etc/kubernetes/encryption-config.yaml": str(folder / "config.yaml"),
            "db.json": str(saved(folder, json_secret("db", resource_version=self.good or 0))),
        }

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

    def run(self, line: str, expected: int = 0, *, page: bool = True) -> str:
        for place, here in self._places.items() if page else ():
            line = line.replace(place, here)
        if page:
            line = line.replace("123456", str(self.there().mod_revision)).replace("123400", str(self.good))
        if page and " fix " in line:
            line += f" --backup-dir {self._folder / 'backups'} --audit-log {self._folder / 'audit.jsonl'}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env={
                "HOME": str(self._folder),
                "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                "ETCDCTL_ENDPOINTS": self.etcd.endpoint,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "never-to-be-shown" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def put_back(self, line: str, *, equal: bool = True) -> None:
        """Try it, do it, look at it, and undo it with what is printed."""
        assert "--dry-run" in line
        before = self.there()
        assert before.value == BROKEN
        self.run(line)
        assert self.there() == before
        told = self.run(line.replace("--dry-run", "--yes"))
        assert (self.there().value == WHOLE) == equal
        commands = re.findall(r"^.*?(etcdfix (?:explain|get|undo) .*)$", told, re.MULTILINE)
        (undo,) = [one for one in commands if one.startswith("etcdfix undo ")]
        for look in commands:
            if look != undo:
                self.run(look, page=False)
        self.run(f"{undo} --yes --backup-dir {self._folder / 'backups'}", page=False)
        assert self.there().value == BROKEN
        self.go_on(str(self.there().mod_revision))


def test_each_command_does_what_the_page_says(
    start_local_etcd: Callable[..., EtcdServer], tmp_path: Path, authority: CertificateAuthority
) -> None:
    data = tmp_path / "data"
    etcd = start_local_etcd(flags=(f"--data-dir={data}",))
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    explain, history, revision, copy, log, file, _undo = lines
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID) as api:
        night = Night(etcd, data, tmp_path, api.kubeconfig(tmp_path))
        assert "value-truncated" in night.run(explain, 1)
        assert f"{night.good}" in night.run(history, 1)
        night.put_back(revision)
        etcd.etcdctl("snapshot", "save", str(tmp_path / "older.db"))
        etcd.compact()
        night.run(copy)
        night.put_back(log)
        older = re.sub(r"--from log:\S+", "--from snapshot:older.db", log)
        night.put_back(older)
        night.put_back(file, equal=False)
        night.store.close()
