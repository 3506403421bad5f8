from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.inputs.manifest import Manifest, load_manifest
from etcdfix.model.errors import ConfigurationError

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
        endpoints="https://192.0.2.10:2379,https://192.0.2.11:2379",
        overrides={
            "events": ("https://192.0.2.20:2379", "https://192.0.2.21:2379"),
            "leases.coordination.k8s.io": ("https://192.0.2.30:2379",),
        },
        cacert="/etc/kubernetes/pki/etcd/ca.crt",
        cert="/etc/kubernetes/pki/apiserver-etcd-client.crt",
        key_file="/etc/kubernetes/pki/apiserver-etcd-client.key",
        etcd_prefix="/registry",
        encryption_config=Path("/etc/kubernetes/enc/config.yaml"),
        kubernetes_version="1.36",
    )


@pytest.mark.parametrize(
    "words",
    [
        "command: [kube-apiserver, --etcd-servers, 'https://a:2379', --v=4]",
        "command: [kube-apiserver, --etcd_servers=https://a:2379]",
        "command: [tini, --, kube-apiserver, --etcd-servers=https://a:2379]",
        "command: [/hyperkube, apiserver, --etcd-servers=https://a:2379]",
        "command: [kube-apiserver, --etcd-servers=$(S)://a:2379], env: [{name: S, value: https}]",
        "command: [/go-runner, --log-file=/var/log/kube-apiserver, kube-apiserver, --etcd-servers=https://a:2379]",
    ],
)
def test_ways_to_write_flags(tmp_path: Path, words: str) -> None:
    assert load(tmp_path, pod(f"{{name: a, image: x, {words}}}")).endpoints == "https://a:2379"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.2", "1.36"),
        ("rancher/hardened-kube-apiserver:1.31.4-rke2r1", "1.31"),
        ("kube-apiserver@sha256:1236000000000000000000000000000000000000000000000000000000000000", None),
        ("kube-apiserver:latest", None),
    ],
)
def test_version_is_that_of_the_image(tmp_path: Path, image: str, version: str | None) -> None:
    found = load(
        tmp_path, pod(f"{{name: a, image: '{image}', command: [kube-apiserver, --etcd-servers=a:1]}}")
    )
    assert found.kubernetes_version == version


def test_the_apiserver_is_found_by_its_image_where_no_command_is_named(tmp_path: Path) -> None:
    container = (
        "{name: a, image: 'example.com/kube-apiserver:v1.30.0', args: [--etcd-servers=a:1, --etcd-prefix=/x]}"
    )
    assert load(tmp_path, pod(container)).etcd_prefix == "/x"


@pytest.mark.parametrize(
    "words",
    [
        "command: [/usr/local/bin/start.sh], args: [--etcd-servers=a:1]",
        "command: [/start.sh, kube-apiserver, --etcd-servers=a:1]",
        "command: [tini, --, sh, -e, /start.sh, kube-apiserver, --etcd-servers=a:1]",
        "command: [sh, -c, 'bash /start.sh kube-apiserver --etcd-servers=a:1']",
        "command: [sh, -c, 'eval exec kube-apiserver --etcd-servers=a:1']",
        "command: [/bin/bash, -ec], args: ['exec /usr/local/bin/kube-apiserver --etcd-servers=https://a:2379 2>&1']",
        "command: [sh, -c, 'exec kube-apiserver --etcd-prefix=/x $FLAGS'], args: [--etcd-servers=a:1]",
    ],
)
def test_what_may_give_more_flags_is_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, pod(f"{{image: kube-apiserver, {words}}}"))
    assert "--encryption-config" in caught.value.hint


def test_a_flag_given_twice_is_taken_as_pflag_takes_it(tmp_path: Path) -> None:
    """Lists add up; of all else the last counts. A string flag takes the next word, whatever it is."""
    found = load(
        tmp_path,
        pod(
            "{command: [kube-apiserver, --etcd-servers=a:1, '--etcd-servers=b:1,c:1', "
            "--etcd-prefix=/x, --etcd-prefix, /y, "
            "'--etcd-servers-overrides=/events#d:1', '--etcd-servers-overrides=/leases#e:1', "
            "--encryption-provider-config, --etcd-prefix=/z]}"
        ),
    )
    assert found.endpoints == "a:1,b:1,c:1"
    assert (found.etcd_prefix, set(found.overrides)) == ("/y", {"events", "leases"})
    assert found.encryption_config == Path("--etcd-prefix=/z")


@pytest.mark.parametrize(
    "container",
    [
        "{command: [kube-apiserver]}",
        "{image: kube-apiserver, args: [--etcd-prefix=/x]}",
        "{command: [hyperkube, kube-apiserver, --openshift-config=/x]}",
        "{command: [kube-apiserver, --, --etcd-servers=a:1]}",
        "{command: [sh, -c, 'exec kube-apiserver $FLAGS']}",
    ],
)
def test_a_manifest_without_etcd_servers_is_refused(tmp_path: Path, container: str) -> None:
    with pytest.raises(ConfigurationError, match="no --etcd-servers") as caught:
        load(tmp_path, pod(container))
    assert "--endpoints" in caught.value.hint
    assert "--encryption-config" in caught.value.hint


@pytest.mark.parametrize(
    "container",
    [
        "{command: [sh, -c, 'kube-apiserver --etcd-servers=$ETCD'], env: [{name: ETCD, value: 'a:1'}]}",
        "{command: [sh, -c, 'kube-apiserver --etcd-servers=$(cat /etc/etcd)']}",
        "{command: [sh, -c, 'kube-apiserver --etcd-servers=a:1 || kube-apiserver --etcd-servers=b:1']}",
        '{command: [sh, -c, "kube-apiserver --etcd-servers=a:1 --etcd-prefix=\'/x"]}',
        "{command: [sh, -c, 'F=\"--etcd-servers=a:1\"; kube-apiserver $F']}",
        "{command: [kube-apiserver, --etcd-servers=$(ETCD)], env: [{name: ETCD, valueFrom: {fieldRef: {}}}]}",
        "{command: [kube-apiserver, --etcd-servers=a:1, --encryption-provider-config=$(CONFIG)]}",
        "{command: [kube-apiserver, --etcd-servers=a:1, $(MORE)], env: [{name: MORE, valueFrom: {}}]}",
        "{command: [kube-apiserver, --etcd-servers=a:1], args: --encryption-provider-config=/x}",
        "{command: [kube-apiserver, '--etcd-servers=a:1 --encryption-provider-config=/x']}",
        "{command: [kube-apiserver, --etcd-servers=a:1]}\n  - {command: [kube-apiserver, --etcd-servers=b:1]}",
    ],
)
def test_flags_that_cannot_be_told_are_refused(tmp_path: Path, container: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, pod(container))
    assert "--endpoints" in caught.value.hint


def test_references_are_the_kubelets(tmp_path: Path) -> None:
    """Expanded by what stands before them; ``$$`` is a dollar; an ordinary dollar is one where no shell reads it."""
    found = load(
        tmp_path,
        pod(
            "{command: [kube-apiserver, '--etcd-servers=http://$(B):1', '--etcd-prefix=/$$(A)$x'], "
            "env: [{name: A, value: h}, {name: B, value: '$(A)ost'}, {name: C}]}"
        ),
    )
    assert (found.endpoints, found.etcd_prefix) == ("http://host:1", "/$(A)$x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "spec: 1",
        "spec: {containers: [1, two]}",
        "spec: {containers: [{image: 'etcd:3.6', command: [etcd]}]}",
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


def test_paths_are_those_of_the_host(tmp_path: Path) -> None:
    """What a flag names is in the container; the same place on the host may hold another file, or none."""
    found = load(
        tmp_path,
        """
spec:
  containers:
  - command: [kube-apiserver, --etcd-servers=a:1, --etcd-cafile=/pki/etcd/ca.crt, --etcd-certfile=/pki/client.crt,
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
    assert found.key_file == "/elsewhere/client.key"  # no folder of the host is there
