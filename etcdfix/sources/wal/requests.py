"""What the entries of a log ask for, in a form that can be listed and replayed.

Every write of an entry has a number: puts and deletions in order, those of the branch for success before those for
failure, nested transactions where they stand.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from etcdfix.wire import raft

ALL_FROM: Final = b"\x00"
"""The end of a range that has none."""


class Compare(NamedTuple):
    """A condition of a transaction; numbers as in :mod:`etcdfix.wire.raft`."""

    target: int
    result: int
    key: bytes
    range_end: bytes
    number: int
    value: bytes

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


class Grant(NamedTuple):
    """A lease comes into being."""

    lease: int
    seconds: int


class Revoke(NamedTuple):
    """A lease ends, and every key under it with it."""

    lease: int


class Alarm(NamedTuple):
    """An alarm goes on or off."""

    action: int
    member: int
    alarm: int


class Nothing(NamedTuple):
    """No key, no lease and no alarm is changed."""


class Authentication(NamedTuple):
    """etcd's authentication is configured, nothing more is read of it."""

    enables: bool


class Unknown(NamedTuple):
    """Something that cannot be told: from here on the state is not known."""

    why: str


Action: TypeAlias = Transaction | Grant | Revoke | Alarm | Nothing | Authentication | Unknown

_NOTHING: Final = Nothing()


class Asked(NamedTuple):
    """An entry's request, and who asked."""

    action: Action
    user: str


def asked_by(entry: raft.Entry, data: bytes) -> Asked:
    """Return what an entry asks for; the entry's data stands in ``data``. Never raises: what cannot be told is so."""
    if entry.type != raft.NORMAL or entry.data_at == entry.data_end:
        return Asked(_NOTHING, "")
    try:
        request = raft.parse_request(data, entry.data_at, entry.data_end)
        return Asked(_action(request), request.user.decode("utf-8", "replace"))
    except raft.Malformed as exc:
        return Asked(Unknown(str(exc)), "")


def _action(request: raft.Request) -> Action:
    kind, body = request.kind, request.body
    if kind == raft.REQUEST_TXN:
        return _transaction(raft.parse("Txn", body), [0])
    if kind == raft.REQUEST_PUT:
        return Transaction((), (_put(raft.parse("Put", body), 0),), ())
    if kind == raft.REQUEST_DELETE_RANGE:
        found = raft.parse("DeleteRange", body)
        return Transaction((), (Delete(0, found.key, found.range_end),), ())
    if kind == raft.REQUEST_LEASE_GRANT:
        found = raft.parse("LeaseGrant", body)
        return Grant(found.ID, found.TTL)
    if kind == raft.REQUEST_LEASE_REVOKE:
        return Revoke(raft.parse("LeaseRevoke", body).ID)
    if kind == raft.REQUEST_ALARM:
        found = raft.parse("Alarm", body)
        return Alarm(found.action, found.memberID, found.alarm)
    if kind in raft.AUTH_REQUESTS:
        return Authentication(kind == raft.REQUEST_AUTH_ENABLE)
    if not kind or kind in raft.HARMLESS_REQUESTS:
        return _NOTHING
    return Unknown(f"a request of a kind that is not known here ({kind})")


def _put(found: Any, number: int) -> Put:
    return Put(number, found.key, found.value, found.lease, found.keeps_value, found.keeps_lease)


def _transaction(found: Any, count: list[int]) -> Transaction:
    compares = tuple(_compare(compare) for compare in found.compare)
    success = tuple(_step(step, count) for step in found.success)
    failure = tuple(_step(step, count) for step in found.failure)
    return Transaction(compares, success, failure)


def _step(found: Any, count: list[int]) -> Step:
    present = [field.number for field, _ in found.ListFields()]
    if present == [2]:
        count[0] += 1
        return _put(found.put, count[0] - 1)
    if present == [1]:
        return RangeAt(found.range.revision)
    if present == [3]:
        count[0] += 1
        return Delete(count[0] - 1, found.delete_range.key, found.delete_range.range_end)
    if present == [4]:
        return _transaction(found.txn, count)
    if not present:  # an operation of none: etcd does nothing for it
        return RangeAt(0)
    raise raft.Malformed("an operation that is several")


_NUMBERS: Final = {
    raft.VERSION: "version",
    raft.CREATE: "create_revision",
    raft.MOD: "mod_revision",
    raft.LEASE: "lease",
}


def _compare(found: Any) -> Compare:
    target = found.target
    if target not in _NUMBERS and target != raft.VALUE:
        raise raft.Malformed(f"a compare of target {target}")
    if not raft.EQUAL <= found.result <= raft.NOT_EQUAL:
        raise raft.Malformed(f"a compare of result {found.result}")
    name = _NUMBERS.get(target)
    return Compare(
        target, found.result, found.key, found.range_end, getattr(found, name) if name else 0, found.value
    )


class Listed(NamedTuple):
    """A write of an entry, with the branch it stands in.

    Attributes:
        fallback: It stands in a branch for failure, or below one.
    """

    step: Put | Delete
    fallback: bool


def writes_of(action: Action) -> list[Listed]:
    """Return every write that an action may do, in the order of their numbers."""
    found: list[Listed] = []
    if isinstance(action, Transaction):
        _collect(action, found, fallback=False)
    return found


def _collect(transaction: Transaction, found: list[Listed], *, fallback: bool) -> None:
    for steps, below in ((transaction.success, fallback), (transaction.failure, True)):
        for step in steps:
            if isinstance(step, Transaction):
                _collect(step, found, fallback=below)
            elif not isinstance(step, RangeAt):
                found.append(Listed(step, below))


def expected_revisions(action: Action) -> dict[bytes, int]:
    """Return the mod revision that each key must have for a transaction to take its first branch: 0 for absent."""
    if not isinstance(action, Transaction):
        return {}
    return {
        compare.key: compare.number
        for compare in action.compares
        if compare.target == raft.MOD and compare.result == raft.EQUAL and not compare.range_end
    }


def in_range(key: bytes, begin: bytes, end: bytes) -> bool:
    """Say whether a key lies in a range as etcd's requests name it."""
    if not end:
        return key == begin
    return key >= begin and (end == ALL_FROM or key < end)
