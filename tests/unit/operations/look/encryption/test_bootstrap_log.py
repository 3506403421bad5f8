"""Bootstrap values out of a write-ahead log: what a compaction and a rotation of the token took from etcd."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from etcdfix.encryption.bootstrap import BootstrapState
from etcdfix.encryption.server_token import EMPTY_TOKEN, forms_of
from etcdfix.errors import NotALog, OtherHistory
from etcdfix.examine import Reading
from etcdfix.model import Confidence
from etcdfix.operations.look.encryption.bootstrap_log import LoggedValues, read_logs
from etcdfix.operations.look.encryption.bootstrap_values import BootstrapValues, LoggedValue, read_values
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from tests.support.k3s_bootstrap import TOKEN, bootstrap, path
from tests.support.k3s_cluster import NEW, OLD
from tests.support.memory_source import MemorySource
from tests.support.wal_writer import ModelEtcd

READING = Reading(layout=StorageLayout())
TOKENS = (*forms_of(TOKEN.encode()), *forms_of(b"former"), EMPTY_TOKEN)


def story() -> ModelEtcd:
    """Return a cluster that rotated its token, and then its encryption key."""
    etcd = ModelEtcd()
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"before")
    etcd.put(path("former").encode(), bootstrap(OLD, "former"))
    etcd.put(path().encode(), bootstrap(OLD))
    etcd.delete(path("former").encode())
    etcd.put(path().encode(), bootstrap(NEW))
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"after")
    etcd.log.commit()
    return etcd


def found(etcd: ModelEtcd, folder: Path) -> tuple[BootstrapValues, LoggedValues]:
    logs = [etcd.log.write(folder / "member" / "wal")]
    (folder / "member" / "snap").mkdir()
    with SnapshotSource(etcd.database(folder / "member" / "snap" / "db")) as source:
        logged = read_logs(logs, source, READING, TOKENS)
        return read_values(source, TOKENS, logged.values), logged


def test_earlier_and_deleted_values_are_there_and_none_is_there_twice(tmp_path: Path) -> None:
    etcd = story()
    values, logged = found(etcd, tmp_path)
    assert logged.problems == ()
    assert {kept.opened.state for kept in values.values} == {BootstrapState.RECOVERED}
    assert len(values.files) == 2
    assert [kept.current for kept in values.values] == [True, False, False]
    by_index = {kept.log_index: kept for kept in values.values}
    truth = {
        entry: revision
        for (entry, key), (revision, value) in etcd.truth.items()
        if b"/bootstrap/" in key and value
    }
    assert {index: by_index[index].mod_revision for index in by_index if index is not None} == {
        entry: revision for entry, revision in truth.items() if revision != max(truth.values())
    }


def test_a_write_that_etcd_refused_is_read_all_the_same(tmp_path: Path) -> None:
    etcd = story()
    etcd.alarm(on=True)
    newer = NEW.replace(b'"secrets"', b'"secrets","configmaps"')
    refused = etcd.put(path().encode(), bootstrap(newer))
    etcd.alarm(on=False)
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"again")
    etcd.log.commit()
    values, _ = found(etcd, tmp_path)
    assert len(values.files) == 3
    (kept,) = [kept for kept in values.values if kept.log_index == refused]
    assert (kept.mod_revision, kept.current) == (None, False)


def test_what_stands_there_now_says_in_which_stage_it_is(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    etcd.put(path().encode(), bootstrap(OLD, stage="prepare"))
    etcd.put(path().encode(), bootstrap(OLD, stage="rotate"))
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"after")
    etcd.log.commit()
    values, _ = found(etcd, tmp_path)
    ((sha256, file),) = values.files.items()
    assert file.stage is not None
    assert file.stage.name == "rotate"
    assert [kept.current for kept in values.of(sha256)] == [False, True]


def test_a_write_of_the_same_revision_that_holds_something_else_is_read_too() -> None:
    """Its revision may be a guess, and a restored etcd gives the same ones out again."""
    source = MemorySource({path(): bootstrap(OLD)})
    (now,) = source.current(b"/bootstrap/")

    def logged(value: bytes) -> LoggedValue:
        return LoggedValue(
            etcd_key=now.key,
            value=value,
            mod_revision=now.mod_revision,
            log_index=7,
            confidence=Confidence.POSSIBLE,
        )

    assert len(read_values(source, TOKENS, [logged(bootstrap(NEW))]).files) == 2
    assert len(read_values(source, TOKENS, [logged(now.value)]).values) == 1


def test_no_log_is_nothing_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    assert read_logs([], MemorySource(), READING, TOKENS) == LoggedValues()
    with pytest.raises(NotALog):
        read_logs([tmp_path], MemorySource(), READING, TOKENS)
    logs = [story().log.write(tmp_path / "wal")]
    other = ModelEtcd()
    for number in range(8):
        other.update(f"/registry/leases/n/{number}".encode(), b"elsewhere")
    with pytest.raises(OtherHistory):
        read_logs(logs, other.store(), READING, TOKENS)


ELSEWHERE = NEW.replace(b'"secrets"', b'"secrets","configmaps"')


def test_what_a_clone_was_rotated_to_is_only_possible_and_comes_last(tmp_path: Path) -> None:
    here = story()
    there = copy.deepcopy(here)
    there.put(path().encode(), bootstrap(ELSEWHERE))
    here.update(b"/registry/leases/n/0", b"mine")
    for etcd in (here, there):
        etcd.log.commit()
    logged = read_logs([there.log.write(tmp_path / "member" / "wal")], here.store(), READING, TOKENS)
    values = read_values(here.store(), TOKENS, logged.values)
    assert [file.expose() for file in values.files.values()] == [NEW, OLD, ELSEWHERE]
    surest = [values.surest_of(sha256) for sha256 in values.files]
    assert [kept.confidence for kept in surest][::2] == [Confidence.CERTAIN, Confidence.POSSIBLE]
    assert (bool(surest[-1].doubt), surest[-1].current) == (True, False)
