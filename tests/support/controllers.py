"""Recorded cases: what a real garbage collector and namespace controller did, and the cluster as it was before.

Format: ``README.md`` beside ``cases.jsonl.gz`` in the golden data. The CustomResourceDefinitions of the kinds that the
recorder made for its own use are not in a case unless the case is about them: they were there, so they are put back.
"""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from typing import Any, Final

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.examine.one import Reading
from etcdfix.graph.cluster import ClusterIndex, Keep, index_cluster
from etcdfix.model.storagekey import StorageLayout
from tests.support.golden import golden_folder
from tests.support.memory_source import MemorySource
from tests.support.objects import crd

Case = dict[str, Any]
CRDS: Final = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
# Where a CRD that is not in a case was not there.
_WITHOUT_CRDS: Final = frozenset({"crd", "ns-crd-gone"})
_KINDS: Final = {"widgets": ("Widget", "Namespaced"), "orbs": ("Orb", "Cluster")}


@cache
def cases() -> tuple[Case, ...]:
    with gzip.open(golden_folder("controllers") / "cases.jsonl.gz") as lines:
        return tuple(json.loads(line) for line in lines)


@cache
def configuration() -> EncryptionConfiguration:
    run = json.loads((golden_folder("controllers") / "run.json").read_bytes())
    return parse_configuration(json.dumps(run["encryption_configuration"]).encode(), path="run.json")


def values_before(case: Case) -> dict[str, bytes]:
    """The cluster before the action, by key."""
    values = {entry["key"]: base64.b64decode(entry["value_base64"]) for entry in case["before"]}
    if case["plane"] not in _WITHOUT_CRDS:
        for key in list(values):
            group, plural = key.split("/")[2:4]
            if plural in _KINDS and f"{CRDS}{plural}.{group}" not in values:
                kind, scope = _KINDS[plural]
                values[f"{CRDS}{plural}.{group}"] = crd(
                    plural, group, kind=kind, scope=scope, more_versions=("v1beta1",)
                )
    return values


def look_at(values: dict[str, bytes], keep: Keep = lambda _: 1) -> ClusterIndex:
    """Everything that is known of a cluster with these values."""
    request = Reading(layout=StorageLayout("/registry"), configuration=configuration(), kubernetes_minor=36)
    return index_cluster(MemorySource(values), request, keep=keep)
