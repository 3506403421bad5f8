"""Opening a log, and what stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.errors import NotALog, OtherHistory
from etcdfix.sources.wal.log import WriteAheadLog, database_beside
from etcdfix.sources.wal.model import Kinship
from tests.support.wal_writer import ModelEtcd, StoreNow, put, request


def filled() -> ModelEtcd:
    etcd = ModelEtcd()
    for turn in range(30):
        etcd.update(b"/registry/leases/%d" % (turn % 5), b"beat %d" % turn)
    etcd.log.commit()
    return etcd


def test_what_it_holds(tmp_path: Path) -> None:
    etcd = filled()
    with WriteAheadLog.open(etcd.log.write(tmp_path / "wal")) as log:
        about = log.description
        assert (about.first_index, about.last_index, about.committed_index, about.entries) == (1, 30, 30, 30)
        assert (about.cluster_id, about.segments) == ("c1", 1)
        assert log.problems == []
        history = log.history(etcd.store())
        assert "the empty store" in history.replayed
        assert history.problems == []
        assert list(history.keys(b"/registry/leases/3")) == [b"/registry/leases/3"]
        assert history.directory_of(1) == tmp_path / "wal"
        log.require_same_history(history)
        history.close()


def test_a_directory_that_is_none_leaves_no_file_open(tmp_path: Path) -> None:
    directory = filled().log.write(tmp_path / "wal")
    with pytest.raises(NotALog):
        WriteAheadLog.open(directory, tmp_path / "none")


def test_a_log_that_agrees_with_nothing_is_refused(tmp_path: Path) -> None:
    with WriteAheadLog.open(filled().log.write(tmp_path / "wal")) as log:
        history = log.history(StoreNow([], 500))
        with pytest.raises(OtherHistory, match="nothing shows"):
            log.require_same_history(history)
        for found in (history.keys(), history.deleted(), history.writes(b"/registry/leases/1")):
            assert list(found) == []
        history.close()


def test_compared_with_nothing_it_is_likely_at_most(tmp_path: Path) -> None:
    with WriteAheadLog.open(filled().log.write(tmp_path / "wal")) as log:
        history = log.history(None)
        assert history.agreement.kinship is Kinship.NOT_COMPARED
        log.require_same_history(history)
        assert {one.confidence.value for one in history.writes(b"/registry/leases/1")} == {"likely"}
        history.close()


def test_where_authentication_is_switched_on_the_rest_is_told_by_compares(tmp_path: Path) -> None:
    etcd = filled()
    etcd.log.entry(request(1000, b""))
    etcd.log.entry(request(4, put(b"/registry/leases/x", b"who knows"), user=b"alice"))
    for turn in range(30):
        etcd.update(b"/registry/leases/%d" % (turn % 5), b"later beat %d" % turn)
    etcd.log.commit()
    with WriteAheadLog.open(etcd.log.write(tmp_path / "wal")) as log:
        history = log.history(etcd.store())
        assert history.problems == [
            "nothing after it is certain: etcd's authentication was switched on in entry 31"
        ]
        (write,) = history.writes(b"/registry/leases/x")
        assert (write.confidence.value, write.mod_revision, write.user) == ("possible", None, "alice")
        assert "alice" not in repr(write)
        history.close()


def test_the_database_beside(tmp_path: Path) -> None:
    etcd = filled()
    directory = etcd.log.write(tmp_path / "member" / "wal")
    assert database_beside(directory) is None
    (tmp_path / "member" / "snap").mkdir()
    path = etcd.database(tmp_path / "member" / "snap" / "db")
    assert database_beside(directory) == path
