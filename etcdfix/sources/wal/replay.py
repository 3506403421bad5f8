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

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from etcdfix.sources.wal.base import Base
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.requests import (
    Action,
    Alarm,
    Authentication,
    Compare,
    Delete,
    Grant,
    Put,
    RangeAt,
    Revoke,
    Transaction,
    Unknown,
    expected_revisions,
    in_range,
    writes_of,
)
from etcdfix.wire import raft

_MOST_SECONDS: Final = 9_000_000_000
"""etcd refuses leases that are granted for longer (``lease.MaxLeaseTTL``)."""


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

    revision: int
    changes: list[Change]
    witnessed: list[int]


class _Held(NamedTuple):
    """What a key holds: revisions, lease, and where its value is (entry 0: in the base)."""

    mod: int
    create: int
    version: int
    lease: int
    entry: int
    value: int
    number: int


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
        self.next_entry = applied.entry + 1
        self.stopped = ""
        self.wrong = False
        self._held: dict[bytes, _Held | None] = {}
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
        assert entry == self.next_entry
        self.next_entry += 1
        nothing = Applied(0, [], [])
        if self.stopped:
            return nothing
        if isinstance(action, Transaction):
            return self._transaction(entry, action)
        if isinstance(action, Revoke):
            return self._revoke(action)
        if isinstance(action, Grant):
            self._grant(action)
        elif isinstance(action, Alarm):
            self._change_alarms(action)
        elif isinstance(action, Authentication) and action.enables:
            self.stopped = f"etcd's authentication was switched on in entry {entry}"
        elif isinstance(action, Unknown):
            self.stopped = f"entry {entry} cannot be told: {action.why}"
        return nothing

    def _grant(self, grant: Grant) -> None:
        if self._active(raft.NOSPACE) or self._active(raft.CORRUPT):
            return
        if grant.lease and grant.lease not in self._leases and grant.seconds <= _MOST_SECONDS:
            self._leases[grant.lease] = set()

    def held(self, key: bytes) -> tuple[int, int, int] | None:
        """Return the mod revision of a key, and entry and number of its value; None where it holds nothing."""
        found = self._get(key)
        return None if found is None else (found.mod, found.value, found.number)

    def writer(self, key: bytes) -> int:
        """Return the entry that wrote a key last; 0 where the base holds it, or nothing does."""
        found = self._get(key)
        return 0 if found is None else found.entry

    def _transaction(self, entry: int, transaction: Transaction) -> Applied:
        witnessed: list[int] = []
        if max(expected_revisions(transaction).values(), default=0) > self.revision:
            self.wrong = True
            self.stopped = f"entry {entry} names a revision that the replay has not reached"
            return Applied(0, [], [])
        try:
            self._check_room(transaction)
            steps = self._taken(transaction, witnessed)
            for step in steps:
                self._check(step)
        except _RefusedByEtcd:
            self._contest(transaction, set())
            return Applied(0, [], witnessed)
        except _CannotTell as exc:
            self.stopped = f"entry {entry}: {exc}"
            return Applied(0, [], [])
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
        if changes:
            self.revision += 1
        return Applied(self.revision if changes else 0, changes, witnessed)

    def _contest(self, transaction: Transaction, touched: set[bytes]) -> None:
        """Remember keys of writes that came to nothing: for a reason unknown, one could be the one that counts."""
        for write in writes_of(transaction):
            if write.step.key not in touched:
                self._contested.add(write.step.key)

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
        holds = True
        for compare in transaction.compares:
            if not self._holds(compare):
                holds = False
                break
        if holds:
            for key, revision in expected_revisions(transaction).items():
                found = self._get(key)
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
        found = self._get(compare.key)
        if compare.target == raft.VALUE:
            if found is None:  # nothing there equals nothing, not even an empty value
                return False
            ours: bytes | int = self._value(compare.key, found)
            theirs: bytes | int = compare.value
        else:
            ours = 0
            if found is not None:
                ours = {
                    raft.VERSION: found.version,
                    raft.CREATE: found.create,
                    raft.MOD: found.mod,
                    raft.LEASE: found.lease,
                }[compare.target]
            theirs = compare.number
        if compare.result == raft.EQUAL:
            return ours == theirs
        if compare.result == raft.NOT_EQUAL:
            return ours != theirs
        return ours > theirs if compare.result == raft.GREATER else ours < theirs  # type: ignore[operator]

    def _value(self, key: bytes, found: _Held) -> bytes:
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
            if (step.keeps_value or step.keeps_lease) and self._get(step.key) is None:
                raise _RefusedByEtcd

    def _put(self, entry: int, put: Put) -> Change:
        before = self._get(put.key)
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
        self._held[put.key] = _Held(main, create, version, lease, entry, value, number)
        return Change(put.number, put.key, WriteKind.PUT, create, version, lease, written=True)

    def _delete(self, delete: Delete) -> Iterator[Change]:
        for key in self._keys(delete.key, delete.range_end):
            self._remove(key)
            yield Change(delete.number, key, WriteKind.DELETE, 0, 0, 0, written=not delete.range_end)

    def _remove(self, key: bytes) -> None:
        found = self._get(key)
        if found is not None and found.lease in self._leases:
            self._leases[found.lease].discard(key)
        self._held[key] = None

    def _keys(self, begin: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [begin] if self._get(begin) is not None else []
        keys = {key for key in self._base.keys(begin, end) if key not in self._held}
        keys.update(
            key for key, found in self._held.items() if found is not None and in_range(key, begin, end)
        )
        return sorted(keys)

    def _revoke(self, revoke: Revoke) -> Applied:
        if self._active(raft.CORRUPT) or revoke.lease not in self._leases:
            return Applied(0, [], [])
        keys = sorted(self._leases.pop(revoke.lease))
        for key in keys:
            self._held[key] = None
        self._contested.difference_update(keys)
        changes = [
            Change(number, key, WriteKind.LEASE_REVOCATION, 0, 0, revoke.lease, written=False)
            for number, key in enumerate(keys)
        ]
        if changes:
            self.revision += 1
        return Applied(self.revision if changes else 0, changes, [])

    def _get(self, key: bytes) -> _Held | None:
        try:
            return self._held[key]
        except KeyError:
            pass
        stored = self._base.get(key)
        if stored is None:
            found = None
        else:
            found = _Held(stored.mod_revision, stored.create_revision, stored.version, stored.lease, 0, 0, 0)
        self._held[key] = found
        return found

    def _active(self, alarm: int) -> bool:
        return any(kind == alarm for _, kind in self._alarms)

    def _change_alarms(self, asked: Alarm) -> None:
        if not asked.alarm:
            return
        if asked.action == raft.ALARM_ACTIVATE:
            self._alarms.add((asked.member, asked.alarm))
        elif asked.action == raft.ALARM_DEACTIVATE:
            self._alarms.discard((asked.member, asked.alarm))
        self._check_alarms()

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
