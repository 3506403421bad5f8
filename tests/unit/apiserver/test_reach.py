"""Which API servers there are, and as whom each proves itself."""

from __future__ import annotations

from pathlib import Path

from etcdfix.apiserver.client import open_access
from etcdfix.apiserver.reach import addresses_of, listed_by, reach
from etcdfix.model import ClusterIdentity
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.kubernetes_api import UID, KubernetesAPI

CLUSTER = ClusterIdentity.by_uid(UID)


def test_addresses_of_the_other_family() -> None:
    body = b'{"kind":"Endpoints","subsets":[{"addresses":[{"ip":"fd00::1"}],"ports":[{"port":6443}]}]}'
    assert addresses_of(body) == ["https://[fd00::1]:6443"]
    assert addresses_of(b'{"kind":"Endpoints"}') == []
    assert addresses_of(b'{"kind":"EndpointSlice"}') is None
    assert (
        addresses_of(
            b'{"kind":"Endpoints","subsets":[{"addresses":[{"ip":"evil/.."}],"ports":[{"port":1}]}]}'
        )
        is None
    )


def test_a_listed_server_may_prove_itself_by_the_name_of_the_service(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with (
        KubernetesAPI(authority) as named,
        KubernetesAPI(authority, hosts=("kubernetes.default.svc",)) as listed,
        KubernetesAPI(authority, hosts=("other.example",)) as other,
    ):
        named.listed = [("127.0.0.1", listed.port)]
        access = open_access(str(named.kubeconfig(tmp_path)), None, timeout_seconds=30, request_seconds=15)
        first = reach(access, access.url, CLUSTER)
        assert first.failure is None
        (url,) = listed_by(first.server, 15).urls
        found = reach(access, url, CLUSTER)
        assert found.failure is None
        assert found.server.address == listed.url
        assert "nothing proves who answers" in reach(access, other.url, CLUSTER).why_not_reached
        assert other.requests == []
        access.close()
