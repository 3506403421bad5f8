"""What tells one cluster from another that looks just like it: when some of its objects were made.

The uid of kube-system, cluster_id, member ids and revisions do not: two clusters that were restored from one snapshot
share all of them, and an address may lead to the other one from one request to the next. What was made since differs.
So a change names, besides its own key, a few objects of the cluster that was examined, and the transaction compares at
which revision each was made: the Namespace kube-system (which may be absent, and then must be), and the three that were
made last among types whose objects stay for long.

They are read before anything else, on the connection that examines, and compared last, by the transaction itself.
Whatever turned to another cluster in between is noticed there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from etcdfix.remediation.preflight.members import KeyReading, call_etcd, key_reading
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.paging import FIRST_LIMIT, after, bounds_of
from etcdfix.storagekey import StorageLayout, display
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

KUBE_SYSTEM = b"namespaces/kube-system"

_LOOK_BEHIND = "see what stands behind each address: etcdctl endpoint status --write-out=table"


class Landmark(NamedTuple):
    """One object and when it was made; a create revision of 0 says that there is none.

    Attributes:
        key: Complete etcd key.
        create_revision: Of this generation.
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
        reading: Of the key; its revision is etcd's at that moment.
        revisions: The compared revision of each landmark, in their order, 0 where it is absent.
    """

    reading: KeyReading
    revisions: tuple[int, ...] = ()


class Elsewhere(NamedTuple):
    """Why what answers may be another cluster than the one that was examined: a sentence without full stop, a hint."""

    text: str
    hint: str


def read_landmarks(client: EtcdClient, layout: StorageLayout, *, target: bytes) -> Landmarks:
    """Read the landmarks of a cluster.

    Lists the keys of :data:`LONG_LIVED`, in pages. etcd could sort them by create revision, but it heeds no limit then
    and takes every value of the directory into memory (``server/etcdserver/txn/range.go``, "fetch everything").

    Raises:
        SourceError: etcd could not be asked.
    """
    first = call_etcd(client, RANGE, _question(layout.prefix_bytes + KUBE_SYSTEM, keys_only=True))
    made = int(first.kvs[0].create_revision) if first.kvs else 0
    return choose(
        layout, made, lambda prefix: _list(client, prefix), target=target, revision=first.header.revision
    )


def choose(
    layout: StorageLayout,
    made: int,
    list_below: Callable[[bytes], Iterable[Landmark]],
    *,
    target: bytes,
    revision: int,
) -> Landmarks:
    """Choose the landmarks of a cluster.

    ``made`` is the create revision of Namespace kube-system, 0 where there is none, and was read at
    ``revision``, before anything is listed.
    """
    kube_system = layout.prefix_bytes + KUBE_SYSTEM
    found = (
        mark
        for path in LONG_LIVED
        for mark in list_below(layout.prefix_bytes + path.encode() + b"/")
        if mark.key not in {target, kube_system}
    )
    newest = heapq.nlargest(NEWEST, found, key=_by_age)
    own = () if target == kube_system else (Landmark(kube_system, made),)
    return Landmarks((*own, *newest), revision)


def questions(key: bytes, landmarks: Landmarks) -> Iterator[Any]:
    """Yield the RangeRequests that a :class:`Sighting` answers: the whole record of the key, then each landmark."""
    yield _question(key)
    for mark in landmarks.marks:
        yield _question(mark.key, keys_only=True)


def sighting_of(landmarks: Landmarks, answers: Sequence[Any]) -> Sighting:
    """Put together the answers to :func:`questions`."""
    return Sighting(reading=key_reading(answers[0]), revisions=compared_in(landmarks, answers[1:]))


def compared_in(landmarks: Landmarks, answers: Sequence[Any]) -> tuple[int, ...]:
    """Return the compared revision of each landmark from a RangeResponse for each, 0 where it holds no record."""
    return tuple(
        int(getattr(answer.kvs[0], mark.compared[0])) if answer.kvs else 0
        for mark, answer in zip(landmarks.marks, answers, strict=True)
    )


def sight(client: EtcdClient, key: bytes, landmarks: Landmarks) -> Sighting:
    """Read a key and the landmarks linearizably, on the connection that examines.

    Raises:
        SourceError: etcd could not be asked.
    """
    return sighting_of(
        landmarks, [call_etcd(client, RANGE, request) for request in questions(key, landmarks)]
    )


def find_elsewhere(landmarks: Landmarks, seen: Sequence[int], revision: int) -> Elsewhere | None:
    """Say whether what answers may be another cluster than the one that was examined; None where nothing says so.

    ``seen`` holds the compared revision of each landmark now, 0 where it is absent.
    """
    differing = [pair for pair in zip(landmarks.marks, seen, strict=True) if pair[0].compared[1] != pair[1]]
    # What changed in the same cluster changed after the landmarks were read. Nothing else can explain an earlier one.
    for mark, now in differing:
        if 0 < now <= landmarks.revision:
            what = "last changed" if mark.mod_revision else "made"
            return _certain(f"{display(mark.key)} was {what} at revision {now} here {_before(mark)}")
    if revision < landmarks.revision:
        return _certain(f"etcd stands at revision {revision} here and stood at {landmarks.revision} there")
    if not differing:
        return None
    what = "; ".join(_meanwhile(mark, now) for mark, now in differing)
    return Elsewhere(
        f"{what}: since it was examined, or this is another cluster or a restored copy",
        f"if you know that this was done just now, try again; if not, {_LOOK_BEHIND}",
    )


def other_bytes() -> Elsewhere:
    """Return what to say where a key has the revisions that were examined and holds something else."""
    return Elsewhere(
        "the key stands at the revisions that were examined, with another value or lease: "
        "this is another cluster or a restored copy, or members disagree",
        _LOOK_BEHIND,
    )


def _certain(text: str) -> Elsewhere:
    return Elsewhere(
        f"this is another cluster or a restored copy, not the one that was examined: {text}", _LOOK_BEHIND
    )


def _before(mark: Landmark) -> str:
    return f"and at {mark.compared[1]} there" if mark.create_revision else "and did not exist there"


def _meanwhile(mark: Landmark, now: int) -> str:
    key = display(mark.key)
    if not now:
        return f"{key} is gone"
    if mark.mod_revision:
        return f"{key} was written again at revision {now}"
    if not mark.create_revision:
        return f"{key} was made at revision {now}"
    return f"{key} was deleted and made again at revision {now}"


def _by_age(mark: Landmark) -> tuple[int, bytes]:
    return mark.create_revision, mark.key


def _question(key: bytes, *, keys_only: bool = False) -> Any:
    return message("RangeRequest")(key=key, keys_only=keys_only)


def _list(client: EtcdClient, prefix: bytes) -> Iterator[Landmark]:
    start, end = bounds_of(prefix)
    while True:
        request = message("RangeRequest")(key=start, range_end=end, limit=FIRST_LIMIT, keys_only=True)
        page = call_etcd(client, RANGE, request)
        for record in page.kvs:
            yield Landmark(record.key, record.create_revision)
        if not (page.more and page.kvs):
            return
        start = after(page.kvs[-1].key)
