"""The same source against an etcd that really is in a container."""

from __future__ import annotations

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.places import NoEtcdError
from etcdfix.testing.servers import EtcdServer, EtcdServers

pytestmark = [pytest.mark.docker, pytest.mark.etcd]


def test_paging_through_a_container(etcd_containers: EtcdServers) -> None:
    server = etcd_containers.start()
    try:
        assert server.kind == "container"
        expected = {
            b"/registry/secrets/shop/%05d" % number: bytes([number % 256]) * 999 for number in range(2_500)
        }
        revision = server.put_all(expected.items())
        with LiveSource(EtcdConnection(endpoints=(server.endpoint,))) as source:
            assert {stored.key: stored.value for stored in source.current(b"")} == expected
            assert source.describe().revision == revision
    finally:
        server.stop()


@pytest.mark.thorough
def test_another_etcd_at_its_address_is_not_taken(
    etcd_containers: EtcdServers, fresh_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a variable says that containers are on a host where another etcd answers."""
    monkeypatch.setattr(
        "testcontainers.core.container.DockerContainer.get_exposed_port",
        lambda _container, _port: int(fresh_etcd.endpoint.rpartition(":")[2]),
    )
    with pytest.raises(NoEtcdError, match="is another etcd than the one that was started"):
        etcd_containers.start()
    assert fresh_etcd.revision() == 1
