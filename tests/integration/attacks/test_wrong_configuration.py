"""A configuration that is wrong, and API servers that have the right one: no writer may go on.

Healthy Secrets stand in etcd under ``aesgcm/v1/key1``; the configuration has other bytes for that name. Some
ConfigMaps of another rule, whose key has the same name, open. An API server reads all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import Ran, Registry, candidate_config
from tests.support.kubernetes_api import ACCESS_REVIEW, KubernetesAPI, status_answer
from tests.support.object_files import json_secret, saved
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    KUBE_SYSTEM_UID,
    aesgcm,
    config_map,
    configuration_of_rules,
    provider,
    secret,
)

TRUE, WRONG, OTHER = KEY_1, KEY_2, b"another-rules-ke"
NAMES = [f"db-{number}" for number in range(5)]
DECLARED = ("--declare-key-lost", "aesgcm/v1/key1")
EVERYTHING = (*DECLARED, "--accept=no-api-server", "--accept=cluster-breaking")

pytestmark = pytest.mark.etcd


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    found = Registry(etcd, prefix, tmp_path, capfd)
    for name in ("good-0", "good-1", "broken"):
        found.etcd.delete(found.key(f"shop/{name}"))
    found.config.write_bytes(
        configuration_of_rules(
            (("secrets",), (provider("aesgcm", key1=WRONG), IDENTITY)),
            (("configmaps",), (provider("aesgcm", key1=OTHER), IDENTITY)),
        )
    )
    for name in NAMES:
        key = found.key(f"shop/{name}")
        found.etcd.put(key, aesgcm(secret(name), key.decode(), WRONG))  # a value that only its history has
        found.etcd.put(key, aesgcm(secret(name), key.decode(), TRUE))
    for number in range(6):
        key = found.key(f"shop/settings-{number}", "configmaps")
        found.etcd.put(key, aesgcm(config_map(f"settings-{number}"), key.decode(), OTHER))
    return found


def writers(registry: Registry, name: str, *arguments: str) -> Iterator[Ran]:
    key = registry.key(f"shop/{name}")
    present = registry.mod_revision(key)
    yield registry.delete(key, *arguments)
    yield registry.put_back(key, f"revision:{present - 1}", *arguments)
    file = saved(registry.folder, json_secret(name, resource_version=present))
    yield registry.put_back(key, f"object:{file}", "--accept", "unknown-uid", *arguments)
    candidate = candidate_config(registry.folder, provider("aesgcm", key1=TRUE))
    declared = [word for word in arguments if word not in {*DECLARED, "--accept=cluster-breaking"}]
    yield registry.put_back(key, f"candidate:{candidate}", "--accept", "undeployed-write-key", *declared)


def test_every_writer_refuses_whatever_is_declared(registry: Registry, api: KubernetesAPI) -> None:
    api.reads = True
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    for name in NAMES:
        with registry.untouched():
            for ran in writers(registry, name, *asked, *EVERYTHING):
                registry.refused(
                    ran, f"the API server at {api.url} reads secrets shop/{name}", hint="compare"
                )
                assert "never-to-be-shown" not in ran.err
    with registry.untouched():
        assert registry.delete(registry.key("shop/db-0"), *asked).code == 4
        assert registry.delete(registry.key("shop/db-0"), *asked, *EVERYTHING, "--dry-run").code == 4
    assert api.asked(ACCESS_REVIEW) == []
    assert not registry.log.exists()


def test_one_of_several_servers_that_reads_is_enough(
    registry: Registry, api: KubernetesAPI, authority: CertificateAuthority
) -> None:
    """As in the middle of a roll-out: the server of the kubeconfig fails, too."""
    path = "/api/v1/namespaces/shop/secrets/db-0"
    api.instead[path] = status_answer(500)
    kubeconfig = str(api.kubeconfig(registry.folder))
    with KubernetesAPI(authority, uid=KUBE_SYSTEM_UID, reads=True) as other:
        for listed, named in (([("127.0.0.1", other.port)], ()), ([], ("--server", other.url))):
            api.listed = listed
            with registry.untouched():
                for ran in writers(registry, "db-0", "--kubeconfig", kubeconfig, *named, *EVERYTHING):
                    registry.refused(ran, f"the API server at {other.url} reads", hint="compare")


def test_a_declaration_that_nobody_could_contradict(registry: Registry) -> None:
    key = registry.key("shop/db-0")
    with registry.untouched():
        registry.refused(registry.delete(key, *DECLARED), hint="--kubeconfig FILE")
        ran = registry.put_back(key, f"revision:{registry.mod_revision(key) - 1}", *DECLARED)
        registry.refused(ran, hint="--accept no-api-server")
