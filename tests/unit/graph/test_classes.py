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
    found = storage_templates(pair("") | pair("node-stage-", "own"))
    assert {t.role: t.name for t in found} == {
        Role.PROVISIONER: "s",
        Role.CONTROLLER_PUBLISH: "s",
        Role.NODE_STAGE: "own",
        Role.NODE_PUBLISH: "s",
        Role.CONTROLLER_EXPAND: "s",
        Role.NODE_EXPAND: "s",
        Role.CONTROLLER_MODIFY: "s",
    }


def test_hostile_volumes_of_azure_files_name_nothing() -> None:
    csi = {"driver": "file.csi.azure.com", "volumeHandle": 7, "volumeAttributes": []}
    assert list(azure_secrets(csi, "shop")) == []
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
    (template,) = storage_templates(pair("provisioner-", name, namespace))
    tokens = claim_tokens("shop", "data", "pv-1", {"a/b": "from-annotation"})
    assert template.resolve(tokens.names, tokens.namespaces) == expected
