"""What API servers that run hold in memory.

What a server holds at the mod_revision of an unreadable value is that value, read before its encryption key was lost:
nothing is newer. The server itself writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.apiserver.client import Pace
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Memory as Word
from etcdfix.apiserver.memory import ServerMemory
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import AllServers, open_all_servers
from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, Way
from etcdfix.examine.verdicts.deletability import FAILED, KMS_DOUBTS
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.model import ClusterIdentity, GroupResource
from etcdfix.model.storagekey import NO_OBJECTS
from etcdfix.text.safetext import safe_text

MOST_ASKED: Final = 1000
"""So many objects are asked for; ``rescue`` asks for all of them in any case."""


class Memory(Finder):
    """Asks API servers what they hold, for metadata alone: nothing of an object is revealed.

    Args:
        api: Which servers to ask.
        identity: The cluster that they must be of.
    """

    name = "memory of API servers"

    def __init__(self, api: APIAccess, identity: ClusterIdentity) -> None:
        super().__init__()
        self._history = Sameness.SAME if identity.is_known else Sameness.UNKNOWN
        self._asked = 0
        self._servers: list[ServerMemory] = []
        self._all: AllServers | None = None
        try:
            self._all = open_all_servers(api, identity, pace=Pace())
        except EtcdfixError as exc:
            self._missed(safe_text(str(api.kubeconfig)), exc.message)
            return
        self._servers = [ServerMemory(one, metadata_only=True) for one in self._all.servers]
        self.looked = [
            LookedInto(place=Place.MEMORY, path=one.address, history=self._history)
            for one in self._all.servers
        ]
        for absent in self._all.absent:
            self._missed(absent.server, absent.why)

    def close(self) -> None:
        """Send nothing more."""
        if self._all is not None:
            self._all.close()

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield what each server holds of an object that etcd does not give any more."""
        found = wanted.found
        if found is None or found.directory.codec in NO_OBJECTS:
            return
        if found.verdict.outcome not in FAILED and found.verdict.cause not in KMS_DOUBTS:
            return  # it is read in the ordinary way
        self._asked += 1
        if self._asked > MOST_ASKED:
            if self._asked == MOST_ASKED + 1:
                self.problems.append(
                    f"API servers were asked for {MOST_ASKED} objects: etcdfix rescue asks for all of them"
                )
            return
        directory = found.directory
        thing = APIObject(directory.group, directory.version, directory.resource, found.namespace, found.name)
        for at, server in enumerate(self._servers):
            if server.why_not(GroupResource(thing.group, thing.resource)) is not None:
                continue
            said = server.ask(thing, directory.kind)
            if said.word is Word.HELD and said.identity is not None:
                yield Copy(
                    key=wanted.key,
                    place=Place.MEMORY,
                    where=f"memory of {server.server.address}",
                    source=Place.MEMORY.value,
                    way=Way.PATCH,
                    mod_revision=int(said.identity.resource_version),
                    uid=said.identity.uid,
                    history=self._history,
                    doubt="it is being deleted (deletionTimestamp)" if said.identity.deleting else "",
                )
            else:
                self.looked[at] = msgspec.structs.replace(self.looked[at], detail=server.lost_words())

    def _missed(self, path: str, why: str) -> None:
        self.looked.append(LookedInto(place=Place.MEMORY, path=path, searched=False, detail=why))
        self.problems.append(f"API server {path}: {why}")
