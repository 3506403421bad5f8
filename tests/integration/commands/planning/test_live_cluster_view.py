"""A look that is kept says of every value what a fresh look says, or what speaks more against a change."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from etcdfix.commands.planning.live_cluster_view import LiveClusterView
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner
from etcdfix.graph.assess import assess
from etcdfix.model.errors import RefusedByRule, SourceError, SourceUnreachable
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.surroundings import FRESH, Surroundings
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer, EtcdServers
from tests.support import impact_objects
from tests.support.attacks import Attacked, seal
from tests.support.decoders import shared_decoder
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import BROKEN, owner
from tests.support.objects import IDENTITY, provider, secret
from tests.support.thorough import THOROUGH

pytestmark = pytest.mark.etcd

KEY_1, KEY_2, OTHER = (bytes(range(start, start + 32)) for start in (0, 50, 100))
GROUP = "example.com"


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Attacked:
    found = Attacked(etcd, prefix, tmp_path, capfd)
    found.configure(provider("aesgcm", key1=KEY_1, key2=KEY_2), provider("secretbox", box=KEY_1), IDENTITY)
    return found


@contextmanager
def opened(registry: Attacked, *, no_encryption: bool = False) -> Iterator[Cluster]:
    transformers = None
    if not no_encryption:
        configuration = parse_configuration(registry.config.read_bytes(), path="config.yaml")
        transformers = Transformers.from_configuration(configuration, no_plugin)
    with LiveSource(EtcdConnection(endpoints=(registry.endpoints,))) as source:
        examiner = Examiner(StorageLayout(registry.prefix), transformers, shared_decoder(None))
        examiner.learn_custom_resources(source)
        yield Cluster(source, examiner, configured=not no_encryption, no_encryption=no_encryption)


@contextmanager
def live_cluster_view(
    registry: Attacked, *, no_encryption: bool = False
) -> Iterator[tuple[Cluster, LiveClusterView]]:
    with opened(registry, no_encryption=no_encryption) as cluster:
        look = LiveClusterView(cluster, no_progress, quietly)
        yield msgspec.structs.replace(cluster, surroundings=look), look


def said(cluster: Cluster, surroundings: Surroundings, key: bytes) -> Any:
    reading = cluster.now.read_key(key)
    if reading.stored is None:
        return None
    found = cluster.examiner.independent_copy().examine(reading.stored)
    if found.verdict.outcome in {Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT}:
        return None
    seen: dict[bytes, object] = {}

    def see(other: Any) -> None:
        if not other.opened:
            seen[other.stored.key] = (other.stored.mod_revision, other.verdict.outcome, other.verdict.cause)

    alike, graph = surroundings.look(cluster, reading, found, no_progress, see=see)
    assessment = assess(graph, cluster.source, cluster.examiner, key)
    target = alike.target
    assert target is not None
    return _sorted(
        {
            "verdict": msgspec.to_builtins(target.verdict),
            "repair": msgspec.to_builtins(target.repair),
            "counts": {str(name): msgspec.to_builtins(counts) for name, counts in alike.counts.items()},
            "opens": alike.transformer_opens,
            "similar": msgspec.to_builtins(alike.similar),
            "unread": {name: count for name, count in alike.unread.items() if count},
            "keys": alike.keys,
            "seen": sorted(map(str, seen.items())),
            "assessment": msgspec.to_builtins(assessment),
        }
    )


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted((_sorted(item) for item in value), key=repr)
    return value


def quietly(_text: str) -> None:
    """Take what nobody reads here."""


class World:
    def __init__(self, registry: Attacked, seed: int) -> None:
        self.registry = registry
        self.random = random.Random(seed)
        self.salt = 0

    def step(self) -> None:
        self.random.choice(
            [
                self.secret, self.secret, self.secret, self.pod, self.pod, self.workload, self.custom,
                self.definition,
            ]
        )()  # fmt: skip

    @property
    def secrets(self) -> list[bytes]:
        return [self.registry.key(f"shop/s{number}") for number in range(6)]

    @property
    def customs(self) -> list[bytes]:
        return [f"{self.registry.prefix}/{GROUP}/widgets/shop/w{number}".encode() for number in range(3)]

    def _made(self, make: Callable[[impact_objects.Cluster], str]) -> tuple[bytes, bytes]:
        made = impact_objects.Cluster(self.registry.prefix)
        key = make(made)
        return key.encode(), made.values[key]

    def _put_or_delete(self, key: bytes, value: bytes) -> None:
        if self.random.random() < 0.25:
            self.registry.etcd.delete(key)
        elif self.random.random() < 0.15:
            self.registry.etcd.put(key, BROKEN)
        else:
            self.registry.etcd.put(key, value)

    def secret(self) -> None:
        name = f"s{self.random.randrange(6)}"
        key, plain = self._made(lambda made: made.secret(name, uid=f"uid-{name}-{self.random.randrange(2)}"))
        self.salt += 1
        kind = self.random.choice(["aesgcm", "aesgcm", "secretbox"])
        name_of_key = "box" if kind == "secretbox" else self.random.choice(["key1", "key2"])
        right = KEY_2 if name_of_key == "key2" else KEY_1
        value = seal(kind, plain, key, self.random.choice([right, right, OTHER]), name_of_key, salt=self.salt)
        what = self.random.random()
        if what < 0.2:
            place = self.random.randrange(len(value) - 40, len(value))
            value = value[:place] + bytes([value[place] ^ 4]) + value[place + 1 :]
        elif what < 0.3:
            value = value[:-9]
        self._put_or_delete(key, value)

    def pod(self) -> None:
        name = f"p{self.random.randrange(4)}"
        used = f"s{self.random.randrange(6)}"
        owners = (
            self.random.choice(
                [
                    owner("ReplicaSet", "r0"),
                    owner("Widget", f"w{self.random.randrange(3)}", api_version=f"{GROUP}/v1"),
                    owner("Gadget", f"w{self.random.randrange(3)}", api_version=f"{GROUP}/v1", uid="uid-w1"),
                ]
            ),
        )
        spec = {
            "containers": [{"name": "main", "image": "web"}],
            "volumes": [{"name": "v", "secret": {"secretName": used}}],
        }
        self._put_or_delete(*self._made(lambda made: made.pod(name, owners=owners, spec=spec)))

    def workload(self) -> None:
        owned = (owner("Deployment", "d0"),)
        self._put_or_delete(
            *self._made(lambda made: made.add("apps/v1", "ReplicaSet", "r0", "shop", owners=owned))
        )

    def custom(self) -> None:
        key = self.random.choice(self.customs)
        name = key.rpartition(b"/")[2].decode()
        metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
        if self.random.random() < 0.5:
            metadata["ownerReferences"] = [owner("Gadget", "w0", api_version=f"{GROUP}/v1")]
        value = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata, "spec": {}}
        self._put_or_delete(key, json.dumps(value).encode())

    def definition(self) -> None:
        if self.random.random() < 0.6:
            return  # rarely: everything is looked at anew after it
        self._put_or_delete(*self._made(lambda made: made.define(GROUP, "Widget")))


@pytest.mark.parametrize("seed", range(40 if THOROUGH else 6))
def test_it_says_what_a_fresh_look_says(registry: Attacked, seed: int) -> None:
    """Who refers to whom, what does not read, and how much keys opened, always; and no fewer failed."""
    world = World(registry, seed)
    for _ in range(12):
        world.step()
    compared = looks = 0
    keys = (*world.secrets, *world.customs)
    with live_cluster_view(registry) as (cluster, look):
        for _ in range(25):
            for _ in range(world.random.randrange(1, 4)):
                world.step()
            look.catch_up_now()
            anew, looks = look.looks != looks, look.looks
            for key in keys:
                ours = said(cluster, look, key)
                with opened(registry) as other:
                    theirs = said(other, FRESH, key)
                if ours is not None and not anew:
                    for name, counts in theirs["counts"].items():
                        assert ours["counts"][name]["opened"] == counts["opened"]
                        assert ours["counts"][name]["failed"] >= counts["failed"]
                        assert ours["counts"][name]["last_failing"] <= counts["last_failing"]
                        assert ours["counts"][name]["last_opened"] >= counts["last_opened"]
                    assert ours["similar"]["failed"] >= theirs["similar"]["failed"]
                    assert ours["similar"]["read"] == theirs["similar"]["read"]
                    for each in (ours, theirs):
                        for fact in ("verdict", "repair", "counts", "similar", "seen"):
                            del each[fact]
                assert ours == theirs, key
                compared += ours is not None
    assert compared > 20
    assert looks < 25


def test_what_reads_or_is_gone_needs_no_new_look(registry: Attacked) -> None:
    """Heartbeats are nearly all that is written to a cluster, and our own deletions all that a run writes."""
    lost = registry.secrets("aesgcm", ["lost-0", "lost-1"], OTHER)
    registry.secrets("aesgcm", ["a"], KEY_1)
    healthy = registry.secrets("secretbox", ["b", "c", "d"], KEY_1, "box")
    with live_cluster_view(registry) as (cluster, look):
        assert said(cluster, look, lost[1])["counts"]
        for _ in range(3):
            registry.etcd.put(healthy[1], registry.stored(healthy[1]) or b"")
            registry.etcd.put(f"{registry.prefix}/masterleases/10.0.0.1".encode(), b"k8s\x00")
            registry.etcd.put(b"/elsewhere/entirely", b"x")
            assert said(cluster, look, lost[1]) is not None
        registry.etcd.delete(healthy[2])
        registry.etcd.delete(lost[0])
        found = said(cluster, look, lost[1])
        # What this run deleted goes on speaking against the key.
        assert [counts["failed"] for counts in found["counts"].values()] == [2]
        assert "lost-0" not in str(found["seen"])
        assert (found["unread"], look.looks) == ({}, 1)


@pytest.mark.parametrize("of", ["broken", "unused-key", "gone", "replaced"])
def test_what_speaks_for_others_is_a_new_look(registry: Attacked, of: str) -> None:
    """A value that does not read; one under a key that opened nothing, or nothing of late; one that opened."""
    if of in {"gone", "replaced"}:
        (opens,) = registry.secrets("aesgcm", ["opens"], KEY_1)
    (lost,) = registry.secrets("aesgcm", ["lost"], OTHER)
    if of in {"gone", "replaced"}:
        registry.secrets("aesgcm", ["later"], KEY_1)
    with live_cluster_view(registry) as (cluster, look):
        before = said(cluster, look, lost)["verdict"]["cause"]
        assert before == ("wrong-key" if of in {"broken", "unused-key"} else "nonce-damaged")
        if of == "broken":
            registry.put("shop/broken", BROKEN)
        elif of == "gone":
            registry.etcd.delete(opens)
        elif of == "replaced":
            registry.etcd.put(opens, secret("opens"))
        else:
            registry.secrets("aesgcm", ["a"], KEY_1)
        ours = said(cluster, look, lost)
        assert look.looks == 2
        with opened(registry) as anew:
            assert ours == said(anew, FRESH, lost)


def test_earlier_revisions_do_not_speak_for_other_values(registry: Attacked) -> None:
    """What a key opened once, in values that others have replaced, makes no damage of what is under a lost key."""
    before, lost, after = (registry.key(f"shop/{name}") for name in ("before", "lost", "after"))
    for key, right in ((before, True), (lost, False), (after, True)):
        plain = impact_objects.Cluster(registry.prefix)
        made = plain.values[plain.secret(key.rpartition(b"/")[2].decode(), uid=f"uid-{key.decode()}")]
        registry.etcd.put(key, seal("aesgcm", made, key, KEY_1 if right else OTHER))
    registry.etcd.put_all((key, BROKEN) for key in (before, after))
    with live_cluster_view(registry) as (cluster, look):
        for key in (before, after, lost):
            ours = said(cluster, look, key)
            with opened(registry) as anew:
                assert ours == said(anew, FRESH, key)
        assert ours["verdict"]["cause"] == "wrong-key"


def test_a_value_that_was_written_since_it_was_read_is_not_met_again(registry: Attacked) -> None:
    (key,) = registry.secrets("aesgcm", ["lost"], OTHER)
    with live_cluster_view(registry) as (cluster, look):
        reading = cluster.now.read_key(key)
        assert reading.stored is not None
        found = cluster.examiner.independent_copy().examine(reading.stored)
        registry.etcd.put(key, reading.stored.value)
        for surroundings in (look, FRESH):
            around = surroundings.look(cluster, reading, found, no_progress, see=lambda _found: None)
            assert around.alike.target is None


@pytest.mark.parametrize("defined", [True, False])
def test_a_definition_that_comes_or_goes_counts_for_what_is_read_from_then_on(
    registry: Attacked, defined: bool
) -> None:
    key = f"{registry.prefix}/{GROUP}/widgets/shop/w0".encode()
    made = impact_objects.Cluster(registry.prefix)
    definition = made.define(GROUP, "Widget")
    registry.etcd.put(key, BROKEN)
    if defined:
        registry.etcd.put(definition.encode(), made.values[definition])
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()
        before = said(cluster, look, key)
        if defined:
            registry.etcd.delete(definition.encode())
        else:
            registry.etcd.put(definition.encode(), made.values[definition])
        look.catch_up_now()
        after = said(cluster, look, key)
        with opened(registry) as anew:
            assert after == said(anew, FRESH, key)
        assert after["verdict"]["outcome"] != before["verdict"]["outcome"]
        stored = cluster.now.read_key(key).stored
        assert stored is not None
        assert (
            cluster.examiner.independent_copy().examine(stored).verdict.outcome == after["verdict"]["outcome"]
        )


def test_a_compaction_that_took_what_was_not_told_is_a_new_look(registry: Attacked) -> None:
    lost = registry.secrets("aesgcm", ["lost-0", "lost-1"], OTHER)
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()
        registry.etcd.delete(lost[0])
        registry.etcd.compact()
        assert said(cluster, look, lost[1]) is not None
        assert look.looks == 2


def test_a_compaction_in_the_middle_of_the_look(registry: Attacked, monkeypatch: Patch) -> None:
    """The look goes on at a newer revision, and what was written since its first one is not lost."""
    lost = registry.secrets("aesgcm", ["lost-0", "lost-1", "lost-2"], OTHER)
    pages, compacted = LiveSource.pages, 0

    def after_a_compaction(self: LiveSource, prefix: bytes) -> Any:
        nonlocal compacted
        if prefix == f"{registry.prefix}/".encode() and not compacted:
            compacted += 1
            registry.etcd.put(lost[1], registry.stored(lost[1]) or b"")
            registry.etcd.delete(lost[0])
            registry.etcd.put(registry.key("new"), seal("aesgcm", secret("new"), registry.key("new")))
            registry.etcd.compact()
        return pages(self, prefix)

    monkeypatch.setattr(LiveSource, "pages", after_a_compaction)
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()
        registry.etcd.delete(lost[2])
        found = said(cluster, look, lost[1])
        assert (look.looks, compacted) == (2, 1)
        with opened(registry) as anew:
            theirs = said(anew, FRESH, lost[1])
        for fact in ("counts", "keys"):
            del found[fact], theirs[fact]
        assert found == theirs


@pytest.mark.parametrize("reads_all", [True, False])
@pytest.mark.parametrize("looked", [True, False])
def test_an_etcd_that_stands_at_an_earlier_revision_is_another(
    registry: Attacked, monkeypatch: Patch, reads_all: bool, looked: bool
) -> None:
    """Than the last look, or than what was read before there was any: who may not read all never takes one."""
    monkeypatch.setattr(LiveSource, "reads_all", reads_all)
    with live_cluster_view(registry) as (_, look):
        if looked:
            look.catch_up_now()
        with pytest.raises(RefusedByRule, match="etcd stands at revision 1, not past"):
            look.catch_up(1)


def test_look_that_has_not_seen_everything_speaks_for_nothing(registry: Attacked, monkeypatch: Patch) -> None:
    (key,) = registry.secrets("aesgcm", ["lost"], OTHER)
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()
        monkeypatch.setattr(LiveSource, "problems", ["key x was left out"])
        for surroundings in (look, FRESH):
            with pytest.raises(
                SourceUnreachable, match="not everything in etcd could be read: key x was left out"
            ):
                said(cluster, surroundings, key)


def test_an_etcd_that_cannot_be_kept_up_with(registry: Attacked, monkeypatch: Patch) -> None:
    """In every look something is written that asks for another one: nothing is said, and nobody looks for ever."""
    (key,) = registry.secrets("aesgcm", ["lost"], OTHER)
    look_at = LiveClusterView._look_at_everything
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()

        def busy(self: LiveClusterView) -> None:
            look_at(self)
            registry.put(f"shop/broken-{self.looks}", BROKEN)
            self._source.move_to(registry.etcd.revision())

        monkeypatch.setattr(LiveClusterView, "_look_at_everything", busy)
        registry.put("shop/broken", BROKEN)
        before = look.looks
        with pytest.raises(SourceError, match="cannot be kept up with: a value that does not read"):
            said(cluster, look, key)
        assert look.looks == before + 3
        monkeypatch.undo()
        assert said(cluster, look, key) is not None


def test_an_encrypted_value_that_is_written_speaks_against_no_encryption(
    etcd_servers: EtcdServers, tmp_path: Path, capfd: Captured
) -> None:
    etcd = etcd_servers.start()
    registry = Attacked(etcd, b"/registry", tmp_path, capfd)
    key = registry.put("shop/broken", BROKEN)
    with live_cluster_view(registry, no_encryption=True) as (cluster, look):
        look.catch_up_now()
        assert said(cluster, look, key) is not None
        registry.etcd.put(b"/elsewhere/x" + registry.prefix.encode(), b"k8s:enc:aescbc:v1:key1:abc")
        with pytest.raises(RefusedByRule, match="there is encryption at rest"):
            said(cluster, look, key)
    etcd.stop()


def test_a_watch_that_breaks_is_a_new_look(registry: Attacked, monkeypatch: Patch) -> None:
    lost = registry.secrets("aesgcm", ["lost-0", "lost-1"], OTHER)
    with live_cluster_view(registry) as (cluster, look):
        look.catch_up_now()
        registry.etcd.delete(lost[0])
        with monkeypatch.context() as patched:

            def broken(*_: object) -> object:
                patched.undo()
                raise SourceUnreachable("the connection was lost")

            patched.setattr(LiveSource, "written", broken)
            assert said(cluster, look, lost[1]) is not None
        assert look.looks == 2


@pytest.mark.parametrize("why", ["rights", "plugins"])
def test_who_may_not_read_everything_or_asks_plugins_gets_a_fresh_look_each_time(
    registry: Attacked, monkeypatch: Patch, why: str
) -> None:
    """What a plugin answers is no event of etcd: a value may open by now although nobody wrote it."""
    lost = registry.secrets("aesgcm", ["lost-0", "lost-1"], OTHER)
    if why == "rights":
        monkeypatch.setattr(LiveSource, "reads_all", False)
    with live_cluster_view(registry) as (cluster, look):
        if why == "plugins":
            plugins = SimpleNamespace(
                deferring=False, final=False, aside=nullcontext, over=False, start_over=lambda: None
            )
            monkeypatch.setattr(look._examiner, "plugins", plugins)
        look.catch_up_now()
        registry.etcd.delete(lost[0])
        found = said(cluster, look, lost[1])
        with opened(registry) as anew:
            assert found == said(anew, FRESH, lost[1])
        assert look.looks == 0
