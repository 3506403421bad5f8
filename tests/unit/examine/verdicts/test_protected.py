"""What a cluster is made of is protected."""

from __future__ import annotations

import pytest

from etcdfix.examine.verdicts.deletability import protected_reason
from etcdfix.model.storagekey import StorageLayout

LAYOUT = StorageLayout()


@pytest.mark.parametrize(
    ("path", "namespace", "words"),
    [
        ("namespaces/shop", "", "namespaces are what the cluster depends on"),
        ("minions/node-1", "", "nodes are what"),
        ("persistentvolumes/pv", "", "persistentvolumes are what"),
        ("persistentvolumeclaims/shop/pvc", "shop", "persistentvolumeclaims are what"),
        (
            "apiextensions.k8s.io/customresourcedefinitions/a.b",
            "",
            "customresourcedefinitions.apiextensions.k8s.io",
        ),
        ("apiregistration.k8s.io/apiservices/v1.apps", "", "apiservices.apiregistration.k8s.io are"),
        ("clusterroles/admin", "", "clusterroles.rbac.authorization.k8s.io are"),
        ("roles/shop/admin", "shop", "roles.rbac.authorization.k8s.io are"),
        ("rolebindings/shop/admin", "shop", "rolebindings.rbac.authorization.k8s.io are"),
        ("clusterrolebindings/admin", "", "clusterrolebindings.rbac.authorization.k8s.io are"),
        ("flowschemas/exempt", "", "flowschemas.flowcontrol.apiserver.k8s.io are"),
        (
            "prioritylevelconfigurations/exempt",
            "",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io are",
        ),
        ("secrets/kube-system/token", "kube-system", "everything in kube-system"),
        ("example.com/widgets/kube-system/w", "kube-system", "everything in kube-system"),
        ("secrets/kube-systems/token", "kube-systems", ""),
        ("secrets/shop/web", "shop", ""),
        ("pods/shop/web", "shop", ""),
        ("example.com/namespaces/shop", "", ""),
    ],
)
def test_what_is_protected(path: str, namespace: str, words: str) -> None:
    directory, _ = LAYOUT.locate(f"/registry/{path}".encode())
    found = protected_reason(directory.group_resource, namespace)
    assert words in found
    assert bool(words) == bool(found)
