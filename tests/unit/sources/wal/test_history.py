"""What a log did to each key: what is certain, likely and possible, against a model that knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.model.model import Confidence
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import AppliedState, SnapshotSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.sources.wal.replay import Applied, Base, Held, Replay
from etcdfix.sources.wal.requests import action_of, writes_of
from etcdfix.testing.protobytes import block, number
from etcdfix.wire import raft
from tests.support.memory_source import LiveMemory
from tests.support.stopping import OPEN
from tests.support.wal_writer import (
    ALARM,
    DELETE,
    GRANT,
    PUT,
    REVOKE,
    TXN,
    ModelEtcd,
    compare,
    compare_value,
    delete_range,
    op_delete,
    op_put,
    op_range,
    op_txn,
    put,
    request,
    txn,
)


def busy(etcd: ModelEtcd, rounds: int = 30, keys: int = 7) -> None:
    for turn in range(rounds):
        etcd.update(b"/registry/leases/%d" % (turn % keys), b"beat %d of a node that lives" % turn)


def played(directory: Path, present: Source | None, *others: SnapshotSource) -> LogHistory:
    log = OPEN.enter_context(WriteAheadLog(directory))
    return OPEN.enter_context(LogHistory(log, present, others))


def written(etcd: ModelEtcd, path: Path, *, keep: int = 0) -> Path:
    etcd.log.commit()
    return etcd.log.write(path / "wal", keep=keep)


def history(etcd: ModelEtcd, path: Path, *others: SnapshotSource, keep: int = 0) -> LogHistory:
    return played(written(etcd, path, keep=keep), etcd.store(), *others)


def all_writes(found: LogHistory) -> list[LoggedWrite]:
    return [write for key in list(found.keys()) for write in found.writes(key)]


def test_a_log_from_its_beginning_tells_every_revision_for_certain(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    busy(etcd)
    etcd.put(b"/registry/secrets/a/b", b"one")
    etcd.grant(7)
    etcd.put(b"/registry/events/x", b"event", lease=7)
    etcd.put(b"/registry/events/y", b"event", lease=7)
    busy(etcd)
    etcd.revoke(7)
    etcd.update(b"/registry/secrets/a/c", b"two")
    etcd.delete(b"/registry/secrets/", b"/registry/secrets0")
    busy(etcd)
    found = history(etcd, tmp_path)
    assert found.agreement.same
    writes = all_writes(found)
    assert {(one.entry_index, one.key): (one.mod_revision, one.value) for one in writes} == etcd.truth
    late = {one.key: one.confidence for one in writes if one.entry_index > etcd.log.index - 3}
    assert {one.confidence for one in writes if one.key not in late} == {Confidence.CERTAIN}
    assert {one.kind for one in found.writes(b"/registry/events/x")} == {
        WriteKind.PUT,
        WriteKind.LEASE_REVOCATION,
    }
    assert set(found.deleted()) == {
        b"/registry/events/x", b"/registry/events/y", b"/registry/secrets/a/b", b"/registry/secrets/a/c"
    }  # fmt: skip


def test_without_a_base_nothing_is_certain_and_compares_tell_the_revisions(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    busy(etcd, 50)
    etcd.log.commit()
    etcd.log.cut()
    etcd.update(b"/registry/secrets/a/b", b"one")
    busy(etcd, 50)
    etcd.update(b"/registry/secrets/a/b", b"two")
    busy(etcd, 50)
    etcd.update(b"/registry/secrets/a/b", None)
    busy(etcd, 50)
    found = history(etcd, tmp_path, keep=1)
    writes = all_writes(found)
    assert {one.confidence for one in writes} == {Confidence.LIKELY}
    for one in writes:
        if one.mod_revision is not None:
            assert etcd.truth[one.entry_index, one.key] == (one.mod_revision, one.value)
    assert [one.confidence for one in found.writes(b"/registry/secrets/a/b")] == [Confidence.LIKELY] * 3


def test_a_database_in_the_log_is_a_base(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    busy(etcd, 50)
    etcd.log.commit()
    etcd.log.cut()
    busy(etcd, 10)
    with SnapshotSource(etcd.database(tmp_path / "db")) as base:
        etcd.update(b"/registry/secrets/a/b", b"one")
        busy(etcd, 20)
        etcd.delete(b"/registry/secrets/a/b")
        busy(etcd, 30)
        found = history(etcd, tmp_path, base, keep=1)
        assert [
            (one.kind, one.confidence, one.mod_revision) for one in found.writes(b"/registry/secrets/a/b")
        ] == [(WriteKind.PUT, Confidence.CERTAIN, 62), (WriteKind.DELETE, Confidence.CERTAIN, 83)]
        assert found.replayed.endswith("db, which shows the entries up to 60")


@pytest.mark.parametrize("beside", [False, True])
def test_a_log_of_another_history_is_never_offered(tmp_path: Path, beside: bool) -> None:
    """The database beside it does not speak for the cluster that runs."""
    etcd, other = ModelEtcd(), ModelEtcd()
    for one, word in ((etcd, b"ours"), (other, b"theirs")):
        for turn in range(40):
            one.update(b"/registry/leases/%d" % (turn % 7), b"beat %d of %s" % (turn, word))
    databases = [SnapshotSource(other.database(tmp_path / "db"))] if beside else []
    found = played(written(other, tmp_path), etcd.store(), *map(OPEN.enter_context, databases))
    assert found.agreement.same is False
    assert all_writes(found) == []


def test_behind_a_snapshot_that_is_all_there_is_the_log_goes_on_and_nothing_is_certain(
    tmp_path: Path,
) -> None:
    etcd = ModelEtcd()
    busy(etcd, 50)
    etcd.log.commit()
    etcd.log.cut()
    busy(etcd, 10)
    with SnapshotSource(etcd.database(tmp_path / "db")) as snapshot:
        etcd.update(b"/registry/secrets/a/b", b"one")
        busy(etcd, 20)
        found = played(written(etcd, tmp_path, keep=1), snapshot)
        assert found.agreement.same
        (write,) = found.writes(b"/registry/secrets/a/b")
        assert (write.mod_revision, write.confidence) == (62, Confidence.LIKELY)
        assert all(one.confidence is not Confidence.CERTAIN for one in all_writes(found))


def test_a_snapshot_of_another_cluster_is_no_base(tmp_path: Path) -> None:
    etcd, other = ModelEtcd(), ModelEtcd()
    busy(etcd, 50)
    for turn in range(60):
        other.update(b"/registry/secrets/other/%d" % (turn % 3), b"of another cluster %d" % turn)
    etcd.log.commit()
    etcd.log.cut()
    busy(etcd, 10)
    with SnapshotSource(other.database(tmp_path / "db")) as base:
        etcd.update(b"/registry/secrets/a/b", b"one")
        busy(etcd, 30)
        found = history(etcd, tmp_path, base, keep=1)
        assert found.agreement.same
        assert all(one.confidence is not Confidence.CERTAIN for one in all_writes(found))
        assert "replaying the log does not lead to what is stored now" in found.problems[0]
        for one in all_writes(found):
            if one.mod_revision is not None:
                assert etcd.truth[one.entry_index, one.key] == (one.mod_revision, one.value)


def test_how_far_every_write_stands_in_the_log(tmp_path: Path) -> None:
    """Up to the newest write that is stored as the log has it, across no gap, and behind a known state alone."""
    etcd = ModelEtcd()
    etcd.update(b"/registry/secrets/a/b", b"one")
    first = etcd.log.index
    for _ in range(3):
        busy(etcd)
        etcd.log.commit()
        etcd.log.cut()
    busy(etcd)
    last = etcd.log.index
    whole = history(etcd, tmp_path)
    revision = etcd.store().describe().revision
    assert whole.agreed_until(first) == revision
    assert whole.agreed_until(last) in {0, revision}
    assert whole.agreed_until(last + 1) == 0
    files = sorted((tmp_path / "wal").glob("*.wal"))
    assert len(files) == 4
    files[2].unlink()
    gapped = played(tmp_path / "wal", etcd.store())
    assert list(gapped.writes(b"/registry/secrets/a/b"))
    assert gapped.agreed_until(first) == 0
    other = ModelEtcd()
    busy(other, 50)
    other.log.commit()
    other.log.cut()
    busy(other)
    assert history(other, tmp_path / "other", keep=1).agreed_until(other.log.index - 5) == 0


def test_what_the_log_is_compared_with(tmp_path: Path) -> None:
    """Of a log that agrees with nothing nothing is given; compared with nothing, it is likely at most."""
    etcd = ModelEtcd()
    busy(etcd)
    found = played(written(etcd, tmp_path), LiveMemory([], 500))
    for nothing in (found.keys(), found.deleted(), found.writes(b"/registry/leases/1")):
        assert list(nothing) == []
    found = played(tmp_path / "wal", None)
    assert found.agreement.same is None
    assert {one.confidence for one in found.writes(b"/registry/leases/1")} == {Confidence.LIKELY}


def test_where_authentication_is_switched_on_the_rest_is_told_by_compares(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    busy(etcd)
    etcd.log.entry(request(1000, b""))
    etcd.log.entry(request(4, put(b"/registry/leases/x", b"who knows"), user=b"alice"))
    busy(etcd)
    found = history(etcd, tmp_path)
    assert found.problems == [
        "nothing after it is certain: entry 31 switches etcd's authentication on, which may refuse later ones"
    ]
    (write,) = found.writes(b"/registry/leases/x")
    assert (write.confidence, write.mod_revision) == (Confidence.POSSIBLE, None)
    assert write.value == b"who knows"
    assert not any(word in repr(write) for word in ("alice", "who knows"))


def test_a_snapshot_from_before_the_base_contradicts_nothing(tmp_path: Path) -> None:
    """It holds a key that was gone when the replay began; a write of it that was refused says nothing."""
    etcd = ModelEtcd()
    key = b"/registry/secrets/a/b"
    etcd.update(key, b"one")
    busy(etcd, 5)
    before = etcd.database(tmp_path / "before")
    etcd.update(key, None)
    etcd.log.commit()
    etcd.log.cut()
    busy(etcd, 5)
    with SnapshotSource(before) as older, SnapshotSource(etcd.database(tmp_path / "db")) as base:
        etcd.update(key, b"never", expected=2)
        busy(etcd)
        found = history(etcd, tmp_path, older, base, keep=1)
        assert (found.problems, found.agreement.same) == ([], True)
        assert [one.refused for one in found.writes(key)] == [True]


GREATER, LESS, NOT_EQUAL = 1, 2, 3


class Played:
    """Requests applied one after the other."""

    def __init__(self, base: Base | None = None) -> None:
        self.entry = 0
        self._values: dict[tuple[int, int], bytes] = {}
        self.replay = Replay(base or Base(), lambda entry, number: self._values[entry, number])

    def apply(self, data: bytes) -> Applied:
        raw = number(2, 1) + number(3, 1) + block(4, data)
        action = action_of(raft.parse_entry(raw, 0, len(raw)), raw)
        self.entry += 1
        for write, _ in writes_of(action):
            self._values[self.entry, write.number] = getattr(write, "value", b"")
        return self.replay.apply(self.entry, action)

    def txn(self, compares: list[bytes], success: list[bytes], failure: list[bytes] | None = None) -> Applied:
        return self.apply(request(TXN, txn(compares, success, failure or [])))

    def put(self, key: bytes, value: bytes = b"v", *, lease: int = 0) -> Applied:
        return self.apply(request(PUT, put(key, value, lease=lease)))

    def has(self, key: bytes) -> bool:
        return self.replay.held(key) is not None


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (compare(b"a", 2, 2), True),
        (compare(b"a", 2, 1), False),
        (compare(b"a", 2, 1, GREATER), True),
        (compare(b"a", 2, 2, GREATER), False),
        (compare(b"a", 2, 3, LESS), True),
        (compare(b"a", 2, 2, NOT_EQUAL), False),
        (compare(b"a", 1, 2), True),
        (compare(b"a", 0, 1), True),
        (compare(b"a", 4, 0), True),
        (compare(b"none", 2, 0), True),
        (compare(b"none", 0, 0), True),
        (compare_value(b"a", b"v"), True),
        (compare_value(b"a", b"w"), False),
        (compare_value(b"a", b"u", GREATER), True),
        (compare_value(b"none", b""), False),
        (compare_value(b"none", b"", NOT_EQUAL), False),
    ],
)
def test_compares(condition: bytes, holds: bool) -> None:
    played = Played()
    played.put(b"a")
    applied = played.txn([condition], [op_put(put(b"yes", b""))], [op_put(put(b"no", b""))])
    assert (played.has(b"yes"), played.has(b"no")) == (holds, not holds)
    assert applied.revision == 3


def test_compares_of_nested_transactions_see_the_state_before_the_entry() -> None:
    played = Played()
    played.put(b"a")
    nested = txn(
        [compare(b"a", 2, 2)], [op_put(put(b"saw-the-old", b""))], [op_put(put(b"saw-the-new", b""))]
    )
    played.txn([], [op_put(put(b"a", b"w")), op_txn(nested)])
    assert played.has(b"saw-the-old")
    assert not played.has(b"saw-the-new")


def test_leases() -> None:
    played = Played()
    assert played.put(b"dead", lease=5).revision == 0
    played.apply(request(GRANT, number(1, 60) + number(2, 5)))
    played.put(b"b", lease=5)
    played.put(b"a", lease=5)
    played.put(b"moved", lease=5)
    played.put(b"moved")
    played.apply(request(PUT, put(b"a", b"w", keep_lease=True)))
    played.put(b"deleted", lease=5)
    played.apply(request(DELETE, delete_range(b"deleted")))
    ended = played.apply(request(REVOKE, number(1, 5)))
    assert [change.key for change in ended.changes] == [b"a", b"b"]
    assert ended.revision == played.replay.revision
    assert played.has(b"moved")
    assert played.apply(request(REVOKE, number(1, 5))).revision == 0
    assert played.put(b"a", lease=5).revision == 0
    played.apply(request(GRANT, number(1, 1 << 60) + number(2, 6)))
    assert played.put(b"a", lease=6).revision == 0


def test_a_put_that_keeps_value_or_lease_needs_what_it_keeps() -> None:
    played = Played()
    assert played.apply(request(PUT, put(b"a", b"", keep_value=True))).revision == 0
    played.put(b"a", b"one")
    played.apply(request(PUT, put(b"a", b"", keep_value=True)))
    assert played.replay.held(b"a") == Held(mod=3, create=2, version=2, lease=0, entry=3, value=2, number=0)
    # One operation that is refused takes its whole transaction with it.
    assert played.txn([], [op_put(put(b"b", b"")), op_put(put(b"none", b"", keep_value=True))]).revision == 0
    assert not played.has(b"b")


def test_under_an_alarm_of_space_puts_are_refused_and_deletions_are_not() -> None:
    played = Played()
    played.put(b"a")
    played.apply(request(ALARM, number(1, 1) + number(2, 9) + number(3, raft.NOSPACE)))
    assert played.put(b"b").revision == 0
    assert played.txn([], [op_range(b"a")], [op_put(put(b"b", b""))]).revision == 0
    played.apply(request(GRANT, number(1, 60) + number(2, 5)))
    assert played.txn([compare(b"a", 2, 2)], [op_delete(delete_range(b"a"))]).revision == 3
    played.apply(request(ALARM, number(1, 2) + number(2, 9) + number(3, raft.NOSPACE)))
    assert played.put(b"b").revision == 4
    assert played.put(b"b", lease=5).revision == 0


def test_under_an_alarm_of_corruption_everything_is_refused() -> None:
    played = Played()
    played.put(b"a")
    played.apply(request(ALARM, number(1, 1) + number(2, 9) + number(3, raft.CORRUPT)))
    assert played.apply(request(DELETE, delete_range(b"a"))).revision == 0
    assert played.apply(request(REVOKE, number(1, 5))).revision == 0
    assert not played.replay.stopped


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (request(1000, b""), "switches etcd's authentication on"),
        (request(555, b"x"), "not known here"),
        (b"\x22\x01", "needs 1 bytes"),
        (request(TXN, txn([compare(b"a", 2, 2) + block(64, b"b")], [])), "compare of a range"),
        (request(TXN, txn([], [op_range(b"a", 3)])), "compacted"),
        (request(TXN, txn([number(2, 7) + block(3, b"a")], [])), "target 7"),
        (request(TXN, txn([number(1, 9) + block(3, b"a")], [])), "result 9"),
        (request(TXN, block(2, block(1, b"") + block(2, b""))), "several"),
        (request(ALARM, number(1, 1) + number(2, 9) + number(3, 7)), "not known"),
    ],
)
def test_what_cannot_be_told_ends_it(data: bytes, why: str) -> None:
    played = Played()
    played.put(b"a")
    assert played.apply(data).revision == 0
    assert why in played.replay.stopped
    assert played.put(b"b").revision == 0


def test_a_revision_that_is_not_there_yet_proves_the_replay_wrong() -> None:
    played = Played()
    played.put(b"a")
    assert played.txn([compare(b"a", 2, 3)], [op_put(put(b"a", b"w"))]).revision == 0
    assert played.replay.wrong
    assert "names a revision" in played.replay.stopped


def test_two_alarms_or_a_nested_put_under_one_end_it() -> None:
    played = Played()
    played.apply(request(ALARM, number(1, 1) + number(2, 9) + number(3, raft.NOSPACE)))
    played.txn([], [op_txn(txn([], [op_put(put(b"b", b""))]))])
    assert "nested" in played.replay.stopped
    played = Played()
    for alarm in (raft.NOSPACE, raft.CORRUPT):
        played.apply(request(ALARM, number(1, 1) + number(2, 9) + number(3, alarm)))
    assert "two alarms" in played.replay.stopped


def test_what_changes_nothing() -> None:
    played = Played()
    for data in (
        b"",
        request(raft.REQUEST_COMPACTION, number(1, 1)),
        request(raft.REQUEST_RANGE, block(1, b"a")),
        request(1012, block(2, b"secret")),
        request(ALARM, number(1, 0)),
        request(ALARM, number(1, 2) + number(2, 9) + number(3, 1)),
        number(1, 9) + block(2, b"PUT"),
    ):
        assert played.apply(data) == Applied()
    assert not played.replay.stopped
    assert played.put(b"a").revision == 2


def test_a_witness_is_a_compare_that_nothing_else_explains() -> None:
    played = Played()
    played.put(b"a")
    assert played.txn([compare(b"a", 2, 2)], [op_put(put(b"a", b"w"))]).witnessed == [1]
    played.txn([compare(b"a", 2, 2)], [op_put(put(b"a", b"refused"))])  # could be the one that counted
    assert played.txn([compare(b"a", 2, 3)], [op_put(put(b"a", b"x"))]).witnessed == []
    either = [op_put(put(b"a", b"yes"))], [op_put(put(b"a", b"no"))]
    played.txn([compare(b"none", 2, 0)], *either)  # its revision does not say which branch was taken
    assert played.txn([compare(b"a", 2, 5)], [op_put(put(b"a", b"y"))]).witnessed == []


def test_from_a_database_file(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    etcd.grant(7)
    etcd.put(b"/a/1", b"one", lease=7)
    etcd.put(b"/a/2", b"two")
    etcd.put(b"/b", b"three")
    with SnapshotSource(etcd.database(tmp_path / "db")) as source:
        base = Base.of(source)
        assert base is not None
        assert base.applied == AppliedState(4, 2, 4, (), frozenset({7}), authentication=False)
        assert list(base.keys(b"/a/", b"/a0")) == [b"/a/1", b"/a/2"]
        assert list(base.keys(b"/a/2", b"\0")) == [b"/a/2", b"/b"]
        played = Played(base)
        assert (
            played.txn(
                [compare(b"/b", 2, 4), compare_value(b"/b", b"three")], [op_put(put(b"/b", b"w"))]
            ).revision
            == 5
        )
        assert [change.key for change in played.apply(request(REVOKE, number(1, 7))).changes] == [b"/a/1"]
        played.put(b"/a/3")
        gone = played.apply(request(DELETE, delete_range(b"/a/", b"/a0")))
        assert [change.key for change in gone.changes] == [b"/a/2", b"/a/3"]
    etcd.nospace = True
    with SnapshotSource(etcd.database(tmp_path / "full")) as source:
        base = Base.of(source)
        assert base is not None
        assert Played(base).put(b"/c").revision == 0
    with SnapshotSource(etcd.database(tmp_path / "past"), revision=3) as source:
        assert Base.of(source) is None
    assert Base.of(None) is None


def test_where_authentication_is_on_nothing_can_be_told() -> None:
    base = Base(None, AppliedState(0, None, 1, (), frozenset(), authentication=True))
    assert "authentication is on" in Played(base).replay.stopped
    base = Base(None, AppliedState(0, None, 1, (b"\xff",), frozenset(), authentication=False))
    assert "not known" in Played(base).replay.stopped
