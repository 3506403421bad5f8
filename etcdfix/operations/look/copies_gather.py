"""What a search for copies keeps: the objects that are sought, and every copy that was found, in the order of the keys.

Both may be very many, so they wait in sorted temporary files. Of a value nothing is kept but what an examination says.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from etcdfix.copies.model import Sameness
from etcdfix.examine import Examiner
from etcdfix.model import Confidence, Outcome, StoredValue
from etcdfix.operations.look.sorted_rows import SortedRows, turn_of
from etcdfix.scope import KeyRange
from etcdfix.storagekey import StorageCodec, display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.plaintext import bounded

_LARGEST: Final = (1 << 64) - 1
_OTHER_IDENTITY: Final = frozenset({Cause.IDENTITY_MISMATCH, Cause.WRONG_KIND_FOR_KEY, Cause.VALUE_MOVED})


class Wanted:
    """Says of an etcd key whether it is in scope."""

    def __init__(self, ranges: Sequence[KeyRange]) -> None:
        self._ranges = ranges
        self._starts = [wanted.prefix for wanted in ranges]

    def __contains__(self, key: bytes) -> bool:
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        wanted = self._ranges[at]
        return key == wanted.prefix if wanted.exact else key.startswith(wanted.prefix)


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """An object whose copies are sought.

    Attributes:
        found: The present value, without its bytes; None where nothing stands there.
        value_sha256: ``sha256:<hex>`` of the present value, "" for none.
        uid: That the present value states, "" where it cannot be read.
    """

    key: bytes
    found: Examination | None = None
    value_sha256: str = ""
    uid: str = ""


class FoundCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy, as it was examined under the etcd key of the object.

    Attributes:
        mod_revision: At which it was written; 0 for unknown. So are the next two.
        at: The newest revision at which it can be read in its place; 0 for none.
        newest: It is what its place holds last.
        last: The etcd key was deleted after it, and nothing was written there since, as far as its place tells.
        path: Of the file, where the place is a directory.
        entry: Index of its entry in a write-ahead log; 0 for none.
        later: How many later writes of the key a write-ahead log has; None where it was not counted.
        certainty: That the etcd key held it, and at that revision.
        doubt: What else is not certain about it; "" for nothing.
        uid: That it states, "" for none.
        resource_version: That an object which was saved as JSON states; "" for none.
        identity: Whether name, namespace and kind are those of the key.
    """

    key: bytes
    place: int
    mod_revision: int = 0
    create_revision: int = 0
    version: int = 0
    lease: int = 0
    at: int = 0
    newest: bool = False
    last: bool = False
    path: str = ""
    entry: int = 0
    later: int | None = None
    certainty: Confidence = Confidence.CERTAIN
    doubt: str = ""
    outcome: Outcome | None = None
    cause: str | None = None
    message: str = ""
    uid: str = ""
    resource_version: str = ""
    identity: Sameness = Sameness.UNKNOWN
    value_sha256: str = ""

    @property
    def reads(self) -> bool:
        """Whether it is whole, opens, and fits its key."""
        return self.outcome is Outcome.READABLE


class ExaminedCopies:
    """Examines copies; what it sees speaks for no value of the datastore."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner.apart()
        # An object that was saved as JSON is not encrypted.
        self._plain = Examiner(examiner.layout, None, examiner.decoder)
        self._plain.know_as(examiner)

    def copy_of(self, stored: StoredValue, place: int) -> FoundCopy:
        """Return what a value is, under the etcd key that it is said to have stood at.

        Raises:
            KMSPending: Only while plugins defer.
        """
        copy = _copy(self._examiner.examine(stored), place)
        return msgspec.structs.replace(copy, value_sha256=digest_of(stored.value))

    def object_of(self, key: bytes, raw: bytes, place: int) -> FoundCopy:
        """Return what a saved object (JSON, as the API gave it) is, under the etcd key that it is said to be of."""
        copy = _copy(self._plain.examine(StoredValue(key, raw, 0, 0, 0, 0)), place)
        try:
            version = msgspec.json.decode(raw, type=_Versioned).metadata.resource_version
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            version = ""
        return msgspec.structs.replace(copy, resource_version=version)


def _copy(found: Examination, place: int) -> FoundCopy:
    stored, verdict = found.stored, found.verdict
    return FoundCopy(
        key=stored.key,
        place=place,
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=stored.lease,
        outcome=verdict.outcome,
        cause=verdict.cause.value if verdict.cause is not None else None,
        message=verdict.message,
        uid=uid_of(found),
        identity=_identity(found),
    )


class _Metadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Versioned(msgspec.Struct):
    metadata: _Metadata


def digest_of(value: bytes) -> str:
    """Return the SHA-256 of a value as ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def uid_of(found: Examination) -> str:
    """Return the uid that a value states, "" where it cannot be read."""
    if found.decoded is None or found.verdict.outcome is not Outcome.READABLE:
        return ""
    return bounded((found.decoded.uid or b"").decode("utf-8", "replace"))


def _identity(found: Examination) -> Sameness:
    """Say whether a value is of the object that its key names; whose owner is unknown the examiner does not compare."""
    if found.verdict.cause in _OTHER_IDENTITY:
        return Sameness.OTHER
    decoded = found.decoded
    if found.verdict.outcome is not Outcome.READABLE or decoded is None:
        return Sameness.UNKNOWN
    if found.directory.codec is StorageCodec.ALLOCATOR:
        return Sameness.SAME
    kind = found.directory.kind
    if not decoded.name:
        return Sameness.UNKNOWN
    if (display(decoded.name), display(decoded.namespace or b"")) != (found.name, found.namespace):
        return Sameness.OTHER
    return Sameness.OTHER if kind and decoded.gvk.kind != kind else Sameness.SAME


class _Known(msgspec.Struct, frozen=True):
    """A value that the datastore keeps and that is not the present one; its bytes are left out where it yields them."""

    key: bytes
    leased: bool
    stored: StoredValue | None


class ObjectOfCopies(NamedTuple):
    """An object, and every copy of it: those of one place follow each other, the newest first."""

    sought: Sought
    copies: Iterator[FoundCopy]


class Gathered:
    """Takes what is sought and what is found, in any order; SourceError where there is no room for it."""

    def __init__(self) -> None:
        self._sought = SortedRows(Sought)
        self._copies = SortedRows(FoundCopy)
        self._known = SortedRows(_Known)
        self._keys: Sequence[Sought] | None = None
        self._found: Sequence[FoundCopy] = ()
        self._kept: Sequence[_Known] = ()
        self._number = 0

    def know(self, stored: StoredValue, *, again: bool) -> None:
        """Take note of a value besides the present one of its key; where it is yielded ``again``, not of its bytes."""
        turn = self._turn(stored.key, 0, stored.mod_revision)
        self._known.add(turn, _Known(stored.key, bool(stored.lease), None if again else stored))

    def know_key(self, key: bytes) -> None:
        """Take note that a log knows a key."""
        self._known.add(self._turn(key, 0, 0), _Known(key, False, None))

    def knows_below(self, prefix: bytes) -> bool:
        """Say whether a known key starts with a prefix, once :meth:`noting_deleted` was iterated."""
        return any(one.key.startswith(prefix) for one in self._kept)

    def noting_deleted(
        self,
        values: Iterable[StoredValue],
        may_tell: Callable[[], bool],
        deleted: Callable[[bytes, bool], None],
    ) -> Iterator[StoredValue]:
        """Yield the present values in the order of their keys, and tell which known keys are not among them.

        Args:
            values: The present values.
            may_tell: Says, once all were yielded, whether these were all: what could not be read is not deleted.
            deleted: Told each known key that is not there, and whether its newest value had a lease.
        """
        self._kept = self._known.finish()
        # The newest of each key comes first.
        known = (next(rows) for _key, rows in itertools.groupby(self._kept, lambda one: one.key))
        following = next(known, None)
        for stored in values:
            while following is not None and following.key <= stored.key:
                if following.key != stored.key:
                    deleted(following.key, following.leased)
                following = next(known, None)
            yield stored
        while following is not None and may_tell():
            deleted(following.key, following.leased)
            following = next(known, None)

    def seek(self, sought: Sought) -> None:
        """Take an object whose copies are sought."""
        self._sought.add(turn_of(sought.key), sought)

    def all_sought(self) -> Sequence[Sought]:
        """Return the objects in the order of their keys; none can be taken after this."""
        if self._keys is None:
            self._keys = self._sought.finish()
        return self._keys

    def kept(self) -> Iterator[tuple[bytes, StoredValue]]:
        """Yield the kept values of what is sought, in the order of the keys, the newest of each first."""
        for sought, known in _joined(self.all_sought(), self._kept):
            for one in known:
                if one.stored is not None:
                    yield sought.key, one.stored

    def add(self, copy: FoundCopy) -> None:
        """Take a copy."""
        self._copies.add(self._turn(copy.key, copy.place, copy.mod_revision or copy.entry), copy)

    def _turn(self, key: bytes, place: int, revision: int) -> bytes:
        """Return where a row comes: by key, then by place, the newest first, and no two the same."""
        self._number += 1
        newest_first = (_LARGEST - revision).to_bytes(8)
        return turn_of(key) + place.to_bytes(4) + newest_first + self._number.to_bytes(8)

    def finish(self) -> None:
        """Sort what was found; nothing can be taken after this."""
        self._found = self._copies.finish()

    def objects(self) -> Iterator[ObjectOfCopies]:
        """Yield every object with its copies, which have to be taken before the next object."""
        yield from itertools.starmap(ObjectOfCopies, _joined(self.all_sought(), self._found))


_Row = TypeVar("_Row", FoundCopy, _Known)


def _joined(sought: Iterable[Sought], rows: Iterable[_Row]) -> Iterator[tuple[Sought, Iterator[_Row]]]:
    """Yield each object with the rows of its key; both come in the order of the keys."""
    source = iter(rows)
    waiting: list[_Row] = []

    def of(key: bytes) -> Iterator[_Row]:
        while True:
            row = waiting.pop() if waiting else next(source, None)
            if row is None:
                return
            if row.key > key:
                waiting.append(row)
                return
            if row.key == key:
                yield row

    for one in sought:
        its = of(one.key)
        yield one, its
        for _ in its:  # what was not taken
            pass
