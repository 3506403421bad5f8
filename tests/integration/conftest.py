from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.remediation import members as members_module
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import history
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import Registry
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import KUBE_SYSTEM_UID
from tests.support.plan_runs import Planned


@pytest.fixture
def planned(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Planned:
    tmp_path.chmod(0o700)
    return Planned(etcd, prefix, tmp_path, capfd)


@pytest.fixture(autouse=True)
def _progress_is_asked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """An etcd before 3.5.8 answers fifteen times before nothing more is expected; it sends events within 0.1 s."""
    monkeypatch.setattr(history, "_PROGRESS_PAUSE_SECONDS", 0.04)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts to reach a member."""
    for module in (client_module, members_module):
        monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID) as server:
        yield server


@pytest.fixture
def logged(
    start_local_etcd: Callable[..., EtcdServer],
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Registry:
    """A cluster whose etcd has its data beside the registry's folder, its log in data/member/wal."""
    etcd = start_local_etcd(flags=(f"--data-dir={tmp_path / 'data'}",))
    return Registry(etcd, prefix, tmp_path, capfd, furnished=False)
