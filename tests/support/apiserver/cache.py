"""The watch cache of one resource as a kube-apiserver 1.36 keeps it: what it serves, and when it is given up."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

from tests.support.apiserver.answers import Refusal, too_many_requests
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Codec, Object, Unreadable
from tests.support.apiserver.store import Event, Store

RELIST_SECONDS = 0.9


class Change(NamedTuple):
    """One event for watchers: ``ADDED``, ``MODIFIED`` or ``DELETED``; the object before, where there was one."""

    kind: str
    key: bytes
    value: Object
    before: Object | None
    revision: int


class Cached(NamedTuple):
    """One object in memory, and the mod revision of its key when it was read."""

    value: Object
    mod_revision: int


class WatchCache:
    """What one server holds of one resource in memory.

    Attributes:
        memory: By etcd key. It stays when the cache is lost: a PATCH still starts from it.
        stuck: An event of the watch could not be read; nothing after it arrives, and the cache will be given up.
        began: The revision from which changes are known.
    """

    def __init__(
        self,
        resource: Resource,
        prefix: bytes,
        store: Store,
        codec: Callable[[], Codec],
        clock: Callable[[], float],
        *,
        gate: bool,
        given_up_after: Callable[[], float],
    ) -> None:
        self.resource = resource
        self.prefix = prefix
        self.memory: dict[bytes, Cached] = {}
        self.ready = False
        self.revision = self.began = 0
        self.changes: list[Change] = []
        self.generation = 0
        self._store = store
        self._codec = codec
        self._clock = clock
        self._gate = gate
        self._given_up_after = given_up_after
        self._stuck_since: float | None = None
        self._lost_since = clock()
        self._next_try = clock()
        self._error = ""
        self._tried = False

    @property
    def stuck(self) -> bool:
        return self._stuck_since is not None

    def take(self, event: Event) -> None:
        """Learn of a change in etcd."""
        if not self.ready or self.stuck:
            return
        if event.revision <= self.revision:
            return
        if not event.key.startswith(self.prefix):
            self.revision = event.revision
            return
        try:
            self._apply(event)
        except Unreadable:
            self._stuck_since = self._clock()
            if self._gate and event.entry is None:
                self.lose()
            return
        self.revision = event.revision

    def _apply(self, event: Event) -> None:
        before = self.memory.get(event.key)
        if event.entry is None:
            assert event.previous is not None
            value = self._codec().read(self.resource, event.previous)
            value["metadata"]["resourceVersion"] = str(event.revision)
            self.memory.pop(event.key, None)
            self.changes.append(
                Change("DELETED", event.key, value, before.value if before else None, event.revision)
            )
            return
        value = self._codec().read(self.resource, event.entry)
        self.memory[event.key] = Cached(value, event.entry.mod_revision)
        kind = "MODIFIED" if before else "ADDED"
        self.changes.append(Change(kind, event.key, value, before.value if before else None, event.revision))

    def progress(self, revision: int) -> None:
        """Learn that nothing has happened up to a revision."""
        if self.ready and not self.stuck:
            self.revision = max(self.revision, revision)

    def lose(self, since: float | None = None) -> None:
        """Give it up: reads are refused, watches end, and it is listed anew from now on."""
        self._stuck_since = None
        self.ready = False
        self._tried = False
        self._lost_since = self._clock() if since is None else since
        self._next_try = self._lost_since + RELIST_SECONDS

    def tick(self) -> None:
        """Do what is due by now."""
        now = self._clock()
        if self._stuck_since is not None and now - self._stuck_since >= self._given_up_after():
            self.lose(self._stuck_since + self._given_up_after())
        if not self.ready and now >= self._next_try:
            self.relist()

    def relist(self) -> None:
        """Read everything anew; where that fails, it is tried again a second later."""
        entries, revision = self._store.range(self.prefix)
        self._next_try = self._clock() + RELIST_SECONDS
        self._tried = True
        try:
            found = {e.key: Cached(self._codec().read(self.resource, e), e.mod_revision) for e in entries}
        except Unreadable as problem:
            self._error = list_error(self.resource, problem, gate=self._gate)
            return
        self.memory = found
        self.ready = True
        self.revision = self.began = revision
        self.changes = []
        self.generation += 1

    def refusal(self) -> Refusal:
        message = "storage is (re)initializing"
        if self._tried:
            message += f": failed to list {self.resource.go_type}: {self._error}"
        return too_many_requests(message, retry_after(self._clock() - self._lost_since))

    def get(self, key: bytes) -> Object | None:
        """Return one object, which the caller may change."""
        found = self.memory.get(key)
        return copy.deepcopy(found.value) if found else None

    def objects(self) -> dict[bytes, Object]:
        return {key: cached.value for key, cached in self.memory.items()}

    def at(self, revision: int) -> dict[bytes, Object]:
        """Return all objects by key as they stood at an earlier revision, as far back as changes are known."""
        found = self.objects()
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            if change.before is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.before
        return found

    def below(self, prefix: bytes) -> list[Object]:
        """Return the objects below a prefix in the order of their keys."""
        return [self.memory[key].value for key in sorted(self.memory) if key.startswith(prefix)]


def retry_after(seconds: float) -> int:
    """Return the seconds that a server names which has been without a cache for so long.

    Format: ``apiserver/pkg/storage/cacher/delegator.go``, ``calculateRetryAfterForUnreadyCache``.
    """
    return int(min(30.0, max(1.0, math.exp(0.06 * seconds))))


def list_error(resource: Resource, problem: Unreadable, *, gate: bool) -> str:
    """Return what a server says that could not list a resource."""
    if gate:
        return f"failed to read one or more {resource.words} from the storage"
    if problem.transformed:
        return problem.text
    return f'unable to transform key "{problem.key}": {problem.text}'
