"""What the entries of a log ask for, in a form that can be listed and replayed.

Every write of an entry has a number: puts and deletions in order, those of the branch for success before those for
failure, nested transactions where they stand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from etcdfix.wire import raft

ALL_FROM: Final = b"\x00"
"""The end of a range that has none."""


class Compare(NamedTuple):
    """A condition of a transaction; target and result as in :mod:`etcdfix.wire.raft`."""

    target: int
    result: int
    key: bytes
    range_end: bytes
    wanted: int | bytes

    def __repr__(self) -> str:
        return f"Compare({self.target}, {self.result}, {self.key!r})"  # values stay out of tracebacks


class Put(NamedTuple):
    """A put; ``lease`` is 0 for none."""

    number: int
    key: bytes
    value: bytes
    lease: int
    keeps_value: bool
    keeps_lease: bool

    def __repr__(self) -> str:
        return f"Put({self.number}, {self.key!r}, {len(self.value)} bytes)"  # values stay out of tracebacks


class Delete(NamedTuple):
    """A deletion of one key, or of a range."""

    number: int
    key: bytes
    range_end: bytes


class RangeAt(NamedTuple):
    """A read at a revision, which etcd refuses with all else of its transaction where that is not kept."""

    revision: int


class Transaction(NamedTuple):
    """A transaction; a plain put or deletion is one without conditions."""

    compares: tuple[Compare, ...]
    success: tuple[Step, ...]
    failure: tuple[Step, ...]


Step: TypeAlias = Put | Delete | RangeAt | Transaction


class Other(NamedTuple):
    """A request about leases or alarms: its kind, and its message of :mod:`etcdfix.wire.raft`."""

    kind: int
    message: Any

    def ends_lease(self) -> bool:
        """Whether a lease ends, and every key under it with it."""
        return self.kind == raft.REQUEST_LEASE_REVOKE


class Unknown(NamedTuple):
    """From here on the state is not known; ``why`` is a clause about the entry."""

    why: str


Action: TypeAlias = Transaction | Other | Unknown | None
"""None changes no key, no lease and no alarm."""

_OTHERS: Final = {
    raft.REQUEST_LEASE_GRANT: "LeaseGrant",
    raft.REQUEST_LEASE_REVOKE: "LeaseRevoke",
    raft.REQUEST_ALARM: "Alarm",
}


def action_of(entry: raft.Entry, data: bytes) -> Action:
    """Return what an entry asks for; the entry's data stands in ``data``. Never raises: what cannot be told is so."""
    if entry.type != raft.NORMAL or entry.data_at == entry.data_end:
        return None
    try:
        return _action(raft.parse_request(data, entry.data_at, entry.data_end))
    except raft.Malformed as exc:
        return Unknown(f"cannot be told: {exc}")


def _action(request: raft.Request) -> Action:
    kind, body = request.kind, request.body
    if kind == raft.REQUEST_TXN:
        return _transaction(raft.parse("Txn", body), itertools.count())
    if kind == raft.REQUEST_PUT:
        return Transaction((), (_put(raft.parse("Put", body), 0),), ())
    if kind == raft.REQUEST_DELETE_RANGE:
        found = raft.parse("DeleteRange", body)
        return Transaction((), (Delete(0, found.key, found.range_end),), ())
    if kind in _OTHERS:
        return Other(kind, raft.parse(_OTHERS[kind], body))
    if kind == raft.REQUEST_AUTH_ENABLE:
        return Unknown("switches etcd's authentication on, which may refuse later ones")
    if not kind or kind in raft.AUTH_REQUESTS or kind in raft.HARMLESS_REQUESTS:
        return None
    return Unknown(f"is a request of a kind that is not known here ({kind})")


def _put(found: Any, number: int) -> Put:
    return Put(number, found.key, found.value, found.lease, found.keeps_value, found.keeps_lease)


def _transaction(found: Any, numbers: Iterator[int]) -> Transaction:
    compares = tuple(_compare(compare) for compare in found.compare)
    success = tuple(_step(step, numbers) for step in found.success)
    return Transaction(compares, success, tuple(_step(step, numbers) for step in found.failure))


def _step(found: Any, numbers: Iterator[int]) -> Step:
    present = [field.number for field, _ in found.ListFields()]
    if present == [2]:
        return _put(found.put, next(numbers))
    if present == [1]:
        return RangeAt(found.range.revision)
    if present == [3]:
        return Delete(next(numbers), found.delete_range.key, found.delete_range.range_end)
    if present == [4]:
        return _transaction(found.txn, numbers)
    if not present:  # an operation of none: etcd does nothing for it
        return RangeAt(0)
    raise raft.Malformed("an operation that is several")


_WANTED: Final = {
    raft.VERSION: "version",
    raft.CREATE: "create_revision",
    raft.MOD: "mod_revision",
    raft.VALUE: "value",
    raft.LEASE: "lease",
}


def _compare(found: Any) -> Compare:
    if found.target not in _WANTED:
        raise raft.Malformed(f"a compare of target {found.target}")
    if not raft.EQUAL <= found.result <= raft.NOT_EQUAL:
        raise raft.Malformed(f"a compare of result {found.result}")
    wanted = getattr(found, _WANTED[found.target])
    return Compare(found.target, found.result, found.key, found.range_end, wanted)


class Listed(NamedTuple):
    """A write of an entry, and whether it stands in a branch for failure, or below one."""

    step: Put | Delete
    fallback: bool


def writes_of(action: Action, *, fallback: bool = False) -> list[Listed]:
    """Return every write that an action may do, in the order of their numbers."""
    found: list[Listed] = []
    if isinstance(action, Transaction):
        for steps, below in ((action.success, fallback), (action.failure, True)):
            for step in steps:
                if isinstance(step, Transaction):
                    found += writes_of(step, fallback=below)
                elif not isinstance(step, RangeAt):
                    found.append(Listed(step, below))
    return found


def expected_revisions(action: Action) -> dict[bytes, int]:
    """Return the mod revision that each key must have for a transaction to take its first branch: 0 for absent."""
    return {
        compare.key: int(compare.wanted)
        for compare in (action.compares if isinstance(action, Transaction) else ())
        if compare.target == raft.MOD and compare.result == raft.EQUAL and not compare.range_end
    }


def in_range(key: bytes, begin: bytes, end: bytes) -> bool:
    """Say whether a key lies in a range as etcd's requests name it."""
    if not end:
        return key == begin
    return key >= begin and (end == ALL_FROM or key < end)
