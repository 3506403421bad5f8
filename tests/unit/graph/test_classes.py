"""Secrets that classes name, and how their templates are filled in."""

from __future__ import annotations

import pytest

from etcdfix.graph.classes import (
    azure_secrets,
    claim_tokens,
    storage_templates,
)
from etcdfix.graph.uses import Role

CSI = "csi.storage.k8s.io"


def pair(operation: str, name: str = "s", namespace: str = "n") -> dict[str, str]:
    return {f"{CSI}/{operation}secret-name": name, f"{CSI}/{operation}secret-namespace": namespace}


def test_the_pair_for_any_operation_is_a_fallback() -> None:
    found = storage_templates("csi.example.com", pair("") | pair("node-stage-", "own"))
    assert {t.role: t.name for t in found} == {
        Role.PROVISIONER: "s",
        Role.CONTROLLER_PUBLISH: "s",
        Role.NODE_STAGE: "own",
        Role.NODE_PUBLISH: "s",
        Role.CONTROLLER_EXPAND: "s",
        Role.NODE_EXPAND: "s",
        Role.CONTROLLER_MODIFY: "s",
    }


def test_azure_files() -> None:
    (found,) = storage_templates("kubernetes.io/azure-file", {"SecretName": "s", "secretNAMESPACE": "n"})
    assert (found.role, found.name, found.namespace) == (Role.VOLUME_PLUGIN, "s", "n")
    (found,) = storage_templates("kubernetes.io/azure-file", {"secretName": "s"})
    assert found.namespace == "${pvc.namespace}"
    assert storage_templates("kubernetes.io/aws-ebs", {"secretName": "s"}) == ()
    assert storage_templates("kubernetes.io/azure-file", {}) == ()


@pytest.mark.parametrize(
    ("provisioner", "parameters", "expected"),
    [
        (
            "kubernetes.io/azure-file", {"StorageAccount": "acc"},
            {("azure-storage-account-acc-secret", "${pvc.namespace}", True)},
        ),
        (
            "kubernetes.io/azure-file", {"storageaccount": "acc", "secretNamespace": "n"},
            {("azure-storage-account-acc-secret", "n", True)},
        ),
        (
            "file.csi.azure.com", {"storageAccount": "acc"},
            {
                ("azure-storage-account-acc-secret", "${pvc.namespace}", True),
                ("azure-storage-account-acc-secret", "default", True),
            },
        ),
        (
            "file.csi.azure.com", {"storageAccount": "acc", "secretName": "s"},
            {("s", "${pvc.namespace}", False), ("s", "default", True)},
        ),
        ("file.csi.azure.com", {"storageAccount": ""}, set()),
        ("disk.csi.azure.com", {"storageAccount": "acc"}, set()),
    ],
)  # fmt: skip
def test_the_usual_secret_of_a_storage_account(
    provisioner: str, parameters: dict[str, str], expected: set[tuple[str, str, bool]]
) -> None:
    found = storage_templates(provisioner, parameters)
    assert {(t.name, t.namespace, t.likely) for t in found} == expected
    assert {t.role for t in found} <= {Role.VOLUME_PLUGIN}


def test_volumes_of_azure_files_without_a_claim() -> None:
    csi = {"driver": "file.csi.azure.com", "volumeHandle": "group#acc#share"}
    (found,) = azure_secrets(csi, "")
    assert (found.namespace, found.name, found.likely) == (
        "default",
        "azure-storage-account-acc-secret",
        True,
    )
    assert list(azure_secrets({**csi, "volumeHandle": 7, "volumeAttributes": []}, "shop")) == []
    assert list(azure_secrets({**csi, "driver": []}, "shop")) == []


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("s", "n", ("n", "s")),
        ("${pvc.name}-x", "${pvc.namespace}", ("shop", "data-x")),
        ("${pv.name}", "${pv.name}", ("pv-1", "pv-1")),
        ("${pvc.annotations['a/b']}", "n", ("n", "from-annotation")),
        ("${pvc.annotations['missing']}", "n", None),
        ("s", "${pvc.name}", None),
        ("${unknown}", "n", None),
        ("${pvc.namespace}-${pvc.name}", "n", ("n", "shop-data")),
    ],
)
def test_templates_of_storage_classes(name: str, namespace: str, expected: tuple[str, str] | None) -> None:
    (template,) = storage_templates("d", pair("provisioner-", name, namespace))
    tokens = claim_tokens("shop", "data", "pv-1", {"a/b": "from-annotation"})
    assert template.resolve(tokens.names, tokens.namespaces) == expected
