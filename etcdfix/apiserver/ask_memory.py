"""Asks one API server for object after object as it has them in memory: paced, patient, and no longer than it helps.

A server is asked nothing more of a kind once its memory of that is lost, and nothing more at all once it is gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from etcdfix.apiserver.client import Server
from etcdfix.apiserver.memory import Memory, Remembered, caches, remember, served_versions
from etcdfix.apiserver.objects import APIObject, Said
from etcdfix.apiserver.patience import pause_seconds
from etcdfix.apiserver.servers import AllServers
from etcdfix.model.model import GroupResource

PER_SECOND: Final = 10.0
"""Requests of one search."""
_MOST_WAITS: Final = 8
"""So often a server that has too much to do is asked again for the same object."""
_IN_A_ROW: Final = 3
"""So many objects of a kind that a server does not give: it is asked for no more of them."""

_GIVES: Final = frozenset({Memory.HELD, Memory.NOT_HELD, Memory.OTHER_OBJECT})
"""Answers of a server that has its memory of the kind."""
_TRANSIENT: Final = frozenset({Memory.OVERLOADED, Memory.NO_ANSWER})


class Pace:
    """Lets requests pass at an even pace."""

    def __init__(
        self,
        per_second: float = PER_SECOND,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sleep = sleep
        self._gap = 1 / per_second
        self._clock = clock
        self._next = clock()

    def wait(self) -> None:
        """Return when the next request may be sent."""
        now = self._clock()
        if now < self._next:
            self.sleep(self._next - now)
        self._next = max(now, self._next) + self._gap


class ServerMemory:
    """One API server; why it is asked nothing more is in ``gone``, and why nothing more of a kind in ``lost``."""

    def __init__(
        self, all_servers: AllServers, server: Server, pace: Pace, *, metadata_only: bool = False
    ) -> None:
        self.address = server.address
        self.requests = 0
        self.gone: Remembered | None = None
        self.lost: dict[GroupResource, Remembered] = {}
        self._all_servers = all_servers
        self._server = server
        self._pace = pace
        self._metadata_only = metadata_only
        self._versions: dict[GroupResource, str] = {}
        self._row: Counter[GroupResource] = Counter()
        self._unanswered = 0

    def why_not(self, resource: GroupResource) -> Remembered | None:
        """Return what it said when it was last asked for a kind; None where it is still asked."""
        return self.gone or self.lost.get(resource)

    def lost_words(self) -> str:
        """Return why it is asked nothing more, or nothing more of some kinds; "" where it is still asked."""
        gone = [] if self.gone is None else [self.gone.detail or self.gone.word]
        return "; ".join([*gone, *(f"{kind}: {why.detail or why.word}" for kind, why in self.lost.items())])

    def ask(self, thing: APIObject, kind: str) -> Remembered:
        """Ask for one object, "" for a version or kind that only the server or a CRD can tell.

        Where it is not given, remember what that says of the others.
        """
        resource = GroupResource(thing.group, thing.resource)
        found = self._ask_in_version(thing, kind, resource)
        if found.word in _GIVES:
            self._row[resource] = self._unanswered = 0
            return found
        self._judge(found, thing, resource)
        return found

    def _ask_in_version(self, thing: APIObject, kind: str, resource: GroupResource) -> Remembered:
        """Ask in the version that the server gave before, else in each that it serves."""
        version = self._versions.get(resource, thing.version)
        if version:
            found = self._ask_patiently(msgspec.structs.replace(thing, version=version), kind)
            if found.word is not Memory.NOT_SERVED or resource in self._versions:
                if found.word is Memory.HELD:
                    self._versions[resource] = version
                return found
        others = self._all_servers.within(partial(served_versions, self._server, thing))
        if others is None or isinstance(others, Said):
            detail = others.detail if others is not None else "it does not answer in time"
            return Remembered(word=Memory.NO_ANSWER, detail=detail)
        found = Remembered(word=Memory.NOT_SERVED, detail=f"it does not serve {resource}")
        for other in others:
            if other != version:
                said = self._ask_patiently(msgspec.structs.replace(thing, version=other), kind)
                if said.word not in {Memory.NOT_SERVED, Memory.READ_ERROR}:
                    self._versions[resource] = other
                    return said
                # It may be the conversion to this version that failed: another one may be given.
                found = said if found.word is Memory.NOT_SERVED else found
        return found

    def _ask_patiently(self, thing: APIObject, kind: str) -> Remembered:
        """Ask, and again after a while where the server has too much to do."""
        for waits in range(_MOST_WAITS + 1):
            self._pace.wait()
            self.requests += 1
            asked = self._all_servers.within(
                partial(remember, self._server, thing, kind=kind, metadata_only=self._metadata_only)
            )
            found = asked or Remembered(word=Memory.NO_ANSWER, detail="it does not answer in time")
            if found.word is not Memory.OVERLOADED or waits == _MOST_WAITS:
                break
            self._pace.sleep(pause_seconds(found.retry_after))
        return found

    def _judge(self, found: Remembered, thing: APIObject, resource: GroupResource) -> None:
        """See whether the server has anything more of the kind, or at all."""
        self._row[resource] += 1
        self._unanswered = self._unanswered + 1 if found.word in _TRANSIENT else 0
        if found.word is Memory.UNKNOWN_USER:
            self.gone = found
        elif found.word in {Memory.CACHE_LOST, Memory.NOT_SERVED}:
            self.lost[resource] = found
        elif found.word is Memory.READ_ERROR and self._row[resource] == 1:
            self._look_whether_lost(thing, resource)
        elif self._unanswered >= _IN_A_ROW:
            self.gone = _given_up(found)
        elif self._row[resource] >= _IN_A_ROW:
            self.lost[resource] = _given_up(found)

    def _look_whether_lost(self, thing: APIObject, resource: GroupResource) -> None:
        """Tell a server that cannot read one object from one that has lost its memory of the kind."""
        version = self._versions.get(resource, thing.version)
        self._pace.wait()
        asked = self._all_servers.within(
            partial(caches, self._server, msgspec.structs.replace(thing, version=version))
        )
        # Of a resource in several versions, a LIST may fail for what it is converted to.
        lost = {Memory.CACHE_LOST, Memory.READ_ERROR} if version else {Memory.CACHE_LOST}
        if asked is not None and asked.word in lost:
            detail = "it has lost its memory of the kind"
            self.lost[resource] = Remembered(word=Memory.CACHE_LOST, detail=detail)


def _given_up(found: Remembered) -> Remembered:
    return Remembered(word=found.word, detail=f"given up after {_IN_A_ROW} objects in a row: {found.detail}")
