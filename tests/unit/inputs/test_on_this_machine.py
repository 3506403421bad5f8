from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.inputs.on_this_machine import find_distributions
from etcdfix.model.errors import ConfigurationError
from tests.support.distributions import (
    DISTRIBUTIONS,
    OPENSHIFT_MANIFEST,
    RANCHER,
    RKE2_MANIFEST,
    STATIC,
    k3s_elsewhere,
    openshift,
    write,
)

S = f"{RANCHER}/k3s/server"
EXPECTED = {
    "kubeadm": {"manifest": "etc/kubernetes/manifests/kube-apiserver.yaml"},
    "kops": {"manifest": "etc/kubernetes/manifests/kube-apiserver.manifest"},
    "k3s": {
        "endpoints": "https://127.0.0.1:2379", "cacert": f"{S}/tls/etcd/server-ca.crt",
        "cert": f"{S}/tls/etcd/client.crt", "key": f"{S}/tls/etcd/client.key",
        "encryption-config": f"{S}/cred/encryption-config.json",
    },
    "k3s on SQLite": {"kine": f"{S}/db/state.db"},
    "RKE2": {"manifest": RKE2_MANIFEST},
    "RKE2 on SQLite": {"kine": f"{RANCHER}/rke2/server/db/state.db"},
    "OpenShift": {
        "endpoints": "https://10.0.0.1:2379,https://localhost:2379",
        "cacert": f"{STATIC}/kube-apiserver-pod-12/configmaps/etcd-serving-ca/ca-bundle.crt",
        "cert": f"{STATIC}/kube-apiserver-pod-12/secrets/etcd-client/tls.crt",
        "key": f"{STATIC}/kube-apiserver-certs/secrets/etcd-client/tls.key",
        "etcd-prefix": "kubernetes.io",
        "encryption-config": f"{STATIC}/kube-apiserver-pod-12/secrets/encryption-config/encryption-config",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_each_is_found_by_its_files(name: str, tmp_path: Path) -> None:
    DISTRIBUTIONS[name](tmp_path)
    (found,) = find_distributions(tmp_path)
    assert found.name == name.removesuffix(" on SQLite")
    plain = {"endpoints", "etcd-prefix"}
    assert found.values == {
        field: value if field in plain else str(tmp_path / value) for field, value in EXPECTED[name].items()
    }


def test_nothing_there_is_nothing_found(tmp_path: Path) -> None:
    assert find_distributions(tmp_path) == []
    k3s_elsewhere(tmp_path)
    assert find_distributions(tmp_path) == []


def test_a_place_where_this_user_may_not_look_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_path: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "is_file", denied)
    monkeypatch.setattr(Path, "is_dir", denied)
    assert find_distributions(tmp_path) == []


@pytest.mark.parametrize(
    ("place", "text", "message"),
    [
        (OPENSHIFT_MANIFEST, "{}", "names no revision"),
        (
            f"{STATIC}/kube-apiserver-pod-12/configmaps/config/config.yaml",
            "a: [",
            "holds no apiServerArguments",
        ),
        (
            f"{STATIC}/kube-apiserver-pod-12/configmaps/config/config.yaml",
            '{"apiServerArguments": {"etcd-prefix": ["kubernetes.io"]}}',
            "no etcd-servers",
        ),
    ],
)
def test_files_that_are_not_as_they_have_to_be(place: str, text: str, message: str, tmp_path: Path) -> None:
    openshift(tmp_path)
    write(tmp_path, place, text)
    with pytest.raises(ConfigurationError, match=message):
        find_distributions(tmp_path)
