"""One kube-apiserver process as a stand-in plays it: its configuration, its watch caches, its answers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
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
from tests.support.apiserver.rights import ADMINS, Decision, Question, User, decide
from tests.support.apiserver.store import EtcdStore, Feed, Store

ADMIN = User("alice@example.org", (ADMINS,))

# The kinds that the server's own informers list; until they can, it is not ready.
NEEDED = frozenset(
    GroupResource(group, name)
    for group, names in {
        "": "configmaps endpoints limitranges namespaces nodes persistentvolumes pods resourcequotas secrets "
        "serviceaccounts services",
        "admissionregistration.k8s.io": "mutatingadmissionpolicies mutatingadmissionpolicybindings "
        "mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings "
        "validatingwebhookconfigurations",
        "apiregistration.k8s.io": "apiservices",
        "networking.k8s.io": "ipaddresses servicecidrs",
        "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
        "storage.k8s.io": "storageclasses volumeattachments",
    }.items()
    for name in names.split()
)

STORAGE_READINESS_SECONDS = 62.0
"""So long after a start the check ``storage-readiness`` waits for caches; then it passes."""


def utc_now() -> str:
    """Return the time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Behaviour:
    """What a test sets, and may change at any time.

    Attributes:
        given_up_after: Seconds after an event that cannot be read until the cache of its kind is given up.
        patience: Seconds that a read waits for a revision or a cache that does not come.
        ready_after: Seconds after a start's last trouble until the server's own informers have tried again.
        paths_after: Seconds after a start until custom resources are served.
        users: By token.
        denied: ``(verb, resource)`` that nobody may do, whatever RBAC says; ``""`` for any resource.
        stamp: Labels that mutating admission adds to what is written in a namespace, by its name.
        refuse: Namespaces in which an admission policy forbids every update.
        listed: ``(address, port)`` of the servers that service default/kubernetes lists; None: it does not exist.
        overloaded: So many requests are answered with the 429 of overload before others are served.
        anonymous: Who shows no token may look at the version and the health.
        fairness: Priority and fairness is on, and says so in a header.
        instead: Answers by path (with its query), which win over all others.
    """

    given_up_after: float = 30.0
    patience: float = 3.0
    ready_after: float = 0.0
    paths_after: float = 0.0
    users: dict[str, User] = field(default_factory=lambda: {TOKEN: ADMIN})
    denied: set[tuple[str, str]] = field(default_factory=set)
    stamp: dict[str, dict[str, str]] = field(default_factory=dict)
    refuse: set[str] = field(default_factory=set)
    listed: list[tuple[str, int]] | None = field(default_factory=list)
    overloaded: int = 0
    anonymous: bool = False
    fairness: bool = True
    instead: dict[str, Answer] = field(default_factory=dict)


class Process:
    """The state of one server from its start to its end.

    Attributes:
        gate: AllowUnsafeMalformedObjectDeletion.
    """

    def __init__(
        self,
        store: Store,
        configuration: EncryptionConfiguration | None,
        behaviour: Behaviour,
        *,
        prefix: str = "/registry",
        gate: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], str] = utc_now,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.behaviour = behaviour
        self.prefix = prefix
        self.gate = gate
        self.clock = clock
        self.now = now
        self.new_uid = new_uid
        self.sleep = sleep
        self.codec = Codec(configuration)
        self.caches: dict[GroupResource, WatchCache] = {}
        self.resources: dict[GroupResource, Resource] = {}
        self.ready = False
        self.lock = threading.RLock()
        self.started = clock()
        self.paths_known = False
        self._well_since: float | None = None
        self._crds_since: float | None = None
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
            self._learn_custom_resources()
            self._look_whether_ready()

    def cache(self, resource: Resource) -> WatchCache:
        return self.caches[resource.group_resource]

    def lose_cache(self, name: str) -> None:
        """Give up the cache of a resource: ``secrets``, ``widgets.example.com``; it stays lost until it can be made."""
        plural, _, group = name.partition(".")
        with self.lock:
            self.caches[GroupResource(group, plural)].lose()

    def may(self, user: User, asked: Question) -> Decision:
        """Decide whether a user may do something."""
        for resource in (asked.resource, ""):
            if (asked.verb, resource) in self.behaviour.denied:
                return Decision(False)
        return decide(user, asked, self._objects)

    def failing_checks(self, live: bool) -> list[str]:
        """Return the health checks that fail: of ``/livez`` and ``/healthz``, or of ``/readyz``."""
        if self.ready:
            return []
        found = []
        own = any(not self.caches[need].ready for need in NEEDED)
        if not live and (own or self.paths_known):
            found.append("informer-sync")
        if not self.paths_known:
            found += ["poststarthook/start-apiextensions-controllers", "poststarthook/crd-informer-synced"]
        if own and self.clock() - self.started < STORAGE_READINESS_SECONDS:
            found.append("poststarthook/storage-readiness")
        return found

    def _look_whether_ready(self) -> None:
        well = all(self.caches[need].ready for need in (*NEEDED, CRDS))
        if not well:
            self._well_since = None
            return
        if self._well_since is None:
            self._well_since = self.clock()
        # A server whose first try succeeds is ready at once.
        waits = self.behaviour.ready_after if self._well_since > self.started else 0.0
        self.ready = self.ready or self.clock() - self._well_since >= waits

    def _objects(self, resource: GroupResource) -> Iterable[Mapping[str, Any]]:
        return [cached.value for cached in self.caches[resource].memory.values()]

    def _serve(self, resource: Resource) -> None:
        where = f"{self.prefix}/{resource.directory.path}/".encode()
        self.resources[resource.group_resource] = resource
        self.caches[resource.group_resource] = WatchCache(
            resource,
            where,
            self.store,
            lambda: self.codec,
            self.clock,
            gate=self.gate,
            given_up_after=lambda: self.behaviour.given_up_after,
        )

    def _learn_custom_resources(self) -> None:
        crds = self.caches[CRDS]
        if not self.paths_known:
            if not crds.ready:
                return
            if self._crds_since is None:
                self._crds_since = self.clock()
            late = self._crds_since > self.started
            waits = self.behaviour.ready_after if late else self.behaviour.paths_after
            if self.clock() - self._crds_since < waits:
                return
            self.paths_known = True
        for cached in crds.memory.values():
            crd: Object = cached.value
            group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
            if GroupResource(group, plural) not in self.resources:
                self._serve(custom(crd))
                self.caches[GroupResource(group, plural)].tick()


Configuration = EncryptionConfiguration | bytes | Mapping[str, Any] | None


def configuration_of(source: Configuration) -> EncryptionConfiguration | None:
    """Return an EncryptionConfiguration: as it is, from a file's bytes, or from its JSON."""
    if source is None or isinstance(source, EncryptionConfiguration):
        return source
    text = source if isinstance(source, bytes) else json.dumps(source).encode()
    return parse_configuration(text, path="config.yaml")
