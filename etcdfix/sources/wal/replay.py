"""The entries of a log applied to a known state, by etcd's own rules.

Committed is not applied: compares fail, leases are gone, alarms are on. From a whole state all that can be computed,
for etcd applies entries one by one and the same way on every member. What cannot be computed, such as what etcd's
authentication permits, ends the replay: :attr:`Replay.stopped`.

Format:
    etcd 3.6: ``server/etcdserver/apply`` (``apply.go``, ``uber_apply.go``, ``apply_auth.go``; alarms, quota),
    ``server/etcdserver/txn`` (compares, the checks before a transaction), ``server/storage/mvcc/kvstore_txn.go`` (one
    main revision for each request that changes something), ``server/lease/lessor.go``. The same in 3.4 and 3.5.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import AppliedState, SnapshotSource
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.requests import (
    ALL_FROM,
    Action,
    Compare,
    Delete,
    Other,
    Put,
    RangeAt,
    Transaction,
    Unknown,
    expected_revisions,
    in_range,
    writes_of,
)
from etcdfix.wire import raft

_MOST_SECONDS: Final = 9_000_000_000
"""etcd refuses leases that are granted for longer (``lease.MaxLeaseTTL``)."""

_EMPTY: Final = AppliedState(0, None, 1, (), frozenset(), authentication=False)


class Base:
    """A whole state of the store, and the raft index that it is of.

    Args:
        source: A database file, at its newest revision; None for the store of an etcd that was never written to.
        applied: How far the log had been applied to it; its revision, leases and alarms.

    Attributes:
        name: For people, a clause.
    """

    def __init__(self, source: SnapshotSource | None = None, applied: AppliedState = _EMPTY) -> None:
        self.source, self.applied = source, applied
        self.name = "the empty store that it began with"
        if source is not None:
            self.name = f"{source.describe().path}, which shows the entries up to {applied.entry}"

    @classmethod
    def of(cls, source: Source | None) -> Base | None:
        """Return a source as a base; None where it is none."""
        applied = source.applied() if isinstance(source, SnapshotSource) else None
        return cls(source, applied) if isinstance(source, SnapshotSource) and applied is not None else None

    def get(self, key: bytes) -> StoredValue | None:
        """Return what a key holds."""
        return self.source.get(key) if self.source is not None else None

    def keys(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the keys of a range that has an end, in order."""
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(begin, end, strict=False))
        common = b"" if end == ALL_FROM else bytes(byte for byte, _ in alike)
        for stored in self.source.current(common) if self.source is not None else ():
            if in_range(stored.key, begin, end):
                yield stored.key

    def leased(self) -> Iterator[tuple[bytes, int]]:
        """Yield every key under a lease, with its id."""
        for stored in self.source.current(b"") if self.source is not None else ():
            if stored.lease:
                yield stored.key, stored.lease


class Change(NamedTuple):
    """What one entry did to one key.

    Attributes:
        number: Of the write in its entry; of a lease's revocation, the place of the key among those of the lease.
        create: Create revision; 0 for a deletion.
        version: Changes since then; 0 for a deletion.
        lease: Of a put.
        written: It stands in the request with this key; False for what a range or a lease took along.
    """

    number: int
    key: bytes
    kind: WriteKind
    create: int
    version: int
    lease: int
    written: bool


class Applied(NamedTuple):
    """What came of an entry.

    Attributes:
        revision: The main revision that it made; 0 where it changed nothing.
        witnessed: Entries whose revision a compare of this one confirms.
    """

    revision: int = 0
    changes: Sequence[Change] = ()
    witnessed: Sequence[int] = ()


class Held(NamedTuple):
    """What a key holds.

    Attributes:
        entry: That wrote it last; 0 where the base holds it.
        value: Entry that holds its value; 0 for the base.
        number: Of the put in that entry.
    """

    mod: int
    create: int
    version: int
    lease: int
    entry: int
    value: int
    number: int


_ATTRIBUTES: Final = {
    raft.VERSION: "version",
    raft.CREATE: "create",
    raft.MOD: "mod",
    raft.LEASE: "lease",
}
_RESULTS: Final[dict[int, Callable[[int | bytes, int | bytes], bool]]] = {
    raft.EQUAL: operator.eq,
    raft.NOT_EQUAL: operator.ne,
    raft.GREATER: operator.gt,
    raft.LESS: operator.lt,
}


class _RefusedByEtcd(Exception):
    """Raised when etcd would answer an error, and change nothing."""


class _CannotTell(Exception):
    """Raised when what etcd did does not follow from what is known."""


class Replay:
    """A state of the store, moved on entry by entry.

    Attributes:
        stopped: Why nothing more can be told; "" while it can.
        wrong: Somebody had seen a revision that, by the replay, was not there yet: the base is of another history, or
            something was counted as refused that was not.
    """

    def __init__(self, base: Base, value_of: Callable[[int, int], bytes]) -> None:
        self._base = base
        self._value_of = value_of
        applied = base.applied
        self.revision = applied.revision
        self.stopped = ""
        self.wrong = False
        self._held: dict[bytes, Held | None] = {}
        self._contested: set[bytes] = set()
        self._leases: dict[int, set[bytes]] = {lease: set() for lease in applied.leases}
        for key, lease in base.leased():
            if lease in self._leases:
                self._leases[lease].add(key)
        self._alarms = {_alarm(raw) for raw in applied.alarms}
        if applied.authentication:
            self.stopped = "etcd's authentication is on, so requests may have been refused"
        self._check_alarms()

    def apply(self, entry: int, action: Action) -> Applied:
        """Apply the next entry; once :attr:`stopped` is set, what comes back means nothing."""
        if self.stopped:
            return Applied()
        if isinstance(action, Transaction):
            return self._transaction(entry, action)
        if isinstance(action, Other):
            return self._other(action)
        if isinstance(action, Unknown):
            self.stopped = f"entry {entry} {action.why}"
        return Applied()

    def _other(self, action: Other) -> Applied:
        found = action.message
        if action.ends_lease():
            return self._revoke(found.ID)
        if action.kind == raft.REQUEST_LEASE_GRANT:
            refused = self._active(raft.NOSPACE, raft.CORRUPT) or found.TTL > _MOST_SECONDS
            if found.ID and not refused:
                self._leases.setdefault(found.ID, set())
        elif found.alarm:
            alarm = found.memberID, found.alarm
            if found.action == raft.ALARM_ACTIVATE:
                self._alarms.add(alarm)
            elif found.action == raft.ALARM_DEACTIVATE:
                self._alarms.discard(alarm)
            self._check_alarms()
        return Applied()

    def _transaction(self, entry: int, transaction: Transaction) -> Applied:
        witnessed: list[int] = []
        if max(expected_revisions(transaction).values(), default=0) > self.revision:
            self.wrong = True
            self.stopped = f"entry {entry} names a revision that the replay has not reached"
            return Applied()
        try:
            self._check_room(transaction)
            steps = self._taken(transaction, witnessed)
            for step in steps:
                self._check(step)
        except _RefusedByEtcd:
            self._contest(transaction, set())
            return Applied(witnessed=witnessed)
        except _CannotTell as exc:
            self.stopped = f"entry {entry}: {exc}"
            return Applied()
        changes: list[Change] = []
        for step in steps:
            if isinstance(step, Put):
                changes.append(self._put(entry, step))
            elif isinstance(step, Delete):
                changes += self._delete(step)
        touched = {change.key for change in changes}
        self._contested -= touched
        self._contest(transaction, touched)
        # Where either branch writes a key, its revision alone does not say which one was taken.
        self._contested.update(write.step.key for write in writes_of(transaction) if write.fallback)
        return self._made(changes, witnessed)

    def _made(self, changes: list[Change], witnessed: Sequence[int] = ()) -> Applied:
        self.revision += bool(changes)
        return Applied(self.revision if changes else 0, changes, witnessed)

    def _contest(self, transaction: Transaction, touched: set[bytes]) -> None:
        """Remember keys of writes that came to nothing: for a reason unknown, one could be the one that counts."""
        self._contested.update({write.step.key for write in writes_of(transaction)} - touched)

    def _check_room(self, transaction: Transaction) -> None:
        """Refuse everything under a CORRUPT alarm, and puts under a NOSPACE alarm, unless they are nested."""
        if self._active(raft.CORRUPT):
            raise _RefusedByEtcd
        if not self._active(raft.NOSPACE):
            return
        if any(isinstance(step, Put) for step in (*transaction.success, *transaction.failure)):
            raise _RefusedByEtcd
        if any(isinstance(write.step, Put) for write in writes_of(transaction)):
            raise _CannotTell("a nested transaction that puts, under a NOSPACE alarm")

    def _taken(self, transaction: Transaction, witnessed: list[int]) -> list[Put | Delete | RangeAt]:
        """Return the operations of the branches that are taken: all compares see the state before the entry."""
        holds = all(map(self._holds, transaction.compares))
        if holds:
            for key, revision in expected_revisions(transaction).items():
                found = self.held(key)
                if revision and found is not None and found.entry and key not in self._contested:
                    witnessed.append(found.entry)
        taken: list[Put | Delete | RangeAt] = []
        for step in transaction.success if holds else transaction.failure:
            if isinstance(step, Transaction):
                taken += self._taken(step, witnessed)
            else:
                taken.append(step)
        return taken

    def _holds(self, compare: Compare) -> bool:
        """Evaluate a compare as etcd does (``txn.go``, ``applyCompare``)."""
        if compare.range_end:
            raise _CannotTell("a compare of a range")
        found = self.held(compare.key)
        ours: int | bytes = 0
        if compare.target == raft.VALUE:
            if found is None:  # nothing there equals nothing, not even an empty value
                return False
            ours = self._value(compare.key, found)
        elif found is not None:
            ours = getattr(found, _ATTRIBUTES[compare.target])
        return _RESULTS[compare.result](ours, compare.wanted)

    def _value(self, key: bytes, found: Held) -> bytes:
        if found.value:
            return self._value_of(found.value, found.number)
        stored = self._base.get(key)
        return stored.value if stored is not None else b""

    def _check(self, step: Put | Delete | RangeAt) -> None:
        if isinstance(step, RangeAt):
            if step.revision > 0:
                raise _CannotTell("a read at a revision that may have been compacted")
        elif isinstance(step, Put):
            if step.lease and step.lease not in self._leases:
                raise _RefusedByEtcd
            if (step.keeps_value or step.keeps_lease) and self.held(step.key) is None:
                raise _RefusedByEtcd

    def _put(self, entry: int, put: Put) -> Change:
        before = self.held(put.key)
        main = self.revision + 1
        lease = before.lease if put.keeps_lease and before is not None else put.lease
        value, number = entry, put.number
        if put.keeps_value and before is not None:
            value, number = before.value, before.number
        create, version = (before.create, before.version + 1) if before is not None else (main, 1)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].discard(put.key)
        if lease in self._leases:
            self._leases[lease].add(put.key)
        self._held[put.key] = Held(main, create, version, lease, entry, value, number)
        return Change(put.number, put.key, WriteKind.PUT, create, version, lease, written=True)

    def _delete(self, delete: Delete) -> Iterator[Change]:
        for key in self._keys(delete.key, delete.range_end):
            found = self.held(key)
            if found is not None and found.lease in self._leases:
                self._leases[found.lease].discard(key)
            self._held[key] = None
            yield Change(delete.number, key, WriteKind.DELETE, 0, 0, 0, written=not delete.range_end)

    def _keys(self, begin: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [begin] if self.held(begin) is not None else []
        keys = {key for key in self._held if in_range(key, begin, end)}.union(self._base.keys(begin, end))
        return sorted(key for key in keys if self.held(key) is not None)

    def _revoke(self, lease: int) -> Applied:
        if self._active(raft.CORRUPT) or lease not in self._leases:
            return Applied()
        keys = sorted(self._leases.pop(lease))
        for key in keys:
            self._held[key] = None
        self._contested.difference_update(keys)
        kind = WriteKind.LEASE_REVOCATION
        return self._made([Change(n, key, kind, 0, 0, lease, written=False) for n, key in enumerate(keys)])

    def held(self, key: bytes) -> Held | None:
        """Return what a key holds; None for nothing."""
        if key not in self._held:
            stored = self._base.get(key)
            self._held[key] = None
            if stored is not None:
                numbers = (stored.mod_revision, stored.create_revision, stored.version, stored.lease)
                self._held[key] = Held(*numbers, entry=0, value=0, number=0)
        return self._held[key]

    def _active(self, *alarms: int) -> bool:
        return any(kind in alarms for _, kind in self._alarms)

    def _check_alarms(self) -> None:
        """Stop where both alarms are on: what holds then depends on when each member was started."""
        if self._active(raft.NOSPACE) and self._active(raft.CORRUPT):
            self.stopped = self.stopped or "two alarms are on at once"
        if any(kind not in {raft.NOSPACE, raft.CORRUPT} for _, kind in self._alarms):
            self.stopped = self.stopped or "an alarm that is not known here is on"


def _alarm(raw: bytes) -> tuple[int, int]:
    try:
        found = raft.parse("AlarmMember", raw)
    except raft.Malformed:
        return 0, -1
    return found.memberID, found.alarm
