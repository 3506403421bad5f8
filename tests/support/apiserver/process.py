"""One kube-apiserver process as a stand-in plays it: its configuration, its watch caches, its answers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.model import GroupResource
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.cache import WatchCache
from tests.support.apiserver.https import TOKEN
from tests.support.apiserver.kinds import CRDS, Resource, builtins, custom
from tests.support.apiserver.objects import Codec, Object
from tests.support.apiserver.store import EtcdStore, Feed, Store


def utc_now() -> str:
    """Return the time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Behaviour:
    """What a test sets, and may change at any time.

    Attributes:
        given_up_after: Seconds after an event that cannot be read until the cache of its kind is given up.
        patience: Seconds that a read waits for a revision or a cache that does not come.
        token: Who shows it may do everything that is not denied.
        denied: ``(verb, resource)`` that nobody may do; ``""`` for any resource.
        stamp: Labels that mutating admission adds to what is written in a namespace, by its name.
        refuse: Namespaces in which an admission policy forbids every update.
        listed: ``(address, port)`` of the servers that service default/kubernetes lists; None: it does not exist.
        overloaded: So many requests are answered with the 429 of overload before others are served.
        instead: Answers by path (with its query), which win over all others.
    """

    given_up_after: float = 30.0
    patience: float = 3.0
    token: str = TOKEN
    denied: set[tuple[str, str]] = field(default_factory=set)
    stamp: dict[str, dict[str, str]] = field(default_factory=dict)
    refuse: set[str] = field(default_factory=set)
    listed: list[tuple[str, int]] | None = field(default_factory=list)
    overloaded: int = 0
    instead: dict[str, Answer] = field(default_factory=dict)

    def allows(self, verb: str, resource: str) -> bool:
        return not {(verb, resource), (verb, "")} & self.denied


class Process:
    """The state of one server from its start to its end."""

    def __init__(
        self,
        store: Store,
        configuration: EncryptionConfiguration | None,
        behaviour: Behaviour,
        *,
        prefix: str = "/registry",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], str] = utc_now,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.behaviour, self.prefix = store, behaviour, prefix
        self.clock, self.now, self.new_uid, self.sleep = clock, now, new_uid, sleep
        self.codec = Codec(configuration)
        self.caches: dict[GroupResource, WatchCache] = {}
        self.resources: dict[GroupResource, Resource] = {}
        self.lock = threading.RLock()
        self._feed: Feed = store.feed()
        for resource in builtins().values():
            self._serve(resource)
        self.catch_up()

    def close(self) -> None:
        self._feed.close()

    def reload(self, configuration: EncryptionConfiguration | None) -> None:
        """Use another EncryptionConfiguration from now on; the caches stay as they are."""
        with self.lock:
            self.catch_up()
            self.codec = Codec(configuration)

    def catch_up(self, revision: int = 0) -> None:
        """Take in what etcd has told, up to a revision at least, and do what is due."""
        with self.lock:
            # Asked before the changes are taken: what comes between is not passed over.
            at = 0 if isinstance(self.store, EtcdStore) else self.store.revision()
            for event in self._feed.take(revision):
                for cache in self.caches.values():
                    cache.take(event)
            for cache in list(self.caches.values()):
                cache.progress(at)
                cache.tick()
            for cached in self.caches[CRDS].memory.values():
                self._learn(cached.value)

    def cache(self, resource: Resource) -> WatchCache:
        return self.caches[resource.group_resource]

    def lose_cache(self, name: str) -> None:
        """Give up the cache of a resource: ``secrets``, ``widgets.example.com``; it stays lost until it can be made."""
        plural, _, group = name.partition(".")
        with self.lock:
            self.caches[GroupResource(group, plural)].lose()

    def _serve(self, resource: Resource) -> None:
        self.resources[resource.group_resource] = resource
        self.caches[resource.group_resource] = WatchCache(
            resource,
            f"{self.prefix}/{resource.directory.path}/".encode(),
            self.store,
            lambda: self.codec,
            self.clock,
            lambda: self.behaviour.given_up_after,
        )

    def _learn(self, crd: Object) -> None:
        found = GroupResource(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        if found not in self.resources:
            self._serve(custom(crd))
            self.caches[found].tick()


Configuration = EncryptionConfiguration | bytes | Mapping[str, Any] | None


def configuration_of(source: Configuration) -> EncryptionConfiguration | None:
    """Return an EncryptionConfiguration: as it is, from a file's bytes, or from its JSON."""
    if source is None or isinstance(source, EncryptionConfiguration):
        return source
    text = source if isinstance(source, bytes) else json.dumps(source).encode()
    return parse_configuration(text, path="config.yaml")
