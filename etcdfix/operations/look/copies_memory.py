"""Whether running API servers still hold objects in memory: metadata alone are asked for, nothing is revealed.

What a server holds at the mod_revision of the unreadable value is that value, read before its encryption key was lost:
nothing is newer. ``rescue`` saves it, and ``heal`` has the server write it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from etcdfix.apiserver.all_servers import open_all_servers
from etcdfix.apiserver.ask_memory import Pace, ServerMemory
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import APIAccess
from etcdfix.copies.model import Sameness
from etcdfix.errors import EtcdfixError
from etcdfix.model import ClusterIdentity
from etcdfix.operations.look.copies_gather import FoundCopy, Sought
from etcdfix.report.copies import CopyPlace, PlaceKind
from etcdfix.report.origin import shown_word
from etcdfix.storagekey import NO_OBJECTS
from etcdfix.verdicts.deletability import FAILED, KMS_DOUBTS

MOST_ASKED: Final = 1000
"""So many objects are asked for; for more, ``rescue`` asks in any case."""


class Held(NamedTuple):
    """The servers as places, what they hold, and why not every server, or not every object, was asked."""

    places: list[CopyPlace]
    copies: list[FoundCopy]
    problems: list[str]


def ask_servers(api: APIAccess, cluster: ClusterIdentity, sought: Iterable[Sought], first_place: int) -> Held:
    """Ask each API server for each object, ``MOST_ASKED`` at most; the first server is the place of that number."""
    try:
        all_servers = open_all_servers(api, cluster)
    except EtcdfixError as exc:
        where = shown_word(str(api.kubeconfig))
        return Held([_missed(where, exc.message)], [], [f"API servers: {exc.message}"])
    with all_servers:
        pace = Pace()
        servers = [
            ServerMemory(all_servers, server, pace, metadata_only=True) for server in all_servers.servers
        ]
        copies: list[FoundCopy] = []
        problems: list[str] = []
        asked = 0
        for one in sought:
            thing = _asked_for(one)
            if thing is None:
                continue
            asked += 1
            if asked > MOST_ASKED:
                problems.append(
                    f"API servers were asked for {MOST_ASKED} objects: etcdfix rescue asks for all of them"
                )
                break
            copies += _held(one, thing, servers, first_place)
        history = Sameness.SAME if cluster.is_known else Sameness.UNKNOWN
        places = [
            CopyPlace(
                kind=PlaceKind.API_SERVER,
                path=server.address,
                searched=True,
                history=history,
                detail="; ".join(_lost(server)),
            )
            for server in servers
        ]
        places += [_missed(absent.server, absent.why) for absent in all_servers.absent]
        problems += [f"API server {absent.server}: {absent.why}" for absent in all_servers.absent]
        return Held(places, copies, problems)


def _asked_for(one: Sought) -> APIObject | None:
    """Return what to ask for; None for what no server holds, or reads in the ordinary way."""
    found = one.found
    if found is None or found.directory.codec in NO_OBJECTS:
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
                identity=Sameness.SAME,
                doubt="it is being deleted (deletionTimestamp)" if identity.deleting else "",
            )


def _lost(server: ServerMemory) -> Iterator[str]:
    """Yield why a server was asked no more."""
    if server.gone is not None:
        yield server.gone.detail or server.gone.word
    for resource, said in server.lost.items():
        yield f"{resource}: {said.detail or said.word}"


def _missed(path: str, detail: str) -> CopyPlace:
    return CopyPlace(kind=PlaceKind.API_SERVER, path=path, searched=False, detail=detail)
