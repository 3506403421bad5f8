"""A registry of which a plan is made, for the tests of its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.plan_runs import Planned


@pytest.fixture
def planned(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Planned:
    tmp_path.chmod(0o700)
    return Planned(etcd, prefix, tmp_path, capfd)
