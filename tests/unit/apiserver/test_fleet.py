"""All API servers of a cluster, for a longer conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.apiserver.fleet import open_fleet, require_servers
from etcdfix.apiserver.reach import ONLY_READY
from etcdfix.apiserver.servers import APIAccess
from etcdfix.errors import AuthorizationRefused, SourceUnreachable
from etcdfix.model import ClusterIdentity, KnownBy
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver.https import Listener
from tests.support.kubernetes_api import (
    KUBE_SYSTEM,
    UID,
    KubernetesAPI,
    status_answer,
)

CLUSTER = ClusterIdentity.by_uid(UID)


def test_the_named_and_the_listed_servers_are_found_once_each(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as one, KubernetesAPI(authority) as two, KubernetesAPI(authority) as three:
        one.listed = [("127.0.0.1", one.port), ("127.0.0.1", three.port)]
        with open_fleet(APIAccess(one.kubeconfig(tmp_path), servers=(two.url, one.url)), CLUSTER) as fleet:
            assert [server.address for server in fleet.servers] == [one.url, two.url, three.url]
            assert fleet.absent == []
            assert fleet.warnings == [ONLY_READY]
            assert fleet.cluster == CLUSTER
            require_servers(fleet)


def test_a_cluster_that_nobody_named_is_that_of_the_first_server_that_answers(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as dead, KubernetesAPI(authority) as two:
        kubeconfig = dead.kubeconfig(tmp_path)
        dead.stop()
        with open_fleet(APIAccess(kubeconfig, servers=(two.url,)), ClusterIdentity()) as fleet:
            assert fleet.cluster.uid == UID
            assert [server.address for server in fleet.servers] == [two.url]
            assert [each.server for each in fleet.absent] == [dead.url]


def test_servers_of_two_clusters_are_not_mixed(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as one, KubernetesAPI(authority, uid="another") as two:
        api = APIAccess(one.kubeconfig(tmp_path), servers=(two.url,))
        for cluster in (CLUSTER, ClusterIdentity()):
            with pytest.raises(AuthorizationRefused, match="belongs to another cluster"):
                open_fleet(api, cluster)


def test_a_certificate_that_proves_nothing_is_told_with_its_reason(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as one:
        old = Listener(authority, lambda _request: None, hosts=("127.0.0.1",), expired=True)
        with open_fleet(APIAccess(one.kubeconfig(tmp_path), servers=(old.url,)), CLUSTER) as fleet:
            (absent,) = fleet.absent
        old.stop()
    assert absent.why == ("the TLS connection failed (certificate has expired): nothing proves who answers")
    assert not absent.unconnected


def test_a_server_that_cannot_read_kube_system_is_asked_with_a_warning(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    unread = ClusterIdentity(uid=UID, known_by=KnownBy.CREATE_REVISION)
    with KubernetesAPI(authority) as api:
        api.instead[KUBE_SYSTEM] = api.instead[f"{KUBE_SYSTEM}?resourceVersion=0"] = status_answer(500)
        for cluster in (unread, ClusterIdentity()):
            with open_fleet(APIAccess(api.kubeconfig(tmp_path)), cluster) as fleet:
                assert len(fleet.servers) == 1
                assert "not compared which cluster" in fleet.warnings[0]


def test_no_server_at_all(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as api:
        api.instead[KUBE_SYSTEM] = status_answer(403)
        with open_fleet(APIAccess(api.kubeconfig(tmp_path)), CLUSTER) as fleet:
            assert [each.denied for each in fleet.absent] == [True]
            with pytest.raises(AuthorizationRefused, match="kube-system"):
                require_servers(fleet)
        api.instead.clear()
        api.stall.add(KUBE_SYSTEM)
        with open_fleet(
            APIAccess(api.kubeconfig(tmp_path)), CLUSTER, timeout_seconds=15, request_seconds=0.3
        ) as fleet:
            assert fleet.servers == []
            assert fleet.absent[0].why
            with pytest.raises(SourceUnreachable):
                require_servers(fleet)


def test_one_request_has_an_end(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as api, open_fleet(APIAccess(api.kubeconfig(tmp_path)), CLUSTER) as fleet:
        fleet.request_seconds = 0.3
        api.drip.add("/readyz")
        server = fleet.servers[0]
        assert fleet.within(lambda: server.send("GET", "/readyz")) is None
        assert fleet.within(lambda: 17) == 17
        assert fleet.within(lambda: 1 // 0) is None
