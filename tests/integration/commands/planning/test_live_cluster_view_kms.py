"""Of values behind KMS plugins too, a look that is kept says what a fresh one says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.commands.planning.live_cluster_view import LiveClusterView
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.surroundings import FRESH, Surroundings
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer
from tests.integration.commands.planning.test_live_cluster_view import World, quietly, said
from tests.support.attacks import Attacked
from tests.support.decoders import shared_decoder
from tests.support.fixtures import Captured
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.etcd

_COMPARED = ("outcome", "cause", "damage", "key_proven", "settled")
"""Beside these a verdict has sentences that name one of several witnesses."""


class _KMSWorld(World):
    """Secrets under data keys that come and go, of a plugin that answers and of one that lost its keys."""

    def __init__(self, registry: Attacked, seed: int, here: KMSPlugin, away: KMSPlugin) -> None:
        super().__init__(registry, seed)
        self._plugins = [here, here, away]
        self._sources = [self.random.randbytes(32) for _ in range(2)]

    def step(self) -> None:
        if self.random.random() < 0.25:
            self.random.choice([self.pod, self.workload, self.custom])()
        else:
            self.secret()

    def secret(self) -> None:
        name = f"s{self.random.randrange(6)}"
        key, plain = self._made(lambda made: made.secret(name, uid=f"uid-{name}"))
        plugin, source = self.random.choice(self._plugins), self.random.choice(self._sources)
        wrapped = plugin.encrypt(source, self.random.choice([*plugin.keks]))
        value = plugin.stored_v2(
            plain, key, source=source, wrapped=wrapped, source_type=self.random.choice([0, 1])
        )
        what = self.random.random()
        if what < 0.2:
            place = self.random.randrange(len(value) - 60, len(value))
            value = value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
        elif what < 0.3:
            value = value[:-7]
        self._put_or_delete(key, value)


@contextmanager
def _opened(registry: Attacked) -> Iterator[Cluster]:
    configuration = parse_configuration(registry.config.read_bytes(), path="config.yaml")
    with (
        LiveSource(EtcdConnection(endpoints=(registry.endpoints,))) as source,
        KMSPlugins({}, max_rate=0) as plugins,
    ):
        transformers = Transformers.from_configuration(configuration, plugins.plugin_for)
        examiner = Examiner(
            StorageLayout(registry.prefix), transformers, shared_decoder(None), plugins=plugins
        )
        examiner.learn_custom_resources(source)
        yield Cluster(source, examiner, configured=True, no_encryption=False)


def _said(cluster: Cluster, surroundings: Surroundings, key: bytes) -> Any:
    found = said(cluster, surroundings, key)
    if found is not None:
        found["verdict"] = {name: found["verdict"][name] for name in _COMPARED}
    return found


@pytest.mark.parametrize("seed", range(30 if THOROUGH else 4))
def test_it_says_what_a_fresh_look_says(
    etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured, seed: int
) -> None:
    """What a plugin opened, and data keys of values that are gone, speak for nothing any more."""
    registry = Attacked(etcd, prefix, tmp_path, capfd)
    keys = [bytes(range(start, start + 32)) for start in (0, 32, 64, 96)]
    here = KMSPlugin("v2", str(tmp_path / "here.sock"), {"k1": keys[0], "k2": keys[1]})
    away = KMSPlugin("v2", str(tmp_path / "away.sock"), {"k3": keys[2], "k2": keys[3]})
    provider = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": here.endpoint, "timeout": "3s"}}
    registry.configure(provider, IDENTITY)
    world = _KMSWorld(registry, seed, here, away)
    compared = 0
    try:
        for _ in range(10):
            world.step()
        with _opened(registry) as cluster:
            look = LiveClusterView(cluster, no_progress, quietly)
            kept = msgspec.structs.replace(cluster, surroundings=look)
            for _ in range(8):
                for _ in range(world.random.randrange(1, 4)):
                    world.step()
                for key in world.random.sample(world.secrets, 3):
                    look.catch_up_now()
                    ours = _said(kept, look, key)
                    with _opened(registry) as anew:
                        assert ours == _said(anew, FRESH, key), key
                    compared += ours is not None
    finally:
        here.stop()
        away.stop()
    assert compared
