"""Unit tests need no etcd; one that asks for it is in the wrong folder."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def etcd_servers() -> None:
    pytest.fail("a unit test needs no etcd: what does, belongs into tests/integration")


etcd_containers = etcd = etcd_servers
