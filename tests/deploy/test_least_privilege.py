"""The nightly scan as the manifest has it, by an etcd user that may read the storage prefix and nothing else.

The commands that make the user are those of docs/fleet.md.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from etcdfix.testing.writes import ClientFiles
from tests.support.kubelet import DEPLOY, PlayedPod, the_only
from tests.support.objects import KEY_1, aescbc, configuration_yaml, namespace_object, provider, secret

pytestmark = pytest.mark.etcd

WEB = b"/registry/secrets/shop/web"
HOLDS = (
    (b"/registry/namespaces/kube-system", namespace_object("kube-system")),
    (WEB, aescbc(secret())),
    (b"/elsewhere/of-another-program", b"not ours"),
)


def documented_commands() -> list[list[str]]:
    page = (DEPLOY.parent / "fleet.md").read_text()
    (block,) = re.findall(
        r"^ *```sh\n( *etcdctl role add etcdfix\n.*?)^ *```", page, re.DOTALL | re.MULTILINE
    )
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def guarded(start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority) -> EtcdServer:
    server = start_etcd(authority=authority, client_certificates=True)
    server.put_all(HOLDS)
    for words in documented_commands():
        server.etcdctl(*words)
    server.require_login(b"/of-no-use/")
    return server


@pytest.fixture(scope="module")
def files(authority: CertificateAuthority, guarded: EtcdServer) -> ClientFiles:
    shown = authority.issue("etcdfix", hosts=())
    return ClientFiles(authority.cert, shown.cert, shown.key)


@pytest.fixture
def nightly(tmp_path: Path, guarded: EtcdServer, files: ClientFiles) -> PlayedPod:
    for name in ("etcd-client", "encryption", "reports", "tmp"):
        (tmp_path / name).mkdir()
    for source, name in zip(files, ("ca.crt", "tls.crt", "tls.key"), strict=True):
        shutil.copy(source, tmp_path / "etcd-client" / name)
    configuration = configuration_yaml(provider("aescbc", key1=KEY_1))
    (tmp_path / "encryption" / "config.yaml").write_bytes(configuration)
    job = the_only(DEPLOY / "nightly.yaml", "CronJob")
    mounts = {name: tmp_path / name for name in ("etcd-client", "encryption", "reports", "tmp")}
    pod = PlayedPod(job, mounts)
    pod.container["args"] = [
        word.replace("192.0.2.10:2379", guarded.endpoint) for word in pod.container["args"]
    ]
    return pod


def test_the_nightly_scan_of_this_user_is_complete(
    nightly: PlayedPod, guarded: EtcdServer, tmp_path: Path
) -> None:
    code, log = nightly.run()
    written = (tmp_path / "reports" / "played.json").read_text()
    report = json.loads(written)
    assert (code, report["complete"], report["incomplete_reasons"]) == (0, True, [])
    look = re.findall(r"exec reader -- grep '(.*)'", (DEPLOY.parent / "fleet.md").read_text())
    assert [bool(re.search(pattern, written, re.MULTILINE)) for pattern in look] == [True]
    assert report["summary"]["keys"] == 2
    assert report["source"]["kube_system_uid"]
    assert report["scope"]["prefixes"] == ["/registry/"]
    assert "only keys that start with it are read" in log
    assert list((tmp_path / "tmp").iterdir()) == []

    root = guarded.etcdctl("get", WEB.decode(), "--print-value-only")
    guarded.etcdctl("put", WEB.decode(), input=b"k8s:enc:aescbc:v1:key1:short")
    try:
        assert nightly.run()[0] == 1  # an alarm: the Job has failed
    finally:
        guarded.etcdctl("put", WEB.decode(), input=root.removesuffix(b"\n"))


REFUSED = (
    "put /registry/secrets/shop/web x",
    "del --prefix /registry/",
    "get --prefix /",
    "role grant-permission etcdfix readwrite --prefix=true /",
    "member add another --peer-urls=http://127.0.0.1:1",
    "defrag",
    "snapshot save FILE",
)


def test_etcd_refuses_this_user(guarded: EtcdServer, files: ClientFiles, tmp_path: Path) -> None:
    before = guarded.revision()
    by_hand = EtcdServer(guarded.endpoint, guarded.kind, guarded._ctl, tls=files)
    for words in REFUSED:
        with pytest.raises(AssertionError, match="permission denied"):
            by_hand.etcdctl(*words.replace("FILE", str(tmp_path / "all.db")).split())
    assert guarded.revision() == before
