"""What most of the tests here change: a cluster that can be given any encryption."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.attacks import LOCAL, Attacked, seal, secret
from tests.support.kms_plugin import KMSPlugin
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import IDENTITY


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Attacked:
    """A registry whose Secrets are configured to be under aesgcm."""
    found = Attacked(etcd, prefix, tmp_path, capfd)
    found.keyed("aesgcm")
    return found


@pytest.fixture
def api(api: KubernetesAPI) -> KubernetesAPI:
    """A server that lists itself, so that all are known."""
    api.listed = [("127.0.0.1", api.port)]
    return api


KMS_VERSIONS = {"kms/v1": "v1", "kms/v2/0": "v2", "kms/v2/1": "v2"}


class Sealer:
    """Seals healthy Secrets as an API server does under one provider, which the registry is configured for.

    Attributes:
        plugin: Of a KMS provider, by the digit of its kind: the type of data key in its envelope.
    """

    plugin: KMSPlugin | None = None

    def __init__(self, registry: Attacked, kind: str) -> None:
        self.kind = kind
        self._registry = registry
        # An API server makes one seed for all that it writes.
        self._source = random.Random(kind).randbytes(32)
        if kind in LOCAL:
            registry.keyed(kind)
            return
        keks = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
        name = f"@etcdfix-sealer-{os.getpid()}-{registry.folder.name}"
        self.plugin = KMSPlugin(KMS_VERSIONS[kind], name, keks)
        kms = {"apiVersion": self.plugin.api_version, "name": "prov", "endpoint": self.plugin.endpoint}
        registry.rules(("secrets", ({"kms": kms | {"timeout": "5s"}}, IDENTITY)))
        self._wrapped = self.plugin.encrypt(self._source, "")

    def __call__(self, name: str) -> tuple[bytes, bytes]:
        """Return the etcd key of a Secret of namespace shop, and its value."""
        at = self._registry.key(f"shop/{name}")
        if self.plugin is None:
            return at, seal(self.kind, secret(name), at)
        if self.kind == "kms/v1":
            return at, self.plugin.stored_v1(secret(name), at)
        how: dict[str, Any] = {"source": self._source, "wrapped": self._wrapped}
        return at, self.plugin.stored_v2(secret(name), at, source_type=int(self.kind[-1]), **how)


@pytest.fixture
def sealer(registry: Attacked, kind: str) -> Iterator[Sealer]:
    found = Sealer(registry, kind)
    yield found
    if found.plugin is not None:
        found.plugin.stop()
