"""A lost key, from beginning to end: saved from an API server's memory, which is restarted; put back; served again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.rescued import read_index
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore, StandIn
from tests.support.apiserver.https import TOKEN
from tests.support.apiserver.requests import Request
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration_yaml, provider

pytestmark = pytest.mark.etcd

OLD = configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY)
NEW = configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY)
CONTENTS = "bmV2ZXIgc2hvd24gYW55d2hlcmU="


class Ground(Registry):
    """Secrets whose encryption key is lost, and an API server that still has them in memory."""

    def __init__(self, *arguments: Any, authority: CertificateAuthority) -> None:
        super().__init__(*arguments, furnished=False)
        self.store = EtcdStore(self.etcd.endpoint)
        self.server = StandIn(
            authority, store=self.store, configuration=OLD, given_up_after=0.2, prefix=self.prefix
        )
        self.keys = [
            self.server.create("v1", "Secret", name, "shop", data={"password": CONTENTS})
            for name in ("one", "two")
        ]
        self.server.wait()
        self.server.reload(NEW)
        self.configure(provider("aescbc", key2=KEY_2), IDENTITY)
        self.kubeconfig = self.server.kubeconfig(self.folder)
        self.saved = own_directory(self.folder / "rescued")

    def rescue(self) -> dict[bytes, Path]:
        """Save what the server holds; return the files by etcd key."""
        report = self.folder / "report.json"
        read = (
            "--endpoints",
            self.endpoints,
            "--etcd-prefix",
            self.prefix,
            "--encryption-config",
            str(self.config),
        )
        assert self.run("scan", "secrets", *read, "-o", "json", "--output-file", str(report)).code == 1
        ran = self.run(
            "rescue", "--from-report", str(report), "--kubeconfig", str(self.kubeconfig),
            "--rescued", str(self.saved), "--audit-log", str(self.log),
        )  # fmt: skip
        assert ran.code == 0, ran
        return {saved.key: self.saved / saved.file for saved in read_index(self.saved).objects}

    def from_file(self, key: bytes, file: Path, *arguments: str) -> Ran:
        asked = ("--kubeconfig", str(self.kubeconfig), "--accept", "unknown-uid")
        ran = self.put_back(key, f"object:{file}", *asked, *arguments)
        assert CONTENTS not in ran.out + ran.err
        return ran


def _get(path: str) -> Request:
    return Request("GET", path, authorization=f"Bearer {TOKEN}")


@pytest.fixture
def ground(
    etcd: EtcdServer,
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
) -> Iterator[Ground]:
    found = Ground(etcd, prefix, tmp_path, capfd, authority=authority)
    yield found
    found.server.stop()
    found.store.close()


def test_what_was_rescued_is_served_again(ground: Ground) -> None:
    files = ground.rescue()
    assert set(files) == set(ground.keys)
    ground.server.restart()
    lost = ("--declare-key-lost", "aescbc/v1/key1")
    one, two = ground.keys
    with ground.untouched():
        ran = ground.from_file(one, files[two], *lost)
        ground.refused(ran, 'its name is "two"', hint="this very object")
        ran = ground.from_file(one, files[one])
        ground.refused(ran, "the configuration alone can cure this", hint="--declare-key-lost aescbc/v1/key1")
        ran = ground.from_file(one, files[one], *lost)
        ground.refused(
            ran, "nothing shows that the API servers hold the key of aescbc/v1/key2", hint="create a new one"
        )
    ground.server.create("v1", "Secret", "etcdfix-write-key", "shop")
    for key in ground.keys:
        ran = ground.from_file(key, files[key], *lost)
        assert ran.code == 0, ran.err
    assert ground.server.methods <= {"GET", "POST"}  # reviews of what oneself may do are posted
    ground.server.restart()
    for key in ground.keys:
        saved = json.loads(files[key].read_bytes())
        name = saved["metadata"]["name"]
        now = json.loads(ground.server.answer(_get(f"/api/v1/namespaces/shop/secrets/{name}")).body)
        assert now["metadata"].pop("resourceVersion") == str(ground.mod_revision(key))
        del saved["metadata"]["resourceVersion"]
        assert now == saved


def test_a_server_that_has_the_key_after_all(ground: Ground) -> None:
    """The configuration that was given is the wrong one: the file stays a file."""
    files = ground.rescue()
    ground.server.reload(OLD)
    with ground.untouched():
        for key in ground.keys:
            ran = ground.from_file(key, files[key], "--declare-key-lost", "aescbc/v1/key1")
            ground.refused(ran, "reads secrets shop/", hint="--encryption-provider-config")
