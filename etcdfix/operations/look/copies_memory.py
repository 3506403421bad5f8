"""Whether running API servers still hold objects in memory: metadata alone are asked for, nothing is revealed.

What a server holds at the mod_revision of the unreadable value is that value, read before its encryption key was lost:
nothing is newer. ``rescue`` saves it, and ``heal`` has the server write it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from etcdfix.apiserver.all_servers import AllServers, open_all_servers
from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import APIAccess
from etcdfix.errors import EtcdfixError
from etcdfix.model import ClusterIdentity
from etcdfix.operations.look.ask_memory import Pace, ServerMemory
from etcdfix.operations.look.copies_gather import FoundCopy, Sought
from etcdfix.operations.look.rescue import DEFAULT_PER_SECOND
from etcdfix.report.copies import CopyPlace, Fit, PlaceKind
from etcdfix.report.origin import shown_word
from etcdfix.storagekey import StorageCodec
from etcdfix.verdicts.deletability import FAILED, KMS_DOUBTS

MOST_ASKED: Final = 1000
"""So many objects are asked for; for more, ``rescue`` asks in any case."""

_NO_OBJECTS: Final = frozenset({StorageCodec.NOT_AN_OBJECT, StorageCodec.UNKNOWN, StorageCodec.ALLOCATOR})


class MemorySearch:
    """Asks each API server for each object; made once for a search.

    Attributes:
        problems: Why not every server, or not every object, was asked.
    """

    def __init__(self, api: APIAccess, cluster: ClusterIdentity) -> None:
        self._api = api
        self._cluster = cluster
        self.problems: list[str] = []

    def search(self, sought: Iterable[Sought], first_place: int) -> tuple[list[CopyPlace], list[FoundCopy]]:
        """Return the servers as places, the first with the number given, and what they hold.

        At most ``MOST_ASKED`` objects are asked for, and so no more than that is returned for each server.
        """
        try:
            all_servers = open_all_servers(self._api, self._cluster)
        except EtcdfixError as exc:
            self.problems.append(f"API servers: {exc.message}")
            where = shown_word(str(self._api.kubeconfig))
            return [_place(where, searched=False, detail=exc.message)], []
        with all_servers:
            return self._ask(all_servers, sought, first_place)

    def _ask(
        self, all_servers: AllServers, sought: Iterable[Sought], first_place: int
    ) -> tuple[list[CopyPlace], list[FoundCopy]]:
        pace = Pace(DEFAULT_PER_SECOND)
        servers = [
            ServerMemory(all_servers, server, pace, metadata_only=True) for server in all_servers.servers
        ]
        copies: list[FoundCopy] = []
        asked = 0
        for one in sought:
            thing = _asked_for(one)
            if thing is None:
                continue
            asked += 1
            if asked > MOST_ASKED:
                self.problems.append(
                    f"API servers were asked for {MOST_ASKED} objects: etcdfix rescue asks for all of them"
                )
                break
            copies += _held(one, thing, servers, first_place)
        known = self._cluster.is_known
        places = [
            _place(server.address, searched=True, known=known, detail="; ".join(_lost(server)))
            for server in servers
        ]
        for absent in all_servers.absent:
            self.problems.append(f"API server {absent.server}: {absent.why}")
            places.append(_place(absent.server, searched=False, detail=absent.why))
        return places, copies


def _asked_for(one: Sought) -> APIObject | None:
    """Return what to ask for; None for what no server holds, or reads in the ordinary way."""
    found = one.found
    if found is None or found.directory.codec in _NO_OBJECTS:
        return None
    if found.verdict.outcome not in FAILED and found.verdict.cause not in KMS_DOUBTS:
        return None
    directory = found.directory
    return APIObject(directory.group, directory.version, directory.resource, found.namespace, found.name)


def _held(
    one: Sought, thing: APIObject, servers: Iterable[ServerMemory], first_place: int
) -> Iterator[FoundCopy]:
    """Yield what each server holds of an object."""
    assert one.found is not None  # it was asked for
    for number, server in enumerate(servers, start=first_place):
        if server.why_not(one.found.directory.group_resource) is not None:
            continue
        said = server.ask(thing, one.found.directory.kind)
        identity = said.identity
        if said.word is Memory.HELD and identity is not None:
            yield FoundCopy(
                key=one.key,
                place=number,
                mod_revision=int(identity.resource_version),
                uid=identity.uid,
                identity=Fit.SAME,
                doubt="it is being deleted (deletionTimestamp)" if identity.deleting else "",
            )


def _lost(server: ServerMemory) -> Iterator[str]:
    """Yield why a server was asked no more."""
    if server.gone is not None:
        yield _said(server.gone)
    for resource, said in server.lost.items():
        yield f"{resource}: {_said(said)}"


def _said(said: Remembered) -> str:
    return said.detail or said.word.value


def _place(path: str, *, searched: bool, known: bool = False, detail: str = "") -> CopyPlace:
    return CopyPlace(
        kind=PlaceKind.API_SERVER,
        path=path,
        searched=searched,
        history=Fit.SAME if known else Fit.UNKNOWN,
        detail=detail,
    )
