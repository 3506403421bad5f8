"""Opens every place that is looked into, and asks all of them for the copies of an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.copies.backups import BackupRows, Backups
from etcdfix.copies.finder import Finder, LookedInto, Named
from etcdfix.copies.log import Log
from etcdfix.copies.memory import Memory
from etcdfix.copies.model import Copy, Place, Wanted
from etcdfix.copies.object import ObjectFile, Rescued
from etcdfix.copies.rank import ranked
from etcdfix.copies.revisions import Revisions
from etcdfix.copies.snapshots import Snapshots
from etcdfix.copies.value import Bit, Candidate, Elsewhere
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import Keeps
from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity
from etcdfix.sources.base import Source


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look, besides the datastore and the value itself.

    Attributes:
        named: From ``--in`` or ``--from``.
        only: Look at what is named, and nowhere else.
        api: API servers that may still hold the object in memory; None for none.
        rescued: Directories to which ``rescue`` saved.
        recorded: Digests of what it saved, by the audit log.
        backups: Reads what etcdfix saved; None for nothing.
        others: Etcd keys at which the value may stand instead.
        moved: Those whose value was written for another one, by that; None where nobody looks for them.
        kept: Tells what the datastore keeps, where it was read before; None to ask it key by key.
        progress: Counts what takes long.
    """

    named: tuple[Named, ...] = ()
    only: bool = False
    api: APIAccess | None = None
    rescued: tuple[Path, ...] = ()
    recorded: frozenset[str] = frozenset()
    backups: BackupRows | None = None
    others: tuple[bytes, ...] = ()
    moved: Mapping[bytes, Sequence[bytes]] | None = None
    kept: Keeps | None = None
    progress: Progress = no_progress

    def of(self, place: Place) -> list[Named]:
        """Return what is named of one kind."""
        return [one for one in self.named if one.place is place]

    def asks(self, place: Place) -> bool:
        """Say whether a place that needs no name is looked into."""
        return not self.only or bool(self.of(place))


@contextmanager
def open_finders(
    source: Source,
    examiner: Examiner,
    places: Places,
    *,
    uid: str | None,
    identity: ClusterIdentity,
    candidates: Mapping[Path, Examiner] | None = None,
) -> Iterator[list[Finder]]:
    """Open what looks into each place, and close it again.

    Args:
        source: What is stored now.
        examiner: Of the source.
        places: Where to look.
        uid: Of the source's kube-system; None where it cannot be read.
        identity: Of its cluster.
        candidates: What examines under each candidate configuration that is named.
    """
    with ExitStack() as stack:
        finders: list[Finder] = []
        if places.asks(Place.REVISION):
            revision = max((int(named.what) for named in places.of(Place.REVISION)), default=0)
            finders.append(Revisions(source, examiner, revision=revision, kept=places.kept))
        if places.asks(Place.BIT):
            finders.append(Bit(examiner, every=places.only))
        finders += [Candidate(path, other) for path, other in (candidates or {}).items()]
        if places.others or places.moved is not None:
            moved = places.moved if places.moved is not None else {}  # it may still be empty, and grow
            finders.append(Elsewhere(source, examiner, places.others, moved))
        for named in places.of(Place.SNAPSHOT):
            older = Snapshots(named.path, source, examiner, uid=uid, progress=places.progress)
            finders.append(stack.enter_context(older))
        for named in places.of(Place.LOG):
            log = Log(
                named.path,
                source,
                examiner,
                entry=named.entry,
                older=[named.path for named in places.of(Place.SNAPSHOT)],
                kept=places.kept,
                progress=places.progress,
            )
            finders.append(stack.enter_context(log))
        finders += [ObjectFile(named.path, examiner) for named in places.of(Place.OBJECT)]
        read = source.describe()
        now = read.revision if read.type == "etcd" else 0
        if places.backups is not None and places.asks(Place.BACKUP):
            finders.append(Backups(places.backups, examiner, identity, now))
        if not places.only:
            finders += [Rescued(saved, examiner, identity, places.recorded) for saved in places.rescued]
        if places.api is not None and places.asks(Place.MEMORY):
            finders.append(stack.enter_context(Memory(places.api, identity)))
        yield finders


def copies_of(wanted: Wanted, finders: Iterable[Finder]) -> list[Copy]:
    """Ask each finder for the copies of an object, and return them ranked; what ended a search is its problem.

    Raises:
        KMSPending: Only while plugins defer.
    """
    copies: list[Copy] = []
    for finder in finders:
        try:
            copies.extend(finder.find(wanted))
        except SourceError as exc:
            finder.problems.append(f"{finder.name} could not be read to their end: {exc.message}")
    return ranked(copies, wanted)


def looked_into(finders: Iterable[Finder]) -> list[LookedInto]:
    """Return every place that was looked into, once the searches are over."""
    return [place for finder in finders for place in finder.looked]


def problems_of(finders: Sequence[Finder]) -> list[str]:
    """Return why not everything was seen, each once."""
    return [*dict.fromkeys(problem for finder in finders for problem in finder.problems)]
