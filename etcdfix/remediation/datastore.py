"""What stands under keys now, in etcd or in the file of kine, and whether it still is what was examined.

A change is decided by what stands there now, and judged by it afterwards. Only a transaction of our own needs to know
what keeps the keys (:mod:`~etcdfix.remediation.writer`).

Two clusters that were restored from one snapshot share the uid of kube-system, cluster_id, member ids and revisions,
and an address may lead to the other one from one request to the next. What was made since differs. So a change names,
besides its own key, a few landmarks: the Namespace kube-system (which may be absent, and then must be), and the three
objects that were made last among types whose objects stay for long. They are read before anything else, and compared
last, by the transaction itself: whatever turned to another cluster in between is noticed there.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout, display
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.sources.etcd.paging import FIRST_LIMIT, after, bounds_of
from etcdfix.sources.keyvalue import stored_of
from etcdfix.sources.kine import KineSource
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import RANGE, message

LONG_LIVED = (
    "namespaces",
    "minions",
    "serviceaccounts",
    "services/specs",
    "persistentvolumes",
    "persistentvolumeclaims",
    "deployments",
    "statefulsets",
    "daemonsets",
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
    "storageclasses",
    "priorityclasses",
    "apiextensions.k8s.io/customresourcedefinitions",
    "apiregistration.k8s.io/apiservices",
)
"""Directories below the storage prefix whose objects stay, and are small: to list keys, etcd reads the values too."""

NEWEST = 3
"""How many besides kube-system."""

KUBE_SYSTEM = "namespaces/kube-system"

_LOOK_BEHIND = "see what stands behind each address: etcdctl endpoint status --write-out=table"


class KeyReading(msgspec.Struct, frozen=True, kw_only=True):
    """One key as it stands now; the rest is from the header of the answer."""

    stored: StoredValue | None
    revision: int
    cluster_id: int
    member_id: int


class Landmark(NamedTuple):
    """One object and when it was made; a create revision of 0 says that there is none.

    Attributes:
        mod_revision: Of its last change, where it must not have been written since either; 0 where it may have been.
    """

    key: bytes
    create_revision: int
    mod_revision: int = 0

    @property
    def compared(self) -> tuple[str, int]:
        """Which of its revisions is compared, as etcd's Compare names it, and with what."""
        if self.mod_revision:
            return "mod_revision", self.mod_revision
        return "create_revision", self.create_revision


class Landmarks(msgspec.Struct, frozen=True):
    """What the cluster that was examined has, and one that only looks like it has not.

    Attributes:
        marks: kube-system first, then the others, made last first. Never the key that is to be changed.
        revision: etcd's revision when they were read. In one cluster it only grows.
    """

    marks: tuple[Landmark, ...] = ()
    revision: int = 0

    def with_mark(self, mark: Landmark) -> Landmarks:
        """Return the same with one more, on which the change rests; one that is there already gives way to it."""
        others = (known for known in self.marks if known.key != mark.key)
        return msgspec.structs.replace(self, marks=(*others, mark))


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A key and the landmarks, as one connection shows them.

    Attributes:
        revisions: The compared revision of each landmark, in their order, 0 where it is absent.
    """

    reading: KeyReading
    revisions: tuple[int, ...] = ()


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What was examined, and must still be so for a change to be made; stored is None where there was nothing."""

    key: bytes
    stored: StoredValue | None
    landmarks: Landmarks

    def stands(self, present: StoredValue | None) -> bool:
        """Say whether a record has the revisions that the transaction compares."""
        return state_of(present) == state_of(self.stored)


class Difference(NamedTuple):
    """Why a change is not made: ``moved`` for the key itself, ``other-cluster`` for what surrounds it."""

    rule: Rule
    text: str
    hint: str


class Datastore(ABC):
    """Answers about now: no answer is older than its question. Whatever asks raises ``SourceError``."""

    @property
    def file(self) -> Path | None:
        """The file that is read, which may be a copy of the one in use; None for what answers for itself."""
        return None

    @abstractmethod
    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks."""

    @abstractmethod
    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Read one key as it stood at a revision; raises RevisionCompacted or SourceError."""

    @abstractmethod
    def _made_below(self, prefixes: Iterable[bytes]) -> Iterator[Landmark]: ...

    def read_key(self, key: bytes) -> KeyReading:
        """Read one key."""
        return self.sight(key, Landmarks()).reading

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """List the keys of objects that stay, and choose the landmarks of the cluster."""
        kube_system = layout.path(KUBE_SYSTEM)
        first = self.read_key(kube_system)
        below = self._made_below(layout.path(f"{path}/") for path in LONG_LIVED)
        newest = heapq.nlargest(
            NEWEST,
            (mark for mark in below if mark.key not in {target, kube_system}),
            key=lambda mark: (mark.create_revision, mark.key),
        )
        made = first.stored.create_revision if first.stored is not None else 0
        own = () if target == kube_system else (Landmark(kube_system, made),)
        return Landmarks((*own, *newest), first.revision)


class EtcdNow(Datastore):
    """A live etcd, read linearizably."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks."""
        return sighting_of(
            landmarks, [call_etcd(self._client, RANGE, each) for each in questions(key, landmarks)]
        )

    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Read one key as it stood at a revision."""
        found = call_etcd(self._client, RANGE, message("RangeRequest")(key=key, revision=revision))
        return stored_of(found.kvs[0]) if found.kvs else None

    def _made_below(self, prefixes: Iterable[bytes]) -> Iterator[Landmark]:
        # In pages: etcd could sort by create revision, but then it heeds no limit, and takes every value of the
        # directory into memory (server/etcdserver/txn/range.go, "fetch everything").
        for prefix in prefixes:
            start, end = bounds_of(prefix)
            more = True
            while more:
                request = message("RangeRequest")(key=start, range_end=end, limit=FIRST_LIMIT, keys_only=True)
                page = call_etcd(self._client, RANGE, request)
                yield from (Landmark(record.key, record.create_revision) for record in page.kvs)
                more = page.more and bool(page.kvs)
                start = after(page.kvs[-1].key) if more else start


class KineNow(Datastore):
    """The file of kine, read anew for each question.

    kine keeps no version of a key, and what can be counted of it changes with a compaction: every version is 0, for
    unknown, so that a key which nobody wrote stays the same.
    """

    def __init__(self, source: KineSource) -> None:
        self._source = source

    @property
    def file(self) -> Path | None:
        """The file of kine."""
        return self._source.path

    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks from the file, all of one moment."""
        with self._again() as now:
            stored = now.get(key)
            marks = [(now.get(mark.key), mark.compared[0]) for mark in landmarks.marks]
            reading = KeyReading(
                stored=None if stored is None else msgspec.structs.replace(stored, version=0),
                revision=now.revision,
                cluster_id=0,
                member_id=0,
            )
        return Sighting(reading=reading, revisions=tuple(getattr(found, name, 0) for found, name in marks))

    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Tell nothing of the past: which file of kine it is, its path says."""
        raise RevisionCompacted(
            f"{display(key)}: kine is not asked for revision {revision}", revision=revision
        )

    def _made_below(self, prefixes: Iterable[bytes]) -> Iterator[Landmark]:
        with self._again() as now:
            for prefix in prefixes:
                yield from (Landmark(found.key, found.create_revision) for found in now.current(prefix))

    @contextmanager
    def _again(self) -> Iterator[KineSource]:
        """Read the file as it stands now; refuse one that cannot be read whole: that may be what has moved."""
        with self._source.again() as now:
            yield now
            if now.problems:
                raise SourceError(
                    f"{now.path}: not all of it can be read: {now.problems[0]}",
                    hint="nothing is decided by a damaged file; scan --kine says what can be read",
                )


def call_etcd(client: EtcdClient, method: ReadMethod, request: Any) -> Any:
    """Ask whichever member answers, and wait; raises RevisionCompacted or SourceError."""
    try:
        return client.call(method, request)
    except CallFailed as failed:
        if failed.failure.kind is FailureKind.COMPACTED:
            raise RevisionCompacted(failed.failure.message, revision=request.revision) from failed
        raise failed.failure.as_error() from failed


def questions(key: bytes, landmarks: Landmarks) -> Iterator[Any]:
    """Yield the RangeRequests that a :class:`Sighting` answers: the whole record of the key, then each landmark."""
    yield message("RangeRequest")(key=key)
    for mark in landmarks.marks:
        yield message("RangeRequest")(key=mark.key, keys_only=True)


def sighting_of(landmarks: Landmarks, answers: Sequence[Any], header: Any = None) -> Sighting:
    """Put together the answers to :func:`questions`; of a transaction, they have one header in common."""
    first, *marks = answers
    header = first.header if header is None else header
    return Sighting(
        reading=KeyReading(
            stored=stored_of(first.kvs[0]) if first.kvs else None,
            revision=header.revision,
            cluster_id=header.cluster_id,
            member_id=header.member_id,
        ),
        revisions=tuple(
            int(getattr(answer.kvs[0], mark.compared[0])) if answer.kvs else 0
            for mark, answer in zip(landmarks.marks, marks, strict=True)
        ),
    )


def state_of(stored: StoredValue | None) -> dict[str, int]:
    """Return what a transaction compares of a key, by the names of etcd's Compare; all 0 where there is none."""
    names = ("version", "create_revision", "mod_revision")
    return {name: getattr(stored, name, 0) for name in names}


def find_difference(expected: Expected, seen: Sighting) -> Difference | None:
    """Hold what one connection shows against what was examined; None where all of it is the same."""
    elsewhere = find_elsewhere(expected.landmarks, seen)
    if elsewhere is not None:
        return elsewhere
    present = seen.reading.stored
    if not expected.stands(present):
        return Difference(Rule.MOVED, describe_move(expected, present), "examine it again")
    if present == expected.stored:
        return None
    return Difference(
        Rule.OTHER_CLUSTER,
        "the key stands at the revisions that were examined, with another value or lease: "
        "this is another cluster or a restored copy, or members disagree",
        _LOOK_BEHIND,
    )


def describe_move(expected: Expected, present: StoredValue | None) -> str:
    """Say in one sentence, without its full stop, how a key differs from what was examined."""
    before, now = state_of(expected.stored), state_of(present)
    if present is None:
        return f"the key is gone; it stood at mod_revision {before['mod_revision']}"
    if expected.stored is None:
        return f"the key exists: created at revision {now['create_revision']}, mod_revision {now['mod_revision']}"
    again = "written again"
    if now["create_revision"] != before["create_revision"]:
        again = f"deleted and created again at revision {now['create_revision']}"
    return f"the key was {again}: mod_revision {now['mod_revision']} instead of {before['mod_revision']}"


def find_elsewhere(landmarks: Landmarks, seen: Sighting) -> Difference | None:
    """Say whether what answers may be another cluster than the one that was examined; None where nothing says so."""
    pairs = zip(landmarks.marks, seen.revisions, strict=True)
    differing = [(mark, now) for mark, now in pairs if mark.compared[1] != now]
    # What changed in the same cluster changed after the landmarks were read. Nothing else can explain an earlier one.
    why = [
        f"{_became(mark, now)} here, and {f'at {mark.compared[1]}' if mark.create_revision else 'did not exist'} there"
        for mark, now in differing
        if 0 < now <= landmarks.revision
    ]
    if not why and seen.reading.revision < landmarks.revision:
        why = [
            f"etcd stands at revision {seen.reading.revision} here, and stood at {landmarks.revision} there"
        ]
    if why:
        text = f"this is another cluster or a restored copy, not the one that was examined: {why[0]}"
        return Difference(Rule.OTHER_CLUSTER, text, _LOOK_BEHIND)
    if not differing:
        return None
    what = "; ".join(_became(mark, now) for mark, now in differing)
    return Difference(
        Rule.OTHER_CLUSTER,
        f"{what}: since it was examined, or this is another cluster or a restored copy",
        f"if you know that this was done just now, try again; if not, {_LOOK_BEHIND}",
    )


def _became(mark: Landmark, now: int) -> str:
    if not now:
        return f"{display(mark.key)} is gone"
    return f"{display(mark.key)} was {'written' if mark.mod_revision else 'made'} at revision {now}"
