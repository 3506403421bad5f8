"""Folders laid out as distributions lay out a control plane; a folder takes the place of ``/``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

RANCHER = "var/lib/rancher"
RKE2_MANIFEST = f"{RANCHER}/rke2/agent/pod-manifests/kube-apiserver.yaml"
OPENSHIFT_MANIFEST = "etc/kubernetes/manifests/kube-apiserver-pod.yaml"
STATIC = "etc/kubernetes/static-pod-resources"


def write(root: Path, place: str, text: str = "") -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pod(*flags: str, volumes: dict[str, str] | None = None) -> str:
    """A static pod of kube-apiserver; volumes lead from places in the container to places on the host."""
    mounts = dict(enumerate((volumes or {}).items()))
    container = {
        "image": "registry.k8s.io/kube-apiserver:v1.34.2",
        "command": ["kube-apiserver", *flags],
        "volumeMounts": [
            {"name": f"v{number}", "mountPath": inside} for number, (inside, _) in mounts.items()
        ],
    }
    hosts = [{"name": f"v{number}", "hostPath": {"path": host}} for number, (_, host) in mounts.items()]
    return json.dumps({"kind": "Pod", "spec": {"containers": [container], "volumes": hosts}})


def kubeadm(root: Path) -> None:
    write(root, "etc/kubernetes/manifests/kube-apiserver.yaml", pod(
        "--etcd-servers=https://127.0.0.1:2379", "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key",
        "--encryption-provider-config=/etc/kubernetes/enc/enc.yaml",
        volumes={"/etc/kubernetes/pki": "/etc/kubernetes/pki", "/etc/kubernetes/enc": "/srv/enc"},
    ))  # fmt: skip


def kops(root: Path) -> None:
    write(
        root, "etc/kubernetes/manifests/kube-apiserver.manifest", pod("--etcd-servers=https://127.0.0.1:4001")
    )


def k3s(root: Path, *, name: str = "k3s") -> None:
    (root / f"{RANCHER}/{name}/server/db/etcd/member/snap").mkdir(parents=True)
    for certificate in ("server-ca.crt", "client.crt", "client.key"):
        write(root, f"{RANCHER}/{name}/server/tls/etcd/{certificate}")
    write(root, f"{RANCHER}/{name}/server/cred/encryption-config.json", "{}")


def k3s_sqlite(root: Path) -> None:
    write(root, f"{RANCHER}/k3s/server/db/state.db")


def k3s_elsewhere(root: Path) -> None:
    """Its store is a database of its own, named by --datastore-endpoint."""
    (root / f"{RANCHER}/k3s/server/db").mkdir(parents=True)


def rke2(root: Path) -> None:
    k3s(root, name="rke2")
    write(root, RKE2_MANIFEST, pod("--etcd-servers=https://127.0.0.1:2379"))


def rke2_sqlite(root: Path) -> None:
    write(root, f"{RANCHER}/rke2/server/db/state.db")
    write(root, RKE2_MANIFEST, pod(f"--etcd-servers=unixs:///{RANCHER}/rke2/server/kine.sock"))


def openshift(root: Path) -> None:
    """Revision 12 is the one that runs; the others are still on disk, with older keys."""
    resources = {"hostPath": {"path": f"/{STATIC}/kube-apiserver-pod-12"}, "name": "resource-dir"}
    certificates = {"hostPath": {"path": f"/{STATIC}/kube-apiserver-certs"}, "name": "cert-dir"}
    write(
        root, OPENSHIFT_MANIFEST, json.dumps({"kind": "Pod", "spec": {"volumes": [resources, certificates]}})
    )
    arguments = {
        "etcd-servers": ["https://10.0.0.1:2379", "https://localhost:2379"],
        "etcd-cafile": [f"/{STATIC}/configmaps/etcd-serving-ca/ca-bundle.crt"],
        "etcd-certfile": [f"/{STATIC}/secrets/etcd-client/tls.crt"],
        "etcd-keyfile": ["/etc/kubernetes/static-pod-certs/secrets/etcd-client/tls.key"],
        "etcd-prefix": ["kubernetes.io"],
        "encryption-provider-config": [f"/{STATIC}/secrets/encryption-config/encryption-config"],
    }
    for revision in (11, 12):
        config = json.dumps({"kind": "KubeAPIServerConfig", "apiServerArguments": arguments})
        write(root, f"{STATIC}/kube-apiserver-pod-{revision}/configmaps/config/config.yaml", config)


DISTRIBUTIONS: dict[str, Callable[[Path], None]] = {
    "kubeadm": kubeadm, "kops": kops, "k3s": k3s, "k3s on SQLite": k3s_sqlite, "RKE2": rke2,
    "RKE2 on SQLite": rke2_sqlite, "OpenShift": openshift,
}  # fmt: skip
