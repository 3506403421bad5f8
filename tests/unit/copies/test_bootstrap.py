"""Bootstrap values out of etcd, a log and a snapshot: what a compaction and a rotation of the token took."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.copies import bootstrap as module
from etcdfix.copies.bootstrap import BootstrapValues, bootstrap_values
from etcdfix.copies.finder import Finder
from etcdfix.copies.log import Log
from etcdfix.copies.revisions import Revisions
from etcdfix.copies.snapshots import Snapshots
from etcdfix.encryption.bootstrap import EMPTY_TOKEN, BootstrapState, forms_of
from etcdfix.errors import SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.model import Confidence, KeptRevision, Revision
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from tests.support.k3s_bootstrap import TOKEN, bootstrap, path
from tests.support.k3s_cluster import NEW, OLD
from tests.support.memory_source import MemorySource, stored
from tests.support.wal_writer import ModelEtcd

EXAMINER = Examiner.of(Reading(layout=StorageLayout()))
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


def values_in(source: Source, *finders: Finder) -> BootstrapValues:
    return bootstrap_values(source, [Revisions(source, EXAMINER), *finders], TOKENS)


def found(etcd: ModelEtcd, folder: Path) -> BootstrapValues:
    """Read what a database and the log beside it have."""
    directory = etcd.log.write(folder / "member" / "wal")
    (folder / "member" / "snap").mkdir()
    with (
        SnapshotSource(etcd.database(folder / "member" / "snap" / "db")) as source,
        Log(directory, source, EXAMINER) as log,
    ):
        return values_in(source, log)


def test_earlier_and_deleted_values_are_there_and_none_is_there_twice(tmp_path: Path) -> None:
    etcd = story()
    values = found(etcd, tmp_path)
    assert values.problems == []
    assert {kept.opened.state for kept in values.values} == {BootstrapState.RECOVERED}
    assert [len(one.held) for one in values.configurations] == [1, 2]
    assert [kept.current for kept in values.values] == [False, False, True]
    truth = [
        revision for (_, key), (revision, value) in etcd.truth.items() if b"/bootstrap/" in key and value
    ]
    assert [kept.mod_revision for kept in values.values] == sorted(truth)


def test_a_write_that_etcd_refused_is_read_all_the_same(tmp_path: Path) -> None:
    etcd = story()
    etcd.alarm(on=True)
    newer = NEW.replace(b'"secrets"', b'"secrets","configmaps"')
    etcd.put(path().encode(), bootstrap(newer))
    etcd.alarm(on=False)
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"again")
    etcd.log.commit()
    values = found(etcd, tmp_path)
    assert len(values.configurations) == 3
    (kept,) = values.configurations[-1].held
    assert kept.opened.file is not None
    assert (kept.opened.file.expose(), kept.mod_revision, kept.current) == (newer, 0, False)


def test_what_stands_there_now_says_in_which_stage_it_is(tmp_path: Path) -> None:
    etcd = ModelEtcd()
    etcd.put(path().encode(), bootstrap(OLD, stage="prepare"))
    etcd.put(path().encode(), bootstrap(OLD, stage="rotate"))
    for number in range(4):
        etcd.update(f"/registry/leases/n/{number}".encode(), b"after")
    etcd.log.commit()
    (one,) = found(etcd, tmp_path).configurations
    assert one.file.stage is not None
    assert one.file.stage.name == "rotate"
    assert [kept.current for kept in one.held] == [False, True]


def test_what_a_clone_was_rotated_to_is_only_possible_and_comes_last(tmp_path: Path) -> None:
    here = story()
    there = copy.deepcopy(here)
    elsewhere = NEW.replace(b'"secrets"', b'"secrets","configmaps"')
    there.put(path().encode(), bootstrap(elsewhere))
    here.update(b"/registry/leases/n/0", b"mine")
    for etcd in (here, there):
        etcd.log.commit()
    source = here.store()
    with Log(there.log.write(tmp_path / "member" / "wal"), source, EXAMINER) as log:
        configurations = values_in(source, log).configurations
    assert [one.file.expose() for one in configurations] == [NEW, OLD, elsewhere]
    assert [one.surest.sure for one in configurations][::2] == [Confidence.CERTAIN, Confidence.POSSIBLE]
    assert (bool(configurations[-1].surest.doubt), configurations[-1].surest.current) == (True, False)


def test_a_snapshot_of_before_the_rotation_has_the_old_one(tmp_path: Path) -> None:
    """What both hold is there once; a value of the same revision with other bytes is another one."""
    before, after = ModelEtcd(), ModelEtcd()
    for etcd, config in ((before, OLD), (after, OLD)):
        etcd.put(b"/registry/namespaces/kube-system", b"")
        etcd.put(path().encode(), bootstrap(config))
    after.put(path().encode(), bootstrap(NEW))
    source = after.store()
    with Snapshots(before.database(tmp_path / "before.db"), source, EXAMINER, uid=None) as snapshot:
        values = values_in(source, snapshot)
    assert [one.file.expose() for one in values.configurations][:1] == [NEW]
    assert {one.file.expose() for one in values.configurations} == {NEW, OLD}


class Kept(MemorySource):
    """Has four earlier values."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        for at in range(2, 6 if key == path().encode() else 2):
            yield KeptRevision(Revision(at, 0), stored(key, b"old", mod_revision=at))
        yield from super().history(key)


class NoHistory(MemorySource):
    """Gives no earlier value of a key."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        raise SourceError(f"the history of {key.decode()} is lost")


def test_what_stands_there_is_read_where_its_history_is_not_and_its_key_is_not_told() -> None:
    values = values_in(NoHistory({path(): bootstrap(OLD)}))
    assert [kept.opened.state for kept in values.values] == [BootstrapState.RECOVERED]
    assert values.problems == ["not every value of a bootstrap key could be read in earlier revisions"]


def test_the_search_for_keys_has_an_end_and_that_of_the_token_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_KEYS", 3)
    others = {f"/bootstrap/0{number}": b"other" for number in range(4)}
    values = values_in(MemorySource({**others, path("z"): b"", path(): bootstrap(OLD)}))
    assert values.problems == ["more than 3 keys lie under /bootstrap/: the rest was not looked at"]
    assert len(values.configurations) == 1


def test_the_search_for_values_has_an_end_and_the_newest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_VALUES", 2)
    values = values_in(Kept({path(): bootstrap(OLD)}))
    assert values.problems == ["more than 2 values are in earlier revisions: not all were looked at"]
    assert [kept.current for kept in values.values] == [False, False, True]
    assert values.configurations[0].surest.current
