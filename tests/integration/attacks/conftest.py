"""What most of the tests here change: a cluster that can be given any encryption."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.attacks import Attacked
from tests.support.kubernetes_api import KubernetesAPI


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Attacked:
    """A registry whose Secrets are configured to be under aesgcm."""
    found = Attacked(etcd, prefix, tmp_path, capfd)
    found.keyed("aesgcm")
    return found


@pytest.fixture
def api(api: KubernetesAPI) -> KubernetesAPI:
    """A server that lists itself, so that all are known."""
    api.listed = [("127.0.0.1", api.port)]
    return api
