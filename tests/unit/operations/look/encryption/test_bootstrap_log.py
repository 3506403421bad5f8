"""Bootstrap values out of a write-ahead log: what a compaction and a rotation of the token took from etcd."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
from tests.support.wal_writer import PUT, ModelEtcd, put, request

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


def parted(
    *, clone: Callable[[ModelEtcd], object], mine: Callable[[ModelEtcd], object]
) -> tuple[ModelEtcd, ...]:
    """Return a cluster and a clone of it, after each went its own way."""
    here = story()
    there = copy.deepcopy(here)
    for etcd, way in ((here, mine), (there, clone)):
        way(etcd)
        etcd.log.commit()
    return here, there


def logged_of(there: ModelEtcd, here: ModelEtcd, folder: Path, *, beside: bool = False) -> LoggedValues:
    logs = [there.log.write(folder / "member" / "wal")]
    if beside:
        (folder / "member" / "snap").mkdir()
        there.database(folder / "member" / "snap" / "db")
    return read_logs(logs, here.store(), READING, TOKENS)


def kept_of(logged: LoggedValues, here: ModelEtcd) -> BootstrapValues:
    return read_values(here.store(), TOKENS, logged.values)


ELSEWHERE = NEW.replace(b'"secrets"', b'"secrets","configmaps"')


def rotate(etcd: ModelEtcd) -> None:
    etcd.put(path().encode(), bootstrap(ELSEWHERE))


def renew(times: int) -> Callable[[ModelEtcd], None]:
    def way(etcd: ModelEtcd) -> None:
        for number in range(times):
            etcd.update(f"/registry/leases/n/{number % 4}".encode(), f"mine {number}".encode())

    return way


@pytest.mark.parametrize("after", [1, 3])
def test_what_a_clone_was_rotated_to_is_only_possible_and_comes_last(after: int, tmp_path: Path) -> None:
    here, there = parted(clone=rotate, mine=renew(after))
    logged = logged_of(there, here, tmp_path)
    assert {one.confidence for one in logged.values[-1:]} == {Confidence.POSSIBLE}
    values = kept_of(logged, here)
    names = [file.expose() for file in values.files.values()]
    assert names == [NEW, OLD, ELSEWHERE]
    surest = [values.surest_of(sha256) for sha256 in values.files]
    assert [kept.confidence for kept in surest][::2] == [Confidence.CERTAIN, Confidence.POSSIBLE]
    assert surest[-1].doubt
    assert not surest[-1].current


def test_a_clone_and_a_cluster_that_rotated_at_the_same_revision(tmp_path: Path) -> None:
    """Bootstrap data is no object, and never reads: that is no sign of a failing disk, so it speaks against the log."""
    mine = NEW.replace(b'"secrets"', b'"secrets","pods"')
    here, there = parted(clone=rotate, mine=lambda etcd: etcd.put(path().encode(), bootstrap(mine)))
    logged = logged_of(there, here, tmp_path)
    assert [one.confidence for one in logged.values if one.mod_revision == there.revision] == []
    assert logged.values[-1].confidence is Confidence.POSSIBLE


def test_the_log_of_a_clone_with_its_database_is_refused(tmp_path: Path) -> None:
    """The file beside it agrees with it, and not with what is stored here."""
    here, there = parted(clone=rotate, mine=renew(4))
    with pytest.raises(OtherHistory, match="snap/db beside it is of another history"):
        logged_of(there, here, tmp_path, beside=True)


def test_the_log_of_a_clone_none_of_whose_keys_is_left_is_refused(tmp_path: Path) -> None:
    here, there = parted(clone=rotate, mine=renew(4))
    with pytest.raises(OtherHistory, match="nothing shows that this log is of the history"):
        logged_of(there, here, tmp_path)


def test_what_a_later_leader_replaced_is_not_there_and_what_nobody_agreed_on_is_possible(
    tmp_path: Path,
) -> None:
    etcd = story()
    at = etcd.log.index
    replaced = copy.deepcopy(etcd)
    replaced.put(path().encode(), bootstrap(ELSEWHERE))
    etcd.log = replaced.log
    etcd.log.index, etcd.log.term = at, etcd.log.term + 1
    renew(4)(etcd)
    etcd.log.commit()
    last = etcd.log.entry(request(PUT, put(path().encode(), bootstrap(NEW, stage="prepare"))))
    logged = logged_of(etcd, etcd, tmp_path)
    assert at + 1 not in {one.log_index for one in logged.values}
    assert [(one.log_index, one.confidence) for one in logged.values][-1] == (last, Confidence.POSSIBLE)
    assert ELSEWHERE not in [file.expose() for file in kept_of(logged, etcd).files.values()]


def test_a_last_write_that_is_not_whole_is_no_problem(tmp_path: Path) -> None:
    etcd = story()
    wal = etcd.log.write(tmp_path / "member" / "wal")
    (segment,) = wal.iterdir()
    whole = bytes(etcd.log.segments[0][1])
    rotate(etcd)
    torn = bytes(etcd.log.segments[0][1])[: len(whole) + 40]
    segment.write_bytes(torn + bytes(4096))
    logged = read_logs([wal], story().store(), READING, TOKENS)
    assert logged.problems == ()
    assert [file.expose() for file in read_values(MemorySource(), TOKENS, logged.values).files.values()] == [
        NEW,
        OLD,
    ]


def test_a_log_that_nothing_speaks_for_is_possible(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    etcd.put(path().encode(), bootstrap(OLD))
    logged = logged_of(etcd, ModelEtcd(), tmp_path)
    assert [one.confidence for one in logged.values] in ([], [Confidence.POSSIBLE])
