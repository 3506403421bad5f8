"""All API servers of a cluster, for a longer conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.apiserver import client as api_client
from etcdfix.apiserver.client import AuthorizationRefused
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.servers import ONLY_READY, addresses_of, open_all_servers
from etcdfix.model.errors import SourceUnreachable
from etcdfix.model.model import ClusterIdentity, KnownBy
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver.https import Listener
from tests.support.kubernetes_api import KUBE_SYSTEM, UID, KubernetesAPI, status_answer

CLUSTER = ClusterIdentity.by_uid(UID)


def test_the_named_and_the_listed_servers_are_found_once_each(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as one, KubernetesAPI(authority) as two, KubernetesAPI(authority) as three:
        one.listed = [("127.0.0.1", one.port), ("127.0.0.1", three.port)]
        with open_all_servers(
            APIAccess(one.kubeconfig(tmp_path), servers=(two.url, one.url)), CLUSTER
        ) as all_servers:
            assert [server.address for server in all_servers.servers] == [one.url, two.url, three.url]
            assert all_servers.absent == []
            assert all_servers.warnings == [ONLY_READY]
            assert all_servers.cluster == CLUSTER
            all_servers.require_any()


def test_a_cluster_that_nobody_named_is_that_of_the_first_server_that_answers(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as dead, KubernetesAPI(authority) as two:
        kubeconfig = dead.kubeconfig(tmp_path)
        dead.stop()
        with open_all_servers(APIAccess(kubeconfig, servers=(two.url,)), ClusterIdentity()) as all_servers:
            assert all_servers.cluster.uid == UID
            assert [server.address for server in all_servers.servers] == [two.url]
            assert [each.server for each in all_servers.absent] == [dead.url]


def test_servers_of_two_clusters_are_not_mixed(authority: CertificateAuthority, tmp_path: Path) -> None:
    with KubernetesAPI(authority) as one, KubernetesAPI(authority, uid="another") as two:
        api = APIAccess(one.kubeconfig(tmp_path), servers=(two.url,))
        for cluster in (CLUSTER, ClusterIdentity()):
            with pytest.raises(AuthorizationRefused, match="belongs to another cluster"):
                open_all_servers(api, cluster)


def test_a_certificate_that_proves_nothing_is_told_with_its_reason(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with KubernetesAPI(authority) as one:
        old = Listener(authority, lambda _request: None, hosts=("127.0.0.1",), expired=True)
        with open_all_servers(
            APIAccess(one.kubeconfig(tmp_path), servers=(old.url,)), CLUSTER
        ) as all_servers:
            (absent,) = all_servers.absent
        old.stop()
    assert absent.why == ("the TLS connection failed (certificate has expired): nothing proves who answers")


def test_a_server_that_cannot_read_kube_system_is_asked_with_a_warning(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    unread = ClusterIdentity(uid=UID, known_by=KnownBy.CREATE_REVISION)
    with KubernetesAPI(authority) as api:
        api.instead[KUBE_SYSTEM] = api.instead[f"{KUBE_SYSTEM}?resourceVersion=0"] = status_answer(500)
        for cluster in (unread, ClusterIdentity()):
            with open_all_servers(APIAccess(api.kubeconfig(tmp_path)), cluster) as all_servers:
                assert len(all_servers.servers) == 1
                assert "not compared which cluster" in all_servers.warnings[0]


def test_no_server_at_all(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KubernetesAPI(authority) as api:
        api.instead[KUBE_SYSTEM] = status_answer(403)
        with open_all_servers(APIAccess(api.kubeconfig(tmp_path)), CLUSTER) as all_servers:
            assert [each.denied for each in all_servers.absent] == [True]
            with pytest.raises(AuthorizationRefused, match="kube-system"):
                all_servers.require_any()
        api.instead.clear()
        api.stall.add(KUBE_SYSTEM)
        monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.3)
        with open_all_servers(APIAccess(api.kubeconfig(tmp_path)), CLUSTER) as all_servers:
            assert all_servers.servers == []
            assert all_servers.absent[0].why
            with pytest.raises(SourceUnreachable):
                all_servers.require_any()


def test_addresses_of_the_other_family() -> None:
    body = b'{"kind":"Endpoints","subsets":[{"addresses":[{"ip":"fd00::1"}],"ports":[{"port":6443}]}]}'
    assert addresses_of(body) == ["https://[fd00::1]:6443"]
    assert addresses_of(b'{"kind":"Endpoints"}') == []


def test_a_listed_server_may_prove_itself_by_the_name_of_the_service(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    with (
        KubernetesAPI(authority) as named,
        KubernetesAPI(authority, hosts=("kubernetes.default.svc",)) as listed,
        KubernetesAPI(authority, hosts=("other.example",)) as other,
    ):
        named.listed = [("127.0.0.1", listed.port)]
        api = APIAccess(named.kubeconfig(tmp_path), servers=(other.url,))
        with open_all_servers(api, CLUSTER) as all_servers:
            assert [server.address for server in all_servers.servers] == [named.url, listed.url]
            (absent,) = all_servers.absent
        assert (absent.server, "nothing proves who answers" in absent.why) == (other.url, True)
        assert other.requests == []
