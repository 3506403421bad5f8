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


class Cached(NamedTuple):
    """One object in memory, and the mod revision of its key when it was read."""

    value: Object
    mod_revision: int


class WatchCache:
    """What one server holds of one resource in memory.

    Attributes:
        memory: By etcd key. It stays when the cache is lost: a PATCH still starts from it.
        stuck: An event of the watch could not be read; nothing after it arrives, and the cache will be given up.
    """

    def __init__(
        self,
        resource: Resource,
        prefix: bytes,
        store: Store,
        codec: Callable[[], Codec],
        clock: Callable[[], float],
        given_up_after: Callable[[], float],
    ) -> None:
        self.prefix = prefix
        self.memory: dict[bytes, Cached] = {}
        self.ready = False
        self.revision = 0
        self._resource, self._store, self._codec = resource, store, codec
        self._clock, self._given_up_after = clock, given_up_after
        self._stuck_since: float | None = None
        self._lost_since = self._next_try = clock()
        self._error = ""
        self._tried = False

    @property
    def stuck(self) -> bool:
        return self._stuck_since is not None

    def take(self, event: Event) -> None:
        """Learn of a change in etcd."""
        if not self.ready or self.stuck or event.revision <= self.revision:
            return
        if event.key.startswith(self.prefix):
            try:
                self._apply(event)
            except Unreadable:
                self._stuck_since = self._clock()
                return
        self.revision = event.revision

    def _apply(self, event: Event) -> None:
        if event.entry is None:
            # Who watches is shown what was there: so that has to be read.
            assert event.previous is not None
            self._codec().read(self._resource, event.previous)
            self.memory.pop(event.key, None)
            return
        value = self._codec().read(self._resource, event.entry)
        self.memory[event.key] = Cached(value, event.entry.mod_revision)

    def progress(self, revision: int) -> None:
        """Learn that nothing has happened up to a revision."""
        if self.ready and not self.stuck:
            self.revision = max(self.revision, revision)

    def lose(self, since: float | None = None) -> None:
        """Give it up: reads are refused, and it is listed anew from now on."""
        self._stuck_since = None
        self.ready = self._tried = False
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
            found = {e.key: Cached(self._codec().read(self._resource, e), e.mod_revision) for e in entries}
        except Unreadable as problem:
            where = "" if problem.transformed else f'unable to transform key "{problem.key}": '
            self._error = where + problem.text
            return
        self.memory = found
        self.ready = True
        self.revision = revision

    def refusal(self) -> Refusal:
        """Return the 429 of a cache that is lost.

        Format: ``apiserver/pkg/storage/cacher/delegator.go``, ``calculateRetryAfterForUnreadyCache``.
        """
        message = "storage is (re)initializing"
        if self._tried:
            message += f": failed to list {self._resource.go_type}: {self._error}"
        seconds = self._clock() - self._lost_since
        return too_many_requests(message, int(min(30.0, max(1.0, math.exp(0.06 * seconds)))))

    def get(self, key: bytes) -> Object | None:
        """Return one object, which the caller may change."""
        found = self.memory.get(key)
        return copy.deepcopy(found.value) if found else None

    def below(self, prefix: bytes) -> list[Object]:
        """Return the objects below a prefix in the order of their keys."""
        return [self.memory[key].value for key in sorted(self.memory) if key.startswith(prefix)]
