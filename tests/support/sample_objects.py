"""Upstream's sample object of every kind that API servers persist, at its etcd key, as the API gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, builtin_directories
from tests.support.golden import api_samples, sample_kind

RELEASES = {"v1.34.0": 34, "v1.36.0": 36}


class Sample(NamedTuple):
    """One sample.

    Attributes:
        value: As the API gives it.
        stored: As an API server stores it.
    """

    name: str
    directory: ResourcePrefix
    value: dict[str, Any]
    stored: bytes

    def key(self, prefix: str = "/registry") -> bytes:
        metadata = self.value["metadata"]
        place = f"{metadata['namespace']}/" if self.directory.namespaced else ""
        return f"{prefix}/{self.directory.path}/{place}{metadata['name']}".encode()


def samples(release: str) -> Iterator[Sample]:
    """Yield the samples of the kinds that are persisted, in every version that has one."""
    places = {
        (directory.group, directory.kind): directory
        for directory in builtin_directories()
        if directory.codec is StorageCodec.BUILTIN
    }
    stored = api_samples(release)
    for name, raw in api_samples(release, ".json").items():
        group, _version, kind = sample_kind(name)
        directory = places.get((group, kind))
        if directory is None:
            continue
        value = json.loads(raw)
        if not directory.namespaced:
            del value["metadata"]["namespace"]  # the samples fill every field, those that cannot be as well
        yield Sample(name, directory, value, stored[name])
