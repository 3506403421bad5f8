"""Which versions of a kind an API server serves."""

from __future__ import annotations

import pytest

from etcdfix.graph.kinds import Served, served_builtin
from etcdfix.storagekey import StorageCodec, builtin_directories


@pytest.mark.parametrize(
    ("group", "version", "kind", "minor", "served"),
    [
        ("apps", "v1", "Deployment", None, Served.YES),
        ("apps", "v1", "Deployment", 36, Served.YES),
        ("apps", "v1beta1", "Deployment", None, Served.NO),
        ("apps", "v9", "Deployment", None, Served.NO),
        ("apps", "v9", "Deployment", 99, Served.PERHAPS),
        ("autoscaling", "v2", "HorizontalPodAutoscaler", 20, Served.NO),
        ("autoscaling", "v2", "HorizontalPodAutoscaler", None, Served.YES),
        ("policy", "v1beta1", "PodDisruptionBudget", None, Served.PERHAPS),
        ("policy", "v1beta1", "PodDisruptionBudget", 24, Served.YES),
        ("policy", "v1beta1", "PodDisruptionBudget", 25, Served.NO),
        ("extensions", "v1beta1", "Ingress", 21, Served.YES),
        ("extensions", "v1beta1", "Deployment", 17, Served.NO),
        ("storage.k8s.io", "v1beta1", "VolumeAttributesClass", 31, Served.PERHAPS),
    ],
)
def test_versions(group: str, version: str, kind: str, minor: int | None, served: Served) -> None:
    assert served_builtin(group, version, kind, minor) is served


@pytest.mark.parametrize("minor", [None, 36])
def test_what_is_stored_today_is_served(minor: int | None) -> None:
    for directory in builtin_directories():
        if directory.codec in {StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN} and directory.version:
            told = served_builtin(directory.group, directory.version, directory.kind, minor)
            early = "alpha" in directory.version or "beta" in directory.version
            assert told is (Served.PERHAPS if early else Served.YES), directory
