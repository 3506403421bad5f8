from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.manifest import Manifest, load_manifest

# A control plane as kubeadm would set it up, written for this test.
KUBEADM = """
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 192.0.2.10:6443
  labels: {component: kube-apiserver, tier: control-plane}
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.36.2
    command:
    - kube-apiserver
    - --advertise-address=192.0.2.10
    - --allow-privileged=true
    - --enable-admission-plugins=NodeRestriction
    - --encryption-provider-config=/etc/kubernetes/enc/config.yaml
    - --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
    - --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
    - --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
    - --etcd-servers=https://192.0.2.10:2379, https://192.0.2.11:2379
    - --etcd-servers-overrides=/events#https://192.0.2.20:2379;https://192.0.2.21:2379,coordination.k8s.io/leases#https://192.0.2.30:2379
    - --etcd-prefix=/registry
    - --service-cluster-ip-range=10.96.0.0/12
    livenessProbe: {httpGet: {path: /livez, port: 6443, scheme: HTTPS}}
    volumeMounts:
    - {mountPath: /etc/kubernetes/pki, name: k8s-certs, readOnly: true}
  hostNetwork: true
  volumes:
  - {hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}, name: k8s-certs}
status: {}
"""


def load(tmp_path: Path, text: str | bytes) -> Manifest:
    path = tmp_path / "kube-apiserver.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_manifest(path)


def pod(container: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {container}\n"


def test_kubeadm(tmp_path: Path) -> None:
    assert load(tmp_path, KUBEADM) == Manifest(
        endpoints=("https://192.0.2.10:2379", "https://192.0.2.11:2379"),
        overrides={
            "events": ("https://192.0.2.20:2379", "https://192.0.2.21:2379"),
            "leases.coordination.k8s.io": ("https://192.0.2.30:2379",),
        },
        cacert="/etc/kubernetes/pki/etcd/ca.crt",
        cert="/etc/kubernetes/pki/apiserver-etcd-client.crt",
        key="/etc/kubernetes/pki/apiserver-etcd-client.key",
        etcd_prefix="/registry",
        encryption_config=Path("/etc/kubernetes/enc/config.yaml"),
        kubernetes_version="1.36",
    )


def test_flags_that_are_not_set_stay_open(tmp_path: Path) -> None:
    found = load(tmp_path, pod("{name: a, image: kube-apiserver, command: [kube-apiserver]}"))
    assert found == Manifest()


@pytest.mark.parametrize(
    "words",
    [
        "command: [kube-apiserver, --etcd-servers, 'https://a:2379', --v=4]",
        "command: [/usr/local/bin/kube-apiserver], args: ['--etcd-servers=https://a:2379']",
        "command: [kube-apiserver, --allow-privileged, --etcd-servers=https://a:2379]",
        "command: [kube-apiserver, --etcd-servers=https://old:2379, --etcd-servers=https://a:2379]",
    ],
    ids=["two-words", "args", "switch-before", "last-wins"],
)
def test_ways_to_write_flags(tmp_path: Path, words: str) -> None:
    assert load(tmp_path, pod(f"{{name: a, image: x, {words}}}")).endpoints == ("https://a:2379",)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.2", "1.36"),
        ("mirror.example:5000/kube-apiserver:v1.29.15", "1.29"),
        ("rancher/hardened-kube-apiserver:1.31.4-rke2r1", "1.31"),
        ("kube-apiserver@sha256:1236000000000000000000000000000000000000000000000000000000000000", None),
        ("kube-apiserver", None),
        ("kube-apiserver:latest", None),
    ],
)
def test_version_is_that_of_the_image(tmp_path: Path, image: str, version: str | None) -> None:
    found = load(tmp_path, pod(f"{{name: a, image: '{image}', command: [kube-apiserver]}}"))
    assert found.kubernetes_version == version


def test_the_apiserver_is_found_by_its_image_behind_a_wrapper(tmp_path: Path) -> None:
    container = (
        "{name: a, image: 'example.com/kube-apiserver:v1.30.0', command: [/run.sh], args: [--etcd-prefix=/x]}"
    )
    assert load(tmp_path, pod(container)).etcd_prefix == "/x"


def test_other_containers_are_passed_over(tmp_path: Path) -> None:
    text = (
        "spec:\n  containers:\n"
        "  - {name: etcd, image: 'registry.k8s.io/etcd:3.6.8', command: [etcd, --etcd-servers=https://no:1]}\n"
        "  - {name: a, image: x, command: [kube-apiserver, --etcd-servers=https://yes:2379]}\n"
    )
    assert load(tmp_path, text).endpoints == ("https://yes:2379",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "just words",
        "spec: 1",
        "spec: {containers: 3}",
        "spec: {containers: [1, two]}",
        "spec: {containers: [{name: kube-apiserver}]}",
        "spec: {containers: [{image: 'etcd:3.6', command: [etcd]}]}",
        "spec: {containers: [{image: x, command: kube-apiserver}]}",
        "spec: {containers: [{image: x, command: 3, args: 4}]}",
    ],
)
def test_a_file_without_kube_apiserver_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="no container that runs kube-apiserver") as caught:
        load(tmp_path, text)
    assert "/etc/kubernetes/manifests" in caught.value.hint


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"\x00", b"%YAML 9\n", b"[" * 3000])
def test_a_file_that_is_not_yaml_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="is not YAML"):
        load(tmp_path, content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_manifest(tmp_path / "nowhere.yaml")


def test_paths_are_those_of_the_host(tmp_path: Path) -> None:
    """What a flag names is in the container; the same place on the host may hold another file, or none."""
    found = load(
        tmp_path,
        """
spec:
  containers:
  - command: [kube-apiserver, --etcd-cafile=/pki/etcd/ca.crt, --etcd-certfile=/pki/client.crt,
      --etcd-keyfile=/elsewhere/client.key, --encryption-provider-config=/enc.yaml]
    volumeMounts:
    - {mountPath: /pki, name: pki}
    - {mountPath: /pki/etcd, name: etcd, subPath: trust}
    - {mountPath: /enc.yaml, name: enc}
    - {mountPath: /elsewhere, name: projected}
  volumes:
  - {hostPath: {path: /host/pki}, name: pki}
  - {hostPath: {path: /host/etcd}, name: etcd}
  - {hostPath: {path: /host/enc/today.yaml, type: File}, name: enc}
  - {projected: {sources: []}, name: projected}
""",
    )
    assert (found.cacert, found.cert) == ("/host/etcd/trust/ca.crt", "/host/pki/client.crt")
    assert found.encryption_config == Path("/host/enc/today.yaml")
    assert found.key == "/elsewhere/client.key"  # no folder of the host is there
