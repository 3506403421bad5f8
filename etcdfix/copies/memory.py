"""What API servers that run hold in memory, and what ``rescue`` has saved of it.

What a server holds at the mod_revision of an unreadable value is that value, read before its encryption key was lost:
nothing is newer. The server itself writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.apiserver.client import Pace
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Memory as Word
from etcdfix.apiserver.memory import ServerMemory
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import AllServers, open_all_servers
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, Way, examined_copy
from etcdfix.copies.rescued import SavedObject, read_index, read_saved
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.deletability import FAILED, KMS_DOUBTS
from etcdfix.model.closing import Closing
from etcdfix.model.errors import ConfigurationError, EtcdfixError
from etcdfix.model.model import ClusterIdentity, GroupResource, StoredValue
from etcdfix.model.storagekey import NO_OBJECTS
from etcdfix.text.safetext import safe_text

MOST_ASKED: Final = 1000
"""So many objects are asked for; ``rescue`` asks for all of them in any case."""


class Memory(Closing):
    """Asks API servers what they hold, for metadata alone; a :class:`~etcdfix.copies.finder.Finder`.

    Nothing of an object is revealed. Close it, or use it as a context manager.

    Args:
        api: Which servers to ask.
        identity: The cluster that they must be of.
    """

    name = "memory of API servers"

    def __init__(self, api: APIAccess, identity: ClusterIdentity) -> None:
        self.looked: list[LookedInto] = []
        self.problems: list[str] = []
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


class Rescued:
    """Looks into a directory to which ``rescue`` saved; a :class:`~etcdfix.copies.finder.Finder`.

    Args:
        directory: Of the index.
        examiner: Of the source: its layout, and its CRDs.
        identity: The cluster of the source.
        recorded_digests: Those that the audit log says were saved; any other file may have been edited.
    """

    name = "what rescue saved"

    def __init__(
        self,
        directory: Path,
        examiner: Examiner,
        identity: ClusterIdentity,
        recorded_digests: frozenset[str],
    ) -> None:
        self._directory, self._identity, self._recorded = directory, identity, recorded_digests
        # What an API server gives is not encrypted.
        self._plain = Examiner(
            examiner.layout, None, examiner.decoder, assumed_release=examiner.assumed_release
        )
        self._plain.know_as(examiner)
        self._index: dict[bytes, list[SavedObject]] = {}
        self.problems: list[str] = []
        detail = ""
        try:
            self._index = read_index(directory).by_key()
        except ConfigurationError as exc:
            detail = exc.message
            self.problems.append(detail)
        self.looked = [
            LookedInto(place=Place.OBJECT, path=safe_text(str(directory)), searched=not detail, detail=detail)
        ]

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield each file that was saved of an object, and is what its index says."""
        for saved in self._index.get(wanted.key, ()):
            path = self._directory / saved.file
            try:
                raw = read_saved(self._directory, saved)
            except ConfigurationError as exc:
                self.problems.append(exc.message)
                continue
            found = self._plain.examine(StoredValue(wanted.key, raw, 0, 0, 0, 0))
            copy = examined_copy(
                found, Place.OBJECT, f"saved object {safe_text(str(path))}", f"object:{path}", way=Way.SEAL
            )
            yield msgspec.structs.replace(
                copy,
                mod_revision=int(saved.resource_version),
                value_sha256="",  # of the file: what is stored of it is made when it is sealed
                stored=None,
                doubt=self._doubt_about(saved),
            )

    def _doubt_about(self, saved: SavedObject) -> str:
        if not self._identity.uid or saved.cluster_uid != self._identity.uid:
            return "nothing says that it was saved from an API server of this cluster"
        if saved.sha256 not in self._recorded:
            return "the audit log does not have its digest: it may have been edited"
        return "it was being deleted (deletionTimestamp)" if saved.deleting else ""
