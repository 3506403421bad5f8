"""What a log did to each key: what is certain, likely and possible, against a model that knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.errors import NotALog
from etcdfix.model import Confidence
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from tests.support.wal_writer import ModelEtcd, StoreNow, put, request


def busy(etcd: ModelEtcd, rounds: int = 30, keys: int = 7) -> None:
    for turn in range(rounds):
        etcd.update(b"/registry/leases/%d" % (turn % keys), b"beat %d of a node that lives" % turn)


OPEN = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    with OPEN:
        yield


def played(directory: Path, present: Source | None, *others: SnapshotSource) -> LogHistory:
    log = OPEN.enter_context(WriteAheadLog.open(directory))
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


def test_a_log_of_another_history_is_never_offered(tmp_path: Path) -> None:
    etcd, other = ModelEtcd(), ModelEtcd()
    for one, word in ((etcd, b"ours"), (other, b"theirs")):
        for turn in range(40):
            one.update(b"/registry/leases/%d" % (turn % 7), b"beat %d of %s" % (turn, word))
    found = played(written(other, tmp_path), etcd.store())
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


def test_values_stay_out_of_tracebacks(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    etcd.put(b"/registry/secrets/a/b", b"hunter2")
    busy(etcd)
    (write,) = history(etcd, tmp_path).writes(b"/registry/secrets/a/b")
    assert write.value == b"hunter2"
    assert "hunter2" not in repr(write)


def test_the_database_beside_a_log_does_not_speak_for_the_cluster_that_runs(tmp_path: Path) -> None:
    etcd, other = ModelEtcd(), ModelEtcd()
    busy(other, 60)
    for number in range(60):
        etcd.update(b"/registry/configmaps/a/%d" % number, b"of the cluster that runs %d" % number)
    with SnapshotSource(other.database(tmp_path / "db")) as beside:
        found = played(written(other, tmp_path), etcd.store(), beside)
        assert found.agreement.same is False
        assert all_writes(found) == []


def test_a_copy_that_went_its_own_way_is_not_believed_for_the_database_beside_it(tmp_path: Path) -> None:
    etcd, other = ModelEtcd(), ModelEtcd()
    for both in (etcd, other):
        busy(both, 30)
        both.put(b"/registry/secrets/a/shared", b"written before they parted")
    fork = other.log.index
    for turn in range(30):
        other.update(b"/registry/leases/%d" % (turn % 7), b"theirs %d" % turn)
        etcd.update(b"/registry/leases/%d" % (turn % 7), b"ours %d" % turn)
    busy(etcd, 90)
    with SnapshotSource(other.database(tmp_path / "db")) as beside:
        found = played(written(other, tmp_path), etcd.store(), beside)
        for one in all_writes(found):
            assert one.entry_index <= fork or one.confidence is Confidence.POSSIBLE


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


def test_a_directory_that_is_none_leaves_no_file_open(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    busy(etcd)
    with pytest.raises(NotALog):
        WriteAheadLog.open(written(etcd, tmp_path), tmp_path / "none")


def test_what_the_log_is_compared_with(tmp_path: Path) -> None:
    """Of a log that agrees with nothing nothing is given; compared with nothing, it is likely at most."""
    etcd = ModelEtcd()
    busy(etcd)
    found = played(written(etcd, tmp_path), StoreNow([], 500))
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
    assert "alice" not in repr(write)


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
